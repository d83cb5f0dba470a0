"""Waiting for a lock of another process, by looking again and again, and in turn.

A lock that is given back and taken again all the time needs turns: a process that only polls sees it free by
chance when its holder comes back at once. So a waiting process first takes the slot's turn, and keeps it until the
lock is its own; a process that finds the turn taken does not touch the lock. The one with the turn looks often, the
others seldom. Processes that are all busy get the lock one after the other. A holder that keeps the lock for long
sees by the turn that it is asked for.

A wait of more than a second is logged as a warning that names the holder, and again every ten seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from logstore.errors import TopicLockedError
from logstore.ownership.lock import MOMENTS, Locks, TurnPauses
from logstore.seams.clock import Clock

logger = logging.getLogger(__name__)

_FIRST_LOOK_S: Final = 0.001
_LONGEST_LOOK_S: Final = 0.05
WARN_FIRST_S: Final = 1.0
WARN_AGAIN_S: Final = 10.0


class Patience:
    """One wait: how long it may last, and what is said of it. ``holder`` describes the process that holds ``what``."""

    def __init__(self, what: str, timeout_s: float, now_s: float, holder: Callable[[], str]) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._started_s = now_s
        self._warn_at_s = now_s + WARN_FIRST_S
        self._holder = holder

    def left_s(self, now_s: float) -> float:
        """Seconds that the wait may still last, at most those until its next warning; 0 or less: it is over.
        Warns when that is due."""
        if now_s >= self._warn_at_s:
            self._warn_at_s = now_s + WARN_AGAIN_S
            logger.warning(
                "waiting for %s, which is held by %s: for %.0f s by now, at most %.1f s",
                self._what,
                self._holder(),
                self.waited_s(now_s),
                self._timeout_s,
            )
        until_s = self._started_s + self._timeout_s
        return until_s - now_s if until_s <= now_s else min(until_s, self._warn_at_s) - now_s

    def waited_s(self, now_s: float) -> float:
        return now_s - self._started_s


def wait(
    locks: Locks, slot: int, timeout_s: float, what: str, clock: Clock, sleep: Callable[[float], None]
) -> None:
    """Take the slot. TopicLockedError when ``timeout_s`` passed first."""
    patience = _patience(locks, slot, timeout_s, what, clock)
    if not _poll(
        lambda: locks.try_acquire(slot), 2.0, _FIRST_LOOK_S, _LONGEST_LOOK_S, patience, clock, sleep
    ):
        raise locked(locks, slot, what, patience.waited_s(clock.monotonic_s()))


def locked(locks: Locks, slot: int, what: str, waited_s: float) -> TopicLockedError:
    """The error that names the slot's holder."""
    return TopicLockedError(
        f"{what} is locked by {holder_text(locks, slot)}; waited {waited_s:.1f} s for it",
        hint="let its holder finish or release it (store.release, store.close), or raise lock_timeout_s",
    )


def holder_text(locks: Locks, slot: int) -> str:
    holder = locks.holder(slot)
    return "another process" if holder is None else holder.describe()


def wait_in_turn(
    locks: Locks,
    slot: int,
    timeout_s: float,
    what: str,
    clock: Clock,
    sleep: Callable[[float], None],
    pauses: TurnPauses = MOMENTS,
) -> None:
    """Take the slot after all that have the turn before. TopicLockedError when ``timeout_s`` passed first."""
    patience = _patience(locks, slot, timeout_s, what, clock)
    turn = _poll(
        lambda: locks.try_turn(slot), 1.5, pauses.turn_first_s, pauses.turn_longest_s, patience, clock, sleep
    )
    if turn:
        try:
            if _poll(
                lambda: locks.try_acquire(slot), 1.5, pauses.first_s, pauses.longest_s, patience, clock, sleep
            ):
                return
        finally:
            locks.end_turn(slot)
    raise locked(locks, slot, what, patience.waited_s(clock.monotonic_s()))


def acquire_in_process(lock: threading.Lock, timeout_s: float, what: str, locks: Locks, slot: int) -> None:
    """Take the lock by which the threads of this process share their use of a slot, one of which may be waiting for
    the slot itself. TopicLockedError when ``timeout_s`` (of real time) passed first."""
    if lock.acquire(blocking=False):
        return
    patience = Patience(what, timeout_s, time.monotonic(), lambda: holder_text(locks, slot))
    while (left_s := patience.left_s(time.monotonic())) > 0:
        if lock.acquire(timeout=min(left_s, threading.TIMEOUT_MAX)):
            return
    raise TopicLockedError(
        f"{what} is locked by another thread of this process, which takes, uses or releases it (across processes it "
        f"is held by {holder_text(locks, slot)}); waited {timeout_s:.1f} s for it",
        hint="let the holder finish or release it (store.release, store.close), or raise lock_timeout_s",
    )


def _patience(locks: Locks, slot: int, timeout_s: float, what: str, clock: Clock) -> Patience:
    return Patience(what, timeout_s, clock.monotonic_s(), lambda: holder_text(locks, slot))


def _poll(
    attempt: Callable[[], bool],
    growth: float,
    pause_s: float,
    longest_s: float,
    patience: Patience,
    clock: Clock,
    sleep: Callable[[float], None],
) -> bool:
    while not attempt():
        left_s = patience.left_s(clock.monotonic_s())
        if left_s <= 0:
            return False
        sleep(min(pause_s, left_s))
        pause_s = min(growth * pause_s, longest_s)
    return True
