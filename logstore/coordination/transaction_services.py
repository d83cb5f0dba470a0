"""The parts of the embedded store that serve transactions, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.coordination.transaction_admin import TransactionAdmin
from logstore.coordination.transaction_manager import TransactionManager
from logstore.coordination.transaction_reaper import TransactionReaper
from logstore.directory.producer_ids import ProducerIds
from logstore.groups.coordinator import GroupCoordinator
from logstore.partition.context import StoreContext
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import OffsetAndMetadata, TopicPartition


class TransactionServices:
    """``room``: open ids; ``keeper``: the housekeeper's part; ``office``: the administrator's."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        producer_ids: ProducerIds,
        offsets: Callable[[bool], CoordinatorRuntime[GroupCoordinator] | None],
        end_offsets: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], Mapping[TopicPartition, int]],
    ) -> None:
        self.room = TransactionManager(context, registry, producer_ids, offsets, end_offsets)
        self.keeper = TransactionReaper(self.room)
        self.office = TransactionAdmin(context, registry, self.room, offsets)

    def abandon(self) -> None:
        """As if the process had been killed: its ids are free for others."""
        self.room.let_go()

    def close(self) -> None:
        self.room.close()
