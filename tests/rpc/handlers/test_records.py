"""Long work for a caller: whatever ends it, the caller hears of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logstore.api.operations import OperationState
from logstore.errors import InvariantError, LogStoreError, TopicLockedError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import AllowAll, Caller
from rpc.handlers.records import RecordHandler
from rpc.handlers.waits import Waits


class _Failing:
    """Work that fails while it is waited for, as work of the thread that waits does."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def state(self) -> OperationState:
        return OperationState(False, {})

    def wait(self, timeout_s: float) -> bool:
        raise self._error

    def cancel(self) -> None: ...


class _Engine:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def start_compaction(self, topic: str, partition: int | None, *, roll: bool) -> _Failing:
        del topic, partition, roll
        return _Failing(self._error)


@pytest.mark.parametrize(
    ("error", "told"),
    [(TopicLockedError("held"), TopicLockedError), (ZeroDivisionError("a bug"), InvariantError)],
)
def test_work_that_fails_while_it_goes_on_ends_with_its_error(
    error: Exception, told: type[LogStoreError]
) -> None:
    async def ask() -> None:
        engine: Any = _Engine(error)
        blocking = Blocking("test", 1)
        handler = RecordHandler(engine, blocking, AllowAll(), Waits(), 60.0)
        try:
            name = await handler.start_compaction(Caller("me"), "t", None, roll=True)
            async with asyncio.timeout(30):
                ended = await handler.wait(Caller("me"), name, 1, 60.0)
            assert ended.ended_s is not None
            assert isinstance(ended.error, told)
        finally:
            await handler.close()
            blocking.close()

    asyncio.run(ask())
