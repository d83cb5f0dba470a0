"""``ProduceHandler``: appends for a caller; the wait for the sync takes no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from logstore.api.records import ProduceItem, ProduceResult
from logstore.types import Acks
from rpc.handlers.blocking import Blocking
from rpc.handlers.budget import ByteBudget
from rpc.handlers.caller import Authorizer, Caller, Operation, Resource
from rpc.handlers.engine import Engine


class ProduceHandler:
    """Of the event loop alone. ``longest_wait_s`` bounds what a caller may ask for."""

    def __init__(
        self,
        engine: Engine,
        blocking: Blocking,
        authorizer: Authorizer,
        budget: ByteBudget,
        longest_wait_s: float,
    ) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._budget = budget
        self._longest_wait_s = longest_wait_s

    async def produce(
        self, caller: Caller, items: Sequence[ProduceItem], acks: Acks, timeout_s: float, size: int
    ) -> list[ProduceResult]:
        """Append, and wait until it is decided. ``size``: of the request, bytes. BrokerBusyError,
        AccessDeniedError."""
        with self._budget.hold(caller.connection, size):
            return await (await self.begin(caller, items, acks, timeout_s))

    async def begin(
        self, caller: Caller, items: Sequence[ProduceItem], acks: Acks, timeout_s: float
    ) -> Awaitable[list[ProduceResult]]:
        """Append, and return when the batches are written; what is returned waits until they are decided."""
        for topic in {item.topic for item in items}:
            self._authorizer.check(caller, Operation.WRITE, Resource.TOPIC, topic)
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[list[ProduceResult]] = loop.create_future()

        def tell(results: list[ProduceResult]) -> None:
            loop.call_soon_threadsafe(_resolve, decided, results)

        wait_s = min(timeout_s, self._longest_wait_s) if timeout_s > 0 else self._longest_wait_s
        await self._blocking.run(self._engine.start_produce, items, acks, wait_s, tell)
        return decided


def _resolve(decided: asyncio.Future[list[ProduceResult]], results: list[ProduceResult]) -> None:
    if not decided.done():  # its caller may be gone
        decided.set_result(results)
