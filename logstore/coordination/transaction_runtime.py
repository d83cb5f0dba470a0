"""``TransactionRuntime``: what the transactions of one process stand on, beside their coordinator."""

from __future__ import annotations

from typing import Protocol

from logstore.partition.partition import PartitionWriter


class IdLock(Protocol):
    """One opening of a transactional id at a time holds its lock, and as long as its process lives. Not held when
    made."""

    def try_take(self) -> bool:
        """Without waiting; True if it is held now."""
        ...

    def take(self, timeout_s: float) -> None:
        """``ProducerBusyError`` if another opening keeps it."""
        ...

    def release(self) -> None:
        """Safe to call again; the lock is of no use afterwards."""
        ...


class TransactionRuntime(Protocol):
    """Thread-safe."""

    def take_producer_id(self) -> int:
        """A producer id that was never given out."""
        ...

    def id_lock(self, transactional_id: str) -> IdLock: ...

    def note_opened(self) -> None:
        """A transactional id was opened: the reaper has work."""
        ...

    def partition(self, topic: str, partition: int) -> PartitionWriter:
        """Where a marker goes. ``UnknownTopicError``, ``UnknownPartitionError``."""
        ...

    def look_for_changes(self) -> None:
        """Take over partitions that were added elsewhere."""
        ...

    def holder_of(self, topic: str) -> str:
        """For messages: the process that has the topic now."""
        ...
