"""``TopicClient``: one topic by name, over any ``Backend``: what ``client.topic(name)`` hands out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

from logstore.client.partition_client import PartitionClient
from logstore.client.serializers import Deserializer, ValueT
from logstore.client.table.table import KeyTable, TableOptions
from logstore.seams.clock import Clock
from logstore.types import TopicDescription

if TYPE_CHECKING:
    from logstore.client.store_client import StoreClient


class TopicClient:
    """Cheap; holds nothing. The verbs of ``logstore.TopicHandle``, but for ``release``: brokers own their topics."""

    def __init__(self, client: StoreClient, clock: Clock, name: str) -> None:
        self._client = client
        self._clock = clock
        self.name = name

    def __repr__(self) -> str:
        return f"TopicClient({self.name!r})"

    @property
    def topic_id(self) -> str:
        """The topic's uuid as Kafka prints it."""
        return self._client.backend.topic(self.name).topic_id

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return self._client.backend.topic(self.name).partitions

    @property
    def config(self) -> Mapping[str, str]:
        """The settings that were given; all others have their defaults."""
        return self.describe().config

    def partition(self, partition: int) -> PartitionClient:
        return PartitionClient(self._client.backend, self._clock, self.name, partition)

    @overload
    def table(
        self, *, value_deserializer: None = None, **settings: Unpack[TableOptions]
    ) -> KeyTable[bytes]: ...
    @overload
    def table(
        self, *, value_deserializer: Deserializer[ValueT], **settings: Unpack[TableOptions]
    ) -> KeyTable[ValueT]: ...
    def table(
        self, *, value_deserializer: Deserializer[Any] | None = None, **settings: Unpack[TableOptions]
    ) -> KeyTable[Any]:
        """The latest value of each key; see ``TopicHandle.table``."""
        if value_deserializer is None:
            return self._client.table(self.name, **settings)
        return self._client.table(self.name, value_deserializer=value_deserializer, **settings)

    def describe(self) -> TopicDescription:
        """Offsets, segments and sizes of every partition."""
        return self._client.describe_topic(self.name)
