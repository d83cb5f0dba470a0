"""Which process cleans an internal topic: a lock that it holds from the first slice to the last.

The system frees it when the process ends. While it is held, `.cleaned` files in the topic are no leftovers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.ownership.lock import LockHolder, Locks
from logstore.ownership.lock_space import LockSpace
from logstore.ownership.name_lock import holder_of, lock_of

_MEMORY_SLOTS: Final = 1 << 58  # beside those of groups and producers


class CleaningLease:
    """The lock of an internal topic's cleaner, held until ``release``."""

    def __init__(self, locks: Locks, slot: int, give_back: Callable[[], None]) -> None:
        self._locks = locks
        self._slot = slot
        self.give_back = give_back

    @staticmethod
    def taken(context: LockSpace, topic: str) -> CleaningLease | None:
        """None if another process, or store, has it."""
        locks, slot, give_back = lock_of(context, "cleaner", topic, _MEMORY_SLOTS)
        if locks.try_acquire(slot):
            return CleaningLease(locks, slot, give_back)
        give_back()
        return None

    def check(self) -> None:
        """LockLostError if the lock keeps no other cleaner out any more."""
        self._locks.check(now=True)

    def release(self) -> None:
        self._locks.release(self._slot)
        self.give_back()


def cleaner_of(context: LockSpace, topic: str) -> LockHolder | None:
    """The process that cleans the internal topic now; None: none does."""
    return holder_of(context, "cleaner", topic, _MEMORY_SLOTS)
