"""``LockSpace``: where the locks of one opened store lie, and what its lock holders share."""

from __future__ import annotations

from typing import Protocol

from logstore.ownership.heartbeats import HeartbeatBoard
from logstore.ownership.lock import Locks
from logstore.seams.clock import Clock


class LockSpace(Protocol):
    """What locks by name and members' slots need of a store; its context is one.

    ``root``: the store's directory; ``heartbeats``: None where they lie in a file, or in memory, as the locks do.
    """

    @property
    def root(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def locks(self) -> Locks: ...

    @property
    def heartbeats(self) -> HeartbeatBoard | None: ...

    @property
    def lock_timeout_s(self) -> float: ...

    def check_usable(self) -> None:
        """StoreClosedError, ForkedStoreError."""
        ...
