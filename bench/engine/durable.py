"""One durable record, no company: against bare write + fdatasync and the peers' durable commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import logstore
from bench import ours, peers
from bench.harness import Bench, Row, compared, latencies
from bench.workload import NOW_MS, values
from logstore.format.batch import encode_batch

QUESTION = "one durable record"
MICROSECONDS = 1e6


@contextmanager
def through_producer(folder: str, value: bytes) -> Iterator[Callable[[], object]]:
    """``send`` and ``result()`` at once, acks="all"."""
    with logstore.open(folder) as store:
        store.create_topic(ours.TOPIC)
        with store.producer() as producer:
            yield lambda: producer.send(ours.TOPIC, value).result(timeout_s=30)


@contextmanager
def through_partition(folder: str, value: bytes) -> Iterator[Callable[[], object]]:
    """``PartitionLog.append`` of one row, acks="all"."""
    with logstore.open(folder) as store:
        store.create_topic(ours.TOPIC)
        log = store.partition(ours.TOPIC, 0)
        yield lambda: log.append([(None, value)])


def run(bench: Bench) -> Iterator[Row]:
    for size in (100, 1024):
        (value,) = values(1, size)
        batch = encode_batch([(None, value)], now_ms=NOW_MS)
        with ExitStack() as open_sides:

            def enter(side: Callable[..., object], payload: bytes, stack: ExitStack = open_sides) -> object:
                return stack.enter_context(side(stack.enter_context(bench.scratch()), payload))  # type: ignore[arg-type]  # context managers all

            calls = {
                "producer": enter(through_producer, value),
                "partition": enter(through_partition, value),
                "write + fdatasync": enter(peers.bare_durable, batch),
                "SQLite": enter(peers.sqlite_durable, value),
                "LMDB": enter(peers.lmdb_durable, value),
                "RocksDB": enter(peers.rocksdb_durable, value),
            }
            figures = latencies(calls, rounds=bench.size(9, 5), each=bench.size(150, 60))  # type: ignore[arg-type]  # as above
        for name, verb, most in (("producer", "send().result()", 1.6), ("partition", "append()", 1.3)):
            for peer in ("write + fdatasync", "SQLite", "LMDB", "RocksDB"):
                yield compared(
                    QUESTION,
                    f"{verb}, {size} B, acks=all",
                    figures,
                    ours=name,
                    peer=peer,
                    unit="us",
                    scale=MICROSECONDS,
                    at_most=most if peer == "write + fdatasync" else None,
                    note="each synced; median of a call",
                )
