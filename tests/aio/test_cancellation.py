"""Tasks that are cancelled anywhere lose and double nothing."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from logstore.aio import AsyncStore
from logstore.errors import ProducerBusyError
from logstore.types import TopicPartition
from tests.aio.worlds import WORLDS, World, run

SEEDS = range(6)


async def attempt(random_: random.Random, work: asyncio.Task[object]) -> bool:
    """Whether the task came to its end; else it was cancelled after a few turns of the loop, or a moment."""
    if random_.random() < 0.5:
        for _ in range(random_.randrange(4)):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(random_.random() / 500)
    work.cancel()
    try:
        await work
    except asyncio.CancelledError:
        return False
    return True


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_cancelled_polls_hand_everything_out_once(world: World, seed: int, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        random_ = random.Random(seed)
        await store.create_topic("t", 3)
        async with store.producer() as producer:
            for number in range(300):
                await producer.send("t", b"%d" % number, key=b"%d" % number)
        seen: list[int] = []
        async with store.consumer("t", group="g", until_end=True) as consumer:

            async def poll() -> None:
                seen.extend(int(record.value or b"") for record in await consumer.poll(20, timeout_s=0.3))

            async def loop() -> None:
                async for record in consumer:
                    seen.append(int(record.value or b""))
                    if random_.random() < 0.1:
                        break

            cancelled = 0
            while not await consumer.is_finished():
                body = poll() if random_.random() < 0.7 else loop()
                cancelled += not await attempt(random_, asyncio.create_task(body))
                await consumer.commit()
                committed = await store.committed_offsets("g")
                positions = {place: await consumer.position(*place) for place in await consumer.assignment()}
                assert {place: at.offset for place, at in committed.items()} == {
                    place: position for place, position in positions.items() if place in committed
                }
                assert sum(positions.values()) == len(seen), "what counts as handed out was handed out"
            assert cancelled > 5
        assert sorted(seen) == list(range(300))

    run(work, world, tmp_path)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_cancelled_sends_are_in_whole_or_not_at_all(world: World, seed: int, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        random_ = random.Random(seed)
        await store.create_topic("t", 2)
        sure: list[int] = []
        async with store.producer(buffer_bytes=65_536, batch_bytes=500) as producer:

            async def send(number: int) -> None:
                await producer.send("t", b"%d" % number + b"." * 5_000, headers=[("n", b"%d" % number)])
                sure.append(number)

            for number in range(300):
                await attempt(random_, asyncio.create_task(send(number)))
        async with store.consumer("t", until_end=True) as consumer:
            found = [int((record.value or b"").rstrip(b".")) async for record in consumer]
        assert len(found) == len(set(found))
        assert set(sure) <= set(found)
        assert 0 < len(sure) <= len(found)

    run(work, world, tmp_path)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_cancelled_transactions_count_in_full_or_not_at_all(world: World, seed: int, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        random_ = random.Random(seed)
        await store.create_topic("t", 2)
        sure: list[int] = []
        async with store.producer(transactional_id="x") as producer:

            async def transaction(number: int) -> None:
                async with producer.transaction() as tx:
                    for part in range(4):
                        await tx.send("t", b"%d:%d" % (number, part), partition=part % 2)
                        await asyncio.sleep(0)
                    await tx.commit_offsets("g", {TopicPartition("t", 0): 0})
                sure.append(number)

            for number in range(25):
                await attempt(random_, asyncio.create_task(transaction(number)))
            await transaction(25)
        async with store.consumer("t", until_end=True) as consumer:
            found = [(record.value or b"").decode() async for record in consumer]
        whole = sorted({int(value.split(":")[0]) for value in found})
        assert sorted(found) == sorted(f"{number}:{part}" for number in whole for part in range(4))
        assert set(sure) <= set(whole)
        assert 25 in whole

    run(work, world, tmp_path)


@pytest.mark.parametrize("world", WORLDS)
def test_an_opening_that_is_cancelled_leaves_nothing_open(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        random_ = random.Random(1)
        await store.create_topic("t")

        async def use() -> None:
            try:
                async with store.producer(name="import") as producer:
                    await producer.send("t", b"x")
            except ProducerBusyError:
                pass  # the one before is still being closed

        for _ in range(20):
            await attempt(random_, asyncio.create_task(use()))
        async with asyncio.timeout(60):
            while not await reopened(store):
                await asyncio.sleep(0.01)  # the last one is still being closed

    run(work, world, tmp_path)


async def reopened(store: AsyncStore) -> bool:
    try:
        async with store.producer(name="import") as producer:
            return producer.name == "import"
    except ProducerBusyError:
        return False
