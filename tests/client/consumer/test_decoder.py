"""Loans to a `for` loop: the list's iterator knows how far the loop is."""

from __future__ import annotations

from itertools import islice

import pytest

from logstore.client.consumer.decoder import Decoder, Loan
from logstore.client.consumer.fetch_state import FetchState
from logstore.errors import PoisonRecordError
from tests.client.consumer.test_fetch_state import WHERE, batch, result


def filled(count: int) -> FetchState:
    state = FetchState(WHERE, 0, -1, "id")
    state.take(result(batch(0, count), count))
    return state


def odd(raw: bytes | None) -> int:
    number = int(raw or b"")
    if number % 2 == 0:
        raise ValueError("even")
    return number


@pytest.mark.parametrize("taken", range(6))
def test_a_settled_loan_moves_the_position_by_what_was_taken(taken: int) -> None:
    state = filled(5)
    loan = Loan(state, Decoder(None, None, "raise").decode(state, 100, raising=True))
    assert len(list(islice(loan.records, taken))) == min(taken, 5)
    point = loan.point()
    assert state.position == 0
    assert loan.settle() == point.offset == state.position
    assert list(loan.records) == []


def test_skipped_records_count_as_gone_with_the_one_before_them() -> None:
    state = filled(6)
    loan = Loan(state, Decoder(None, odd, "skip").decode(state, 100, raising=True))
    seen = [(record.value, loan.point().offset) for record in loan.records]
    assert seen == [(1, 2), (3, 4), (5, 6)]
    loan.settle()
    assert state.position == 6


def test_untouched_records_are_the_fetched_ones() -> None:
    state = filled(3)
    part = Decoder(None, None, "raise").decode(state, 100, raising=True)
    assert part.records is state.peek(100)


def test_poison_in_front_is_raised_unless_others_are_in_hand() -> None:
    state = filled(3)
    decoder = Decoder(None, odd, "raise")
    assert decoder.decode(state, 100, raising=False).records == []
    with pytest.raises(PoisonRecordError, match=r"t-3 offset 0 .*even"):
        decoder.decode(state, 100, raising=True)
    state.advance(1)
    part = decoder.decode(state, 100, raising=True)
    assert ([record.value for record in part.records], part.raw_total) == ([1], 1)
