"""The lock of a node: one process at a time is a node of a directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.errors import TopicLockedError
from logstore.ownership.lock_space import LockSpace
from logstore.ownership.name_lock import lock_of

_MEMORY_SLOTS: Final = 6 << 60  # beside those of expiry, cleaners, producers, transactions and members


def lock_node(space: LockSpace) -> Callable[[], None]:
    """What gives the lock back. TopicLockedError: another process is this node."""
    locks, slot, close = lock_of(space, "node", "cluster", _MEMORY_SLOTS)
    if not locks.try_acquire(slot):
        holder = locks.holder(slot)
        close()
        raise TopicLockedError(
            f"{space.root} is in use by another node's process"
            + (f", {holder.describe()}" if holder else ""),
            hint="end that process, or give this one a directory of its own",
        )

    def give_back() -> None:
        if locks.held(slot):  # those in memory were let go of with the store
            locks.release(slot)
        close()

    return give_back
