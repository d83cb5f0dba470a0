"""Appends for a caller: an error of the whole call reaches the caller, and gives back what was held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logstore.errors import StoreClosedError
from rpc.handlers.blocking import Blocking
from rpc.handlers.budget import ByteBudget
from rpc.handlers.caller import AllowAll, Caller
from rpc.handlers.produce import ProduceHandler
from tests.rpc.handlers.quotas import unlimited


class _Refusing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def start_produce(self, *_: object) -> None:
        raise self.error


@pytest.mark.parametrize("error", [StoreClosedError("closed"), ZeroDivisionError("a fault of the engine")])
def test_an_error_of_the_engine_reaches_the_caller(error: Exception) -> None:
    async def produce() -> None:
        engine: Any = _Refusing(error)
        blocking, budget = Blocking("test", 1), ByteBudget("produce", 100, 100)
        handler = ProduceHandler(engine, blocking, AllowAll(), budget, unlimited(), 60.0)
        try:
            for append in (
                handler.produce(Caller("me"), [], 1, 5.0, 70),
                handler.begin(Caller("me"), [], 1, 5.0, 70),
            ):
                with pytest.raises(type(error)) as caught:
                    await append
                assert caught.value is error
        finally:
            blocking.close()
        assert budget.taken_bytes == 0

    asyncio.run(produce())
