"""The faults of a failing seed become few."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.cluster.shrink import shrunk


def test_what_matters_is_left() -> None:
    def fails(numbers: Sequence[int]) -> bool:
        return {3, 11} <= set(numbers)

    left, runs = shrunk(range(14), fails)
    assert left == [3, 11]
    assert runs <= 40


def test_a_failure_without_any_fault_has_none() -> None:
    assert shrunk(range(8), lambda numbers: True)[0] == []


def test_it_ends_after_so_many_runs() -> None:
    left, runs = shrunk(range(64), lambda numbers: len(numbers) == 64, most_runs=5)
    assert len(left) == 64
    assert runs == 5
