"""Bytes under way: bounds in all and by connection, and nothing is left behind, whatever ends first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpc.errors import BrokerBusyError
from rpc.handlers.budget import ByteBudget


def test_bounds_in_all_and_by_connection() -> None:
    budget = ByteBudget("produce", 100, 60)
    with budget.hold("a", 50):
        with pytest.raises(BrokerBusyError, match="50 bytes are under way"), budget.hold("a", 20):
            raise AssertionError("it is too much")
        with budget.hold("b", 50):
            assert budget.taken_bytes == 100
            assert not budget.has_room("c", 1)
    assert (budget.taken_bytes, budget.refused) == (0, 1)
    with budget.hold("a", 1000):  # alone it is let in, whatever its size
        assert not budget.has_room("b", 1)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=12), st.randoms())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_whatever_ends_first_nothing_is_left(requests: list[tuple[str, int]], dice: object) -> None:
    """Empty requests among them."""
    budget = ByteBudget("produce", 1 << 20, 1 << 20)
    held = [budget.hold(connection, size) for connection, size in requests]
    for one in held:
        one.__enter__()
    assert budget.taken_bytes == sum(size for _, size in requests)
    dice.shuffle(held)  # type: ignore[attr-defined]
    for one in held:
        one.__exit__(None, None, None)
    assert budget.taken_bytes == 0
    assert budget._by_connection == {}
