"""What a partition remembers of producers: each answer and refusal, the wrap, expiry, and open transactions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import (
    CoordinatorFencedError,
    DuplicateSequenceError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionStateError,
)
from logstore.format.batch import BatchHeader, encode_batch, read_header
from logstore.log.producers.producer_state import FIRST_NAMED_ID, SEQUENCE_MASK, Marker, ProducerStates
from tests.log.logs import NOW_MS

ID = 7


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: int = ID, transactional: bool = False
) -> BatchHeader:
    rows = [(None, b"v")] * count
    return read_header(
        encode_batch(
            rows,
            now_ms=NOW_MS,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def marker(*, commit: bool, epoch: int = 0, producer: int = ID, coordinator: int = 0) -> Marker:
    return Marker(producer, epoch, coordinator, commit, NOW_MS)


def filled(*batches: tuple[int, int], epoch: int = 0) -> ProducerStates:
    """Batches (sequence, count), at offsets 100, 110, ..."""
    states = ProducerStates()
    for number, (sequence, count) in enumerate(batches):
        states.note(header(sequence, count, epoch=epoch), 100 + 10 * number)
    return states


def test_an_unknown_id_may_begin_anywhere() -> None:
    assert ProducerStates().repeated([header(12345)], "t-0") == []


def test_the_last_five_batches_are_answered_with_their_offsets() -> None:
    states = filled(*[(10 * number, 10) for number in range(6)])
    for number in range(1, 6):
        (found,) = states.repeated([header(10 * number, 10)], "t-0")
        assert (found.base_offset, found.last_offset) == (100 + 10 * number, 109 + 10 * number)
    with pytest.raises(DuplicateSequenceError, match="sequences 0 to 9 of producer 7 are stored"):
        states.repeated([header(0, 10)], "t-0")


def test_a_batch_that_overlaps_is_no_duplicate() -> None:
    states = filled((0, 10))
    with pytest.raises(OutOfOrderSequenceError, match="sequence 5 in epoch 0, 10 was due"):
        states.repeated([header(5, 10)], "t-0")


def test_a_gap_says_what_was_due() -> None:
    with pytest.raises(OutOfOrderSequenceError) as caught:
        filled((0, 3)).repeated([header(4)], "t-0")
    assert (caught.value.expected_sequence, caught.value.found_sequence) == (3, 4)


def test_sequences_wrap_within_a_batch_and_between() -> None:
    states = filled((SEQUENCE_MASK - 1, 4))
    assert states.entry(ID).last_sequence == 1  # type: ignore[union-attr]
    assert states.repeated([header(2)], "t-0") == []
    with pytest.raises(OutOfOrderSequenceError):
        states.repeated([header(3)], "t-0")
    with pytest.raises(DuplicateSequenceError):
        states.repeated([header(SEQUENCE_MASK - 1, 2)], "t-0")


def test_a_newer_epoch_begins_anew_or_goes_on() -> None:
    states = filled((0, 3))
    assert states.repeated([header(0, epoch=1)], "t-0") == []
    assert states.repeated([header(3, epoch=1)], "t-0") == []
    with pytest.raises(OutOfOrderSequenceError):
        states.repeated([header(1, epoch=1)], "t-0")


def test_an_older_epoch_is_fenced() -> None:
    with pytest.raises(ProducerFencedError) as caught:
        filled((0, 3), epoch=5).repeated([header(3, epoch=4)], "t-0")
    assert (caught.value.expected_epoch, caught.value.found_epoch) == (5, 4)


def test_several_batches_are_looked_at_in_their_order() -> None:
    states = filled((0, 2), (2, 2))
    assert len(states.repeated([header(0, 2), header(2, 2)], "t-0")) == 2
    assert len(states.repeated([header(2, 2), header(4, 2), header(6)], "t-0")) == 1
    with pytest.raises(OutOfOrderSequenceError, match="6 was due"):
        states.repeated([header(4, 2), header(7)], "t-0")
    with pytest.raises(OutOfOrderSequenceError, match="batch 2 of 2 is in the log already"):
        states.repeated([header(0, producer=9), header(2, 2)], "t-0")


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_numbers_that_no_producer_sends(epoch: int, sequence: int) -> None:
    with pytest.raises(InvalidRecordError, match=f"epoch {epoch} and sequence {sequence}"):
        ProducerStates().repeated([header(sequence, epoch=epoch)], "t-0")


def test_a_transaction_is_open_until_its_marker() -> None:
    states = ProducerStates()
    states.note(header(0, transactional=True), 50)
    assert states.first_unstable(60) == 50
    with pytest.raises(TransactionStateError, match="open since offset 50; the batch is not transactional"):
        states.repeated([header(1)], "t-0")
    with pytest.raises(TransactionStateError, match="the batch is of epoch 1"):
        states.repeated([header(0, epoch=1, transactional=True)], "t-0")
    row = states.aborted_by(marker(commit=False), 51)
    assert row == (ID, 50, 51, 52)
    states.note_marker(marker(commit=False), 51)
    assert states.first_unstable(51) == 50  # nobody may see its end yet
    assert states.first_unstable(52) is None


def test_a_row_names_where_the_log_was_stable() -> None:
    states = ProducerStates()
    for number, producer in enumerate((1, 2, 3)):
        states.note(header(0, producer=producer, transactional=True), 10 * number)
    assert states.aborted_by(marker(commit=False, producer=1), 30) == (1, 0, 30, 10)
    assert states.aborted_by(marker(commit=False, producer=2), 30) == (2, 10, 30, 0)
    assert states.aborted_by(marker(commit=True, producer=2), 30) is None
    assert states.aborted_by(marker(commit=False, producer=9), 30) is None


def test_late_markers_are_fenced() -> None:
    states = filled((0, 1), epoch=3)
    with pytest.raises(ProducerFencedError):
        states.check_marker(marker(commit=False, epoch=2), "t-0")
    states.note_marker(marker(commit=True, epoch=3, coordinator=5), 200)
    with pytest.raises(CoordinatorFencedError, match="coordinator epoch 4 is older than 5"):
        states.check_marker(marker(commit=True, epoch=3, coordinator=4), "t-0")


def test_idle_ids_expire_but_not_named_or_open_ones() -> None:
    states = ProducerStates()
    states.note(header(0), 0, 10)
    states.note(header(0, producer=8), 1, 20)
    states.note(header(0, producer=FIRST_NAMED_ID), 2, 10)
    states.note(header(0, producer=9, transactional=True), 3, 10)
    assert states.expire(30, 10) == 1
    assert sorted(entry.producer_id for entry in states) == [8, 9, FIRST_NAMED_ID]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    start=st.one_of(st.integers(0, 5), st.integers(SEQUENCE_MASK - 12, SEQUENCE_MASK)),
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=9),
    back=st.integers(0, 8),
)
def test_a_batch_is_taken_once_wherever_the_sequence_is(start: int, counts: list[int], back: int) -> None:
    states, sent, sequence = ProducerStates(), [], start
    for number, count in enumerate(counts):
        batch = header(sequence, count)
        assert states.repeated([batch], "t-0") == []
        states.note(batch, 10 * number)
        sent.append((batch, 10 * number))
        sequence = (sequence + count) & SEQUENCE_MASK
    batch, offset = sent[-1 - back % len(sent)]
    if back % len(sent) < 5:
        assert states.repeated([batch], "t-0")[0].base_offset == offset
    else:
        with pytest.raises(DuplicateSequenceError):
            states.repeated([batch], "t-0")
