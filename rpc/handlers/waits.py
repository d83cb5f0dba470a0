"""``Waits``: how long callers wait for news: each its own time, and no longer once the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from rpc.errors import BrokerUnavailableError
from rpc.handlers.call import current_call

Item = TypeVar("Item")


class Waits:
    """Of the event loop alone. ``over``: the broker stops, and what is asked now is answered with what there is. The
    time of a wait is noted in the call that waits."""

    def __init__(self) -> None:
        self.over = False
        self._under_way: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def limit(self, wait_s: float | None) -> AsyncIterator[None]:
        """TimeoutError when the time is over (None: it never is), or the broker stops."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(0 if self.over else wait_s) as timeout:
                self._under_way.add(timeout)
                try:
                    yield
                finally:
                    self._under_way.discard(timeout)
        finally:
            call = current_call()
            if call is not None:
                call.waited_s += loop.time() - began_s

    async def wait(self, news: Awaitable[object], wait_s: float | None) -> bool:
        """Whether ``news`` came in time."""
        try:
            async with self.limit(wait_s):
                await news
        except TimeoutError:
            return False
        return True

    async def pause(self, wait_s: float) -> bool:
        """Wait for so long; whether the broker goes on."""
        await self.wait(asyncio.Event().wait(), wait_s)
        return not self.over

    async def until_end(self, items: AsyncIterator[Item]) -> AsyncIterator[Item]:
        """The items as they come. BrokerUnavailableError once the broker stops: it waits for no more of them."""
        while True:
            try:
                async with self.limit(None):
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise BrokerUnavailableError("the broker stops") from None
            yield item

    def end(self) -> None:
        """The broker stops: every wait is over."""
        self.over = True
        now_s = asyncio.get_running_loop().time()
        for timeout in self._under_way:
            if not timeout.expired():
                timeout.reschedule(now_s)
