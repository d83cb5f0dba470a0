"""How things are measured: warm up, repeat, alternate the sides, medians of ratios, spread.

A *side* prepares itself in an empty folder (not timed) and yields what is timed, which returns how many
units it did. All sides of a case run once per round, in an order that rotates; a ratio is taken between two
sides of the same round, so that a neighbour who takes the machine's time hits both.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Run: TypeAlias = Callable[[], int]
Side: TypeAlias = Callable[[str], AbstractContextManager[Run]]


class Spread(NamedTuple):
    """Median with the lowest and highest seen."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the report. ``value`` and ``peer_value`` are in ``unit``; ``ratio`` is ours / peer's.

    ``target``: the words of the target ("" for a row without one); ``met``: None for a row without one.
    """

    question: str
    case: str
    unit: str
    value: Spread
    peer: str = ""
    peer_value: Spread | None = None
    ratio: Spread | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Settings of a run. ``folder``: where the sides write; ``quick``: smaller sizes, fewer rounds."""

    folder: str
    quick: bool

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 5

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @contextmanager
    def scratch(self) -> Iterator[str]:
        """An empty folder that is gone afterwards; what was written does not burden the next side."""
        path = tempfile.mkdtemp(dir=self.folder)
        try:
            yield path
        finally:
            shutil.rmtree(path)


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(ours: Sequence[float], peers: Sequence[float]) -> Spread:
    """Of two sides' figures, round by round."""
    return spread([our / peer for our, peer in zip(ours, peers, strict=True)])


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """The order of the sides in round ``number``: each is first in one round of as many as there are sides."""
    turn = number % len(names)
    return [*names[turn:], *names[:turn]]


def rates(bench: Bench, sides: Mapping[str, Side], *, rounds: int | None = None) -> dict[str, list[float]]:
    """Units per second of each side, one figure a round. The first round warms up and is dropped."""
    names = list(sides)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for number in range((rounds or bench.rounds) + 1):
        for name in in_turn(names, number):
            with bench.scratch() as folder, sides[name](folder) as run:
                units, seconds = timed(run)
            if number:
                figures[name].append(units / seconds)
    return figures


def timed(run: Run) -> tuple[int, float]:
    """Units and seconds. The workload's own rows are frozen: a collection in the middle walks what the side
    makes, not the million rows that it is fed from."""
    gc.collect()
    gc.freeze()
    try:
        began = time.perf_counter()
        units = run()
        return units, time.perf_counter() - began
    finally:
        gc.unfreeze()


def latencies(calls: Mapping[str, Callable[[], object]], *, rounds: int, each: int) -> dict[str, list[float]]:
    """Median seconds of a call of each side, one figure a round of ``each`` calls; sides alternate."""
    names = list(calls)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in in_turn(names, number):
            took = timed_calls(calls[name], each)
            if number:
                figures[name].append(statistics.median(took))
    return figures


def timed_calls(call: Callable[[], object], count: int) -> list[float]:
    """Seconds of each of ``count`` calls."""
    clock = time.perf_counter
    took = []
    for _ in range(count):
        began = clock()
        call()
        took.append(clock() - began)
    return took


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def compared(
    question: str,
    case: str,
    figures: Mapping[str, Sequence[float]],
    *,
    ours: str,
    peer: str,
    unit: str,
    scale: float = 1.0,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """A row that sets ``ours`` against ``peer``; the target, if any, is on the median of their ratios.

    Figures are multiplied by ``scale`` to come out in ``unit``.
    """
    ratio = ratios(figures[ours], figures[peer])
    target, met = "", None
    if at_least is not None:
        target, met = f">= {at_least:g} x", ratio.median >= at_least
    elif at_most is not None:
        target, met = f"<= {at_most:g} x", ratio.median <= at_most
    return Row(
        question=question,
        case=case,
        unit=unit,
        value=spread([figure * scale for figure in figures[ours]]),
        peer=peer,
        peer_value=spread([figure * scale for figure in figures[peer]]),
        ratio=ratio,
        target=target,
        met=met,
        note=note,
    )


def alone(
    question: str,
    case: str,
    figures: Sequence[float],
    *,
    unit: str,
    scale: float = 1.0,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """A row without a peer; the target, if any, is on the median, in ``unit``."""
    value = spread([figure * scale for figure in figures])
    target, met = "", None
    if at_least is not None:
        target, met = f">= {at_least:g} {unit}", value.median >= at_least
    elif at_most is not None:
        target, met = f"<= {at_most:g} {unit}", value.median <= at_most
    return Row(question=question, case=case, unit=unit, value=value, target=target, met=met, note=note)
