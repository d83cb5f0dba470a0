"""Waiting for a lock of another process, by looking again and again.

A lock that is given back and taken again all the time needs more: whoever polls for it sees it free only by
chance when its holder comes back at once. So a waiter first takes the slot's turn, and keeps it until the lock
is its own; who finds the turn taken does not touch the lock. The one with the turn looks often, the others
seldom. Processes that are all busy get the lock one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.errors import TopicLockedError
from logstore.ownership.lock import Locks
from logstore.seams.clock import Clock

_FIRST_LOOK_S: Final = 0.001
_LONGEST_LOOK_S: Final = 0.05
# Of the one whose turn it is: what a write holds the lock for is of that order.
_FIRST_PAUSE_S: Final = 0.0001
_LONGEST_PAUSE_S: Final = 0.005
_FIRST_TURN_PAUSE_S: Final = 0.0005
_LONGEST_TURN_PAUSE_S: Final = 0.02


def wait(
    locks: Locks, slot: int, timeout_s: float, what: str, clock: Clock, sleep: Callable[[float], None]
) -> None:
    """Take the slot. TopicLockedError when ``timeout_s`` passed first."""
    started_s = clock.monotonic_s()
    until_s = started_s + timeout_s
    if not _poll(lambda: locks.try_acquire(slot), 2.0, _FIRST_LOOK_S, _LONGEST_LOOK_S, until_s, clock, sleep):
        raise locked(locks, slot, what, clock.monotonic_s() - started_s)


def locked(locks: Locks, slot: int, what: str, waited_s: float) -> TopicLockedError:
    """The error that names the slot's holder."""
    holder = locks.holder(slot)
    who = "another process" if holder is None else holder.describe()
    return TopicLockedError(
        f"{what} is locked by {who}; waited {waited_s:.1f} s for it",
        hint="let its holder finish or release it (store.release, store.close), or raise lock_timeout_s",
    )


def wait_in_turn(
    locks: Locks, slot: int, timeout_s: float, clock: Clock, sleep: Callable[[float], None]
) -> bool:
    """Take the slot after all that have the turn before; False when ``timeout_s`` passed first."""
    until_s = clock.monotonic_s() + timeout_s
    if not _poll(
        lambda: locks.try_turn(slot), 1.5, _FIRST_TURN_PAUSE_S, _LONGEST_TURN_PAUSE_S, until_s, clock, sleep
    ):
        return False
    try:
        return _poll(
            lambda: locks.try_acquire(slot), 1.5, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, until_s, clock, sleep
        )
    finally:
        locks.end_turn(slot)


def _poll(
    attempt: Callable[[], bool],
    growth: float,
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
        pause_s = min(growth * pause_s, longest_s)
    return True
