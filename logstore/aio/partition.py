"""``AsyncPartition`` and ``AsyncTopic``: one partition as a log, and one topic, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from logstore.aio.calls import Submit, Waits
from logstore.aio.iteration import in_threads
from logstore.aio.opening import Opening
from logstore.aio.table import AsyncTable
from logstore.client.partition_client import PartitionClient
from logstore.client.serializers import Deserializer
from logstore.client.table.table import TableOptions
from logstore.client.topic_client import TopicClient
from logstore.embedded.topic_handle import TopicHandle
from logstore.partition.partition_log import PartitionLog
from logstore.types import (
    Acks,
    Buffer,
    Isolation,
    PartitionDescription,
    Record,
    RecordMetadata,
    Row,
    TopicDescription,
)

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
_RECORDS = 500
"""Of one call in a thread."""


class AsyncPartition(Waits):
    """The verbs of ``logstore.PartitionLog`` and of ``client.partition()``. What is a property there is asked of the
    log or of a broker, so it is a call here: ``await log.high_watermark()``."""

    def __init__(self, twin: PartitionLog | PartitionClient, submit: Submit) -> None:
        self._twin: PartitionLog | PartitionClient = twin
        self._submit = submit

    def __repr__(self) -> str:
        return f"AsyncPartition({self.topic!r}, {self.partition})"

    @property
    def topic(self) -> str:
        return self._twin.topic

    @property
    def partition(self) -> int:
        return self._twin.partition

    async def append(
        self, rows: Sequence[Row], *, acks: Acks = "all", expected_offset: int | None = None
    ) -> RecordMetadata:
        """Append rows; see ``PartitionLog.append``. A cancelled task does not know whether they are in."""
        return await self._call(partial(self._twin.append, rows, acks=acks, expected_offset=expected_offset))

    async def append_batch(self, buffer: Buffer, *, acks: Acks = "all") -> RecordMetadata:
        """Append one encoded batch as it is; see ``PartitionLog.append_batch``."""
        return await self._call(partial(self._twin.append_batch, buffer, acks=acks))

    async def describe(self) -> PartitionDescription:
        """Offsets, segments and size at one moment."""
        return await self._call(self._twin.describe)

    async def log_start_offset(self) -> int:
        """First offset that may be read."""
        return await self._call(lambda: self._twin.log_start_offset)

    async def high_watermark(self) -> int:
        """First offset that no reader may see yet."""
        return await self._call(lambda: self._twin.high_watermark)

    async def last_stable_offset(self) -> int:
        """First offset that a ``read_committed`` reader may not see yet."""
        return await self._call(lambda: self._twin.last_stable_offset)

    async def log_end_offset(self) -> int:
        """Offset that the next record gets."""
        return await self._call(lambda: self._twin.log_end_offset)

    async def leader_epoch(self) -> int:
        """-1 before the first record."""
        return await self._call(lambda: self._twin.leader_epoch)

    async def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """The first offset whose record is at least that new; None: there is none."""
        return await self._call(partial(self._twin.offset_for_timestamp, timestamp_ms))

    async def read(
        self, offset: int, max_bytes: int = 1 << 20, isolation: Isolation = "read_committed"
    ) -> bytes:
        """Whole batches from the one that holds ``offset`` on; see ``PartitionLog.read``."""
        return await self._call(partial(self._twin.read, offset, max_bytes, isolation))

    def records(
        self,
        start: int,
        end_exclusive: int | None = None,
        *,
        isolation: Isolation = "read_committed",
        reverse: bool = False,
    ) -> AsyncIterator[Record]:
        """``async for record in log.records(0)``; see ``PartitionLog.records``. Errors come with the first step."""

        def make() -> Iterator[Record]:
            return self._twin.records(start, end_exclusive, isolation=isolation, reverse=reverse)

        return in_threads(self._submit, make, _RECORDS)

    async def to_arrow(
        self, start: int, end_exclusive: int | None = None, *, isolation: Isolation = "read_committed"
    ) -> pyarrow.Table:
        """The same records as a ``pyarrow.Table``. ``MissingExtraError`` without pyarrow."""
        return await self._call(partial(self._twin.to_arrow, start, end_exclusive, isolation=isolation))


class AsyncTopic(Waits):
    """The verbs of ``logstore.TopicHandle`` and of ``client.topic()``; properties are calls here, too."""

    def __init__(
        self,
        twin: TopicHandle | TopicClient,
        submit: Submit,
        table: Callable[..., Opening[AsyncTable[Any]]],
    ) -> None:
        self._twin: TopicHandle | TopicClient = twin
        self._submit = submit
        self._table = table

    def __repr__(self) -> str:
        return f"AsyncTopic({self.name!r})"

    @property
    def name(self) -> str:
        return self._twin.name

    async def topic_id(self) -> str:
        """The topic's uuid as Kafka prints it."""
        return await self._call(lambda: self._twin.topic_id)

    async def partitions(self) -> int:
        """How many partitions it has."""
        return await self._call(lambda: self._twin.partitions)

    async def config(self) -> Mapping[str, str]:
        """The settings that were given; all others have their defaults."""
        return await self._call(lambda: self._twin.config)

    async def partition(self, partition: int) -> AsyncPartition:
        """One of them as a log. ``UnknownPartitionError``."""
        return AsyncPartition(await self._call(partial(self._twin.partition, partition)), self._submit)

    def table(
        self, *, value_deserializer: Deserializer[Any] | None = None, **settings: Unpack[TableOptions]
    ) -> Opening[AsyncTable[Any]]:
        """The latest value of each key; see ``TopicHandle.table``."""
        return self._table(self.name, value_deserializer=value_deserializer, **settings)

    async def describe(self) -> TopicDescription:
        """Offsets, segments and sizes of every partition."""
        return await self._call(self._twin.describe)
