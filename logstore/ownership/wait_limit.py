"""``WaitLimit``: until when the calls that a thread makes may wait for locks of other processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from logstore.seams.clock import Clock


class WaitLimit(threading.local):
    """Each thread has a limit of its own; none at first. A call that has a deadline sets it for all that it waits
    for: the catalogue, internal topics and topics, one after the other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = inf

    def left_s(self, most_s: float) -> float:
        """Seconds that a wait which begins now may last, at most ``most_s``, at least 0."""
        if self._until_s == inf:
            return most_s
        return max(min(most_s, self._until_s - self._clock.monotonic_s()), 0.0)

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """In the block waits end ``timeout_s`` from now, or at the limit of a block around it."""
        before = self._until_s
        self._until_s = min(before, self._clock.monotonic_s() + timeout_s)
        try:
            yield
        finally:
            self._until_s = before
