"""The mark of what cleanings may have removed, and what former states are told by it, wherever a cleaning ends."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import (
    CompactedAwayError,
    DamagedStoreError,
    DiskFullError,
    LogStoreError,
    StorageError,
    UnsupportedStoreVersionError,
)
from logstore.log.cleaning.cleaner_mark import FILE_NAME, copy_mark, raise_mark, read_mark
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.log.recovery.salvage import salvage
from logstore.ownership.live import MemoryLive
from logstore.ownership.locks import MemoryLocks
from logstore.seams.clock import ManualClock, SystemClock
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.fs import OsFileSystem, replace_file
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.upkeep.cleaning_run import CleaningRun

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1024"}
ROWS = 12
SOME = (2, 6, ROWS)
STATES = [
    {b"k%d" % (at % 3): b"%03d" % at + b"." * 240 for at in range(max(end - 3, 0), end)}
    for end in range(ROWS + 1)
]


def folder() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir("/p")
    fs.sync_dir("/")
    return fs


def test_a_mark_only_rises() -> None:
    fs = folder()
    assert read_mark(fs, "/p") == 0
    for offset, mark in ((7, 7), (3, 7), (7, 7), (2**63 - 1, 2**63 - 1)):
        raise_mark(fs, "/p", offset)
        assert read_mark(fs, "/p") == mark
    assert fs.listdir("/p") == [FILE_NAME]
    assert read_mark(fs.crash(KeepNothing()), "/p") == 2**63 - 1, "durable when it returned"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"0\n1\n0 -1\n", DamagedStoreError),
        (b"0\n1\n1 5\n", DamagedStoreError),
        (b"0\n2\n0 1\n0 2\n", DamagedStoreError),
        (b"0\n0\n", DamagedStoreError),
        (b"", DamagedStoreError),
        (b"7\n1\n0 5\n", UnsupportedStoreVersionError),
    ],
)
def test_a_mark_that_is_none_is_refused_and_a_copy_takes_all_for_removed(
    text: bytes, error: type[LogStoreError]
) -> None:
    fs = folder()
    replace_file(fs, f"/p/{FILE_NAME}", text)
    for call in (lambda: read_mark(fs, "/p"), lambda: raise_mark(fs, "/p", 1)):
        with pytest.raises(error, match=FILE_NAME):
            call()
    fs.mkdir("/q")
    copy_mark(fs, "/p", "/q", cleaned_to=0, end=9)
    assert read_mark(fs, "/q") == 9


def test_a_disk_that_refuses_leaves_it_as_it_was() -> None:
    fs = folder()
    raise_mark(fs, "/p", 4)
    fs.faults.on("create", FaultKind.ENOSPC)
    with pytest.raises(DiskFullError):
        raise_mark(fs, "/p", 5)
    assert read_mark(fs, "/p") == 4
    fs.faults.on("open", FaultKind.EIO, path_ends=FILE_NAME)
    with pytest.raises(StorageError):
        read_mark(fs, "/p")


# --- in a store ---


def open_store(fs: MemoryFileSystem) -> LogStore:
    clock = ManualClock()
    return LogStore(
        "/s", fs=fs, clock=clock, live=MemoryLive(), locks=MemoryLocks(clock=clock), threads=False
    )


def filled() -> tuple[MemoryFileSystem, LogStore]:
    fs = MemoryFileSystem()
    store = open_store(fs)
    store.create_topic("t", 1, COMPACT)
    log = store.partition("t", 0)
    for at in range(ROWS):
        log.append([(b"k%d" % (at % 3), b"%03d" % at + b"." * 240)], acks="all")
    return fs, store


def exact(store: LogStore, ends: Collection[int] = range(ROWS + 1)) -> list[int]:
    """Those of ``ends`` whose states are told; each of them is what it was, the others are refused by name."""
    found = []
    with store.topic("t").table() as table:
        for end in ends:
            with contextlib.suppress(CompactedAwayError):
                assert dict(table.as_of(end).items()) == STATES[end], end
                found.append(end)
    return found


def test_a_cleaning_that_is_ended_between_two_swaps_is_not_taken_for_none() -> None:
    _, store = filled()
    kit, run_slice = store._cleaning.kit, CleaningRun.slice

    def slices(run: CleaningRun, _budget_s: float) -> object:
        if run._cleaning is not None and run._cleaning._tally.segments_after:
            run.end_early()  # the first group is in place
        return run_slice(run, 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CleaningRun, "slice", slices)
        with pytest.raises(LogStoreError, match="ended early"):
            store.admin.compact("t", roll=True)
    assert kit.ledger.totals.cancelled == 1
    before = [record.offset for record in store.partition("t", 0).records(0)]
    assert 3 < len(before) < ROWS, "some segments are cleaned, others are not"
    compaction = store.describe_topic("t").partitions[0].compaction
    assert compaction is not None
    assert (compaction.cleaner_point, compaction.exact_from) == (0, ROWS)
    assert exact(store) == [0, ROWS]
    store.admin.compact("t")
    assert exact(store) == [0, ROWS]
    store.close()


def ended_by(kind: FaultKind) -> Iterator[MemoryFileSystem]:
    """The disk after a cleaning that met the fault at each of its calls that change something, in turn."""
    fs, store = filled()
    fs.faults.tracing = True
    store.admin.compact("t", roll=True)
    changing = [one.number for one in fs.faults.trace if one.name not in ("open", "pread", "stat", "listdir")]
    assert len(changing) > 30
    for call in changing:
        fs, store = filled()
        fs.faults.at(call, kind)
        with contextlib.suppress(SimulatedCrash, LogStoreError):  # what it leaves is the subject
            store.admin.compact("t", roll=True)
        yield fs


@pytest.mark.parametrize("chooser", [KeepAll(), KeepNothing()])
def test_a_crash_before_any_call_of_a_cleaning_never_makes_a_wrong_state(chooser: KeepAll) -> None:
    told: set[int] = set()
    for fs in ended_by(FaultKind.CRASH):
        with open_store(fs.crash(chooser)) as store:
            told.add(len(exact(store, SOME)))
    assert told == {1, 3}, "all states are there, or those that no cleaning can have touched"


def test_a_disk_that_refuses_any_call_of_a_cleaning_never_makes_a_wrong_state() -> None:
    told: set[int] = set()
    for fs in ended_by(FaultKind.EIO):
        with open_store(fs.crash(KeepAll())) as store:
            told.add(len(exact(store, SOME)))
    assert told == {1, 3}


def test_copies_of_a_cleaned_topic_know_what_they_lack(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with logstore.open(root) as store:
        store.create_topic("t", 1, COMPACT)
        log = store.partition("t", 0)
        for at in range(ROWS):
            log.append([(b"k%d" % (at % 3), b"%03d" % at + b"." * 240)], acks="all")
        store.admin.compact("t", roll=True)
        store.backup(tmp_path / "copy")
    salvage(OsFileSystem(), str(root), str(tmp_path / "saved"), SystemClock())
    for copy in ("copy", "saved"):
        with logstore.open(tmp_path / copy) as store:
            assert exact(store) == [0, ROWS]
        found = verify_store(OsFileSystem(), str(tmp_path / copy), SystemClock().boot_id(), Totals())
        assert [fault for fault in found if not fault.warning] == []
