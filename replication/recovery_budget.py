"""``RecoveryBudget``: how many bytes a second one node sends to replicas that are behind, of all its partitions.

Records and snapshots count; the metadata do not, as a node is nothing without them.
"""

from __future__ import annotations

import threading
from typing import Final

from logstore.seams.clock import Clock

_BURST_S: Final = 1.0


class RecoveryBudget:
    """Thread-safe. ``bytes_s``: more than 0. What a message takes beyond what is there is paid off before the next, so
    that a message that is larger than a second's share goes, too."""

    def __init__(self, bytes_s: float, clock: Clock) -> None:
        self._bytes_s = bytes_s
        self._clock = clock
        self._lock = threading.Lock()
        self._left = bytes_s * _BURST_S
        self._filled_s = clock.monotonic_s()

    def has_room(self) -> bool:
        """Whether a message may go now."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._left = min(self._left + (now_s - self._filled_s) * self._bytes_s, self._bytes_s * _BURST_S)
            self._filled_s = now_s
            return self._left > 0

    def take(self, size: int) -> None:
        """The message goes."""
        with self._lock:
            self._left -= size
