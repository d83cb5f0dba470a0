"""One cleaning of one log: what stays, what goes, and when."""

from __future__ import annotations

import threading
import time

import pytest

from logstore.errors import CorruptBatchError, InvariantError, LogStoreError, PartitionPoisonedError
from logstore.format.batch import decode_batches, iter_headers
from logstore.log.cleaning.cleaning import CleanProgress
from logstore.log.cleaning.key_offsets import ENTRY_BYTES
from logstore.log.cleaning.retirement import Retirement
from logstore.log.replica_log import ReplicaLog
from logstore.seams.fs import read_file, write_all
from logstore.types import Record
from tests.log.cleanings import (
    RETENTION_MS,
    aborted_rows,
    batches,
    clean,
    cleaning,
    end_transaction,
    pairs,
    put,
)
from tests.log.logs import FOLDER, NOW_MS, Desk, records


def started(**settings: object) -> tuple[Desk, ReplicaLog]:
    desk = Desk(**({"index_interval_bytes": 100, "tail_cache_bytes": 0} | settings))
    return desk, desk.open()


def kept(log: ReplicaLog, start: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    return pairs(records(log, start))


def backwards(log: ReplicaLog, start: int) -> list[Record]:
    found: list[Record] = []
    end = log.log_end_offset
    while end > start and (part := log.read_back(end)) is not None:
        found += reversed(decode_batches(part.data, "t", 0, start_offset=start, end_offset=end))
        end = part.first_offset
    return found


def test_the_last_value_of_every_key_stays_at_its_offset() -> None:
    desk, log = started()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    put(log, (b"a", b"2"))
    log.roll_idle()
    put(log, (b"b", b"2"), (b"d", b"1"))
    log.roll_idle()
    put(log, (b"c", b"active segments are not cleaned"))
    result = clean(desk, log)
    assert kept(log)[:-1] == [(2, b"c", b"1"), (3, b"a", b"2"), (4, b"b", b"2"), (5, b"d", b"1")]
    assert batches(log) == [(0, 2, 1), (3, 3, 1), (4, 5, 2), (6, 6, 1)]
    assert [segment.base_offset for segment in log.segments.segments] == [0, 6]
    assert (result.cleaned_to, result.records_before, result.records_after) == (6, 6, 4)
    assert (result.segments_before, result.segments_after, result.next_horizon_ms) == (2, 1, -1)
    assert (result.bytes_before, result.bytes_after) == (
        result.bytes_before,
        log.segments.segments[0].size,
    )
    assert desk.names() == [f"{0:020d}.log", f"{6:020d}.log"]
    assert desk.names(".cleaned") == desk.names(".swap") == desk.names(".deleted") == []


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_every_offset_reads_as_the_next_survivor(codec: str) -> None:
    desk, log = started()
    for number in range(40):
        put(log, *((b"%d" % (key % 3), b"%d" % number * 5) for key in range(number % 4 + 1)), codec=codec)
        if number % 9 == 8:
            log.roll_idle()
    before = kept(log)
    last = {key: offset for offset, key, _ in before if offset < log.end_position[0]}
    clean(desk, log)
    due = [row for row in before if row[0] >= last.get(row[1], 0)]
    assert kept(log) == due
    assert [batch[0] for batch in batches(log)][1:] == [batch[1] + 1 for batch in batches(log)][:-1]
    for offset in range(log.log_end_offset):
        assert kept(log, offset) == [row for row in due if row[0] >= offset]
        assert pairs(records(log, offset, max_bytes=1)) == kept(log, offset)
        assert pairs(backwards(log, offset)) == kept(log, offset)[::-1]
    assert desk.open(recovery_point=log.recovery_point).log_end_offset == log.log_end_offset


@pytest.mark.parametrize("bound", [1 << 20, 122 * 128, 122 * 200, 1])
def test_batches_of_many_keys_enter_the_map_in_pieces(bound: int) -> None:
    """Also tombstones at the seams, and a map that is full in the middle of a batch."""
    desk, log = started()
    nulls = {0, 127, 128, 129, 255, 256, 299}
    put(log, *((b"%03d" % key, b"old") for key in range(300)))
    put(log, *((b"%03d" % key, None if key in nulls else b"new") for key in range(300)))
    put(log, *((b"%03d" % key if key % 3 else None, b"newest") for key in range(0, 300, 2)))
    log.roll_idle()
    put(log, (b"end", b""))
    rows = kept(log)
    start = 0
    while start < 750:
        after = clean(desk, log, start_offset=start, key_map_bytes=bound).cleaned_to
        assert after > start
        start = after
    last = {key: offset for offset, key, _ in rows}
    assert kept(log) == [row for row in rows if row[1] is not None and row[0] == last[row[1]]]


def test_a_second_cleaning_with_nothing_to_do_writes_nothing() -> None:
    desk, log = started()
    for number in range(12):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
        if number % 4 == 3:
            log.roll_idle()
    first = clean(desk, log)
    before = desk.fs.fingerprint()
    again = clean(desk, log, start_offset=first.cleaned_to)
    assert desk.fs.fingerprint() == before
    assert (again.records_before, again.records_after) == (2, 2)
    assert again.segments_after == 1


def test_a_tombstone_is_seen_until_its_horizon_and_no_longer() -> None:
    desk, log = started()
    put(log, (b"a", b"1"), (b"b", b"1"), at_ms=NOW_MS - 77)
    put(log, (b"a", None), (b"c", b"1"), at_ms=NOW_MS - 66)
    log.roll_idle()
    put(log, (b"z", b"end"))
    before = records(log)
    first = clean(desk, log)
    assert first.next_horizon_ms == NOW_MS + RETENTION_MS
    after = records(log)
    assert after == before[1:]  # timestamps too, although the base timestamp is the horizon now
    header = [header for _, header in iter_headers(desk.content(0))][1]
    assert header.has_delete_horizon
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + RETENTION_MS, NOW_MS - 66)
    early = clean(desk, log, start_offset=4, now_ms=NOW_MS + RETENTION_MS - 1)
    assert (records(log), early.next_horizon_ms) == (after, NOW_MS + RETENTION_MS)
    late = clean(desk, log, start_offset=4, now_ms=NOW_MS + RETENTION_MS)
    assert kept(log)[:2] == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert late.next_horizon_ms == -1


def test_aborted_data_goes_at_once_its_marker_two_steps_later() -> None:
    desk, log = started()
    put(log, (b"a", b"old"))
    first = put(log, (b"a", b"aborted"), (b"x", b"aborted"), producer_id=7, transactional=True)
    put(log, (b"b", b"plain"))
    log.roll_idle()
    marker = end_transaction(log, 7, commit=False)
    put(log, (b"a2", b"next"), producer_id=7, transactional=True)
    end_transaction(log, 7, commit=True)
    log.roll_idle()
    put(log, (b"z", b"end"))
    clean(desk, log)
    due = [(0, b"a", b"old"), (3, b"b", b"plain"), (5, b"a2", b"next"), (7, b"z", b"end")]
    assert kept(log) == due
    assert (4, 4, 1) in batches(log)
    assert aborted_rows(desk, log) == [(7, first, marker)]
    second = clean(desk, log, start_offset=7)
    assert second.next_horizon_ms == NOW_MS + RETENTION_MS
    assert aborted_rows(desk, log) == [(7, first, marker)]
    clean(desk, log, start_offset=7, now_ms=NOW_MS + RETENTION_MS)
    assert kept(log) == due
    assert (4, 4, 0) in batches(log)
    assert (6, 6, 1) in batches(log)  # the commit's data is still there
    assert aborted_rows(desk, log) == []


def test_the_row_of_a_marker_in_the_active_segment_counts() -> None:
    desk, log = started()
    put(log, (b"a", b"old"))
    put(log, (b"a", b"aborted"), producer_id=7, transactional=True)
    log.roll_idle()
    end_transaction(log, 7, commit=False)
    clean(desk, log)
    assert kept(log) == [(0, b"a", b"old")]


def test_the_last_batch_of_an_active_producer_stays_without_records() -> None:
    desk, log = started()
    put(log, (b"a", b"1"), producer_id=5)
    put(log, (b"a", b"2"), producer_id=6)
    put(log, (b"a", b"3"))
    log.roll_idle()
    put(log, (b"z", b"end"))
    clean(desk, log, active_producers={5: 0, 6: 0})
    headers = [header for _, header in iter_headers(desk.content(0))]
    assert [(one.producer_id, one.base_sequence, one.records_count) for one in headers] == [
        (5, 0, 0),
        (-1, -1, 0),
        (-1, -1, 1),
    ]
    clean(desk, log)
    assert batches(log) == [(0, 1, 0), (2, 2, 1), (3, 3, 1)]


def test_a_full_key_map_cleans_a_prefix_and_always_comes_further() -> None:
    desk, log = started()
    for number in range(30):
        put(log, (b"k%d" % (number % 10), b"%d" % number), (b"l%d" % (number % 10), b"%d" % number))
        if number % 7 == 6:
            log.roll_idle()
    log.roll_idle()
    put(log, (b"z", b"end"))
    start, rounds = 0, 0
    while start < 60:
        result = clean(desk, log, start_offset=start, key_map_bytes=3 * (ENTRY_BYTES + 2))
        assert start < result.cleaned_to <= 60
        start, rounds = result.cleaned_to, rounds + 1
    assert rounds >= 20
    values = {key: value for _, key, value in kept(log)}
    assert [values[b"k%d" % key] for key in range(10)] == [b"%d" % (20 + key) for key in range(10)]


def test_a_deleted_key_does_not_come_back_when_the_map_ends_inside_a_batch() -> None:
    desk, log = started()
    put(log, (b"a", b"1"), (b"a", None), *((b"k%d" % key, b"1") for key in range(5)))
    log.roll_idle()
    put(log, (b"z", b"end"))
    start, now_ms = 0, NOW_MS
    for _ in range(12):
        start = clean(desk, log, start_offset=start, key_map_bytes=1, now_ms=now_ms).cleaned_to
        now_ms += 10 * RETENTION_MS
    assert [row for row in kept(log) if row[1] == b"a"] == []


def test_offsets_that_are_no_segments_and_past_the_end() -> None:
    desk, log = started()
    for number in range(6):
        put(log, (b"a", b"%d" % number), (b"b", b"%d" % number))
    log.roll_idle()
    put(log, (b"z", b"end"))
    assert clean(desk, log, start_offset=3, end_offset=7).cleaned_to == 7
    assert [row[0] for row in kept(log)] == [5, 6, 7, 8, 9, 10, 11, 12]
    assert clean(desk, log, start_offset=1 << 40).cleaned_to == 12
    assert clean(desk, log, start_offset=-5).cleaned_to == 12
    assert [row[0] for row in kept(log)] == [10, 11, 12]


def test_an_empty_log() -> None:
    desk, log = started()
    result = clean(desk, log)
    assert (result.cleaned_to, result.records_before, result.segments_after) == (0, 0, 0)


def test_groups_fit_a_segment() -> None:
    desk, log = started()
    for number in range(8):
        put(log, (b"k%d" % number, bytes(100)))
        log.roll_idle()
    size = log.segments.segments[0].size
    result = clean(desk, log, segment_bytes=3 * size)
    assert [segment.base_offset for segment in log.segments.segments] == [0, 3, 6, 8]
    assert (result.segments_before, result.segments_after) == (8, 3)


def test_a_segment_that_grows_past_a_position_is_cut_in_two() -> None:
    desk, log = started()
    for number in range(9):
        put(log, (b"a%d" % (number % 2), bytes(50)), (b"k%d" % number, bytes(50)))
        if number % 3 == 2:
            log.roll_idle()
    before = kept(log)
    clean(desk, log, largest_bytes=400)
    assert [row[0] for row in kept(log)] == [1, 3, 5, 7, 9, 11, 13, 14, 15, 16, 17]
    assert set(kept(log)) <= set(before)
    assert len(log.segments) > 4
    assert all(segment.size <= 400 for segment in log.segments.segments)
    again = desk.open(recovery_point=log.recovery_point)
    assert kept(again) == kept(log)


def test_old_files_stay_for_a_while_where_that_is_asked_for() -> None:
    desk, log = started()
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        log.roll_idle()
    retirement = Retirement(desk.pool)
    one = cleaning(desk, log, file_delete_delay_s=60.0)
    one._retirement = retirement
    assert one.step(1e9) is not None
    assert desk.names(".log.deleted") == [f"{1:020d}.log.deleted", f"{2:020d}.log.deleted"]
    desk.clock.advance(60_000)
    retirement.sweep(desk.clock.monotonic_s())
    assert desk.names(".deleted") == []


def test_indexes_are_those_that_a_rebuild_makes() -> None:
    desk, log = started()
    for number in range(60):
        put(log, (b"k%d" % (number % 40), b"%d" % number), at_ms=NOW_MS + number)
    log.roll_idle()
    put(log, (b"z", b"end"))
    clean(desk, log)
    segment = log.segments.segments[0]
    files = {suffix: desk.content(0, suffix) for suffix in (".index", ".timeindex")}
    assert all(files.values())
    segment.rewrite_indexes(100)
    assert {suffix: desk.content(0, suffix) for suffix in files} == files


def test_erasing_keys_touches_nothing_else() -> None:
    desk, log = started()
    put(log, (b"a", b"1"), (None, b"no key"), (b"b", b"1"))
    put(log, (b"b", b"2"))
    log.roll_idle()
    put(log, (b"c", b"untouched"), (b"c", None))
    log.roll_idle()
    put(log, (b"b", b"active"))
    untouched = desk.content(4)
    result = clean(desk, log, erase=frozenset([b"b"]), end_offset=6)
    assert [row[0] for row in kept(log)] == [0, 1, 4, 5, 6]
    assert batches(log) == [(0, 2, 2), (3, 3, 0), (4, 5, 2), (6, 6, 1)]
    assert desk.content(4) == untouched
    assert b"2" not in desk.content(0)[-10:]
    assert (result.records_before, result.records_after) == (6, 4)


def test_a_damaged_batch_is_named_and_nothing_changes() -> None:
    desk, log = started()
    for _ in range(3):
        put(log, (b"a", b"1"))
    log.roll_idle()
    put(log, (b"z", b"end"))
    position = 2 * (log.segments.segments[0].size // 3) + 65
    file = desk.fs.open(f"{FOLDER}/{0:020d}.log", "rw")
    write_all(file, [b"\xff"], position)
    before = desk.fs.fingerprint()
    with pytest.raises(CorruptBatchError) as caught:
        clean(desk, log)
    assert (caught.value.path, caught.value.position) == (f"{FOLDER}/{0:020d}.log", position - 65)
    assert desk.fs.fingerprint() == before


def test_steps_progress_and_cancel() -> None:
    desk, log = started()
    for number in range(20):
        put(log, (b"k%d" % (number % 7), b"%d" % number))
        if number % 5 == 4:
            log.roll_idle()
    before, names = kept(log), desk.names("")
    one = cleaning(desk, log)
    phases = []
    while not desk.names(".cleaned"):
        assert one.step(0) is None
        phases.append(one.progress.phase)
    assert phases == sorted(phases)
    assert phases[-1] == "write"
    assert len(phases) > 2 * 15, "a batch takes several steps"
    assert desk.names(".cleaned") == [f"{0:020d}.log.cleaned"]
    assert 0 < one.progress.bytes_done <= one.progress.bytes_total
    one.cancel()
    one.cancel()
    assert (kept(log), desk.names("")) == (before, names)
    with pytest.raises(InvariantError):
        one.step(0)
    whole = cleaning(desk, log)
    result = whole.step(1e9)
    assert whole.step(0) is result
    whole.cancel()
    total = whole.progress.bytes_total
    assert whole.progress == CleanProgress("done", total, total)


def test_what_an_earlier_cleaning_could_not_remove_goes_first() -> None:
    desk, log = started()
    put(log, (b"a", b"1"))
    log.roll_idle()
    put(log, (b"a", b"2"))
    file = desk.fs.open(f"{FOLDER}/{0:020d}.log.cleaned", "create")
    write_all(file, [b"half"], 0)
    file.close()
    clean(desk, log)
    assert desk.names(".cleaned") == []
    assert read_file(desk.fs, f"{FOLDER}/{0:020d}.log")


def test_retention_may_take_segments_while_it_runs() -> None:
    for after in range(1, 40):
        desk, log = started()
        for number in range(16):
            put(log, (b"k%d" % (number % 3), b"%d" % number))
            if number % 4 == 3:
                log.roll_idle()
        put(log, (b"z", b"end"))
        one, result = cleaning(desk, log), None
        for _ in range(after):
            result = one.step(0)
            if result is not None:
                break
        if log.segments.segments[0].next_offset == 4:
            log.raise_start(4)
            Retirement(desk.pool).retire(FOLDER, log.drop_front(1), 0.0)
        result = result or one.step(1e9)
        assert result is not None
        assert kept(log, log.log_start_offset)[-4:] == [
            (13, b"k1", b"13"), (14, b"k2", b"14"), (15, b"k0", b"15"), (16, b"z", b"end"),
        ]  # fmt: skip
        assert len(kept(log, log.log_start_offset)) == 4
        assert desk.names(".cleaned") == desk.names(".swap") == []


def test_a_closed_log_is_not_cleaned_any_more() -> None:
    desk, log = started()
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll_idle()
    one = cleaning(desk, log)
    assert one.step(0) is None
    names = desk.names("")
    log.close()
    with pytest.raises(PartitionPoisonedError, match="closed"):
        one.step(1e9)
    assert desk.names("") == sorted([*names, "cleaner-mark-checkpoint"]), "what may be gone was noted before"


def test_readers_in_other_threads_see_old_or_new_and_skip_nothing() -> None:
    desk, log = started(segment_bytes=1 << 20)
    for number in range(60):
        put(log, (b"k%d" % (number % 9), b"%d" % number), (b"only%d" % number, bytes(30)))
        if number % 6 == 5:
            log.roll_idle()
    put(log, (b"z", b"end"))
    due = {row for row in kept(log) if row[1] is not None and row[1].startswith(b"only")}
    stop, failures, rounds = threading.Event(), [], [0, 0]

    def read(number: int) -> None:
        while not stop.is_set():
            try:
                found = pairs(records(log, max_bytes=200))
                missing = due - set(found)
                assert not missing
                assert [row[0] for row in found] == sorted({row[0] for row in found})
            except (AssertionError, LogStoreError, OSError) as error:
                failures.append(error)
                return
            rounds[number] += 1

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    sizes = [200, 2_000, 900, 5_000, 1 << 20]
    attempt, deadline_s = 0, time.monotonic() + 120
    while not failures and (attempt <= 12 or min(rounds) <= 3) and time.monotonic() < deadline_s:
        clean(desk, log, segment_bytes=sizes[attempt % 5], largest_bytes=(1 << 30, 700)[attempt % 2])
        attempt += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert min(rounds) > 3


def test_the_newest_record_when_newer_ones_were_cleaned_away() -> None:
    desk, log = started()
    put(log, (b"a", b"1"), at_ms=NOW_MS + 500)
    put(log, (b"b", b"1"), at_ms=NOW_MS + 100)
    put(log, (b"a", b"2"), at_ms=NOW_MS)
    log.roll_idle()
    put(log, (b"z", b"end"), at_ms=NOW_MS)
    clean(desk, log)
    assert (
        log.look(lambda segments: segments.max_timestamp(4)) == NOW_MS + 500
    )  # retention's: of what was there
    assert log.look(lambda segments: segments.max_record_timestamp(4)) == NOW_MS + 100
    found = log.look(lambda segments: next(segments.first_at_or_after(NOW_MS + 50, 4)))
    assert found.base_offset == 1
