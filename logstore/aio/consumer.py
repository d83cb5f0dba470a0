"""``AsyncConsumer``: ``logstore.Consumer`` for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

from logstore.aio.calls import InThread, Waits, to_the_end
from logstore.aio.client_thread import ClientThread
from logstore.client.consumer.consumer import Consumer
from logstore.errors import WakeupError
from logstore.types import K, Record, RecordMetadata, V

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AsyncConsumer(Waits, Generic[K, V]):
    """The methods of ``logstore.Consumer`` as coroutines, in one event loop, and ``async for record in consumer``.

    A thread of its own waits in the loop's place and makes its calls one after the other. Deserializers run there;
    hooks may be functions, which run there, too, or coroutine functions, which run in the loop.

    A task that is cancelled within ``poll`` or the loop loses nothing: what its call had fetched is handed out by the
    next one, and does not count as handed out for a ``commit`` before. A ``commit`` that has begun is done in order.
    """

    def __init__(self, twin: Consumer[K, V], thread: ClientThread) -> None:
        self.twin: Consumer[K, V] = twin
        self._twin = twin
        self._thread = thread
        self.submit = self._submit = thread.submit
        self._awoken = False  # by the caller, who has not heard of it yet

    # --- records out ---

    async def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[K, V]]:
        """Up to ``max_records`` records; waits up to ``timeout_s`` for the first; see ``Consumer.poll``."""
        future = self._submit(partial(self.twin.poll, max_records, timeout_s))
        return await self._uncounted_if_cancelled(future, self.twin.take_back)

    async def batches(
        self, max_records: int = 500, timeout_s: float = 1.0
    ) -> AsyncIterator[list[Record[K, V]]]:
        """What ``poll`` gives, again and again; ends under until_end at the end, else never."""
        while True:
            records = await self.poll(max_records, timeout_s)
            if not records and await self._call(self.twin.is_finished):
                return
            yield records

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        """Record by record, as ``for record in consumer``: ``commit`` in the body covers what the loop has seen."""
        return _Records(self)

    async def lend(self, timeout_s: float | None = None) -> Iterator[Record[K, V]] | None:
        """See ``Consumer.lend``."""
        future = self._submit(partial(self.twin.lend, timeout_s))
        # What was lent and not taken is taken back by the next call.
        return await self._uncounted_if_cancelled(future, lambda _: self.twin.take_back([]))

    async def _uncounted_if_cancelled(self, future: Future[T], take_back: Callable[[T], None]) -> T:
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancelled():
                self.twin.wakeup()  # the thread waits no longer
                self._submit(partial(self._undo, future, take_back)).add_done_callback(_complain)
            raise
        except WakeupError:
            self._awoken = False
            raise

    def _undo(self, future: Future[T], take_back: Callable[[T], None]) -> None:
        """In the consumer's thread, behind the call whose task was cancelled."""
        error = future.exception()
        if error is None:
            take_back(future.result())
        elif not isinstance(error, WakeupError):
            logger.warning("a poll whose task was cancelled failed, the next one tries again: %s", error)
            self.twin.take_back([])
        if self._awoken:
            self.twin.wakeup()

    # --- commits ---

    commit = InThread(Consumer.commit)
    commit_async = InThread(Consumer.commit_async)
    committed = InThread(Consumer.committed)
    group_metadata = InThread(Consumer.group_metadata)

    @asynccontextmanager
    async def committing(self, records: Iterable[Record[K, V]]) -> AsyncIterator[None]:
        """``async with consumer.committing(records):`` commits when the block ends well; when it raises, or its task
        is cancelled, the next poll brings the records again."""
        block = self.twin.committing(records)
        entered = self._submit(block.__enter__)
        try:
            await to_the_end(entered)
            yield
        except BaseException as error:
            if entered.exception() is not None:
                raise
            await to_the_end(self._submit(partial(block.__exit__, type(error), error, error.__traceback__)))
            raise
        await to_the_end(self._submit(partial(block.__exit__, None, None, None)))

    async def dead_letter(
        self, record: Record[K, V], error: BaseException, *, attempts: int = 1
    ) -> RecordMetadata:
        """Give a record up; see ``Consumer.dead_letter``."""
        return await self._call(partial(self.twin.dead_letter, record, error, attempts=attempts))

    # --- positions ---

    assignment = InThread(Consumer.assignment)
    position = InThread(Consumer.position)
    seek = InThread(Consumer.seek)
    seek_to_timestamp = InThread(Consumer.seek_to_timestamp)
    pause = InThread(Consumer.pause)
    resume = InThread(Consumer.resume)
    lag = InThread(Consumer.lag)
    beginning_offsets = InThread(Consumer.beginning_offsets)
    end_offsets = InThread(Consumer.end_offsets)
    offsets_for_times = InThread(Consumer.offsets_for_times)
    is_finished = InThread(Consumer.is_finished)

    # --- the rest ---

    def wakeup(self) -> None:
        """End a waiting ``poll`` (or the next one) with WakeupError. From any task or thread; does not wait."""
        self._awoken = True
        self.twin.wakeup()

    metrics = InThread(Consumer.metrics)

    async def close(self) -> None:
        """Commit if commits are automatic, and leave the group, also for a task that is cancelled meanwhile. A poll of
        another task ends first. Safe to call again."""
        if self._thread.closed:
            return
        self.twin.wakeup()
        try:
            await to_the_end(self._submit(self.twin.close))
        finally:
            self._thread.close()

    async def __aenter__(self) -> AsyncConsumer[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Records(Generic[K, V]):
    """One ``async for`` over a consumer: no generator, so that breaking it off leaves nothing to be finished."""

    def __init__(self, consumer: AsyncConsumer[K, V]) -> None:
        self._consumer = consumer
        self._lent: Iterator[Record[K, V]] = iter(())

    def __aiter__(self) -> _Records[K, V]:
        return self

    async def __anext__(self) -> Record[K, V]:
        while True:
            for record in self._lent:
                return record
            lent = await self._consumer.lend()
            if lent is None:
                raise StopAsyncIteration
            self._lent = lent


def _complain(future: Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.warning("what a cancelled poll had fetched could not be taken back: %s", error)
