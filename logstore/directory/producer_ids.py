"""Producer ids: taken from the catalogue in blocks, durably, and handed out from memory.

An id is never used twice, also after a crash: a log that remembers an id would take a stranger's batches for
duplicates of those that it has. What is left of a block when its process ends is lost; there are 2^63.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

BLOCK: Final = 1_000  # ids of one write of the catalogue


class ProducerIds:
    """Thread-safe. ``take_block``: makes so many ids this process's own, durably, and gives the first."""

    def __init__(self, take_block: Callable[[int], int], block: int = BLOCK) -> None:
        self._take_block = take_block
        self._block = block
        self._lock = threading.Lock()
        self._next = self._end = 0

    def take(self) -> int:
        """An id that nobody had before. The first of a block writes the catalogue: TopicLockedError,
        StorageError, DiskFullError, and then nothing is handed out."""
        producer_id = self._from_block()
        while producer_id is None:
            # Without the lock: threads wait for the catalogue for as long as each may. Of two that take a block at
            # a time the later one's counts, and the other's rest is lost.
            first = self._take_block(self._block)
            with self._lock:
                self._next, self._end = first, first + self._block
            producer_id = self._from_block()
        return producer_id

    def _from_block(self) -> int | None:
        with self._lock:
            if self._next == self._end:
                return None
            self._next += 1
            return self._next - 1
