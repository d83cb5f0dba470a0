"""The holders of a store's locks, seen by a reader: nothing is taken, made or written."""

from __future__ import annotations

import os
from collections.abc import Callable

from logstore.errors import ForkedStoreError, ReadOnlyStoreError, StoreClosedError, from_os_error
from logstore.ownership.lock import MOMENTS, LockHolder, TurnPauses
from logstore.ownership.lock_mechanism import LockMechanism, choose_view
from logstore.ownership.locks import decode_holder


class LockView:
    """``Locks`` of a read-only store on the file ``path``, which may be missing: then no lock is held.

    Opened for each look, so that a file made since is seen. ``mechanism`` looks, for tests of the one that
    this platform does not choose.
    """

    def __init__(self, path: str, *, mechanism: Callable[[str], LockMechanism] = choose_view) -> None:
        self.path = path
        self._mechanism = mechanism
        self._pid = os.getpid()
        self._closed = False

    @property
    def forked(self) -> bool:
        return os.getpid() != self._pid

    def check_fork(self) -> None:
        """ForkedStoreError in a child of the process that opened the store."""
        if self.forked:
            raise ForkedStoreError(
                f"process {os.getpid()} uses the store of {self.path}, opened by process {self._pid}"
            )

    def try_acquire(self, slot: int) -> bool:
        raise ReadOnlyStoreError(f"lock slot {slot} of {self.path} cannot be taken by a read-only store")

    def acquire(self, slot: int, timeout_s: float, what: str) -> None:
        del timeout_s
        raise ReadOnlyStoreError(f"{what} cannot be locked by a read-only store (lock slot {slot})")

    def acquire_in_turn(self, slot: int, timeout_s: float, what: str, pauses: TurnPauses = MOMENTS) -> None:
        del pauses
        self.acquire(slot, timeout_s, what)

    def wanted(self, slot: int) -> bool:
        del slot
        return False

    def any_wanted(self) -> bool:
        return False

    def check(self, *, now: bool = False) -> None:
        """Nothing is held that could be lost."""

    def try_turn(self, slot: int) -> bool:
        return self.try_acquire(slot)

    def end_turn(self, slot: int) -> None:
        self.release(slot)

    def release(self, slot: int) -> None:
        raise ReadOnlyStoreError(f"lock slot {slot} of {self.path} is not held by a read-only store")

    def held(self, slot: int) -> bool:
        del slot
        return False

    def holder(self, slot: int) -> LockHolder | None:
        """The holder of the slot; None when it is free, or its holder's record is caught half-written."""
        return self._look(slot)[1]

    def taken(self, slot: int) -> bool:
        return self._look(slot)[0]

    def _look(self, slot: int) -> tuple[bool, LockHolder | None]:
        self.check_fork()
        if self._closed:
            raise StoreClosedError(f"the locks {self.path} are looked at after their store was closed")
        try:
            mechanism = self._mechanism(self.path)
            try:
                taken = mechanism.locked_by_other(slot)
                return taken, decode_holder(mechanism.read_record(slot)) if taken else None
            finally:
                mechanism.close()
        except FileNotFoundError:
            return False, None
        except OSError as error:
            raise from_os_error(error, f"look at lock slot {slot} of", self.path) from error

    def close(self) -> None:
        self._closed = True

    def abandon(self) -> None:
        self.close()
