"""What the clients of a broker do, each in a process of its own (``bench.child_work``)."""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio

import logstore
from bench import ours
from bench.harness import percentile
from logstore.api.records import FetchRequest
from logstore.client.store_client import StoreClient
from logstore.types import Acks
from rpc.wire.records import fetch_request

VALUE_BYTES = 1024


def produce(address: str, count: int, size: int = VALUE_BYTES, topic: str = ours.TOPIC) -> float:
    """Records a second of one producer, acks=1."""
    with logstore.connect(address) as client:
        return _produce(client, count, size, topic)


def _produce(client: StoreClient, count: int, size: int, topic: str) -> float:
    value = bytes(size)
    with client.producer(acks=1) as producer:
        send = producer.send
        send(topic, value).result(timeout_s=30)  # connected
        began = time.perf_counter()
        for _ in range(count):
            send(topic, value)
        producer.flush()
        return count / (time.perf_counter() - began)


def consume(address: str, topic: str = ours.TOPIC) -> float:
    """Records a second of one consumer, from its first fetch to the last record."""
    with logstore.connect(address) as client:
        return _consume(client, topic)


def _consume(client: StoreClient, topic: str) -> float:
    with client.consumer(topic, until_end=True) as consumer:
        began, count = time.perf_counter(), 0
        for records in consumer.batches(max_records=500):
            count += len(records)
        return count / (time.perf_counter() - began)


def embedded(folder: str, count: int, size: int) -> dict[str, float]:
    """The same in and out of a store of this process."""
    with logstore.open(folder) as store:
        store.create_topic(ours.TOPIC, config=ours.CACHED)
        return {"produce": _produce(store, count, size, ours.TOPIC), "consume": _consume(store, ours.TOPIC)}


def one_by_one(address: str, acks: Acks, count: int) -> list[float]:
    """Seconds of each of ``count`` produces, one at a time, each waited for."""
    value, clock = bytes(VALUE_BYTES), time.perf_counter
    with logstore.connect(address) as client, client.producer(acks=acks, linger_ms=0) as producer:
        took = []
        for _ in range(count + count // 10):
            began = clock()
            producer.send(ours.TOPIC, value).result(timeout_s=30)
            took.append(clock() - began)
    return took[count // 10 :]  # warm


def singles(address: str, acks: Acks, count: int) -> dict[str, float]:
    """p50 and p99 of one produce at a time."""
    took = one_by_one(address, acks, count)
    return {f"{acks} p{percent}": percentile(took, percent) for percent in (50, 99)}


async def idle(address: str, count: int, wait_s: float, seconds: float) -> None:
    """``count`` connections, each with one long poll of ``wait_s`` after the other at the end of the topic (0: none);
    a line is said when all are there, and the rest of the time begins."""
    request = fetch_request(
        [FetchRequest(ours.TOPIC, 0, 0, -1, 1 << 20)],
        isolation="read_committed",
        min_bytes=1,
        max_bytes=1 << 20,
        max_wait_ms=int(wait_s * 1000),
    ).SerializeToString()
    channels = [
        grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(count)
    ]
    for channel in channels:
        await channel.channel_ready()

    async def poll(channel: grpc.aio.Channel, first_s: float) -> None:
        fetch = channel.unary_unary("/logstore.v1.FetchService/Fetch")
        await asyncio.sleep(first_s)  # consumers do not begin all at once
        while True:
            await fetch(request)

    polls = [
        asyncio.create_task(poll(channel, wait_s * number / count))
        for number, channel in enumerate(channels)
        if wait_s
    ]
    await asyncio.sleep(wait_s)
    print("ready", flush=True)
    await asyncio.sleep(seconds)
    for task in polls:
        task.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
