"""Backup, restore and salvage on a disk that refuses one call: a named error, or a whole copy; never a bare OSError."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import logstore
from logstore.errors import LogStoreError
from logstore.log.recovery.salvage import salvage
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import restore

SOURCE, TARGET = "/store", "/copies/first"
VALUES = [b"value %d" % number for number in range(12)]
SETTINGS = {"segment.bytes": "1024", "index.interval.bytes": "200"}

Copy = Callable[[MemoryFileSystem, ManualClock], object]


def opened(fs: MemoryFileSystem, clock: ManualClock, root: str = SOURCE) -> logstore.LogStore:
    return logstore.open(root, fs=fs, clock=clock, threads=False)


def backed_up(fs: MemoryFileSystem, clock: ManualClock) -> object:
    with logstore.open(SOURCE, mode="r", fs=fs, clock=clock, threads=False) as store:
        return store.backup(TARGET, link=False)


def restored(fs: MemoryFileSystem, clock: ManualClock) -> object:
    return restore(SOURCE, TARGET, fs=fs, clock=clock)


def salvaged(fs: MemoryFileSystem, clock: ManualClock) -> object:
    return salvage(fs, SOURCE, TARGET, clock)


def filled() -> tuple[MemoryFileSystem, ManualClock]:
    fs, clock = MemoryFileSystem(), ManualClock()
    with opened(fs, clock) as store:
        store.create_topic("flights", config=SETTINGS)
        for value in VALUES:
            store.partition("flights", 0).append([(b"key", value)])
        store.commit_offsets("g", {logstore.TopicPartition("flights", 0): logstore.OffsetAndMetadata(7)})
    return fs, clock


def values(fs: MemoryFileSystem, clock: ManualClock) -> list[bytes | None]:
    with logstore.open(TARGET, mode="r", fs=fs, clock=clock, threads=False) as copied:
        return [record.value for record in copied.partition("flights", 0).records(0)]


@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.ENOSPC], ids=lambda kind: kind.value)
@pytest.mark.parametrize("copy", [backed_up, restored, salvaged], ids=lambda copy: copy.__name__)
def test_each_call_that_fails_is_told_by_name(copy: Copy, kind: FaultKind) -> None:
    source, clock = filled()
    calls = source.clone()
    copy(calls, clock)
    fired = refused = 0
    for call in range(1, calls.faults.calls + 1):
        fs = source.clone()
        fs.faults.at(call, kind)
        try:
            copy(fs, clock)
        except LogStoreError:
            refused += fs.faults.fired
        else:
            fs.faults.clear()
            if copy is not salvaged:  # which copies what it can, and reports the rest
                assert values(fs, clock) == VALUES, f"call {call} failed, and the copy lacks records"
        fired += fs.faults.fired
    assert fired >= 20
    assert refused > 0
