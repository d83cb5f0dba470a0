"""Reading backwards: the same records as forwards, newest first, without reading from the start."""

from __future__ import annotations

import random

import pytest

import logstore
from logstore.errors import CorruptBatchError, OffsetOutOfRangeError
from logstore.log.segments.segment import Segment
from logstore.log.segments.segment_list import SegmentList
from logstore.ownership.live import MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import Buffer


def _store(fs: MemoryFileSystem, mode: str = "rw") -> logstore.LogStore:
    return logstore.LogStore("/s", mode, fs=fs, clock=ManualClock(), threads=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_backwards_is_forwards_reversed(seed: int) -> None:
    chance = random.Random(seed)
    fs = MemoryFileSystem()
    with _store(fs) as store:
        store.create_topic("t", 1, {"segment.bytes": "20000", "index.interval.bytes": "300"})
        log = store.partition("t", 0)
        for _ in range(120):
            rows = [(None, chance.randbytes(chance.randrange(200))) for _ in range(chance.randrange(1, 9))]
            log.append(rows)
        everything = list(log.records(0))
        assert list(log.records(0, reverse=True)) == everything[::-1]
        for _ in range(20):
            start = chance.randrange(len(everything) + 1)
            end = chance.randrange(start, len(everything) + 1)
            assert list(log.records(start, end, reverse=True)) == everything[start:end][::-1]
    with _store(fs, "r") as reader:
        assert list(reader.partition("t", 0).records(0, reverse=True)) == everything[::-1]


def test_the_newest_records_cost_no_read_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with _store(fs) as store:
        store.create_topic("t", 1, {"segment.bytes": str(1 << 20)})
        log = store.partition("t", 0)
        for _ in range(200):
            log.append([(None, b"x" * 1000)] * 50, acks=1)
    read: list[int] = []
    whole = Segment.bytes_at

    def counted(segment: Segment, position: int, length: int) -> Buffer:
        data = whole(segment, position, length)
        read.append(len(data))
        return data

    with _store(fs) as store:
        log = store.partition("t", 0)
        monkeypatch.setattr(Segment, "bytes_at", counted)
        assert next(log.records(0, reverse=True)).offset == 200 * 50 - 1
        assert 0 < sum(read) < 3 << 20  # of ten: the check of the start, and the last segment


def test_start_out_of_range_is_told_at_once() -> None:
    with _store(MemoryFileSystem()) as store:
        store.create_topic("t")
        with pytest.raises(OffsetOutOfRangeError):
            store.partition("t", 0).records(5, reverse=True)


def _rolled(store: logstore.LogStore) -> logstore.PartitionLog:
    """Nine segments of five records."""
    store.create_topic("t", 1, {"segment.bytes": "1024", "retention.bytes": "0"})
    log = store.partition("t", 0)
    for number in range(45):
        log.append([(None, b"%03d" % number + b"x" * 120)])
    return log


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("which", [0, 1, 4, -1])
def test_a_segment_that_is_missing_is_told_backwards_too(mode: str, which: int) -> None:
    """Its records were once left out without a word."""
    fs = MemoryFileSystem()
    with _store(fs) as store:
        _rolled(store)
        store.admin.alter_topic("t", {"retention.bytes": None})  # closing would retain
    names = sorted(name for name in fs.listdir("/s/t-0") if name.endswith(".log"))
    fs.remove(f"/s/t-0/{names[which]}")
    with _store(fs, mode) as store, pytest.raises(CorruptBatchError, match=r"where offset \d+ is due"):
        list(store.partition("t", 0).records(0, reverse=True))


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_what_retention_took_meanwhile_is_told(mode: str) -> None:
    fs, live, table, clock = MemoryFileSystem(), MemoryLive(), LockTable(), ManualClock()

    def opened(mode: str) -> logstore.LogStore:
        locks = MemoryLocks(table, clock=clock)
        return logstore.LogStore("/s", mode, fs=fs, clock=clock, threads=False, live=live, locks=locks)  # type: ignore[arg-type]

    with opened("rw") as store, opened(mode) as beside:
        owned = _rolled(store)
        log = beside.partition("t", 0) if mode == "r" else owned
        backwards = log.records(0, reverse=True)
        assert next(backwards).offset == 44
        store.step()
        assert owned.log_start_offset > 0
        with pytest.raises(OffsetOutOfRangeError, match="are gone, the log now starts at"):
            list(backwards)


def test_a_log_without_segments_has_nothing_before_any_offset() -> None:
    assert SegmentList().read_back(5) is None


@pytest.mark.parametrize("mode", ["rw", "r"])
@pytest.mark.parametrize("retired", [False, True])
def test_what_retention_takes_from_under_a_reader_is_told(mode: str, retired: bool) -> None:
    """Back to what is left, then the lost range: never a silent end, nor a deleted record."""
    fs, clock, live = MemoryFileSystem(), ManualClock(), MemoryLive()
    config = {"segment.bytes": "2000", "file.delete.delay.ms": "0"}
    with logstore.LogStore(
        "/s", fs=fs, clock=clock, live=live, threads=False, lock_idle_release_s=1e9
    ) as store:
        store.create_topic("t", 1, config)
        for number in range(60):
            store.partition("t", 0).append([(None, b"%d" % number + b"." * 150)])
        with logstore.LogStore("/s", "r", fs=fs, clock=clock, live=live, threads=False) as beside:
            log = (store if mode == "rw" else beside).partition("t", 0)
            records = log.records(5, reverse=True)
            seen = [next(records).offset]
            store.admin.delete_records("t", 31)
            if retired:
                before = len(fs.listdir("/s/t-0"))
                clock.advance(31_000)
                store.step()
                assert len(fs.listdir("/s/t-0")) < before - 4
            with pytest.raises(OffsetOutOfRangeError, match="offsets 5 to 30 are gone") as caught:
                seen.extend(record.offset for record in records)  # keeps what came before the error
            assert caught.value.log_start_offset == 31
            assert seen == list(range(59, 30, -1))
