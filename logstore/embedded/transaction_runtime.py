"""``EmbeddedTransactionRuntime``: transactions on the topics and locks of one directory."""

from __future__ import annotations

from logstore.directory.producer_ids import ProducerIds
from logstore.ownership.transactional_id_lock import TransactionalIdLock
from logstore.partition.context import StoreContext
from logstore.partition.partition import Partition
from logstore.partition.topic_registry import TopicRegistry


class EmbeddedTransactionRuntime:
    """A ``TransactionRuntime``. Thread-safe."""

    def __init__(self, context: StoreContext, registry: TopicRegistry, producer_ids: ProducerIds) -> None:
        self._context = context
        self._registry = registry
        self.take_producer_id = producer_ids.take
        self.note_opened = context.note_owned
        self.look_for_changes = registry.look_for_changes

    def id_lock(self, transactional_id: str) -> TransactionalIdLock:
        return TransactionalIdLock(self._context, transactional_id)

    def partition(self, topic: str, partition: int) -> Partition:
        return self._registry.get(topic).partition(partition)

    def holder_of(self, topic: str) -> str:
        entry = self._registry.catalogue.topics.get(topic)
        holder = None if entry is None else self._context.locks.holder(entry.lock_slot)
        return "another process" if holder is None else holder.describe()
