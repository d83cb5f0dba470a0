"""``append_together``: what is written in one go for several partitions is what each would have got by itself."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import LockLostError, PartitionPoisonedError, StorageError
from logstore.format.batch import encode_with_header
from logstore.native import native_status
from logstore.partition.context import StoreContext
from logstore.partition.together import append_together
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind, Operation
from logstore.seams.fs import SLICE_BYTES, read_file
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

PARTITIONS = 4
TOGETHER = "logstore.embedded.appends.append_together"


class Side:
    """A store of its own; ``together``: whether batches of several partitions are written in one go."""

    def __init__(self, together: bool) -> None:
        self.fs, self.together = MemoryFileSystem(), together
        self.store = LogStore("/s", fs=self.fs, clock=ManualClock(), threads=False)
        config = {"segment.bytes": "1500", "flush.messages": "6", "visible.after": "append"}
        for topic in ("t", "u"):
            self.store.create_topic(topic, partitions=PARTITIONS, config=config)
        self.produce([item("t", number) for number in range(PARTITIONS)])

    def produce(self, items: list[ProduceItem], acks: Any = 1) -> Any:
        if self.together:
            return told(self.store._backend.produce(items, acks, 1.0))
        with patch(TOGETHER, lambda *given: None):
            return told(self.store._backend.produce(items, acks, 1.0))

    def users(self) -> list[int]:
        return [self.store._backend._registry.get(topic)._users for topic in ("t", "u")]

    def log(self, partition: int) -> Any:
        return self.store._backend._registry.get("t")._logs[partition]

    def active_segment(self, partition: int) -> str:
        path: str = self.log(partition).segments.active.path()
        return path

    def content(self) -> list[Any]:
        seen = []
        for topic in ("t", "u"):
            for number in range(PARTITIONS):
                log = self.store.partition(topic, number)
                found = [(record.offset, record.value) for record in log.records(log.log_start_offset)]
                seen.append((log.log_end_offset, log.high_watermark, found))
        return seen

    def files(self) -> dict[str, bytes]:
        logs = self.store._backend._registry
        names = {}
        for topic in ("t", "u"):
            for log in logs.get(topic)._logs.values():
                for name in self.fs.listdir(log.directory):
                    if name.endswith((".log", ".index")):
                        content = read_file(self.fs, f"{log.directory}/{name}")
                        names[f"{topic}{log.where[-2:]}/{name}"] = content
        return names


def told(results: list[ProduceResult]) -> list[tuple[object, ...]]:
    return [(one.base_offset, one.append_time_ms, repr(one.error), one.doubtful) for one in results]


def item(topic: str, partition: int, size: int = 1, *, header: bool = True, **known: int) -> ProduceItem:
    data, made = encode_with_header([(None, bytes(size)), (None, b"")], 0, **known)  # type: ignore[arg-type]  # ids
    return ProduceItem(topic, partition, data, made if header else None)


SHAPES = st.lists(
    st.tuples(
        st.sampled_from(["t", "t", "t", "u", "gone"]),
        st.integers(0, PARTITIONS),  # one more than there are
        st.integers(0, 700),
        st.sampled_from(["plain", "plain", "plain", "numbered", "raw"]),
    ),
    min_size=1,
    max_size=14,
)
FAULTS = st.sampled_from([None, None, FaultKind.ENOSPC, FaultKind.EIO, FaultKind.SHORT_WRITE])


@given(st.lists(st.tuples(SHAPES, st.sampled_from(["all", 1, 0]), st.booleans(), FAULTS), max_size=4))
@settings(max_examples=60, deadline=None)
def test_together_is_as_one_after_the_other(calls: list[tuple[Any, Any, bool, FaultKind | None]]) -> None:
    one, other = Side(True), Side(False)
    numbers: dict[tuple[str, int], int] = {}
    for shapes, acks, ordered, fault in calls:
        items = []
        for topic, partition, size, kind in (
            sorted(shapes, key=lambda shape: shape[:2]) if ordered else shapes
        ):
            known = {}
            if kind == "numbered":
                at = numbers.get((topic, partition), 0)
                numbers[topic, partition] = at + 2
                known = {"producer_id": 7, "producer_epoch": 0, "base_sequence": at}
            items.append(item(topic, partition, size, header=kind != "raw", **known))
        for side in (one, other):
            side.fs.faults.clear()
            if fault is not None:
                side.fs.faults.on("pwritev", fault, path_ends=side.active_segment(1))
        assert one.produce(items, acks) == other.produce(items, acks)
        assert one.content() == other.content()
        assert one.users() == other.users() == [0, 0]
    assert one.files() == other.files()
    for side in (one, other):
        side.store.close()


def test_a_failure_of_one_partition_is_nothing_to_the_others() -> None:
    side = Side(True)
    items = [item("t", number, 9) for number in (0, 1, 1, 2) for _ in range(2)]
    side.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends=side.active_segment(1))
    results = side.produce(items)
    assert [one[0] for one in results] == [2, 4, -1, -1, -1, -1, 2, 4]
    assert len({one[2] for one in results[2:6]}) == 1
    assert "DiskFullError" in results[2][2]
    assert side.users() == [0, 0]
    assert [one[0] for one in side.produce(items)] == [6, 8, 2, 4, 6, 8, 6, 8]
    side.store.close()


def test_an_interrupt_leaves_every_log_free_and_whole() -> None:
    side = Side(True)
    items = [item("t", number, 9) for number in range(PARTITIONS)]
    path = side.active_segment(2)

    def interrupt(op: Operation) -> None:
        if op.name == "pwritev" and op.path == path:
            side.fs.faults.observer = None
            raise KeyboardInterrupt

    side.fs.faults.observer = interrupt
    with pytest.raises(KeyboardInterrupt):
        side.produce(items, "all")
    assert side.users() == [0, 0]
    ends = [one[0] for one in side.content()[:PARTITIONS]]
    assert ends in ([4, 4, 2, 2], [4, 4, 2, 4])
    results = side.produce(items, "all")
    assert [one[0] for one in results] == ends
    side.store.close()


def test_on_a_disk_a_refused_write_and_a_log_that_is_not_free(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s") as store:
        store.create_topic(
            "t", partitions=PARTITIONS, config={"visible.after": "append", "flush.ms": "3600000"}
        )
        produce = store._backend.produce
        items = [item("t", number, 9) for number in range(PARTITIONS)]
        assert [one.base_offset for one in produce(items, 1, 5.0)] == [0] * PARTITIONS
        big = [item("t", number, 70_000) for number in range(PARTITIONS) for _ in range(3)]
        assert [one.base_offset for one in produce(big, 1, 5.0)] == [2, 4, 6] * PARTITIONS
        logs = store._backend._registry.get("t")._logs
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, logs[1]._held.file._fd)
        os.close(full)
        results = produce(big, 1, 5.0)
        assert [one.base_offset for one in results] == [8, 10, 12, -1, -1, -1, 8, 10, 12, 8, 10, 12]
        assert isinstance(results[3].error, PartitionPoisonedError)
        assert [log.log_end_offset for _, log in sorted(logs.items())] == [14, 8, 14, 14]
        read = [record.offset for record in store.partition("t", 3).records(0)]
        assert read == list(range(14))
        assert store._backend._registry.get("t")._users == 0


@pytest.mark.parametrize("partitions", [1, 2])
def test_on_a_disk_a_write_of_several_slices_that_fails_midway(tmp_path: Path, partitions: int) -> None:
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t", partitions=2, config={"visible.after": "append", "flush.ms": "3600000"})
        produce = store._backend.produce
        first = [item("t", number, 9) for number in range(2)]
        assert [one.base_offset for one in produce(first, 1, 5.0)] == [0, 0]
        many = [item("t", number, 70_000) for number in range(partitions) for _ in range(80)]
        logs = store._backend._registry.get("t")._logs
        files = [logs[number]._held.file for number in range(2)]
        sizes = [file.size() for file in files]
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        for within in (70_000, SLICE_BYTES + 70_000, 2 * SLICE_BYTES + 70_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (within, limits[1]))
            try:
                results = produce(many, 1, 5.0)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            errors = [one.error for one in results]
            assert all(isinstance(error, StorageError) for error in errors if error is not None)
            assert errors[-1] is not None
            if partitions == 2:
                assert None not in errors
                assert [file.size() for file in files] == sizes
        assert [one.base_offset for one in produce(many, 1, 5.0)[-80:]] == list(
            range(logs[partitions - 1].log_end_offset - 160, logs[partitions - 1].log_end_offset, 2)
        )
        for number in range(partitions):
            read = [record.offset for record in store.partition("t", number).records(0)]
            assert read == list(range(logs[number].log_end_offset))
            assert logs[number]._held.file.size() == logs[number].segments.active.size


def test_a_log_that_is_not_free_is_left_to_the_usual_way() -> None:
    side = Side(True)
    backend = side.store._backend
    logs = backend._registry.get("t")._logs
    items = [item("t", number) for number in (0, 0, 1, 2)]
    failed: dict[Any, Any] = {}
    with logs[1]._lock:
        found = append_together(items, backend._held, 1, failed)
    if not native_status().compiled:
        assert found is None  # this twin does nothing
        return
    assert found is not None
    assert [None if one is None else one.base_offset for one in found[0]] == [2, 4, None, 2]
    assert [number for number, _ in found[1]] == [1]  # its log has so many records that one sync is due
    assert (failed, side.users()) == ({}, [1, 0])
    found[1][0][1].wait_with([found[1][0][1]])
    assert side.users() == [0, 0]
    assert append_together([*items, items[0]], backend._held, 1, failed) is None  # a partition comes twice
    assert append_together(items[:2], backend._held, 1, failed) is None
    found = append_together(items, backend._held, "all", failed)
    assert found is not None
    assert [(number, append.next_offset) for number, append in found[1]] == [(0, 8), (1, 10), (2, 4), (3, 6)]
    assert side.users() == [4, 0]
    for _, append in found[1]:
        append.wait_with([append])
    assert side.users() == [0, 0]
    side.store.close()


def test_locks_that_are_lost_are_met_before_any_write() -> None:
    side = Side(True)
    backend = side.store._backend
    items = [item("t", number) for number in range(PARTITIONS)]
    before = side.content()

    with patch.object(StoreContext, "check_writable", side_effect=LockLostError("lost")):
        found = append_together(items, backend._held, 1, {})
    assert found in (None, ([None] * PARTITIONS, []))  # the first by the twin that does nothing
    assert (side.content(), side.users()) == (before, [0, 0])
    side.store.close()
