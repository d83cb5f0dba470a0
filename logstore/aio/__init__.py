"""The asyncio twin of ``logstore``: the same names and arguments, as coroutines that never block the event loop.

import logstore.aio

async with logstore.aio.open("data") as store:
    await store.create_topic("flights", partitions=3)
    async with store.producer() as producer:
        await (await producer.send("flights", b"value", key=b"key"))
    async with store.consumer("flights", group="g", until_end=True) as consumer:
        async for record in consumer:
            print(record.key, record.value)
        await consumer.commit()
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import logstore
from logstore.aio.admin import AsyncAdmin
from logstore.aio.calls import Calls, made
from logstore.aio.consumer import AsyncConsumer
from logstore.aio.opening import Opening
from logstore.aio.partition import AsyncPartition, AsyncTopic
from logstore.aio.producer import AsyncProducer
from logstore.aio.store import AsyncStore
from logstore.aio.table import AsyncTable
from logstore.aio.transaction import AsyncTransaction
from logstore.arguments import whole

DEFAULT_THREADS = 8


def open(  # noqa: A001
    path: str | os.PathLike[str],
    mode: logstore.Mode = "rw",
    *,
    threads: int = DEFAULT_THREADS,
    **settings: Any,
) -> Opening[AsyncStore]:
    """``async with logstore.aio.open(path) as store:``; settings and errors: see ``logstore.open``. ``threads``: how
    many calls may wait at once, beside those of producers and consumers."""
    return _opening(partial(logstore.open, path, mode, **settings), threads)


def connect(target: str, *, threads: int = DEFAULT_THREADS, **settings: Any) -> Opening[AsyncStore]:
    """``async with logstore.aio.connect("host:port") as client:``; settings and errors: see ``logstore.connect``."""
    return _opening(partial(logstore.connect, target, **settings), threads)


def _opening(make: Callable[[], Any], threads: int) -> Opening[AsyncStore]:
    threads = whole(threads, "threads", 1)

    async def opened() -> AsyncStore:
        calls = Calls(threads)

        def discard(twin: Any) -> None:
            twin.close()
            calls.close()

        try:
            return AsyncStore(await made(calls.submit(make), calls.submit, discard), calls)
        except Exception:
            calls.close()
            raise

    return Opening(opened)


__all__ = [
    "open",
    "connect",
    "AsyncStore",
    "AsyncProducer",
    "AsyncTransaction",
    "AsyncConsumer",
    "AsyncTable",
    "AsyncTopic",
    "AsyncPartition",
    "AsyncAdmin",
]
