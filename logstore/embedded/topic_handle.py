"""``store.topic(name)``: one topic, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack, overload

from logstore.api.backend import Backend
from logstore.client.serializers import Deserializer, ValueT
from logstore.client.store_client import StoreClient
from logstore.client.table.table import KeyTable, TableOptions
from logstore.partition.partition_log import PartitionLog
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import TopicDescription


class TopicHandle:
    """Cheap; holds no lock."""

    def __init__(
        self,
        registry: TopicRegistry,
        backend: Backend,
        partition: Callable[[str, int], PartitionLog],
        name: str,
        client: StoreClient,
    ) -> None:
        self._client = client
        self._registry = registry
        self._backend = backend
        self._partition = partition
        self.name = name

    def __repr__(self) -> str:
        return f"TopicHandle({self.name!r})"

    @property
    def topic_id(self) -> str:
        """The topic's uuid as Kafka prints it."""
        return self._registry.entry(self.name).topic_id

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return self._registry.entry(self.name).partitions

    @property
    def config(self) -> Mapping[str, str]:
        """The settings that were given; all others have their defaults."""
        return dict(self._registry.entry(self.name).config)

    def partition(self, partition: int) -> PartitionLog:
        return self._partition(self.name, partition)

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
        """The latest value of each key, as a mapping that keeps itself current; the settings are those of
        ``logstore.KeyTable``. Close it, or use ``with``. ``NotCompactedError``, unless ``any_policy=True``."""
        if value_deserializer is None:
            return self._client.table(self.name, **settings)
        return self._client.table(self.name, value_deserializer=value_deserializer, **settings)

    def describe(self) -> TopicDescription:
        """Offsets, segments and sizes of every partition, and who owns the topic now."""
        return self._backend.describe_topic(self.name)

    def release(self) -> None:
        """Give up ownership now, so that another process may write."""
        self._registry.get(self.name).release()
