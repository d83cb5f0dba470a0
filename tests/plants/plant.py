"""``Plant``: one bug as a switch, the runs that hunt it, and within how many of them it has to be caught.

A plant replaces one function of the engine while it is sown; nothing of it is in the product. A run is a check that
raises where a promise is not kept. A run catches a plant only if the same run finds nothing in the engine as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import pytest

from logstore.errors import LogStoreError

Patch = pytest.MonkeyPatch
FOUND: Final = (AssertionError, LogStoreError)
"""How a run tells that it found something. All else is a fault of the plant or of the run itself."""


class Run(NamedTuple):
    """``name``: so that it can be run again."""

    name: str
    check: Callable[[], object]


Runs = Callable[[], Iterable[Run]]


class Caught(NamedTuple):
    """``runs``: up to and with the one that caught it, whose name is ``by``; ``how``: what it said."""

    runs: int
    by: str
    how: str


@dataclass(frozen=True, slots=True)
class Plant:
    """``runs``: the hunt, in its order; ``most_runs``: it is caught within so many."""

    name: str
    what: str
    sow: Callable[[Patch], None]
    runs: Runs
    most_runs: int

    def chosen(self) -> Iterator[Run]:
        return islice(iter(self.runs()), self.most_runs)

    @contextmanager
    def sown(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            self.sow(patch)
            yield

    def hunt(self) -> Caught | None:
        """Run until a run finds the bug; None: no run did."""
        for number, run in enumerate(self.chosen(), 1):
            with quiet(), self.sown():
                found = finding(run)
            if found and not finding(run):
                return Caught(number, run.name, found)
        return None


def finding(run: Run) -> str:
    """What the run finds; "" for nothing."""
    try:
        run.check()
    except FOUND as error:
        return f"{type(error).__name__}: {error}".splitlines()[0] or type(error).__name__
    return ""


@contextmanager
def quiet() -> Iterator[None]:
    """The engine's complaints are wanted here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


PLANTS: Final[dict[str, Plant]] = {}


def plant(name: str, what: str, runs: Runs, most_runs: int) -> Callable[[Callable[[Patch], None]], None]:
    """Enter the decorated ``sow`` as a plant."""

    def note(sow: Callable[[Patch], None]) -> None:
        assert name not in PLANTS, name
        PLANTS[name] = Plant(name, what, sow, runs, most_runs)

    return note
