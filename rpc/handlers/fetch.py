"""``FetchHandler``: reads for a caller; the wait for records takes no thread and no polling."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from logstore.api.records import FetchRequest, FetchResult
from logstore.types import Isolation, TopicPartition
from rpc.errors import BrokerUnavailableError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import Authorizer, Caller, Operation, Resource
from rpc.handlers.engine import Engine
from rpc.handlers.quota import Quota
from rpc.handlers.waits import Waits


class FetchHandler:
    """Of the event loop alone. ``longest_wait_s``, ``most_bytes``: bound what a caller may ask for."""

    def __init__(
        self,
        engine: Engine,
        blocking: Blocking,
        authorizer: Authorizer,
        waits: Waits,
        quota: Quota,
        longest_wait_s: float,
        most_bytes: int,
    ) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._waits = waits
        self._quota = quota
        self._longest_wait_s = longest_wait_s
        self.most_bytes = most_bytes

    def authorize(self, caller: Caller, requests: Sequence[FetchRequest]) -> None:
        """AccessDeniedError unless the caller may read all of these topics."""
        for topic in {request.topic for request in requests}:
            self._authorizer.check(caller, Operation.READ, Resource.TOPIC, topic)

    async def fetch(
        self,
        caller: Caller,
        requests: Sequence[FetchRequest],
        *,
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_s: float,
    ) -> list[FetchResult]:
        """As ``DataPlane.fetch``; ends at once when the task is cancelled."""
        self.authorize(caller, requests)
        most = min(max_bytes, self.most_bytes) if max_bytes > 0 else self.most_bytes
        results = await self.wait(
            caller, requests, isolation, min_bytes, most, min(max_wait_s, self._longest_wait_s)
        )
        if max_wait_s > 0:
            self.authorize(caller, requests)  # the wait may have outlived the right
        return results

    async def wait(
        self,
        caller: Caller,
        requests: Sequence[FetchRequest],
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_s: float | None,
    ) -> list[FetchResult]:
        """What is worth an answer, or what there is when the time is over. ``max_wait_s=None``: it never is, but
        BrokerUnavailableError once the broker stops."""
        loop = asyncio.get_running_loop()
        deadline_s = None if max_wait_s is None else loop.time() + max_wait_s
        more = asyncio.Event()
        while True:
            watch = None if max_wait_s == 0 else _Watch(self._engine, requests, lambda: _tell(loop, more))
            try:
                results, enough = await self._look(caller, requests, isolation, min_bytes, max_bytes, watch)
                if enough or watch is None:
                    return results
                left_s = None if deadline_s is None else max(deadline_s - loop.time(), 0.0)
                if not await self._waits.wait(more.wait(), left_s):
                    if deadline_s is None:
                        raise BrokerUnavailableError("the broker stops", unreached=True)
                    return results
                more.clear()
            finally:
                if watch is not None:
                    watch.end()

    async def _look(
        self,
        caller: Caller,
        requests: Sequence[FetchRequest],
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        watch: _Watch | None,
    ) -> tuple[list[FetchResult], bool]:
        """What there is now; if that is not enough, ``watch`` has begun. A caller with a quota waits for it here, with
        nothing read yet."""

        def look(least: int, most: int) -> tuple[list[FetchResult], bool]:
            """One change of threads, also for a caller that will wait."""
            results, enough = self._engine.collect(requests, isolation, least, most)
            if enough or watch is None:
                return results, enough
            watch.begin()  # before the second look: what comes between the two is told
            return self._engine.collect(requests, isolation, least, most)

        bucket = self._quota.bucket(caller)
        if bucket is None:
            return await self._blocking.run(look, min_bytes, max_bytes)
        async with self._quota.reading(bucket, max_bytes) as most:
            results, enough = await self._blocking.run(look, min(min_bytes, most), most)
            bucket.charge(sum(len(result.batches) for result in results))
        return results, enough


class _Watch:
    """Has ``tell`` called when there may be more; begun in a thread and ended by the loop, whichever comes first."""

    def __init__(self, engine: Engine, requests: Sequence[FetchRequest], tell: Callable[[], None]) -> None:
        self._engine = engine
        self._requests = requests
        self._tell = tell
        self._lock = threading.Lock()
        self._over = False
        self._forget: Callable[[], None] | None = None

    def begin(self) -> None:
        places = {TopicPartition(request.topic, request.partition) for request in self._requests}
        forget = self._engine.when_more(places, self._tell)
        with self._lock:
            if not self._over:
                self._forget = forget
                return
        forget()  # the caller has gone meanwhile

    def end(self) -> None:
        with self._lock:
            self._over = True
            forget, self._forget = self._forget, None
        if forget is not None:
            forget()


def _tell(loop: asyncio.AbstractEventLoop, more: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed: nothing waits there any more
        loop.call_soon_threadsafe(more.set)
