"""Every pair of actions, the first stopped at every point: `python -m tests.interleave.matrix [--share N/M]`.

A run: prepare; the first action starts and is stopped at its point; the second acts, in the same process or in
another one (where it waits for the first it is left waiting); the promises are checked on images of a power loss
right there; the first goes on, both end; the promises are checked again. A run that does not end is a deadlock.
"""

from __future__ import annotations

import argparse
import logging
import sys
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleave.actions import ACTIONS, FIRSTS, acceptable, prepare
from tests.interleave.gate import LONGEST_WAIT_S
from tests.interleave.world import Actor, BrokenError, World

SECOND_S: Final = 0.05  # for the second to act; after that it is taken to wait for the first


class Case(NamedTuple):
    """``call``: the counted call of the first action at which it is stopped."""

    first: str
    second: str
    process: str
    call: int
    when: str

    def __str__(self) -> str:
        return f"{self.first}+{self.second}@{self.process}:{self.when}-{self.call}"

    @staticmethod
    def parse(text: str) -> Case:
        pair, _, point = text.partition(":")
        actions, _, process = pair.partition("@")
        first, _, second = actions.partition("+")
        when, _, call = point.partition("-")
        return Case(first, second, process, int(call), when)


def points(first: str) -> list[str]:
    """The counted calls of an action that nobody interrupts, in order."""
    world = World()
    try:
        prepare(world)
        world.gate.arm(None)
        actor = Actor(lambda: ACTIONS[first](world, world.one, "first"))
        if not actor.done(LONGEST_WAIT_S) or actor.error is not None:
            raise BrokenError(f"{first} alone: {actor.error!r}")
        world.gate.disarm()
        world.check_images()
        return world.gate.names
    finally:
        world.close()


def cases(*firsts: str) -> Iterator[Case]:
    """All cases, or those whose first action is one of these."""
    for first in firsts or FIRSTS:
        for call in range(1, len(points(first)) + 1):
            for second in ACTIONS:
                for process in ("same", "other"):
                    yield Case(first, second, process, call, "after" if call % 2 else "before")


def run(case: Case, second_s: float = SECOND_S) -> str:
    """What became of the second action: "acted", "waited" (for ``second_s``, perhaps for want of a processor alone), or
    its error. BrokenError: a promise is not kept."""
    world = World()
    try:
        prepare(world)
        world.gate.arm((case.call, case.when))
        first = Actor(lambda: ACTIONS[case.first](world, world.one, "first"))
        if not _reached(world, first):
            return "ended before its point"  # a cleaning has as many calls as its time allows
        other = world.one if case.process == "same" else world.two

        def act() -> None:
            with world.gate.ignoring():
                ACTIONS[case.second](world, other, "second")

        second = Actor(act)
        waits = not second.done(second_s)
        if not waits:
            world.check_images()
        world.gate.disarm()
        for name, actor in (("first", first), ("second", second)):
            if not actor.done(LONGEST_WAIT_S):
                raise BrokenError(f"the {name} action does not end")
            if not acceptable(actor.error):
                raise BrokenError(f"the {name} action: {actor.error!r}")
        world.check_images()
        return "waited" if waits else "acted" if second.error is None else type(second.error).__name__
    finally:
        world.gate.disarm()
        world.close()


def _reached(world: World, first: Actor) -> bool:
    """Whether the first action came to its point; False when it ended before."""
    for _ in range(int(LONGEST_WAIT_S / 0.01)):
        if world.gate.reached.wait(0.01):
            return True
        if first.done(0):
            return world.gate.reached.is_set()
    return False


def share(all_cases: Iterator[Case], part: int, parts: int) -> Iterator[Case]:
    """A fixed share of the cases, spread over all pairs."""
    return (case for case in all_cases if zlib.crc32(str(case).encode()) % parts == part)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="interleavings of pairs of actions")
    parser.add_argument("--share", default="0/1", help="part/parts, e.g. 3/20")
    parser.add_argument("--verbose", action="store_true", help="each interleaving as it comes")
    parser.add_argument("--case", help="one case, as a failure names it")
    options = parser.parse_args(arguments)
    logging.disable(logging.ERROR)  # actions that are left waiting end with errors that are expected
    part, parts = (int(number) for number in options.share.split("/"))
    chosen = [Case.parse(options.case)] if options.case else list(share(cases(), part, parts))
    outcomes: dict[str, int] = {}
    broken = 0
    for case in chosen:
        try:
            outcome = run(case)
        except BrokenError as error:
            outcome, broken = "BROKEN", broken + 1
            print(f"{case}: {error}", flush=True)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if options.verbose:
            print(f"{case}: {outcome}", flush=True)
    print(
        f"{len(chosen)} interleavings: "
        + ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
