"""The hunts that several kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Literal

from tests.interleave import matrix
from tests.interleave.matrix import Case
from tests.plants.plant import Run, Runs

Process = Literal["same", "other"]
# A second action that is taken to wait for the first shows nothing: a busy machine must not make it so.
_ACTS_S: Final = 2.0


def interleaved(
    first: str, second: str, process: Process, calls: range, when: Literal["before", "after"] = "after"
) -> Runs:
    """The first action stopped at each of ``calls`` in turn, the second one acts there."""

    def runs() -> Iterator[Run]:
        for call in calls:
            case = Case(first, second, process, call, when)
            yield Run(str(case), partial(matrix.run, case, _ACTS_S))

    return runs


def seeded(check: Callable[[int], object]) -> Runs:
    """``check`` with the seeds 0, 1, 2 and so on."""

    def runs() -> Iterator[Run]:
        for seed in range(1_000):
            yield Run(f"{check.__name__} {seed}", partial(check, seed))

    return runs


def once(check: Callable[[], object]) -> Runs:
    """A check without chance in it."""
    return lambda: [Run(check.__name__, check)]
