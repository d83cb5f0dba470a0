"""A transactional id, held by one opening at a time through a lock that the system frees when its process ends.

A process that gets the lock of an id knows that no other has a transaction of it under way: only then may what is in
doubt be finished or aborted on another's behalf.
"""

from __future__ import annotations

from typing import Final

from logstore.errors import ProducerBusyError, TopicLockedError
from logstore.ownership.lock import LockHolder
from logstore.ownership.lock_space import LockSpace
from logstore.ownership.name_lock import holder_of, lock_of

_MEMORY_SLOTS: Final = 3 << 60  # beside those of groups and of named producers


class TransactionalIdLock:
    """Not held when made: ``try_take`` or ``take``, then ``release``."""

    def __init__(self, context: LockSpace, transactional_id: str) -> None:
        self._id = transactional_id
        self._locks, self._slot, self._close = lock_of(
            context, "transaction", transactional_id, _MEMORY_SLOTS
        )
        self.held = False

    def try_take(self) -> bool:
        """Without waiting; True if it is held now."""
        self.held = self.held or self._locks.try_acquire(self._slot)
        return self.held

    def take(self, timeout_s: float) -> None:
        """``ProducerBusyError`` names the process that keeps it: its producer hangs, and the process lives."""
        if self.held:
            return
        try:
            self._locks.acquire(self._slot, max(timeout_s, 0.0), f"transactional id {self._id!r}")
        except TopicLockedError as error:
            holder = self._locks.holder(self._slot)
            keeper = "another producer" if holder is None else holder.describe()
            raise ProducerBusyError(
                f"transactional id {self._id!r} was taken over from {keeper}, which has not let go of it within "
                f"{max(timeout_s, 0.0):.1f} s",
                hint="end that process if it hangs, then open the id again",
            ) from error
        self.held = True

    def release(self) -> None:
        """Safe to call again; the hold is of no use afterwards."""
        if self.held:
            self.held = False
            self._locks.release(self._slot)
        self._close()


def transaction_holder(context: LockSpace, transactional_id: str) -> LockHolder | None:
    """The process that has the id open now; None: it is not open."""
    return holder_of(context, "transaction", transactional_id, _MEMORY_SLOTS)
