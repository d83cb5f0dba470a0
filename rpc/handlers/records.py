"""``RecordHandler``: deletion of records, compaction and erasure for a caller; long work goes on without the caller."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from logstore.api.operations import Operation as LongWork
from logstore.api.operations import OperationState
from logstore.errors import InvariantError, LogStoreError
from logstore.types import CompactedPartition, ErasureReport, TopicPartition
from rpc.errors import BrokerBusyError, UnknownOperationError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import Authorizer, Caller, Operation, Resource
from rpc.handlers.engine import Engine
from rpc.handlers.waits import Waits

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.25
_KEPT_S: Final = 3600.0
_MOST: Final = 100
Outcome = list[CompactedPartition] | ErasureReport


@dataclass(slots=True)
class StartedWork:
    """Long work, begun by a caller. ``version`` goes up whenever the rest is news; ``ended_s``: of the loop's clock,
    when it ended."""

    work: LongWork[Any]
    principal: str
    version: int = 1
    state: OperationState = field(default_factory=lambda: OperationState(False, {}))
    outcome: Outcome | None = None
    error: LogStoreError | None = None
    ended_s: float | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)


class RecordHandler:
    """Of the event loop alone."""

    def __init__(
        self,
        engine: Engine,
        blocking: Blocking,
        authorizer: Authorizer,
        waits: Waits,
        longest_wait_s: float,
    ) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._waits = waits
        self._longest_wait_s = longest_wait_s
        self._started: dict[str, StartedWork] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def delete_records(
        self, caller: Caller, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        for topic in {place.topic for place in before}:
            self._authorizer.check(caller, Operation.DELETE, Resource.TOPIC, topic)
        return await self._blocking.run(self._engine.delete_records, before)

    async def start_compaction(self, caller: Caller, topic: str, partition: int | None, *, roll: bool) -> str:
        """The operation's id."""
        self._authorizer.check(caller, Operation.ALTER, Resource.TOPIC, topic)
        self._make_room()
        return self._follow(
            caller, await self._blocking.run(self._engine.start_compaction, topic, partition, roll=roll)
        )

    async def start_erasure(self, caller: Caller, topic: str, keys: Collection[bytes]) -> str:
        """The operation's id."""
        self._authorizer.check(caller, Operation.DELETE, Resource.TOPIC, topic)
        self._make_room()
        return self._follow(caller, await self._blocking.run(self._engine.start_erasure, topic, keys))

    def _make_room(self) -> None:
        """Forget what ended long ago. BrokerBusyError where too much is left."""
        now_s = asyncio.get_running_loop().time()
        ended = [(work.ended_s, name) for name, work in self._started.items() if work.ended_s is not None]
        for ended_s, name in sorted(ended):
            if now_s - ended_s > _KEPT_S or len(self._started) >= _MOST:
                del self._started[name]
        if len(self._started) >= _MOST:
            raise BrokerBusyError(f"{_MOST} operations are under way", retry_after_ms=1000)

    def _follow(self, caller: Caller, work: LongWork[Any]) -> str:
        operation_id = secrets.token_hex(8)
        started = self._started[operation_id] = StartedWork(work, caller.principal)
        task = asyncio.create_task(self._drive(started))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return operation_id

    async def _drive(self, started: StartedWork) -> None:
        work = started.work
        done = False
        try:
            while not done:
                done = await self._blocking.run(_work_for, work, _LOOK_S)
                state = work.state()
                if state != started.state and not done:
                    self._tell(started, state)
            started.outcome = await self._blocking.run(work.result)
        except LogStoreError as error:
            started.error = error
        except Exception as error:
            # Whoever asks for the outcome must not wait for ever.
            logger.exception("an operation failed with an error that is not the store's")
            started.error = InvariantError(f"the operation failed ({error!r}); the broker's log says how")
        started.ended_s = asyncio.get_running_loop().time()
        self._tell(started, work.state())

    def _tell(self, started: StartedWork, state: OperationState) -> None:
        started.state = state
        started.version += 1
        started.news.set()
        started.news = asyncio.Event()

    def _find(self, caller: Caller, operation_id: str) -> StartedWork:
        started = self._started.get(operation_id)
        if started is None or started.principal != caller.principal:
            raise UnknownOperationError(f"there is no operation {operation_id!r}")
        return started

    async def wait(
        self, caller: Caller, operation_id: str, known_version: int, max_wait_s: float
    ) -> StartedWork:
        """Once there is news, or the time is over. UnknownOperationError."""
        started = self._find(caller, operation_id)
        with suppress(TimeoutError):
            async with self._waits.limit(min(max_wait_s, self._longest_wait_s)):
                while started.version == known_version and started.ended_s is None:
                    await started.news.wait()
        return started

    async def cancel(self, caller: Caller, operation_id: str) -> None:
        await self._blocking.run(self._find(caller, operation_id).work.cancel)

    async def close(self) -> None:
        """End what is under way: what is finished stays."""
        for started in self._started.values():
            started.work.cancel()
        await asyncio.gather(*self._tasks)


def _work_for(work: LongWork[Any], seconds: float) -> bool:
    """Go on with the work, which in the embedded store the thread that waits does. Whether it is done."""
    until_s = time.monotonic() + seconds
    while not work.wait(seconds):
        if time.monotonic() >= until_s:
            return False
    return True
