"""``Outbox``: what waits to be sent on one connection to a peer, within bounds."""

from __future__ import annotations

import threading
from collections import deque

from replication.transport import GroupMessage


class Outbox:
    """Thread-safe. Full at ``max_bytes``: then what comes is dropped, and what waits stays.

    Of Raft's pipelined appends the oldest are the ones that a peer can use: each builds on the one before it, so that
    a follower appends the prefix that arrives, and its answers have the leader send the rest again. Were the oldest
    dropped, everything behind the gap would be refused.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[int, GroupMessage]] = deque()
        self._changed = threading.Condition()
        self._open = True
        self.bytes = 0
        self.dropped = 0

    def put(self, message: GroupMessage, size: int) -> bool:
        """Whether the message, of about ``size`` bytes, waits now. One that is larger than the bound waits alone."""
        with self._changed:
            if not self._open or (self.bytes and self.bytes + size > self._max_bytes):
                self.dropped += 1
                return False
            self._waiting.append((size, message))
            self.bytes += size
            if len(self._waiting) == 1:
                self._changed.notify()
            return True

    def take(self, max_bytes: int) -> list[GroupMessage]:
        """All that waits, in order, up to ``max_bytes``, but at least one: waits for it. Empty once closed."""
        with self._changed:
            while self._open and not self._waiting:
                self._changed.wait()
            taken: list[GroupMessage] = []
            size = 0
            while self._waiting and (not taken or size + self._waiting[0][0] <= max_bytes):
                added, message = self._waiting.popleft()
                size += added
                taken.append(message)
            self.bytes -= size
            return taken

    def close(self) -> None:
        """The connection is gone: what waits is dropped, as Raft sends what still counts again."""
        with self._changed:
            self._open = False
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self.bytes = 0
            self._changed.notify_all()
