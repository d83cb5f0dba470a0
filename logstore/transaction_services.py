"""The parts of the embedded store that serve transactions, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logstore.context import StoreContext
from logstore.groups.coordinator import GroupCoordinator
from logstore.producer_ids import ProducerIds
from logstore.shared_topic import SharedTopic
from logstore.topic_registry import TopicRegistry
from logstore.transaction_keeper import TransactionKeeper
from logstore.transaction_office import TransactionOffice
from logstore.transaction_room import TransactionRoom
from logstore.types import OffsetAndMetadata, TopicPartition


class TransactionServices:
    """``room``: open ids; ``keeper``: the housekeeper's part; ``office``: the administrator's."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        producer_ids: ProducerIds,
        offsets: Callable[[bool], SharedTopic[GroupCoordinator] | None],
        end_offsets: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], Mapping[TopicPartition, int]],
    ) -> None:
        self.room = TransactionRoom(context, registry, producer_ids, offsets, end_offsets)
        self.keeper = TransactionKeeper(self.room)
        self.office = TransactionOffice(context, registry, self.room, offsets)

    def abandon(self) -> None:
        """As if the process had been killed: its ids are free for others."""
        self.room.let_go()

    def close(self) -> None:
        self.room.close()
