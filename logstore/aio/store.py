"""``AsyncStore``: an open store, or a connection to brokers, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, overload

from logstore.aio.admin import AsyncAdmin
from logstore.aio.calls import Calls, InThread, Waits, made, to_the_end
from logstore.aio.client_thread import ClientThread
from logstore.aio.consumer import AsyncConsumer
from logstore.aio.iteration import in_threads
from logstore.aio.opening import Opening
from logstore.aio.partition import AsyncPartition, AsyncTopic
from logstore.aio.producer import AsyncProducer
from logstore.aio.table import AsyncTable
from logstore.client.arrow import ArrowStart, Decode
from logstore.client.consumer.consumer import Consumer
from logstore.client.consumer.settings import ConsumerOptions, Start, Topics
from logstore.client.producer.producer import Producer
from logstore.client.producer.settings import ProducerOptions
from logstore.client.serializers import Deserializer, KeyT, Serializer, ValueT
from logstore.client.store_client import StoreClient
from logstore.client.table.table import KeyTable, TableOptions
from logstore.types import Isolation, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_numbers = itertools.count(1)
_HOOKS = ("on_assigned", "on_revoked", "on_lost")


class Child(Protocol):
    async def close(self) -> None: ...


Twin = TypeVar("Twin")
Made = TypeVar("Made", bound=Child)


class AsyncStore(Waits):
    """The verbs of ``LogStore`` and of a connection, as coroutines. Of one event loop, which they never block: calls
    wait in ``threads`` threads, those of each producer and consumer in one of its own.

    ``producer``, ``consumer`` and ``table`` give what is opened by ``await`` or by ``async with``. What is made of a
    store is closed with it.
    """

    def __init__(self, twin: StoreClient, calls: Calls) -> None:
        self._twin: StoreClient = twin
        self._calls = calls
        self._submit = calls.submit
        self._children: weakref.WeakSet[Child] = weakref.WeakSet()
        self._closed = False

    @property
    def admin(self) -> AsyncAdmin:
        """Everything about topics, groups, producers and transactions."""
        return AsyncAdmin(self._twin.admin, self._submit)

    # --- topics and groups ---

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> AsyncTopic:
        """Make a topic, durably; see ``Admin.create_topic``."""
        twin: Any = self._twin
        made = await self._call(partial(twin.create_topic, name, partitions, config, exist_ok=exist_ok))
        return AsyncTopic(made, self._submit, self.table)

    async def topic(self, name: str) -> AsyncTopic:
        """A handle on one topic. ``UnknownTopicError``."""
        twin: Any = self._twin
        return AsyncTopic(await self._call(partial(twin.topic, name)), self._submit, self.table)

    async def partition(self, topic: str, partition: int) -> AsyncPartition:
        """One partition as a log. ``UnknownTopicError``, ``UnknownPartitionError``."""
        twin: Any = self._twin
        return AsyncPartition(await self._call(partial(twin.partition, topic, partition)), self._submit)

    delete_topic = InThread(StoreClient.delete_topic)
    delete_records = InThread(StoreClient.delete_records)
    list_topics = InThread(StoreClient.list_topics)
    describe_topic = InThread(StoreClient.describe_topic)
    commit_offsets = InThread(StoreClient.commit_offsets)
    committed_offsets = InThread(StoreClient.committed_offsets)
    to_arrow = InThread(StoreClient.to_arrow)

    def arrow_batches(
        self,
        topic: str,
        *,
        partitions: Collection[int] | None = None,
        start: ArrowStart = "earliest",
        isolation: Isolation = "read_committed",
        decode: Decode | None = None,
        headers: bool = True,
    ) -> AsyncIterator[pa.RecordBatch]:
        """``async for batch in store.arrow_batches(topic)``; see ``LogStore.arrow_batches``. Errors come with the
        first step."""

        def make() -> Iterator[pa.RecordBatch]:
            return self._twin.arrow_batches(
                topic,
                partitions=partitions,
                start=start,
                isolation=isolation,
                decode=decode,
                headers=headers,
            )

        return in_threads(self._submit, make, 1)

    # --- producers ---

    @overload
    def producer(
        self,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        **settings: Unpack[ProducerOptions],
    ) -> Opening[AsyncProducer[bytes, bytes]]: ...
    @overload
    def producer(
        self,
        *,
        key_serializer: None = None,
        value_serializer: Serializer[ValueT],
        **settings: Unpack[ProducerOptions],
    ) -> Opening[AsyncProducer[bytes, ValueT]]: ...
    @overload
    def producer(
        self,
        *,
        key_serializer: Serializer[KeyT],
        value_serializer: None = None,
        **settings: Unpack[ProducerOptions],
    ) -> Opening[AsyncProducer[KeyT, bytes]]: ...
    @overload
    def producer(
        self,
        *,
        key_serializer: Serializer[KeyT],
        value_serializer: Serializer[ValueT],
        **settings: Unpack[ProducerOptions],
    ) -> Opening[AsyncProducer[KeyT, ValueT]]: ...
    def producer(
        self,
        *,
        key_serializer: Serializer[Any] | None = None,
        value_serializer: Serializer[Any] | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> Opening[AsyncProducer[Any, Any]]:
        """A producer; settings and errors: see ``logstore.Producer``."""

        def make() -> Producer[Any, Any]:
            return self._twin.producer(
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                **settings,
            )

        def wrap(twin: Producer[Any, Any], thread: ClientThread) -> AsyncProducer[Any, Any]:
            return AsyncProducer(twin, self._submit, thread)

        return Opening(partial(self._open, "producer", make, wrap))

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
    ) -> Opening[AsyncConsumer[bytes, bytes]]: ...
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
    ) -> Opening[AsyncConsumer[bytes, ValueT]]: ...
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
    ) -> Opening[AsyncConsumer[KeyT, bytes]]: ...
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
    ) -> Opening[AsyncConsumer[KeyT, ValueT]]: ...
    def consumer(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        start: Start = "earliest",
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> Opening[AsyncConsumer[Any, Any]]:
        """A consumer; settings and errors: see ``logstore.Consumer``. Hooks may be coroutine functions."""

        async def opened() -> AsyncConsumer[Any, Any]:
            loop = asyncio.get_running_loop()
            given: dict[str, Any] = dict(settings)
            thread = ClientThread(f"logstore-aio-consumer-{next(_numbers)}")
            for name in _HOOKS:
                if inspect.iscoroutinefunction(given.get(name)):
                    given[name] = _in_loop(thread, loop, given[name])

            def make() -> Consumer[Any, Any]:
                opened: Callable[..., Consumer[Any, Any]] = self._twin.consumer
                return opened(
                    topics,
                    group=group,
                    start=start,
                    key_deserializer=key_deserializer,
                    value_deserializer=value_deserializer,
                    **given,
                )

            return await self._made_in(thread, make, AsyncConsumer)

        return Opening(opened)

    # --- tables ---

    @overload
    def table(
        self, topic: str, *, value_deserializer: None = None, **settings: Unpack[TableOptions]
    ) -> Opening[AsyncTable[bytes]]: ...
    @overload
    def table(
        self, topic: str, *, value_deserializer: Deserializer[ValueT], **settings: Unpack[TableOptions]
    ) -> Opening[AsyncTable[ValueT]]: ...
    def table(
        self,
        topic: str,
        *,
        value_deserializer: Deserializer[Any] | None = None,
        **settings: Unpack[TableOptions],
    ) -> Opening[AsyncTable[Any]]:
        """The latest value of each key of a topic; settings and errors: see ``logstore.KeyTable``."""

        async def opened() -> AsyncTable[Any]:
            def make() -> KeyTable[Any]:
                return self._twin.table(topic, value_deserializer=value_deserializer, **settings)

            twin = await made(self._submit(make), self._submit, KeyTable.close)
            return self._keep(AsyncTable(twin, self._submit))

        return Opening(opened)

    # --- the clients and their end ---

    async def _open(
        self, kind: str, make: Callable[[], Twin], wrap: Callable[[Twin, ClientThread], Made]
    ) -> Made:
        return await self._made_in(ClientThread(f"logstore-aio-{kind}-{next(_numbers)}"), make, wrap)

    async def _made_in(
        self, thread: ClientThread, make: Callable[[], Twin], wrap: Callable[[Twin, ClientThread], Made]
    ) -> Made:
        def discard(twin: Any) -> None:
            twin.close()
            thread.close()

        try:
            twin = await made(thread.submit(make), thread.submit, discard)
        except Exception:
            thread.close()
            raise
        return self._keep(wrap(twin, thread))

    def _keep(self, child: Made) -> Made:
        self._children.add(child)
        return child

    async def close(self) -> None:
        """Close what was made of it, then the store, also for a task that is cancelled meanwhile. Safe to call again.
        The first failure is raised, after everything is closed."""
        if self._closed:
            return
        self._closed = True
        failures: list[Exception] = []
        closing = [asyncio.ensure_future(child.close()) for child in tuple(self._children)]
        closing.append(asyncio.ensure_future(self._close_after(tuple(closing))))
        cancelled: asyncio.CancelledError | None = None
        while waiting := [one for one in closing if not one.done()]:
            try:
                await asyncio.wait(waiting)
            except asyncio.CancelledError as error:
                cancelled = error
        for one in closing:
            failure = one.exception()
            if isinstance(failure, Exception):
                failures.append(failure)
        if cancelled is not None:
            raise cancelled
        if failures:
            raise failures[0]

    async def _close_after(self, children: tuple[asyncio.Future[None], ...]) -> None:
        if children:
            await asyncio.wait(children)
        twin: Any = self._twin
        try:
            await to_the_end(self._submit(twin.close))
        finally:
            self._calls.close()

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _in_loop(
    thread: ClientThread,
    loop: asyncio.AbstractEventLoop,
    hook: Callable[[list[TopicPartition]], Coroutine[Any, Any, object]],
) -> Callable[[list[TopicPartition]], object]:
    return lambda places: thread.run_hook(loop, partial(hook, places))
