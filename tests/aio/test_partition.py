"""One partition as a log, and one topic, by asyncio, in each world."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from logstore.aio import AsyncStore
from logstore.errors import (
    OffsetMismatchError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tests.aio.worlds import WORLDS, World, run

pytestmark = pytest.mark.parametrize("world", WORLDS)


def test_a_partition_as_a_log(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        topic = await store.create_topic("t", partitions=2)
        log = await topic.partition(1)
        assert (log.topic, log.partition) == ("t", 1)
        for number in range(12):
            placed = await log.append([(b"k", b"%d" % (100 * number + n)) for n in range(100)])
            assert placed.offset == 100 * number
        with pytest.raises(OffsetMismatchError):
            await log.append([(b"k", b"v")], expected_offset=7)
        assert await log.log_start_offset() == 0
        ends = (await log.high_watermark(), await log.last_stable_offset(), await log.log_end_offset())
        assert ends == (1200, 1200, 1200)
        assert await log.leader_epoch() == 0
        assert (await log.describe()).high_watermark == 1200
        assert [int(record.value or b"") async for record in log.records(0)] == list(range(1200))
        backwards = [record.offset async for record in log.records(5, 10, reverse=True)]
        assert backwards == [9, 8, 7, 6, 5]
        first = await anext(aiter(log.records(3)))
        assert first.offset == 3
        assert (await log.to_arrow(0, 10)).num_rows == 10
        assert await log.offset_for_timestamp(0) == 0
        copied = await (await store.partition("t", 0)).append_batch(await log.read(0, 1))
        assert copied.offset == 0

    run(work, world, tmp_path)


def test_a_topic(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        made = await store.create_topic("t", 3, {"cleanup.policy": "compact"})
        topic = await store.topic("t")
        assert (made.name, topic.name) == ("t", "t")
        assert await topic.partitions() == 3
        assert (await topic.config())["cleanup.policy"] == "compact"
        assert await topic.topic_id() == await made.topic_id()
        assert len((await topic.describe()).partitions) == 3
        await (await topic.partition(0)).append([(b"k", b"v")])
        async with topic.table() as table:
            assert await table.get(b"k") == b"v"

    run(work, world, tmp_path)


def test_errors_have_their_names(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        topic = await store.create_topic("t")
        with pytest.raises(UnknownTopicError):
            await store.topic("nope")
        with pytest.raises(UnknownTopicError):
            await store.partition("nope", 0)
        with pytest.raises(UnknownPartitionError):
            await topic.partition(1)
        log = await topic.partition(0)
        with pytest.raises(OffsetOutOfRangeError):
            await anext(aiter(log.records(5)))

    run(work, world, tmp_path)


def test_arrow_batches_leave_the_loop_free_and_may_be_left_early(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        topic = await store.create_topic("t", partitions=2)
        for number in range(2):
            await (await topic.partition(number)).append([(b"k", b"v" * 100)] * 500)
        rows = sum([batch.num_rows async for batch in store.arrow_batches("t", decode={"value": "utf8"})])
        assert rows == 1000
        async for batch in store.arrow_batches("t", partitions=[1]):
            assert batch.num_rows > 0
            break
        with pytest.raises(UnknownTopicError):
            await anext(aiter(store.arrow_batches("nope")))

    run(work, world, tmp_path)


def test_a_cancelled_iteration_can_be_begun_again(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        log = await (await store.create_topic("t")).partition(0)
        for _ in range(4):
            await log.append([(None, b"v")] * 500)

        async def count() -> int:
            return sum([1 async for _ in log.records(0)])

        task = asyncio.create_task(count())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await count() == 2000

    run(work, world, tmp_path)
