"""The partition of an internal topic under its lock: appends that are decided together, by one sync."""

from __future__ import annotations

import pytest

from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.log.producers.producer_state import Marker
from logstore.partition.held_partition import HeldPartition
from logstore.partition.partition import PartitionWriter, result_of, wait_all
from logstore.seams.faults import FaultKind
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import batch, checked
from tests.shared_world import Ledger, SharedWorld


def held_partition() -> tuple[SharedWorld[Ledger], object]:
    world = SharedWorld(Ledger)
    _, shared = world.process()
    return world, shared._log


def syncs_of(fs: MemoryFileSystem) -> list[str]:
    seen: list[str] = []
    fs.faults.observer = lambda op: seen.append(op.path) if op.name == "sync" else None
    return seen


def test_appends_share_a_sync_and_are_told() -> None:
    world, log = held_partition()
    with log.held(0) as held:  # type: ignore[attr-defined]
        writer: PartitionWriter = held
        first = writer.append(checked(batch(b"a")))
        syncs = syncs_of(world.fs)
        second = writer.append(checked(batch(b"b", b"c")))
        told: list[LogStoreError | None] = []
        assert (first.done, second.done, second.base_offset, second.next_offset) == (False, False, 1, 3)
        wait_all([first, second])
        assert (first.done, second.done, len(syncs)) == (True, True, 1)
        third = writer.append_marker(Marker(7, 1, 0, True, 0))
        third.then(told.append)
        assert told == [None]
        assert result_of(third).next_offset == 4
        assert writer.producer_entries((7, 8))[7].epoch == 1
    assert log.observed.bounds().high_watermark == 4  # type: ignore[attr-defined]


def test_a_failed_sync_is_the_error_of_all_that_wait_for_it() -> None:
    world, log = held_partition()
    with log.held(0) as held:  # type: ignore[attr-defined]
        assert isinstance(held, HeldPartition)
        done = result_of(held.append(checked(batch(b"a"))))
        world.fs.faults.on("sync", FaultKind.FAILED_SYNC)
        lost = [held.append(checked(batch(value))) for value in (b"b", b"c")]
        wait_all(lost)
        assert done.error is None
        assert [type(one.error) for one in lost] == [OutcomeUnknownError] * 2
        with pytest.raises(LogStoreError):
            held.append(checked(batch(b"d")))
    with log.held(0) as held:  # type: ignore[attr-defined]
        assert result_of(held.append(checked(batch(b"e")))).error is None
