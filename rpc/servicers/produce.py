"""``ProduceService``: batches in, one call at a time or as a stream of many in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import LogStoreError
from logstore.types import TopicPartition
from rpc.errors import BrokerUnavailableError
from rpc.handlers.budget import ByteBudget
from rpc.handlers.caller import Caller
from rpc.handlers.produce import ProduceHandler
from rpc.handlers.waits import Waits
from rpc.pb.produce_pb2 import ProduceRequest
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.enums import acks_from_wire
from rpc.wire.records import produce_response, read_produce_request

_MOST_IN_FLIGHT: Final = 64
"""Requests of one stream whose answers are still to come; then the stream is not read on."""

_Flight = tuple[int, asyncio.Future[list[ProduceResult]], ExitStack]


class _FailedPlaces:
    """Partitions of a stream of which a batch has failed, until its sender has seen that."""

    def __init__(self) -> None:
        self._failed: dict[TopicPartition, tuple[int, LogStoreError]] = {}

    def note(self, number: int, items: Sequence[ProduceItem], results: Sequence[ProduceResult]) -> None:
        """What became of request ``number``."""
        for item, result in zip(items, results, strict=True):
            if result.error is not None:
                self._failed[TopicPartition(item.topic, item.partition)] = number, result.error

    def sort_out(
        self, number: int, items: Sequence[ProduceItem], seen: int
    ) -> tuple[Sequence[ProduceItem], dict[int, ProduceResult]]:
        """The items of request ``number`` to try, and the results of those that are not to be, by their places in it.
        ``seen``: the last request of which the sender knew the outcome."""
        failed = self._failed = {place: row for place, row in self._failed.items() if row[0] > seen}
        if not failed:
            return items, {}
        tried: list[ProduceItem] = []
        refused: dict[int, ProduceResult] = {}
        for index, item in enumerate(items):
            place = TopicPartition(item.topic, item.partition)
            row = failed.get(place)
            if row is None:
                tried.append(item)
            else:
                refused[index] = ProduceResult(-1, error=row[1])
                failed[place] = number, row[1]
        return tried, refused


class ProduceService(Service):
    def __init__(
        self,
        handler: ProduceHandler,
        budget: ByteBudget,
        waits: Waits,
        identify: Identify,
        observe: Observer,
    ) -> None:
        super().__init__("ProduceService", identify, observe)
        self._handler = handler
        self._budget = budget
        self._waits = waits
        self.raw("Produce", self._produce)
        self.stream("ProduceStream", waits, self._produce_stream)

    async def _produce(self, caller: Caller, data: bytes, context: Any) -> bytes:
        del context
        head, items = read_produce_request(data)
        acks = acks_from_wire(head.acks)
        results = await self._handler.produce(caller, items, acks, head.timeout_ms / 1000, len(data))
        return produce_response(results, head.correlation_id)

    async def _produce_stream(self, caller: Caller, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Requests are appended one after the other, by a task that reads them; answers go out in the same order."""
        flights: asyncio.Queue[_Flight | None] = asyncio.Queue(_MOST_IN_FLIGHT)
        reading = asyncio.create_task(self._read_stream(caller, requests, flights))
        try:
            while (flight := await flights.get()) is not None:
                correlation_id, decided, held = flight
                with held:
                    yield produce_response(await decided, correlation_id)
            await reading  # its error, if there is one
        finally:
            reading.cancel()
            while not flights.empty():
                left = flights.get_nowait()
                if left is not None:
                    left[2].close()

    async def _read_stream(
        self, caller: Caller, requests: AsyncIterator[bytes], flights: asyncio.Queue[_Flight | None]
    ) -> None:
        failed = _FailedPlaces()
        try:
            async for data in requests:
                head, items = read_produce_request(data)
                with ExitStack() as held:
                    await self._room(caller, len(data))
                    held.enter_context(self._budget.hold(caller.connection, len(data)))
                    decided = await self._begin(caller, head, items, len(data), failed)
                    await flights.put((head.correlation_id, decided, held.pop_all()))
        finally:
            await flights.put(None)

    async def _begin(
        self,
        caller: Caller,
        head: ProduceRequest,
        items: Sequence[ProduceItem],
        size: int,
        failed: _FailedPlaces,
    ) -> asyncio.Future[list[ProduceResult]]:
        """Append what is to be tried; the results of all, once they are decided."""
        ordered = head.HasField("seen_correlation_id")
        number, seen = head.correlation_id, head.seen_correlation_id
        tried, refused = failed.sort_out(number, items, seen) if ordered else (items, {})
        acks, timeout_s = acks_from_wire(head.acks), head.timeout_ms / 1000
        decided = asyncio.ensure_future(await self._handler.begin(caller, tried, acks, timeout_s, size))
        if not ordered:
            return decided

        def note(known: asyncio.Future[list[ProduceResult]]) -> None:
            if not known.cancelled() and known.exception() is None:
                failed.note(number, tried, known.result())

        if decided.done():  # as without a wait for a sync: noted before the next request is looked at
            note(decided)
        else:
            decided.add_done_callback(note)
        return asyncio.ensure_future(_joined(decided, refused)) if refused else decided

    async def _room(self, caller: Caller, size: int) -> None:
        """A stream is not refused: it is read on when there is room again, and its sender waits.
        BrokerUnavailableError: the broker stops."""
        while not self._budget.has_room(caller.connection, size):
            if not await self._waits.pause(0.005):
                raise BrokerUnavailableError("the broker stops")


async def _joined(
    decided: asyncio.Future[list[ProduceResult]], refused: dict[int, ProduceResult]
) -> list[ProduceResult]:
    """The results in the order of the request's batches."""
    results = list(await decided)
    for index, result in sorted(refused.items()):
        results.insert(index, result)
    return results
