"""``AsyncProducer``: ``logstore.Producer`` for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from logstore.aio.calls import InThread, Submit, Waits, made, outcome, to_the_end
from logstore.aio.client_thread import ClientThread
from logstore.aio.consumer import AsyncConsumer
from logstore.aio.transaction import AsyncTransaction
from logstore.client.producer.delivery import Delivery, DeliveryGroup
from logstore.client.producer.producer import Producer
from logstore.client.producer.transaction import Transaction
from logstore.client.serializers import SendRow
from logstore.types import Buffer, Headers, K, V

T = TypeVar("T")
_TURN: Final = 64  # sends without a wait, after which other tasks have a turn


class AsyncProducer(Waits, Generic[K, V]):
    """The methods of ``logstore.Producer`` as coroutines, in one event loop. Serializers run in the loop's thread or
    in the producer's.

    ``delivery = await producer.send(...)`` queues the record, and waits where the buffer is full; ``await delivery``
    gives its place. A task that is cancelled within ``send`` has sent the record or has not, never half of it; one
    that is cancelled within ``await delivery`` gives up waiting alone.
    """

    def __init__(self, twin: Producer[K, V], submit: Submit, thread: ClientThread) -> None:
        self._twin: Producer[K, V] = twin
        self._thread = thread
        self._submit = thread.submit
        self._wait = submit
        self._queued = 0  # calls in the producer's thread, which what comes later must not overtake
        self._turn = 0

    @property
    def name(self) -> str | None:
        return self._twin.name

    @property
    def transactional_id(self) -> str | None:
        return self._twin.transactional_id

    last_sequence = InThread(Producer.last_sequence)
    spread = InThread(Producer.spread)

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
        """Queue one record; errors as ``Producer.send``."""
        if not self._queued and headers is None and timestamp_ms is None and partition is None:
            delivery = self._twin.send_now(topic, value, key=key)
            if delivery is not None:
                self._turn += 1
                if self._turn >= _TURN:
                    self._turn = 0
                    await asyncio.sleep(0)
                return delivery
        return await self._in_order(
            partial(
                self._twin.send,
                topic,
                value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                partition=partition,
            )
        )

    async def send_many(
        self, topic: str, rows: Iterable[SendRow[K, V]], *, partition: int | None = None
    ) -> DeliveryGroup:
        """Queue rows ``(key, value[, headers[, timestamp_ms]])``; ``await`` the group for their offsets."""
        return await self._in_order(partial(self._twin.send_many, topic, rows, partition=partition))

    async def send_batch(self, topic: str, partition: int, buffer: Buffer) -> DeliveryGroup:
        """Queue whole record batches; see ``Producer.send_batch``."""
        return await self._in_order(partial(self._twin.send_batch, topic, partition, buffer))

    async def _in_order(self, work: Callable[[], T]) -> T:
        future = self._submit(work)
        self._queued += 1
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _tell(loop, self._one_less))
        return await outcome(future)

    def _one_less(self) -> None:
        self._queued -= 1

    # --- transactions ---

    def transaction(self, *, rewind: AsyncConsumer[Any, Any] | None = None) -> AsyncTransaction[K, V]:
        """``async with producer.transaction() as tx:``; see ``Producer.transaction``."""
        twin = self._twin.transaction(rewind=None if rewind is None else rewind.twin)
        return AsyncTransaction(twin, self, self._submit if rewind is None else rewind.submit)

    async def begin(self) -> AsyncTransaction[K, V]:
        """Open a transaction that ``commit`` or ``abort`` ends."""
        twin = await made(self._submit(self._twin.begin), self._submit, Transaction.abort)
        return AsyncTransaction(twin, self, self._submit)

    prepare = InThread(Producer.prepare)
    commit = InThread(Producer.commit)
    abort = InThread(Producer.abort)

    # --- the end ---

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that is queued has an outcome; see ``Producer.flush``."""
        await self._call(lambda: None)  # what is in the producer's thread is queued first
        await outcome(self._wait(partial(self._twin.flush, timeout_s)))

    metrics = InThread(Producer.metrics)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and end, also for a task that is cancelled meanwhile. Safe to call again."""
        if self._thread.closed:
            return
        try:
            await to_the_end(self._wait(partial(self._twin.close, timeout_s)))
        finally:
            self._thread.close()

    async def __aenter__(self) -> AsyncProducer[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.closed:
            return
        try:
            await to_the_end(self._wait(partial(self._twin.__exit__, kind, error, trace)))
        finally:
            self._thread.close()


def _tell(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(work)
    except RuntimeError:
        pass  # the loop was closed meanwhile: nothing waits any more
