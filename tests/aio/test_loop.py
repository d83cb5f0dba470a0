"""The event loop is never held up, however slow the disk is and however long a call waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import logstore.aio
from logstore.seams.fs import OsFileSystem
from tests.aio.worlds import PATIENCE_S

_TURNS = 20


class Heart:
    """How many turns the loop had."""

    def __init__(self) -> None:
        self.beats = 0

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            self.beats += 1


class SlowDisk(OsFileSystem):
    """A sync of a directory lasts until the loop had some turns beside it: one that holds the loop up has none."""

    def __init__(self, heart: Heart) -> None:
        super().__init__()
        self.syncs = 0
        self._heart = heart

    def sync_dir(self, path: str) -> None:
        beats, deadline_s = self._heart.beats + _TURNS, time.monotonic() + PATIENCE_S / 2
        while self._heart.beats < beats:
            if time.monotonic() > deadline_s:
                raise AssertionError("the loop is held up by a sync")
            time.sleep(0.001)
        self.syncs += 1
        super().sync_dir(path)


@asynccontextmanager
async def beating() -> AsyncIterator[Heart]:
    heart = Heart()
    task = asyncio.create_task(heart.beat())
    try:
        yield heart
    finally:
        task.cancel()


def test_slow_syncs_do_not_hold_up_the_loop(tmp_path: Path) -> None:
    async def work() -> None:
        async with asyncio.timeout(PATIENCE_S), beating() as heart:
            disk = SlowDisk(heart)
            async with logstore.aio.open(tmp_path / "s", fs=disk) as store:
                await store.create_topic("t", 2)
                async with store.producer() as producer, store.consumer("t", group="g") as consumer:
                    delivery = await producer.send("t", b"x")
                    await delivery
                    await consumer.poll(timeout_s=0.5)
                    await consumer.commit()
        assert disk.syncs > 3

    asyncio.run(work())


def test_a_full_buffer_makes_the_task_wait_and_not_the_loop(tmp_path: Path) -> None:
    async def work() -> None:
        async with asyncio.timeout(PATIENCE_S), logstore.aio.open(tmp_path / "s") as store:
            await store.create_topic("t")
            lock = threading.Lock()
            async with store.producer(buffer_bytes=65_536, linger_ms=0) as producer, beating() as heart:
                backend = store._twin.backend
                produce = backend.produce

                def stuck(*args: object, **kwargs: object) -> object:
                    with lock:
                        return produce(*args, **kwargs)  # type: ignore[arg-type]

                backend.produce = stuck  # type: ignore[method-assign, assignment]
                lock.acquire()

                async def send() -> None:
                    for _ in range(100):
                        await producer.send("t", bytes(1_000))

                sending = asyncio.create_task(send())
                while heart.beats < 100:
                    await asyncio.sleep(0.001)
                assert not sending.done()
                lock.release()
                await sending

    asyncio.run(work())


@pytest.mark.parametrize("count", [200])
def test_many_waiting_consumers_leave_the_threads_of_other_calls_free(tmp_path: Path, count: int) -> None:
    async def work() -> None:
        async with asyncio.timeout(PATIENCE_S), logstore.aio.open(":memory:", threads=2) as store:
            await store.create_topic("t")
            consumers = [await store.consumer("t", start="latest") for _ in range(count)]
            polls = [asyncio.create_task(one.poll(timeout_s=40)) for one in consumers]
            await asyncio.sleep(0)
            async with store.producer() as producer:
                await (await producer.send("t", b"x"))
            assert [len(found) for found in await asyncio.gather(*polls)] == [1] * count

    asyncio.run(work())
