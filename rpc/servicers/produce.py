"""``ProduceService``: batches in, one call at a time or as a stream of many in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack
from typing import Any, Final

from logstore.api.records import ProduceResult
from rpc.errors import BrokerUnavailableError
from rpc.handlers.budget import ByteBudget
from rpc.handlers.caller import Caller
from rpc.handlers.produce import ProduceHandler
from rpc.handlers.waits import Waits
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.enums import acks_from_wire
from rpc.wire.records import produce_response, read_produce_request

_MOST_IN_FLIGHT: Final = 64
"""Requests of one stream whose answers are still to come; then the stream is not read on."""

_Flight = tuple[int, asyncio.Future[list[ProduceResult]], ExitStack]


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
        try:
            async for data in requests:
                head, items = read_produce_request(data)
                with ExitStack() as held:
                    await self._room(caller, len(data))
                    held.enter_context(self._budget.hold(caller.connection, len(data)))
                    decided = await self._handler.begin(
                        caller, items, acks_from_wire(head.acks), head.timeout_ms / 1000, len(data)
                    )
                    await flights.put((head.correlation_id, asyncio.ensure_future(decided), held.pop_all()))
        finally:
            await flights.put(None)

    async def _room(self, caller: Caller, size: int) -> None:
        """A stream is not refused: it is read on when there is room again, and its sender waits.
        BrokerUnavailableError: the broker stops."""
        while not self._budget.has_room(caller.connection, size):
            if not await self._waits.pause(0.005):
                raise BrokerUnavailableError("the broker stops")
