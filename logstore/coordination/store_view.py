"""``StoreView``: what managers and tasks of coordination need of the store that they belong to."""

from __future__ import annotations

from typing import Protocol

from logstore.ownership.wait_limit import WaitLimit
from logstore.seams.clock import Clock


class StoreView(Protocol):
    """``lock_timeout_s``: how long the calling thread may wait for a lock now; ``threads``: whether work may have
    threads of its own; ``offsets_retention_s``: how long offsets of groups without members are kept."""

    @property
    def clock(self) -> Clock: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def lock_timeout_s(self) -> float: ...

    @property
    def wait_limit(self) -> WaitLimit: ...

    @property
    def threads(self) -> bool: ...

    @property
    def offsets_retention_s(self) -> float: ...

    def check_usable(self) -> None:
        """StoreClosedError, ForkedStoreError."""
        ...

    def check_writable(self) -> None:
        """ReadOnlyStoreError, StoreClosedError, ForkedStoreError, LockLostError."""
        ...
