"""Which process looks for committed offsets that have expired: one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.ownership.lock_space import LockSpace
from logstore.ownership.name_lock import lock_of

_MEMORY_SLOTS: Final = 5 << 60  # beside those of cleaners, producers, transactions and members


def try_expiry_lock(space: LockSpace) -> Callable[[], None] | None:
    """What gives the lock back; None: another process, or store, has it."""
    locks, slot, close = lock_of(space, "expiry", "offsets", _MEMORY_SLOTS)
    if not locks.try_acquire(slot):
        close()
        return None

    def give_back() -> None:
        locks.release(slot)
        close()

    return give_back
