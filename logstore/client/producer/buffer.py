"""The bound of what a producer holds in memory: bytes of batches that are not done, and callers that wait for some.

No thread and no clock: all methods want the accumulator's lock held.
"""

from __future__ import annotations

import threading
from collections import deque

from logstore.client.producer.counters import Counters
from logstore.native import compiled


@compiled("client.pending")
class ProducerBuffer:
    """``limit_bytes``: ``buffer.memory``; ``held_bytes``: what batches hold of it."""

    def __init__(self, limit_bytes: int, counters: Counters) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiters: deque[threading.Lock] = deque()
        self._counters = counters

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.held_bytes

    def has_room_for(self, needed_bytes: int) -> bool:
        return self.held_bytes + needed_bytes <= self.limit_bytes

    def hold(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes

    def give_back(self, released_bytes: int) -> None:
        """All who wait look again."""
        self.held_bytes -= released_bytes
        if released_bytes and self._waiters:
            for waiter in self._waiters:
                waiter.release()
            self._waiters.clear()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiters)

    def join_queue(self) -> threading.Lock:
        """A lock that is released when bytes come back. While a caller waits for that, no open batch lingers."""
        gate = threading.Lock()
        gate.acquire()
        self._waiters.append(gate)
        self._counters.waits_for_room += 1
        return gate

    def leave_queue(self, gate: threading.Lock) -> None:
        if gate in self._waiters:
            self._waiters.remove(gate)
