"""``ProduceHandler``: appends for a caller; the wait for the sync takes no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from logstore.api.records import ProduceItem, ProduceResult
from logstore.types import Acks
from rpc.handlers.blocking import Blocking
from rpc.handlers.budget import ByteBudget
from rpc.handlers.caller import Authorizer, Caller, Operation, Resource
from rpc.handlers.engine import Engine
from rpc.handlers.quota import Quota


class ProduceHandler:
    """Of the event loop alone. ``longest_wait_s`` bounds what a caller may ask for."""

    def __init__(
        self,
        engine: Engine,
        blocking: Blocking,
        authorizer: Authorizer,
        budget: ByteBudget,
        quota: Quota,
        longest_wait_s: float,
    ) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._budget = budget
        self._quota = quota
        self._longest_wait_s = longest_wait_s

    async def produce(
        self, caller: Caller, items: Sequence[ProduceItem], acks: Acks, timeout_s: float, size: int
    ) -> list[ProduceResult]:
        """Append, and wait until it is decided. ``size``: of the request, bytes. BrokerBusyError,
        AccessDeniedError."""
        with self._budget.hold(caller.connection, size):
            self._authorize(caller, items)
            self._quota.take(caller, size)
            loop = asyncio.get_running_loop()
            decided: asyncio.Future[list[ProduceResult]] = loop.create_future()

            def append() -> None:
                """The loop is woken up once, by the outcome: under acks=1 that is there as soon as the append ends."""
                try:
                    self._engine.start_produce(items, acks, self._wait_s(timeout_s), _teller(loop, decided))
                except Exception as error:  # noqa: BLE001 - it is raised below, in the loop
                    loop.call_soon_threadsafe(_fail, decided, error)

            self._blocking.start(append)
            return await decided

    async def begin(
        self, caller: Caller, items: Sequence[ProduceItem], acks: Acks, timeout_s: float, size: int
    ) -> Awaitable[list[ProduceResult]]:
        """Append once the caller's quota allows it, and return when the batches are written; what is returned waits
        until they are decided."""
        self._authorize(caller, items)
        await self._quota.wait_to_take(caller, size)
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[list[ProduceResult]] = loop.create_future()
        wait_s, tell = self._wait_s(timeout_s), _teller(loop, decided)
        await self._blocking.run(self._engine.start_produce, items, acks, wait_s, tell)
        return decided

    def _authorize(self, caller: Caller, items: Sequence[ProduceItem]) -> None:
        for topic in {item.topic for item in items}:
            self._authorizer.check(caller, Operation.WRITE, Resource.TOPIC, topic)

    def _wait_s(self, timeout_s: float) -> float:
        return min(timeout_s, self._longest_wait_s) if timeout_s > 0 else self._longest_wait_s


def _teller(
    loop: asyncio.AbstractEventLoop, decided: asyncio.Future[list[ProduceResult]]
) -> Callable[[list[ProduceResult]], None]:
    """What the engine tells the results to, from any thread."""

    def tell(results: list[ProduceResult]) -> None:
        loop.call_soon_threadsafe(_resolve, decided, results)

    return tell


def _resolve(decided: asyncio.Future[list[ProduceResult]], results: list[ProduceResult]) -> None:
    if not decided.done():  # its caller may be gone
        decided.set_result(results)


def _fail(decided: asyncio.Future[list[ProduceResult]], error: Exception) -> None:
    if not decided.done():
        decided.set_exception(error)
