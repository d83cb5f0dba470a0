"""``StoreClient``: producers, consumers, tables and topics over one backend, as a store and a connection offer them."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, overload

from logstore.api.backend import Backend
from logstore.arguments import refuse_unknown
from logstore.client.admin import Admin
from logstore.client.arrow import ArrowStart, Decode, arrow_batches, arrow_schema, checked_decode
from logstore.client.consumer.consumer import Consumer
from logstore.client.consumer.settings import ConsumerOptions, Start, Topics
from logstore.client.producer.producer import Producer
from logstore.client.producer.settings import ProducerOptions
from logstore.client.serializers import Deserializer, KeyT, Serializer, ValueT
from logstore.client.table.table import KeyTable, TableOptions
from logstore.errors import LogStoreError
from logstore.seams.clock import Clock
from logstore.types import Isolation, OffsetAndMetadata, TopicDescription, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

Client = TypeVar("Client")


# What was lent, with its store: a store that only its producer is left of is not dropped. The other way round the
# threads of a client, which hold its backend, would hold the store, too.
_stores_of: weakref.WeakKeyDictionary[Any, StoreClient] = weakref.WeakKeyDictionary()


class Access(Protocol):
    """Whether the backend may be used now; errors say why not."""

    def check_usable(self) -> None: ...
    def check_writable(self) -> None: ...


class StoreClient:
    """The verbs that an open store and a connection to brokers share. Thread-safe.

    What it makes belongs to it: closing it closes producers, consumers and tables that are still open.
    """

    def __init__(self, backend: Backend, access: Access, clock: Clock) -> None:
        self._client_backend = backend
        self._access = access
        self._client_clock = clock
        self._children: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def backend(self) -> Backend:
        """What the clients stand on."""
        return self._client_backend

    @property
    def admin(self) -> Admin:
        """Everything about topics, groups, producers and transactions."""
        return self._keep_for(Admin(self._client_backend))

    # --- producers ---

    @overload
    def producer(
        self,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        **settings: Unpack[ProducerOptions],
    ) -> Producer[bytes, bytes]: ...
    @overload
    def producer(
        self,
        *,
        key_serializer: None = None,
        value_serializer: Serializer[ValueT],
        **settings: Unpack[ProducerOptions],
    ) -> Producer[bytes, ValueT]: ...
    @overload
    def producer(
        self,
        *,
        key_serializer: Serializer[KeyT],
        value_serializer: None = None,
        **settings: Unpack[ProducerOptions],
    ) -> Producer[KeyT, bytes]: ...
    @overload
    def producer(
        self,
        *,
        key_serializer: Serializer[KeyT],
        value_serializer: Serializer[ValueT],
        **settings: Unpack[ProducerOptions],
    ) -> Producer[KeyT, ValueT]: ...
    def producer(
        self,
        *,
        key_serializer: Serializer[Any] | None = None,
        value_serializer: Serializer[Any] | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> Producer[Any, Any]:
        """A producer; settings and errors: see ``logstore.Producer``. Close it, or use ``with``."""
        refuse_unknown(
            settings, ProducerOptions.__annotations__, "producer()", "key_serializer", "value_serializer"
        )
        self._access.check_writable()
        return self._lend(
            Producer(
                self._client_backend,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                **settings,
            )
        )

    # --- consumers ---

    @overload
    def consumer(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        start: Start = "earliest",
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> Consumer[bytes, bytes]: ...
    @overload
    def consumer(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        start: Start = "earliest",
        key_deserializer: None = None,
        value_deserializer: Deserializer[ValueT],
        **settings: Unpack[ConsumerOptions],
    ) -> Consumer[bytes, ValueT]: ...
    @overload
    def consumer(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        start: Start = "earliest",
        key_deserializer: Deserializer[KeyT],
        value_deserializer: None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> Consumer[KeyT, bytes]: ...
    @overload
    def consumer(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        start: Start = "earliest",
        key_deserializer: Deserializer[KeyT],
        value_deserializer: Deserializer[ValueT],
        **settings: Unpack[ConsumerOptions],
    ) -> Consumer[KeyT, ValueT]: ...
    def consumer(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        start: Start = "earliest",
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> Consumer[Any, Any]:
        """A consumer; settings and errors: see ``logstore.Consumer``. Close it, or use ``with``."""
        own = ("group", "start", "key_deserializer", "value_deserializer")
        refuse_unknown(settings, ConsumerOptions.__annotations__, "consumer()", *own)
        self._access.check_usable()
        return self._lend(
            Consumer(
                self._client_backend,
                topics,
                group=group,
                start=start,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                **settings,
            )
        )

    # --- tables ---

    @overload
    def table(
        self, topic: str, *, value_deserializer: None = None, **settings: Unpack[TableOptions]
    ) -> KeyTable[bytes]: ...
    @overload
    def table(
        self, topic: str, *, value_deserializer: Deserializer[ValueT], **settings: Unpack[TableOptions]
    ) -> KeyTable[ValueT]: ...
    def table(
        self,
        topic: str,
        *,
        value_deserializer: Deserializer[Any] | None = None,
        **settings: Unpack[TableOptions],
    ) -> KeyTable[Any]:
        """The latest value of each key of a topic, as a mapping that keeps itself current; settings and errors: see
        ``logstore.KeyTable``. Close it, or use ``with``."""
        refuse_unknown(settings, TableOptions.__annotations__, "table()", "value_deserializer")
        self._access.check_usable()
        given: TableOptions = {"clock": self._client_clock, **settings}
        table: KeyTable[Any] = KeyTable(
            self._client_backend, topic, value_deserializer=value_deserializer, **given
        )
        self._lend(table.closing)
        return table

    # --- Arrow ---

    def arrow_batches(
        self,
        topic: str,
        *,
        partitions: Collection[int] | None = None,
        start: ArrowStart = "earliest",
        isolation: Isolation = "read_committed",
        decode: Decode | None = None,
        headers: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The topic's records as ``pyarrow.RecordBatch`` after ``RecordBatch``, one partition after the other, up to
        the ends of this moment; memory is that of one fetch (4 MiB of batches).

        ``decode``: e.g. ``{"key": "utf8", "value": "utf8"}``, see ``logstore.client.arrow.Decode``. Errors:
        ``MissingExtraError`` without pyarrow, ``UnknownTopicError``, ``UnknownPartitionError``,
        ``PoisonRecordError`` for bytes that are not UTF-8, those of a fetch.
        """
        self._access.check_usable()
        batches = arrow_batches(
            self._client_backend,
            topic,
            partitions=partitions,
            start=start,
            isolation=isolation,
            decode=decode,
            headers=headers,
        )
        return self._keep_for(batches)

    def to_arrow(
        self,
        topic: str,
        *,
        partitions: Collection[int] | None = None,
        start: ArrowStart = "earliest",
        isolation: Isolation = "read_committed",
        decode: Decode | None = None,
        headers: bool = True,
    ) -> pa.Table:
        """``arrow_batches`` as one ``pyarrow.Table``: all of the topic is in memory."""
        columns = arrow_schema(checked_decode(decode, Decode), headers)
        import pyarrow as pa

        found = self.arrow_batches(
            topic, partitions=partitions, start=start, isolation=isolation, decode=decode, headers=headers
        )
        return pa.Table.from_batches(found, schema=columns)

    # --- topics and groups ---

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its records and committed offsets."""
        self._client_backend.delete_topic(name)

    def delete_records(
        self, topic: str, before: Mapping[int, int] | int | datetime, /
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset or a time; see ``Admin.delete_records``."""
        return self.admin.delete_records(topic, before)

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names, sorted; with ``internal`` also the store's own topics."""
        return self.admin.list_topics(internal)

    def describe_topic(self, name: str) -> TopicDescription:
        """Offsets, segments and sizes of every partition. ``UnknownTopicError``."""
        return self._client_backend.describe_topic(name)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Durable when it returns. A consumer does this for its own positions."""
        self._client_backend.commit_offsets(group, offsets)

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._client_backend.committed_offsets(group)

    # --- what was lent ---

    def _lend(self, client: Client) -> Client:
        self._children.add(client)
        return self._keep_for(client)

    def _keep_for(self, user: Client) -> Client:
        """This object lives as long as ``user``."""
        _stores_of[user] = self
        return user

    def _close_clients(self) -> list[LogStoreError]:
        """Close everything that was lent and is still open. The errors."""
        failures = []
        for client in list(self._children):
            try:
                if isinstance(client, Consumer):
                    client.close_with_store()
                else:
                    client.close()
            except LogStoreError as error:
                failures.append(error)
        return failures
