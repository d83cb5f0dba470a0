"""The arithmetic behind each figure, with sides whose cost is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.harness import (
    Bench,
    Run,
    Side,
    Spread,
    alone,
    compared,
    in_turn,
    latencies,
    percentile,
    rates,
    ratios,
    spread,
)


def test_each_side_is_first_once() -> None:
    orders = [in_turn(["a", "b", "c"], number) for number in range(4)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def counting(seen: list[str], name: str, units: int) -> Side:
    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        assert os.listdir(folder) == []
        Path(folder, "left").write_text("")

        def run() -> int:
            seen.append(name)
            return units

        yield run

    return side


def test_sides_alternate_and_the_first_round_is_dropped(tmp_path: Path) -> None:
    bench, seen = Bench(folder=str(tmp_path), quick=True), list[str]()
    figures = rates(bench, {"a": counting(seen, "a", 10), "b": counting(seen, "b", 20)}, rounds=2)
    assert seen == ["a", "b", "b", "a", "a", "b"]
    assert [len(figures[name]) for name in "ab"] == [2, 2]
    assert os.listdir(tmp_path) == []  # each side's folder is gone


def test_latencies_give_one_median_a_round() -> None:
    seen: list[str] = []
    calls = {"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}
    figures = latencies(calls, rounds=3, each=2)
    assert seen == ["a", "a", "b", "b", "b", "b", "a", "a"] * 2
    assert [len(figures[name]) for name in "ab"] == [3, 3]


def test_spread_and_ratios() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert ratios([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == Spread(2.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0], [1.0, 2.0])


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 51), (99, 100), (100, 100)])
def test_percentile(percent: float, value: float) -> None:
    assert percentile(range(1, 101), percent) == value


def test_targets_are_on_medians() -> None:
    figures = {"ours": [1.0, 2.0, 30.0], "peer": [2.0, 2.0, 2.0]}
    row = compared("q", "c", figures, ours="ours", peer="peer", unit="k/s", scale=1000, at_least=1.0)
    assert (row.ratio, row.met, row.target) == (Spread(1.0, 0.5, 15.0), True, ">= 1 x")
    assert row.value == Spread(2000, 1000, 30000)
    assert compared("q", "c", figures, ours="ours", peer="peer", unit="k/s", at_least=1.1).met is False
    assert compared("q", "c", figures, ours="ours", peer="peer", unit="us", at_most=0.9).met is False
    assert compared("q", "c", figures, ours="ours", peer="peer", unit="us").met is None
    assert alone("q", "c", [1.0, 2.0, 9.0], unit="s", at_most=2.0).met is True
    assert alone("q", "c", [1.0, 2.0, 9.0], unit="s", at_most=1.9).met is False
    assert alone("q", "c", [1.0, 2.0, 9.0], unit="s", at_least=2.1).met is False
