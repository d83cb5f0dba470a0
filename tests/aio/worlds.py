"""Stores of asyncio in each of their worlds: a directory, memory, and a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import logstore.aio
from tests.rpc.served import Served

World = Literal["directory", "memory", "broker"]
WORLDS: tuple[World, ...] = ("directory", "memory", "broker")
Answer = TypeVar("Answer")
PATIENCE_S = 60.0


@asynccontextmanager
async def opened(world: World, tmp_path: Path) -> AsyncIterator[logstore.aio.AsyncStore]:
    if world == "broker":
        with Served(":memory:") as served:
            async with logstore.aio.connect(served.address) as store:
                yield store
    else:
        path = ":memory:" if world == "memory" else tmp_path / "store"
        async with logstore.aio.open(path) as store:
            yield store


def run(
    work: Callable[[logstore.aio.AsyncStore], Coroutine[Any, Any, Answer]], world: World, tmp_path: Path
) -> Answer:
    async def whole() -> Answer:
        async with asyncio.timeout(PATIENCE_S), opened(world, tmp_path) as store:
            return await work(store)

    return asyncio.run(whole(), debug=False)
