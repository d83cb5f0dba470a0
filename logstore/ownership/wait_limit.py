"""``WaitLimit``: until when the calls that a thread makes may wait for locks of other processes."""

from __future__ import annotations

import threading
from math import inf

from logstore.seams.clock import Clock


class WaitLimit(threading.local):
    """Each thread has a limit of its own; none at first. A call that has a deadline sets it for all that it waits
    for: the catalogue, internal topics and topics, one after the other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.until_s = inf

    def left_s(self, most_s: float) -> float:
        """Seconds that a wait which begins now may last, at most ``most_s``, at least 0."""
        if self.until_s == inf:
            return most_s
        return max(min(most_s, self.until_s - self._clock.monotonic_s()), 0.0)

    def within(self, timeout_s: float) -> Within:
        """In the block waits end ``timeout_s`` from now, or at the limit of a block around it."""
        return Within(self, self._clock.monotonic_s() + timeout_s)


class Within:
    """A block in which waits end at ``until_s``. No generator: every flight of a producer has one."""

    __slots__ = ("_before_s", "_limit", "_until_s")

    def __init__(self, limit: WaitLimit, until_s: float) -> None:
        self._limit = limit
        self._until_s = until_s
        self._before_s = inf

    def __enter__(self) -> None:
        limit = self._limit
        self._before_s = before_s = limit.until_s
        if self._until_s < before_s:
            limit.until_s = self._until_s

    def __exit__(self, *error: object) -> None:
        self._limit.until_s = self._before_s
