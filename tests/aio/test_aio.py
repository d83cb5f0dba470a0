"""Every verb, in each world, by asyncio."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import logstore.aio
from logstore.aio import AsyncStore
from logstore.errors import (
    ClientClosedError,
    InvalidArgumentError,
    TopicExistsError,
    UnknownSettingError,
    UnknownTopicError,
    WakeupError,
)
from logstore.types import TopicPartition
from tests.aio.worlds import WORLDS, World, run

pytestmark = pytest.mark.parametrize("world", WORLDS)


async def filled(store: AsyncStore, count: int = 100, partitions: int = 2) -> None:
    await store.create_topic("t", partitions)
    async with store.producer() as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, key=b"k%d" % (number % 7))


def test_the_tour(world: World, tmp_path: Path) -> None:
    async def tour(store: AsyncStore) -> None:
        await store.create_topic("flights", partitions=3)
        async with store.producer() as producer:
            deliveries = [await producer.send("flights", b"%d" % n, key=b"%d" % n) for n in range(500)]
            places = [await delivery for delivery in deliveries]
        assert {place.topic for place in places} == {"flights"}
        assert len({(place.partition, place.offset) for place in places}) == 500
        async with store.consumer("flights", group="g", until_end=True) as consumer:
            seen = [int(record.value or b"") async for record in consumer]
            await consumer.commit()
            assert await consumer.is_finished()
        assert sorted(seen) == list(range(500))
        committed = await store.committed_offsets("g")
        assert sum(point.offset for point in committed.values()) == 500
        assert await store.list_topics() == ["flights"]
        described = await store.describe_topic("flights")
        assert sum(one.high_watermark for one in described.partitions) == 500

    run(tour, world, tmp_path)


def test_a_commit_in_the_loop_covers_what_the_loop_has_seen(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await filled(store, 50, 1)
        async with store.consumer("t", group="g") as consumer:
            seen = 0
            async for _ in consumer:
                seen += 1
                if seen == 17:
                    await consumer.commit()
                    assert await consumer.position("t", 0) == 17
                    break
        assert (await store.committed_offsets("g"))[TopicPartition("t", 0)].offset == 17
        async with store.consumer("t", group="g", until_end=True) as consumer:
            assert [int(record.value or b"") async for record in consumer] == list(range(17, 50))

    run(work, world, tmp_path)


def test_polls_batches_and_positions(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await filled(store, 40, 1)
        async with store.consumer([("t", 0)], until_end=True) as consumer:
            assert len(await consumer.poll(10)) == 10
            await consumer.seek("t", 0, 35)
            sizes = [len(records) async for records in consumer.batches(3)]
            assert sum(sizes) == 5
            assert await consumer.assignment() == [("t", 0)]
            assert await consumer.end_offsets() == {("t", 0): 40}
            await consumer.seek("t", 0, "earliest")
            await consumer.pause()
            assert await consumer.poll(timeout_s=0) == []
            await consumer.resume()
            assert len(await consumer.poll(500)) == 40
            assert (await consumer.metrics())["records_consumed_total"] >= 55

    run(work, world, tmp_path)


def test_send_many_batches_and_a_table(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await store.create_topic("users", 2, {"cleanup.policy": "compact"})
        async with store.producer() as producer:
            group = await producer.send_many("users", [(b"%d" % n, b"v%d" % n) for n in range(20)])
            ranges = await group
            assert sum(one.end_exclusive - one.start for one in ranges) == 20
            await producer.flush()
        async with store.table("users") as table:
            assert await table.get(b"7") == b"v7"
            assert await table.get(b"none", b"x") == b"x"
            assert await table.count() == 20
            async with store.producer() as producer:
                place = await (await producer.send("users", b"new", key=b"7"))
            await table.wait_for(place.partition, place.offset)
            assert dict(await table.items())[b"7"] == b"new"
            assert set(await table.keys()) == {b"%d" % n for n in range(20)}
            assert (await table.frozen())[b"8"] == b"v8"
            assert sum((await table.positions()).values()) == 21

    run(work, world, tmp_path)


def test_prepared_transactions_are_decided_together(world: World, tmp_path: Path) -> None:
    async def part(store: AsyncStore, number: int) -> logstore.PreparedTransaction:
        async with (
            store.producer(transactional_id=f"p{number}", transaction_coordinator="c") as producer,
            producer.transaction() as tx,
        ):
            await tx.send("t", b"%d" % number)
            prepared = await tx.prepare()
        assert prepared is not None
        return prepared

    async def work(store: AsyncStore) -> None:
        await store.create_topic("t")
        parts = await asyncio.gather(*(part(store, number) for number in range(4)))
        async with store.producer(transactional_id="c", keep_prepared=True) as producer:
            async with producer.transaction() as tx:
                await tx.commit(prepared=parts[:2])
            await producer.begin()
            await producer.send("t", b"own")
            await producer.commit()
        async with store.consumer("t", isolation="read_committed", until_end=True) as consumer:
            seen = [record.value async for record in consumer]
        assert sorted(seen) == [b"0", b"1", b"own"]
        states = {one.transactional_id: one.state for one in await store.admin.list_transactions()}
        assert states["p3"] == "COMPLETE_ABORT"

    run(work, world, tmp_path)


def test_transactions_copy_exactly_once(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await filled(store, 30)
        await store.create_topic("out", 2)
        async with store.producer(transactional_id="copy") as producer:
            async with store.consumer("t", group="g") as consumer:
                done, turns = 0, 0
                while done < 30:
                    turns += 1
                    try:
                        async with producer.transaction(rewind=consumer) as tx:
                            records = await consumer.poll(7, timeout_s=0.2)
                            for record in records:
                                await tx.send("out", record.value, partition=record.partition)
                            await tx.send_offsets(consumer)
                            if turns % 2:
                                raise ZeroDivisionError
                            done += len(records)
                    except ZeroDivisionError:
                        continue
            tx = await producer.begin()
            await tx.send_many("out", [(None, b"never")])
            await producer.abort()
        async with store.consumer("out", until_end=True) as reader:
            copied = [int(record.value or b"") async for record in reader]
        assert sorted(copied) == list(range(30))

    run(work, world, tmp_path)


def test_committing_goes_back_where_the_block_raises(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await filled(store, 10, 1)
        async with store.consumer("t", group="g") as consumer:
            records = await consumer.poll(4)
            with pytest.raises(ZeroDivisionError):
                async with consumer.committing(records):
                    raise ZeroDivisionError
            assert await consumer.committed("t", 0) is None
            records = await consumer.poll(4)
            assert [record.offset for record in records] == [0, 1, 2, 3]
            async with consumer.committing(records):
                pass
            committed = await consumer.committed("t", 0)
            assert committed is not None
            assert committed.offset == 4

    run(work, world, tmp_path)


def test_hooks_are_functions_or_coroutines_that_may_commit(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await filled(store, 10, 1)
        heard: list[tuple[str, int, bool]] = []
        loop_thread = threading.current_thread()

        async def on_assigned(places: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append(("assigned", len(places), threading.current_thread() is loop_thread))

        async def on_revoked(places: list[TopicPartition]) -> None:
            await consumer.commit()
            heard.append(("revoked", len(places), threading.current_thread() is loop_thread))

        async with store.consumer("t", group="g", on_assigned=on_assigned, on_revoked=on_revoked) as consumer:
            while not await consumer.poll(3, timeout_s=0.1):
                pass
        assert heard == [("assigned", 1, True), ("revoked", 1, True)]
        assert (await store.committed_offsets("g"))[TopicPartition("t", 0)].offset == 3

    run(work, world, tmp_path)


def test_a_wakeup_ends_a_poll_of_another_task(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await store.create_topic("t")
        async with store.consumer("t") as consumer:
            polling = asyncio.create_task(consumer.poll(timeout_s=50))
            await asyncio.sleep(0.01)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await polling
            assert await consumer.poll(timeout_s=0) == []

    run(work, world, tmp_path)


def test_errors_are_those_of_the_synchronous_calls(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await store.create_topic("t")
        with pytest.raises(TopicExistsError):
            await store.create_topic("t")
        with pytest.raises(UnknownTopicError):
            await store.describe_topic("none")
        async with store.producer() as producer:
            with pytest.raises(UnknownTopicError):
                await producer.send("none", b"x")
            with pytest.raises(InvalidArgumentError):
                await producer.begin()
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"x")
        with pytest.raises(UnknownSettingError):
            await store.producer(ack="all")  # type: ignore[call-overload]
        with pytest.raises(UnknownTopicError):
            await store.consumer("none")
        with pytest.raises(UnknownTopicError):
            await store.admin.delete_topic("none")

    run(work, world, tmp_path)


def test_a_store_closes_what_was_made_of_it(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await store.create_topic("t")
        producer = await store.producer(linger_ms=60_000)
        delivery = await producer.send("t", b"x")
        consumer = await store.consumer("t", group="g")
        polling = asyncio.create_task(consumer.poll(timeout_s=50))
        await asyncio.sleep(0.01)
        await store.close()
        assert (await delivery).offset == 0
        with pytest.raises((WakeupError, ClientClosedError)):
            await polling
        with pytest.raises(ClientClosedError):
            await consumer.poll()
        with pytest.raises(ClientClosedError):
            await store.list_topics()
        await store.close()

    run(work, world, tmp_path)


def test_many_tasks_share_a_producer(world: World, tmp_path: Path) -> None:
    async def work(store: AsyncStore) -> None:
        await store.create_topic("t", 4)
        async with store.producer() as producer:

            async def sender(task: int) -> None:
                for number in range(50):
                    await (await producer.send("t", b"%d:%d" % (task, number), key=b"%d" % task))

            await asyncio.gather(*[sender(task) for task in range(20)])
        async with store.consumer("t", until_end=True) as consumer:
            values = [record.value or b"" async for record in consumer]
        for task in range(20):
            mine = [value for value in values if value.startswith(b"%d:" % task)]
            assert mine == [b"%d:%d" % (task, number) for number in range(50)]

    run(work, world, tmp_path)


def test_two_worlds_one_name(world: World, tmp_path: Path) -> None:
    del world
    assert logstore.aio.open.__module__ == logstore.aio.connect.__module__ == "logstore.aio"
    with pytest.raises(InvalidArgumentError, match="threads"):
        logstore.aio.open(tmp_path, threads=0)
