"""``CoordinationParts``: what a backend's groups and transactions stand on, and the parts of one directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from logstore.coordination.coordinator import Coordinators
from logstore.coordination.liveness import MemberLiveness
from logstore.coordination.offset_ends import OffsetEnds
from logstore.coordination.transaction_runtime import TransactionRuntime
from logstore.directory.producer_ids import ProducerIds
from logstore.embedded.transaction_runtime import EmbeddedTransactionRuntime
from logstore.ownership.expiry_lock import try_expiry_lock
from logstore.ownership.member_liveness import SlotLiveness
from logstore.ownership.transactional_id_lock import transaction_holder
from logstore.partition.context import StoreContext
from logstore.partition.end_offset_cache import EndOffsetCache
from logstore.partition.open_transactions import OpenTransaction, first_open
from logstore.partition.partition import PartitionWriter
from logstore.partition.partition_log import PartitionLog
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import TopicPartition


class CoordinationParts(Protocol):
    """``ends``: of the partitions for which offsets are committed; ``liveness``: of members of groups;
    ``owners_return``: producers come from a former coordinator, so that a free id says nothing of its owner."""

    @property
    def coordinators(self) -> Coordinators: ...

    @property
    def owners_return(self) -> bool: ...

    @property
    def ends(self) -> OffsetEnds: ...

    @property
    def liveness(self) -> MemberLiveness: ...

    def transaction_runtime(self, producer_ids: ProducerIds) -> TransactionRuntime: ...

    def writer(self, topic: str, partition: int) -> PartitionWriter:
        """Who knows the partition's producers. ``UnknownTopicError``, ``UnknownPartitionError``."""
        ...

    def open_transaction(self, place: TopicPartition) -> OpenTransaction | None:
        """The first one that the partition's log holds open. ``UnknownTopicError``, ``UnknownPartitionError``."""
        ...

    def try_expiry_lock(self) -> Callable[[], None] | None:
        """Look for offsets that have expired, alone; what ends that. None: another process does, or is to."""
        ...

    def holder_of(self, transactional_id: str) -> str | None:
        """For administrators: who has the id open; None: nobody."""
        ...


class EmbeddedParts:
    """``CoordinationParts`` of one directory, which its processes share by locks. ``partition`` gives the facade of one
    partition."""

    owners_return = False

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        partition: Callable[[str, int], PartitionLog],
        coordinators: Coordinators,
    ) -> None:
        self._context = context
        self._registry = registry
        self.coordinators = coordinators
        self.ends = EndOffsetCache(registry, partition)
        self.liveness = SlotLiveness(context)

    def transaction_runtime(self, producer_ids: ProducerIds) -> EmbeddedTransactionRuntime:
        return EmbeddedTransactionRuntime(self._context, self._registry, producer_ids)

    def writer(self, topic: str, partition: int) -> PartitionWriter:
        return self._registry.get(topic).partition(partition)

    def open_transaction(self, place: TopicPartition) -> OpenTransaction | None:
        return first_open(self._registry.get(place.topic).partition(place.partition).reader())

    def try_expiry_lock(self) -> Callable[[], None] | None:
        return try_expiry_lock(self._context)

    def holder_of(self, transactional_id: str) -> str | None:
        holder = transaction_holder(self._context, transactional_id)
        return None if holder is None else holder.describe()
