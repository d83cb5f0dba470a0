"""One partition's position: moved by what is handed out, and by gaps once all before them is."""

from __future__ import annotations

import pytest

from logstore.api.records import FetchRequest, FetchResult
from logstore.client.consumer.fetch_state import EpochStart, FetchState, epoch_starts
from logstore.errors import CorruptBatchError, InvariantError, OffsetOutOfRangeError
from logstore.format.batch import encode_batch
from logstore.types import OffsetAndMetadata, TopicPartition

WHERE = TopicPartition("t", 3)


def batch(base: int, count: int, epoch: int = 0) -> bytes:
    rows = [(None, b"%d" % offset) for offset in range(base, base + count)]
    return encode_batch(rows, now_ms=1, base_offset=base, leader_epoch=epoch)


def result(batches: bytes, next_offset: int) -> FetchResult:
    return FetchResult("t", 3, batches, next_offset, 0, 100, 100)


def offsets(state: FetchState, most: int) -> list[int]:
    records = state.peek(most)
    state.advance(len(records))
    return [record.offset for record in records]


def test_slices_move_the_position() -> None:
    state = FetchState(WHERE, 0, -1, "id")
    state.take(result(batch(0, 3) + batch(3, 4), 7))
    assert (state.position, state.waiting) == (0, 7)
    assert offsets(state, 2) == [0, 1]
    assert (state.position, state.waiting) == (2, 5)
    assert offsets(state, 100) == [2, 3, 4, 5, 6]
    assert (state.position, state.waiting) == (7, 0)
    assert state.request(10) == FetchRequest("t", 3, 7, 0, 10)


def test_records_before_the_position_are_dropped() -> None:
    state = FetchState(WHERE, 4, -1, "id")
    state.take(result(batch(0, 8), 8))
    assert offsets(state, 100) == [4, 5, 6, 7]


def test_gaps_are_passed_when_all_before_them_is_handed_out() -> None:
    state = FetchState(WHERE, 0, -1, "id")
    state.take(result(batch(0, 2) + batch(5, 1), 9))
    assert offsets(state, 2) == [0, 1]
    assert state.position == 2
    assert offsets(state, 2) == [5]
    assert state.position == 9
    state.take(result(b"", 12))  # nothing but markers
    assert state.position == 12


def test_the_epoch_is_that_of_the_last_record_before_the_position() -> None:
    state = FetchState(WHERE, 0, -1, "id")
    state.take(result(batch(0, 2, 4) + batch(2, 1, 4) + batch(3, 2, 6), 5))
    assert state.commit_point() == OffsetAndMetadata(0, -1)
    assert [state.position_after(count)[:2] for count in range(6)] == [
        (0, -1), (1, 4), (2, 4), (3, 4), (4, 6), (5, 6),
    ]  # fmt: skip
    offsets(state, 3)
    assert state.commit_point() == OffsetAndMetadata(3, 4)
    assert [state.position_after(count)[:2] for count in range(3)] == [(3, 4), (4, 6), (5, 6)]
    offsets(state, 3)
    assert state.request(9).leader_epoch == 6
    state.seek(2)
    assert state.request(9)[2:4] == (2, -1)


def test_epoch_starts_names_changes_only() -> None:
    data = batch(0, 2, 1) + batch(2, 2, 1) + batch(4, 1, 2) + batch(5, 1, 5)
    assert epoch_starts(data) == [EpochStart(0, 1), EpochStart(4, 2), EpochStart(5, 5)]
    assert epoch_starts(b"") == []


def test_nothing_is_handed_out_past_the_end_and_the_position_stops_there() -> None:
    state = FetchState(WHERE, 0, -1, "id")
    state.end_offset = 3
    state.take(result(batch(0, 2) + batch(2, 6), 8))
    assert offsets(state, 100) == [0, 1, 2]
    assert (state.position, state.at_end) == (3, True)


def test_errors_leave_the_position() -> None:
    state = FetchState(WHERE, 5, 2, "id")
    with pytest.raises(OffsetOutOfRangeError):
        state.take(result(b"", 5)._replace(error=OffsetOutOfRangeError("gone")))
    assert (state.position, state.failed) == (5, True)
    damaged = bytearray(batch(5, 2))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        state.take(result(bytes(damaged), 7))
    assert (state.position, state.waiting, state.failed) == (5, 0, True)
    state.take(result(batch(5, 2), 7))
    assert (state.waiting, state.failed) == (2, False)


def test_nothing_is_fetched_over_what_waits() -> None:
    state = FetchState(WHERE, 0, -1, "id")
    state.take(result(batch(0, 2), 2))
    with pytest.raises(InvariantError):
        state.request(10)
