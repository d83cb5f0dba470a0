"""Waiting for a lock that is given back and taken again all the time: one waiter at a time has the turn.

Whoever polls for a lock sees it free only by chance when its holder comes back at once. So a waiter first takes
the slot's turn, and keeps it until the lock is its own; who finds the turn taken does not touch the lock. The
one with the turn looks often, the others seldom. Processes that are all busy get the lock one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from logstore.seams.clock import Clock

_FIRST_PAUSE_S: Final = (
    0.0001  # of the one whose turn it is: what a write holds the lock for is of that order
)
_LONGEST_PAUSE_S: Final = 0.005
_FIRST_TURN_PAUSE_S: Final = 0.0005
_LONGEST_TURN_PAUSE_S: Final = 0.02


class TurnedLocks(Protocol):
    """What is needed of ``Locks``."""

    def try_acquire(self, slot: int) -> bool: ...
    def try_turn(self, slot: int) -> bool: ...
    def end_turn(self, slot: int) -> None: ...


def wait_in_turn(
    locks: TurnedLocks, slot: int, timeout_s: float, clock: Clock, sleep: Callable[[float], None]
) -> bool:
    """Take the slot after all that have the turn before; False when ``timeout_s`` passed first."""
    until_s = clock.monotonic_s() + timeout_s
    if not _poll(
        lambda: locks.try_turn(slot), _FIRST_TURN_PAUSE_S, _LONGEST_TURN_PAUSE_S, until_s, clock, sleep
    ):
        return False
    try:
        return _poll(lambda: locks.try_acquire(slot), _FIRST_PAUSE_S, _LONGEST_PAUSE_S, until_s, clock, sleep)
    finally:
        locks.end_turn(slot)


def _poll(
    attempt: Callable[[], bool],
    pause_s: float,
    longest_s: float,
    until_s: float,
    clock: Clock,
    sleep: Callable[[float], None],
) -> bool:
    while not attempt():
        left_s = until_s - clock.monotonic_s()
        if left_s <= 0:
            return False
        sleep(min(pause_s, left_s))
        pause_s = min(1.5 * pause_s, longest_s)
    return True
