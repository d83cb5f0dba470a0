"""``AsyncTransaction``: ``logstore``'s transactions for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from logstore.aio.calls import InThread, Submit, Waits, outcome, to_the_end
from logstore.aio.consumer import AsyncConsumer
from logstore.api.transactions import PreparedTransaction
from logstore.client.producer.delivery import Delivery, DeliveryGroup
from logstore.client.producer.transaction import Transaction
from logstore.client.serializers import SendRow
from logstore.types import Buffer, Headers, K, OffsetAndMetadata, TopicPartition, V

SentKey = TypeVar("SentKey", contravariant=True)
SentValue = TypeVar("SentValue", contravariant=True)


class Sends(Protocol[SentKey, SentValue]):
    """What a transaction needs of its producer."""

    async def send(
        self,
        topic: str,
        value: SentValue | None = None,
        *,
        key: SentKey | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery: ...

    async def send_many(
        self, topic: str, rows: Iterable[SendRow[SentKey, SentValue]], *, partition: int | None = None
    ) -> DeliveryGroup: ...

    async def send_batch(self, topic: str, partition: int, buffer: Buffer) -> DeliveryGroup: ...


class AsyncTransaction(Waits, Generic[K, V]):
    """``async with producer.transaction() as tx:`` commits when the block ends well, aborts when it raises or its task
    is cancelled; either comes to its end, however often the task is cancelled."""

    def __init__(self, twin: Transaction[K, V], producer: Sends[K, V], submit: Submit) -> None:
        self._twin: Transaction[K, V] = twin
        self._producer = producer
        self._submit = submit

    begin = InThread(Transaction.begin)

    async def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """``AsyncProducer.send``. The delivery says that the record is in; whether it counts, the commit says."""
        self._twin.check_open("send()")
        return await self._producer.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
        )

    async def send_many(
        self, topic: str, rows: Iterable[SendRow[K, V]], *, partition: int | None = None
    ) -> DeliveryGroup:
        """``AsyncProducer.send_many``."""
        self._twin.check_open("send_many()")
        return await self._producer.send_many(topic, rows, partition=partition)

    async def send_batch(self, topic: str, partition: int, buffer: Buffer) -> DeliveryGroup:
        """``AsyncProducer.send_batch``."""
        self._twin.check_open("send_batch()")
        return await self._producer.send_batch(topic, partition, buffer)

    async def send_offsets(self, consumer: AsyncConsumer[Any, Any]) -> None:
        """The consumer's positions count when this transaction does; see ``Transaction.send_offsets``."""
        await outcome(consumer.submit(partial(self._twin.send_offsets, consumer.twin)))

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """The next offsets to read of any group; they count when this does."""
        await self._call(partial(self._twin.commit_offsets, group, offsets))

    async def prepare(self) -> PreparedTransaction | None:
        """Prepare, also for a task that is cancelled meanwhile; see ``Transaction.prepare``."""
        return await to_the_end(self._submit(self._twin.prepare))

    async def commit(self, *, prepared: Iterable[PreparedTransaction] = ()) -> None:
        """Commit, also for a task that is cancelled meanwhile; see ``Transaction.commit``."""
        await to_the_end(self._submit(partial(self._twin.commit, prepared=prepared)))

    async def abort(self) -> None:
        """Abort, also for a task that is cancelled meanwhile; see ``Transaction.abort``."""
        await to_the_end(self._submit(self._twin.abort))

    async def __aenter__(self) -> AsyncTransaction[K, V]:
        begun = self._submit(self._twin.begin)
        try:
            await to_the_end(begun)
        except asyncio.CancelledError:
            if begun.exception() is None:
                await to_the_end(self._submit(self._twin.abort))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await to_the_end(self._submit(partial(self._twin.__exit__, kind, error, trace)))
