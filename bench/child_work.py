"""What a bench's children measure: ``python -m bench.child_work VERB JSON`` prints figures as JSON.

What needs gRPC is imported by its verbs alone: the others measure a process without it.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable

import logstore
from bench import machine, ours
from bench.brokers.broker import allow_descriptors, resident_mb
from bench.child import call
from bench.engine import compaction, following
from bench.workload import ready_batches
from logstore.log.cleaning.key_table import KeyTable
from logstore.types import Acks

DESCRIPTORS = 1024
TOPICS = 10


def _limit_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))


def topic_name(number: int) -> str:
    return f"topic-{number}"


def fill_partitions(folder: str, partitions: int) -> dict[str, float]:
    """``TOPICS`` topics that share ``partitions`` evenly, a record in each, closed cleanly. Seconds of it all."""
    _limit_descriptors()
    each = partitions // TOPICS
    began = time.perf_counter()
    with logstore.open(folder) as store, store.producer(acks=1, linger_ms=50) as producer:
        for number in range(TOPICS):
            store.create_topic(topic_name(number), partitions=each)
            for partition in range(each):
                producer.send(topic_name(number), b"x" * 100, partition=partition)
    return {"seconds": time.perf_counter() - began}


def open_clean(folder: str) -> dict[str, float]:
    """Seconds to open, to know every partition's end, and to own every topic (one append in each)."""
    _limit_descriptors()
    clock = time.perf_counter
    began = clock()
    store = logstore.open(folder)
    opened = clock()
    names = store.list_topics()
    with store.consumer(names) as consumer:
        ends = consumer.end_offsets()
    known = clock()
    for name in names:
        store.partition(name, 0).append([(None, b"x")], acks=1)
    owned = clock()
    store.close()
    return {
        "open": opened - began,
        "ends": known - opened,
        "own": owned - known,
        "close": clock() - owned,
        "partitions": len(ends),
    }


def crash_with_unsynced(folder: str, total_bytes: int) -> dict[str, float]:
    """Append without a sync and die without a close: everything lies past the recovery point."""
    store = logstore.open(folder)
    store.create_topic(ours.TOPIC, config=ours.CACHED)
    log = store.partition(ours.TOPIC, 0)
    for batch in ready_batches(total_bytes, 1024):
        log.append_batch(batch, acks=1)
    os._exit(0)


def open_unclean(folder: str) -> dict[str, float]:
    """Seconds to open and own a topic whose writer died, and before that to load the library's code."""
    began = time.perf_counter()
    importlib.import_module("logstore.store")
    loaded = time.perf_counter() - began
    began += loaded
    store = logstore.open(folder)
    store.partition(ours.TOPIC, 0).append([(None, b"x")], acks=1)
    took = time.perf_counter() - began
    store.close()
    return {"seconds": took, "loaded": loaded}


def idle(folder: str, seconds: float, pinned: bool) -> dict[str, float]:
    """Processor time of a store that owns every topic and is asked for nothing, as a share of a core. ``pinned``: it
    keeps them, and what the appends left to do is done, recovery points among it; else it gives them up meanwhile."""
    with logstore.open(folder) as store:
        if pinned:
            store.pin_all()
        for name in store.list_topics():
            store.partition(name, 0).append([(None, b"x")], acks=1)
        time.sleep(6.0 if pinned else 3.0)
        before, began = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        return {"share": (time.process_time() - before) / (time.perf_counter() - began)}


def follow(folder: str, count: int) -> dict[str, float]:
    """When each of ``count`` records was seen by a consumer; says a line once it hangs on the log."""
    with logstore.open(folder, mode="r") as store, store.consumer(ours.TOPIC) as consumer:
        seen = following.follow(consumer, count, lambda: print("ready", flush=True))
    return {str(number): at for number, at in seen.items()}


def fill_keys(folder: str, keys: int) -> dict[str, float]:
    """A compacted topic with that many keys of 16 bytes, one record each."""
    with logstore.open(folder) as store:
        compaction.fill(store, [(b"key-%012d" % number, b"x" * 20) for number in range(keys)], "none")
    return {}


def compact_within(folder: str, map_bytes: int) -> dict[str, float]:
    """How far the process grew, in MiB, over a compaction with a key map of that size."""
    with logstore.open(folder, cleaner_key_map_bytes=map_bytes) as store:
        store.partition(ours.TOPIC, 0).append([(b"key", b"x")])  # takes the topic
        before = machine.peak_mb()
        store.admin.compact(ours.TOPIC, roll=True)
        return {"grown_mb": machine.peak_mb() - before}


def key_map(keys: int) -> dict[str, float]:
    """Resident bytes that a compaction's key map takes for each of ``keys`` keys of 16 B, those included."""
    table = KeyTable()
    table.enter([b"key-%012d" % -1], [0], [], 1 << 40)
    gc.collect()
    before = resident_mb(os.getpid())
    for start in range(0, keys, 1000):
        numbers = range(start, start + 1000)
        table.enter([b"key-%012d" % number for number in numbers], list(numbers), [], 1 << 40)
    gc.collect()
    return {"bytes": (resident_mb(os.getpid()) - before) * (1 << 20) / keys}


def rpc_throughput(address: str, count: int, size: int, topic: str = ours.TOPIC) -> dict[str, float]:
    """Records a second into a broker, and, in a process of its own, out of it."""
    from bench.brokers import rpc_clients

    produced = rpc_clients.produce(address, count, size, topic)
    return {"produce": produced} | call("rpc_consume", address=address, topic=topic)


def rpc_consume(address: str, topic: str) -> dict[str, float]:
    from bench.brokers import rpc_clients

    return {"consume": rpc_clients.consume(address, topic)}


def rpc_embedded(folder: str, count: int, size: int) -> dict[str, float]:
    """The same in and out of a store of this process."""
    from bench.brokers import rpc_clients

    return rpc_clients.embedded(folder, count, size)


def rpc_singles(address: str, acks: Acks, count: int) -> dict[str, float]:
    """p50 and p99 of produces at a broker, one at a time."""
    from bench.brokers import rpc_clients

    return rpc_clients.singles(address, acks, count)


def rpc_idle(address: str, count: int, wait_s: float, seconds: float) -> dict[str, float]:
    """Clients of a broker that wait, or only are connected; says a line once all are there."""
    from bench.brokers import rpc_clients

    allow_descriptors()
    asyncio.run(rpc_clients.idle(address, count, wait_s, seconds))
    return {}


def cluster_produce(address: str, topic: str, count: int) -> dict[str, float]:
    """One producer's records of 1 KiB a second, acks=all."""
    from bench.brokers import cluster_clients

    return {"produce": cluster_clients.produce(address, topic, count)}


def cluster_paced(address: str, topic: str, rate: float, seconds: float) -> dict[str, float]:
    """Latencies of records that are sent at a steady rate, acks=all."""
    from bench.brokers import cluster_clients

    return cluster_clients.paced(address, topic, rate, seconds)


VERBS: dict[str, Callable[..., dict[str, float]]] = {
    verb.__name__: verb
    for verb in (fill_partitions, open_clean, crash_with_unsynced, open_unclean, idle)
    + (follow, fill_keys, compact_within, key_map, rpc_throughput, rpc_consume, rpc_embedded)
    + (rpc_singles, rpc_idle, cluster_produce, cluster_paced)
}

if __name__ == "__main__":
    print(json.dumps(VERBS[sys.argv[1]](**json.loads(sys.argv[2]))))
