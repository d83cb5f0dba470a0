"""The asyncio twin over a cluster: the same client beneath."""

from __future__ import annotations

import asyncio

import logstore.aio
from tests.rpc.cluster import Cluster


def test_records_and_transactions_go_on_while_leaders_move() -> None:
    async def work(cluster: Cluster) -> list[bytes | None]:
        async with await logstore.aio.connect(cluster.address) as store:
            async with await store.producer() as producer:
                for number in range(60):
                    if number % 10 == 0:
                        cluster.table.move("t", number % 2, 1 + number % 3)
                    delivery = await producer.send("t", b"%d" % number, partition=number % 2)
                    await delivery
            async with await store.producer(transactional_id="tx") as producer, producer.transaction():
                await producer.send("t", b"60", partition=0)
                cluster.table.move_coordinator(3)
                await producer.send("t", b"61", partition=1)
            async with await store.consumer("t", group="g", until_end=True) as consumer:
                cluster.table.move_coordinator(2)
                found = [record.value async for record in consumer]
                await consumer.commit()
        return found

    with Cluster() as cluster:
        cluster.store.create_topic("t", 2)
        found = asyncio.run(work(cluster))
    assert sorted(found, key=lambda value: int(value or b"")) == [b"%d" % number for number in range(62)]
