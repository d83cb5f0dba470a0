"""Locks of transactional ids within the one process that runs their coordinator."""

from __future__ import annotations

import threading

from logstore.errors import ProducerBusyError


class NodeIdLocks:
    """Thread-safe."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._held: dict[str, NodeIdLock] = {}

    def of(self, transactional_id: str) -> NodeIdLock:
        return NodeIdLock(self, transactional_id)

    def is_held(self, transactional_id: str) -> bool:
        return transactional_id in self._held

    def take(self, transactional_id: str, lock: NodeIdLock, timeout_s: float) -> bool:
        with self._free:
            return self._free.wait_for(
                lambda: self._held.setdefault(transactional_id, lock) is lock, max(timeout_s, 0.0)
            )

    def release(self, transactional_id: str, lock: NodeIdLock) -> None:
        with self._free:
            if self._held.get(transactional_id) is lock:
                del self._held[transactional_id]
                self._free.notify_all()


class NodeIdLock:
    """An ``IdLock``."""

    def __init__(self, locks: NodeIdLocks, transactional_id: str) -> None:
        self._locks = locks
        self._id = transactional_id

    def try_take(self) -> bool:
        return self._locks.take(self._id, self, 0.0)

    def take(self, timeout_s: float) -> None:
        if not self._locks.take(self._id, self, timeout_s):
            raise ProducerBusyError(
                f"transactional id {self._id!r} is being opened by another producer of this broker; waited "
                f"{max(timeout_s, 0.0):.1f} s"
            )

    def release(self) -> None:
        self._locks.release(self._id, self)
