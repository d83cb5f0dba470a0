"""``FetchService``: batches out, one call at a time or as a stream that the reader's credit paces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from logstore.api.records import FetchRequest, FetchResult
from logstore.types import Isolation
from rpc.errors import BrokerUnavailableError, MalformedRequestError
from rpc.framing import parse
from rpc.handlers.budget import ByteBudget
from rpc.handlers.caller import Caller
from rpc.handlers.fetch import FetchHandler
from rpc.handlers.waits import Waits
from rpc.pb import fetch_pb2 as pb
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.enums import isolation_from_wire
from rpc.wire.records import fetch_response, read_fetch_request

_MOST_CREDIT: Final = 1 << 40


class FetchService(Service):
    def __init__(
        self,
        handler: FetchHandler,
        budget: ByteBudget,
        stream_budget: ByteBudget,
        waits: Waits,
        identify: Identify,
        observe: Observer,
    ) -> None:
        """``stream_budget``: of answers of streams, which readers may leave untaken: those of calls have their own."""
        super().__init__("FetchService", identify, observe)
        self._handler = handler
        self._budget = budget
        self._waits = waits
        self._stream_budget = stream_budget
        self.raw("Fetch", self._fetch)
        self.stream("FetchStream", waits, self._fetch_stream)

    async def _fetch(self, caller: Caller, data: bytes, context: Any) -> bytes:
        message = parse(data, pb.FetchRequest)
        results = await self._handler.fetch(
            caller,
            read_fetch_request(message, self._handler.most_bytes),
            isolation=isolation_from_wire(message.isolation),
            min_bytes=message.min_bytes,
            max_bytes=message.max_bytes,
            max_wait_s=max(message.max_wait_ms, 0) / 1000,
        )
        if message.max_wait_ms > 0:
            self.check_still(caller, context)
        # Of the copy for the wire alone. What reads hold is bounded by the engine's threads times an answer's limit,
        # and what waits in the connection by gRPC's window.
        with self._budget.hold(caller.connection, sum(len(result.batches) for result in results)):
            return fetch_response(results, message.correlation_id)

    async def _fetch_stream(self, caller: Caller, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """One answer at a time is in memory, within the bounds of all answers; the next one is read when gRPC has
        taken it, which it does as the reader reads."""
        reader = _StreamReader()
        listening = asyncio.create_task(reader.listen(requests))
        try:
            while (await reader.ready()) and not reader.ended:
                answer, size = await self._next_answer(caller, reader)
                if answer:
                    with self._stream_budget.hold(caller.connection, size):
                        yield answer
                    answer = b""
            if listening.done():
                listening.result()
        finally:
            listening.cancel()

    async def _next_answer(self, caller: Caller, reader: _StreamReader) -> tuple[bytes, int]:
        """The answer, and how many bytes of records it has; b"" where there is none yet."""
        begun = reader.start
        if begun is None:
            return b"", 0
        number, wanted, isolation = begun
        self._handler.authorize(caller, wanted)
        most_bytes = reader.answer_bytes(self._handler.most_bytes)
        waiting = asyncio.create_task(self._handler.wait(caller, wanted, isolation, 1, most_bytes, None))
        if not await reader.first_of(waiting):
            return b"", 0  # the reader asked for something else, or is gone
        results = waiting.result()
        self._handler.authorize(caller, wanted)  # the wait may have outlived the right
        size = sum(len(result.batches) for result in results)
        if not self._stream_budget.has_room(caller.connection, size):
            del results, waiting  # they are read again when there is room: nothing waits in memory
            await self._room(caller, size)
            return b"", 0
        news = reader.take(number, results)
        return (fetch_response(news, number), size) if news else (b"", 0)

    async def _room(self, caller: Caller, size: int) -> None:
        while not self._stream_budget.has_room(caller.connection, size):
            if not await self._waits.pause(0.02):
                raise BrokerUnavailableError("the broker stops", unreached=True)


@dataclass(slots=True)
class _StreamReader:
    """What one stream's client wants. ``start``: correlation id, where to read on, isolation."""

    start: tuple[int, list[FetchRequest], Isolation] | None = None
    credit: int = 0
    limit: int = 0
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    restarted: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self, requests: AsyncIterator[bytes]) -> None:
        try:
            async for data in requests:
                message = parse(data, pb.FetchStreamRequest)
                kind = message.WhichOneof("kind")
                if kind == "start":
                    first = message.start
                    self.limit = first.max_bytes
                    wanted = read_fetch_request(first, first.max_bytes or 1 << 30)
                    self.start = (first.correlation_id, wanted, isolation_from_wire(first.isolation))
                    self.restarted.set()
                elif kind == "credit_bytes" and message.credit_bytes > 0:
                    self.credit = min(self.credit + message.credit_bytes, _MOST_CREDIT)
                else:
                    raise MalformedRequestError("a FetchStreamRequest says neither where from nor how much")
                self.changed.set()
        finally:
            self.ended = True
            self.changed.set()
            self.restarted.set()

    async def ready(self) -> bool:
        """Wait until there is something to read and credit to send it; False: the stream is over."""
        while (self.start is None or self.credit <= 0) and not self.ended:
            self.changed.clear()
            await self.changed.wait()
        return not self.ended

    def answer_bytes(self, most_bytes: int) -> int:
        return min(self.credit, most_bytes, self.limit or most_bytes)

    async def first_of(self, waiting: asyncio.Task[list[FetchResult]]) -> bool:
        """Whether the records came before the client asked for something else; what waits is ended else."""
        self.restarted.clear()
        other = asyncio.create_task(self.restarted.wait())
        try:
            await asyncio.wait((waiting, other), return_when=asyncio.FIRST_COMPLETED)
            return waiting.done() and not self.ended
        finally:
            other.cancel()
            if not waiting.done():
                waiting.cancel()

    def take(self, number: int, results: list[FetchResult]) -> list[FetchResult]:
        """The results with news; the next look begins behind them, and their bytes are taken from the credit."""
        if self.start is None or self.start[0] != number:
            return []
        _, wanted, isolation = self.start
        news, rest = [], []
        for request, result in zip(wanted, results, strict=True):
            ended = result.error is not None or result.preferred_replica >= 0
            if len(result.batches) or result.next_offset != request.offset or ended:
                news.append(result)
            if not ended:  # such a partition is not read on until the client asks anew
                rest.append(request._replace(offset=result.next_offset))
            self.credit -= len(result.batches)
        self.start = (number, rest, isolation) if rest else None
        return news
