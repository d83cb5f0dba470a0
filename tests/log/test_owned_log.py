"""The writer's log: offsets, rolls, syncs, failures and their undoing, epochs, truncation."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from logstore.errors import (
    DiskFullError,
    InvalidRecordError,
    InvariantError,
    LogStoreError,
    OutcomeUnknownError,
    PartitionPoisonedError,
    StorageError,
)
from logstore.format.batch import iter_headers, pack_batch, read_header
from logstore.log.segments.segment_list import SegmentList
from logstore.seams.faults import FaultKind
from tests.log.logs import FOLDER, NOW_MS, Desk, append, batch, checked, records, values

ONE = len(batch(b"." * 10))


def ten(number: int) -> bytes:
    return b"%010d" % number


# --- append and read --------------------------------------------------------------------------------


def test_offsets_epoch_and_what_is_visible_when() -> None:
    desk = Desk()
    log = desk.open()
    assert log.bounds() == (0, 0, 0, 0, -1)
    assert append(log, b"a", b"b") == (0, 2)
    assert append(log, b"c") == (2, 3)
    assert log.bounds() == (0, 0, 0, 3, 0)
    assert log.dirty
    assert log.unsynced_records == 3
    log.sync()
    assert log.bounds() == (0, 3, 3, 3, 0)
    assert (log.dirty, log.unsynced_records, log.syncs) == (False, 0, 1)
    log.sync()
    assert log.syncs == 1  # nothing to do
    assert [record.offset for record in records(log)] == [0, 1, 2]
    assert values(log, start=1) == [b"b", b"c"]
    assert desk.content(0)[12:16] == bytes(4)  # the epoch
    assert desk.fs.listdir(FOLDER).count("leader-epoch-checkpoint") == 1


def test_one_write_for_all_batches_of_an_append() -> None:
    desk = Desk()
    log = desk.open()
    append(log, b"first")
    writes: list[str] = []
    desk.fs.faults.observer = lambda op: writes.append(op.path) if op.name == "pwritev" else None
    log.append(checked(*(batch(ten(number)) for number in range(20))))
    assert len(writes) == 1
    assert log.log_end_offset == 21


@pytest.mark.parametrize("size", [0, 1, 15, 60])
def test_what_is_no_batch_is_not_stamped(size: int) -> None:
    log = Desk().open()
    (whole,) = checked(batch(ten(1)))
    with pytest.raises(InvariantError, match="a checked batch has its header"):
        log.append([whole._replace(data=bytes(whole.data)[:size])])
    assert log.log_end_offset == 0
    assert append(log, b"a") == (0, 1)


def test_visible_at_once_where_the_topic_says_so() -> None:
    log = Desk(visible_after="append").open()
    append(log, b"a")
    assert log.bounds() == (0, 1, 1, 1, 0)
    assert log.flushed_offset == 0


@pytest.mark.parametrize("tail", [0, 150, 1 << 20])
@pytest.mark.parametrize("max_bytes", [1, 150, 1 << 20])
def test_reads_from_tail_and_files_agree(tail: int, max_bytes: int) -> None:
    log = Desk(segment_bytes=ONE * 4, tail_cache_bytes=tail, index_interval_bytes=0).open()
    for number in range(23):
        append(log, ten(number))
    log.sync()
    expected = [ten(number) for number in range(23)]
    for start in range(24):
        assert values(log, start, max_bytes=max_bytes) == expected[start:]
        assert values(log, start, end=max(start, 20), max_bytes=max_bytes) == expected[start:20]


def test_no_more_places_are_remembered_than_there_is_room_for() -> None:
    log = Desk(tail_cache_bytes=0).open()
    for number in range(200):
        append(log, ten(number))
    for start in range(200):
        log.read(start, 1, 200)
    assert len(log._reads._cursors) <= 64


# --- rolls ------------------------------------------------------------------------------------------


def bases(desk: Desk) -> list[int]:
    return [int(name[:20]) for name in desk.names()]


def test_rolls_by_bytes() -> None:
    desk = Desk(segment_bytes=3 * ONE)
    log = desk.open()
    for number in range(7):
        append(log, ten(number))
    assert bases(desk) == [0, 3, 6]
    assert [len(desk.content(base)) for base in (0, 3, 6)] == [3 * ONE, 3 * ONE, ONE]
    assert desk.events == ["dirty", "roll at 3", "dirty", "roll at 6", "dirty"]
    assert log.flushed_offset == log.recovery_point == 6
    assert [segment.closed for segment in log.segments.segments] == [True, True, False]


def test_a_batch_larger_than_a_segment_gets_its_own() -> None:
    desk = Desk(segment_bytes=1_024)
    log = desk.open()
    append(log, b"x" * 3_000)
    append(log, b"y")
    append(log, b"z" * 3_000)
    assert bases(desk) == [0, 1, 2]


def test_rolls_by_record_time_less_the_jitter() -> None:
    desk = Desk(segment_ms=1_000)
    log = desk.open(jitter_ms=100)
    append(log, b"a", at_ms=NOW_MS)
    append(log, b"b", at_ms=NOW_MS + 900)
    assert bases(desk) == [0]
    append(log, b"c", at_ms=NOW_MS + 901)
    assert bases(desk) == [0, 2]
    append(log, b"d", at_ms=NOW_MS)  # an older one does not roll
    append(log, b"e", at_ms=NOW_MS + 1_801)
    assert bases(desk) == [0, 2]


def test_rolls_when_an_index_is_full() -> None:
    desk = Desk(index_interval_bytes=0, segment_index_bytes=36)  # three rows of the time index
    log = desk.open()
    for number in range(9):
        append(log, ten(number), at_ms=NOW_MS + number)
    assert bases(desk) == [0, 4, 8]
    assert len(desk.content(0, ".timeindex")) == 36
    assert len(desk.content(0, ".index")) == 24


def test_rolls_when_a_relative_offset_would_pass_32_bits() -> None:
    desk = Desk()
    log = desk.open()
    log.append_as_follower(checked(batch(b"a", base_offset=0, epoch=0)))
    header = read_header(batch(b"b"))
    gap = header._replace(base_offset=1, last_offset_delta=2**31 - 3, leader_epoch=0)
    log.append_as_follower(checked(pack_batch(gap, batch(b"b")[61:])))
    assert bases(desk) == [0]
    assert log.log_end_offset == 2**31 - 1
    append(log, b"c")
    append(log, b"d")
    append(log, b"e")
    assert bases(desk) == [0, 2**31]
    log.sync()
    assert values(log, start=2**31 - 1) == [b"c", b"d", b"e"]


def test_one_append_lands_in_one_segment_if_it_fits_any() -> None:
    desk = Desk(segment_bytes=4 * ONE)
    log = desk.open()
    append(log, ten(0))
    append(log, ten(1))
    log.append(checked(*(batch(ten(number)) for number in (2, 3, 4))))
    assert bases(desk) == [0, 2]
    log.append(checked(*(batch(ten(number)) for number in range(5, 14))))  # fits none
    assert bases(desk) == [0, 2, 5, 9, 13]
    log.sync()
    assert values(log) == [ten(number) for number in range(14)]


def test_a_failed_roll_is_tried_again() -> None:
    desk = Desk(segment_bytes=2 * ONE)
    log = desk.open()
    append(log, ten(0))
    append(log, ten(1))
    desk.fail_before_roll = DiskFullError("no room for the state")
    with pytest.raises(DiskFullError):
        append(log, ten(2))
    desk.fail_before_roll = None
    append(log, ten(2))
    log.sync()
    assert bases(desk) == [0, 2]
    assert values(log) == [ten(0), ten(1), ten(2)]


@pytest.mark.parametrize("call", ["create", "sync_dir"])
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_once_closed_a_segment_takes_nothing_more(call: str, skip: int) -> None:
    """The next segment could not be made, or its name not be synced: a smaller batch must not go back."""
    if call == "sync_dir" and skip:
        return
    desk = Desk(segment_bytes=3 * ONE, tail_cache_bytes=0)
    log = desk.open()
    append(log, ten(0))
    append(log, ten(1))
    desk.fs.faults.on(call, FaultKind.EIO, skip=skip)
    with pytest.raises(StorageError):
        append(log, b"." * 200)
    append(log, b"s")
    log.sync()
    assert bases(desk) == [0, 2]
    assert values(log) == [ten(0), ten(1), b"s"]
    again = Desk(desk.fs.process_crash()).open(recovery_point=log.recovery_point)
    assert values(again) == [ten(0), ten(1), b"s"]


# --- the disk fails ---------------------------------------------------------------------------------


def test_a_full_disk_refuses_the_append_and_nothing_of_it_stays() -> None:
    desk = Desk()
    log = desk.open()
    append(log, b"a")
    log.sync()
    before = desk.content(0)
    desk.fs.capacity_bytes = desk.fs._used + 50
    for _ in range(2):
        with pytest.raises(DiskFullError, match=f"cannot append to {FOLDER}/0{{20}}.log: No space left"):
            append(log, b"b" * 500)
        assert desk.content(0) == before
        assert values(log) == [b"a"]
    desk.fs.capacity_bytes = None
    append(log, b"c")
    log.sync()
    assert values(log) == [b"a", b"c"]
    assert (desk.events, log.poisoned) == (["dirty", "dirty"], False)


def test_what_is_half_written_and_cannot_be_cut_poisons() -> None:
    desk = Desk()
    log = desk.open()
    append(log, b"a")
    log.sync()
    desk.fs.faults.on("pwritev", FaultKind.SHORT_WRITE)
    desk.fs.faults.on("truncate", FaultKind.EIO)
    with pytest.raises(PartitionPoisonedError, match="could not be cut"):
        append(log, b"b" * 100)
    with pytest.raises(PartitionPoisonedError, match="t-0 accepts nothing more"):
        append(log, b"c")
    assert values(log) == [b"a"]
    assert desk.events[-1] == "poison"
    again = Desk(desk.fs.process_crash()).open(recovery_point=0)
    assert values(again) == [b"a"]


def test_a_failed_sync_poisons_until_reopened() -> None:
    desk = Desk()
    log = desk.open()
    append(log, b"a")
    log.sync()
    append(log, b"b")
    desk.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    with pytest.raises(OutcomeUnknownError, match=f"cannot sync {FOLDER}"):
        log.sync()
    assert log.poisoned
    with pytest.raises(PartitionPoisonedError):
        append(log, b"c")
    with pytest.raises(OutcomeUnknownError, match="records from offset 1 on may not be durable"):
        log.sync()  # never retried, never acknowledged
    assert log.high_watermark == 1
    assert values(log, end=1) == [b"a"]
    assert desk.events[-1] == "poison"


def test_a_failed_sync_at_a_roll_poisons_too() -> None:
    desk = Desk(segment_bytes=2 * ONE)
    log = desk.open()
    append(log, ten(0))
    append(log, ten(1))
    desk.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    with pytest.raises(OutcomeUnknownError):
        append(log, ten(2))
    assert log.poisoned
    assert log.high_watermark == 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_rows_whose_sync_failed_are_not_trusted_either(suffix: str) -> None:
    desk = Desk(segment_bytes=2 * ONE, index_interval_bytes=0)
    log = desk.open()
    append(log, ten(0))
    append(log, ten(1))
    desk.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=suffix)
    with pytest.raises(PartitionPoisonedError, match="cannot sync the indexes"):
        append(log, ten(2))
    assert log.high_watermark == 2  # the batches themselves are durable
    assert log.recovery_point == 0


def test_index_rows_that_find_no_room_wait_for_the_next_try() -> None:
    desk = Desk(index_interval_bytes=0)
    log = desk.open()
    log.store_rows = 3
    for number in range(4):
        append(log, ten(number), at_ms=NOW_MS + number)
    assert len(desk.content(0, ".index")) == 3 * 8
    desk.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends=".index", forever=True)
    for number in range(4, 9):
        append(log, ten(number), at_ms=NOW_MS + number)
    assert len(desk.content(0, ".index")) == 3 * 8
    assert log.log_end_offset == 9
    with pytest.raises(DiskFullError, match="write the indexes"):
        log.checkpoint()
    desk.fs.faults.clear()
    assert log.checkpoint() == 9
    assert len(desk.content(0, ".index")) == 8 * 8
    assert len(desk.content(0, ".timeindex")) == 8 * 12


def test_an_append_over_several_segments_that_ends_half_way_says_so() -> None:
    desk = Desk(segment_bytes=2 * ONE)
    log = desk.open()
    desk.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends=f"{2:020d}.log")
    with pytest.raises(StorageError, match="2 of 5 batches are in, with offsets 0 to 1, then: ") as caught:
        log.append(checked(*(batch(ten(number)) for number in range(5))))
    assert not caught.value.retriable
    append(log, b"next")
    log.sync()
    assert values(log) == [ten(0), ten(1), b"next"]


def test_an_epoch_that_cannot_be_written_is_not_given() -> None:
    desk = Desk()
    log = desk.open()
    desk.fs.faults.on("rename", FaultKind.EIO, path_ends="leader-epoch-checkpoint.tmp")
    with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
        append(log, b"a")
    assert log.leader_epoch == -1
    append(log, b"a")
    assert log.leader_epoch == 0


def test_an_unsynced_file_keeps_its_descriptor() -> None:
    """A file opened anew after a failed writeback might not be told of the failure by its fsync."""
    desk = Desk()
    log = desk.open()
    append(log, b"a")
    held = log._held.file
    assert held is not None
    desk.pool._capacity = 1
    for name in ("leader-epoch-checkpoint", f"{0:020d}.index"):
        with desk.pool.pinned(f"{FOLDER}/{name}"):
            pass
    append(log, b"b")
    assert log._held.file is held
    log.sync()
    assert log._held.file is None


# --- as follower ------------------------------------------------------------------------------------


def test_a_follower_keeps_offsets_and_epochs() -> None:
    desk = Desk()
    log = desk.open()
    sent = [
        batch(b"a", b"b", base_offset=0, epoch=2),
        batch(b"c", base_offset=2, epoch=2),
        batch(b"d", base_offset=3, epoch=7),
    ]
    assert log.append_as_follower(checked(*sent)) == (0, 4)
    assert desk.content(0) == b"".join(sent)
    assert log.epochs.entries == ((2, 0), (7, 3))
    for bad in (batch(b"x", base_offset=5, epoch=7), batch(b"x", base_offset=4, epoch=6)):
        with pytest.raises(InvalidRecordError):
            log.append_as_follower(checked(bad))
    assert log.log_end_offset == 4
    append(log, b"e")  # made leader, it goes on under the newest epoch it knows
    assert [header.leader_epoch for _, header in iter_headers(desk.content(0))] == [2, 2, 7, 7]


# --- truncation -------------------------------------------------------------------------------------


def unsynced(desk: Desk, count: int) -> Any:
    """A log with ``count`` batches of one record that no reader may see yet, rolls apart."""
    log = desk.open()
    for number in range(count):
        log.append_as_follower(checked(batch(ten(number), base_offset=number, epoch=number // 3)))
    return log


@pytest.mark.parametrize("offset", range(4, 12))
def test_truncate_and_go_on(offset: int) -> None:
    desk = Desk(segment_bytes=4 * ONE, index_interval_bytes=0, tail_cache_bytes=500)
    log = unsynced(desk, 11)
    log.high_watermark = 4  # as replication would have it: rolls synced more than is committed
    log.truncate_to(offset)
    kept = min(offset, 11)
    assert log.log_end_offset == kept
    assert log.flushed_offset <= kept
    assert log.epochs.entries == tuple((epoch, 3 * epoch) for epoch in range(4) if 3 * epoch < kept)
    assert log.unsynced_records == kept - log.flushed_offset
    assert values(log) == [ten(number) for number in range(kept)]
    append(log, b"n" * 10)
    log.sync()
    expected = [*(ten(number) for number in range(kept)), b"n" * 10]
    assert values(log) == expected
    again = Desk(desk.fs.process_crash()).open(recovery_point=log.flushed_offset, clean=True)
    assert values(again) == expected


def test_into_the_middle_of_a_batch_cuts_the_batch() -> None:
    log = Desk().open()
    append(log, b"a", b"b")
    append(log, b"c", b"d", b"e")
    log.truncate_to(3)
    assert log.log_end_offset == 2
    assert values(log) == [b"a", b"b"]


def test_never_below_the_high_watermark() -> None:
    log = Desk().open()
    append(log, b"a", b"b")
    log.sync()
    with pytest.raises(InvariantError, match="high watermark"):
        log.truncate_to(1)
    log.truncate_to(2)
    assert log.log_end_offset == 2


def test_a_mapping_taken_before_reads_what_it_always_did() -> None:
    desk = Desk(segment_bytes=4 * ONE, tail_cache_bytes=0)
    log = unsynced(desk, 9)
    chunk = log.read(0, 1 << 20, 4)
    assert chunk is not None
    before = bytes(chunk.data)
    log.high_watermark = 1
    log.truncate_to(2)
    append(log, b"new one...")
    log.sync()
    assert bytes(chunk.data) == before


# --- waiters, closing, threads ----------------------------------------------------------------------


def test_waiters_hear_of_syncs_and_failures() -> None:
    desk = Desk()
    log = desk.open()
    event = threading.Event()
    log.subscribe(event)
    append(log, b"a")
    assert not event.is_set()
    log.sync()
    assert event.is_set()
    event.clear()
    append(log, b"b")
    desk.fs.faults.on("sync", FaultKind.FAILED_SYNC)
    with pytest.raises(OutcomeUnknownError):
        log.sync()
    assert event.is_set()
    event.clear()
    log.unsubscribe(event)
    log.wake_waiters()
    assert not event.is_set()


def test_a_closed_log_takes_nothing_and_holds_nothing() -> None:
    desk = Desk()
    log = desk.open()
    append(log, b"a")
    log.close()
    with pytest.raises(PartitionPoisonedError, match="t-0 was closed"):
        append(log, b"b")
    with pytest.raises(OutcomeUnknownError, match="offset 0 on may not be durable: t-0 was closed"):
        log.sync()
    assert len(desk.pool) == 0


def test_appends_syncs_rolls_and_reads_beside_each_other() -> None:
    """Two appenders, two syncers, three readers, through many rolls and a small tail cache."""
    desk = Desk(segment_bytes=20 * ONE, tail_cache_bytes=5 * ONE, index_interval_bytes=200)
    log = desk.open()
    done, failures = threading.Event(), list[BaseException]()
    placed: list[tuple[int, bytes]] = []

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            failures.append(error)
            done.set()

    def write(letter: bytes) -> None:
        for number in range(400):
            value = letter + b"%09d" % number
            placed.append((append(log, value).base_offset, value))

    def sync() -> None:
        while not done.is_set():
            log.sync()
            log.checkpoint()

    def read(max_bytes: int) -> None:
        offset, seen = 0, 0
        while not done.is_set() or offset < log.high_watermark:
            high = log.high_watermark
            assert high >= seen
            assert high <= log.flushed_offset
            seen = high
            for record in records(log, offset, high, max_bytes):
                assert record.offset == offset
                offset += 1
        assert offset == 800

    readers = [
        threading.Thread(target=guarded, args=(lambda size=size: read(size),)) for size in (1, 500, 9_000)
    ]
    syncers = [threading.Thread(target=guarded, args=(sync,)) for _ in range(2)]
    writers = [
        threading.Thread(target=guarded, args=(lambda text=text: write(text),)) for text in (b"a", b"b")
    ]
    for thread in (*readers, *syncers, *writers):
        thread.start()
    for thread in writers:
        thread.join(60)
    log.sync()
    done.set()
    for thread in (*readers, *syncers):
        thread.join(60)
    assert failures == []
    placed.sort()
    assert [offset for offset, _ in placed] == list(range(800))
    assert values(log) == [value for _, value in placed]


def test_all_errors_are_named() -> None:
    """Each I/O call of a small workload fails once, in every way: only errors of the tree come out."""

    def work(desk: Desk) -> None:
        log = desk.open()
        log.store_rows = 2
        for number in range(8):
            append(log, ten(number), at_ms=NOW_MS + number)
            if number % 3 == 0:
                log.sync()
        log.checkpoint()

    settings: dict[str, Any] = {"segment_bytes": 3 * ONE, "index_interval_bytes": 0}
    whole = Desk(**settings)
    work(whole)
    opening = Desk(**settings)
    opening.open()
    first = opening.fs.faults.calls + 1
    fired = dict.fromkeys((FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE, FaultKind.FAILED_SYNC), 0)
    for kind in fired:
        for call in range(first, whole.fs.faults.calls + 1):
            desk = Desk(**settings)
            desk.fs.faults.at(call, kind)
            with contextlib.suppress(LogStoreError):
                work(desk)
            fired[kind] += desk.fs.faults.fired
    assert all(fired.values()), fired


def test_the_front_that_a_cleaning_merged_meanwhile_is_not_dropped() -> None:
    """Counted before, three segments were once dropped of a list that had become shorter: records in use too."""
    desk = Desk()
    log = desk.open()
    for value in (b"a", b"b", b"c", b"d"):
        append(log, value)
        log.roll_idle()
    log.sync()
    log.raise_start(2)
    first, second, third, *rest = log.segments.segments
    log.segments = SegmentList([first, third, *rest])  # second went into first
    first.next_offset = second.next_offset
    assert [segment.base_offset for segment in log.drop_front(3)] == [0]
    assert [segment.base_offset for segment in log.segments.segments] == [2, 3, 4]
    log.raise_start(4)
    assert len(log.drop_front(99)) == 2
    assert [segment.base_offset for segment in log.segments.segments] == [4], "the last one stays"
