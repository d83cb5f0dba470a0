"""A table of the latest value per key: building it, a get, its snapshot against reading the topic again.

100 B values, 16 B keys, each key in ten records in random order. Three sizes.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import logstore
from bench import ours
from bench.harness import Bench, Row, alone, compared, latencies
from bench.workload import Plain, chunks, values

QUESTION = "table"
MILLION = 1e-6
MICROSECONDS = 1e6
KEYED = ours.CACHED | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
ON_DISK: dict[str, Any] = {"max_memory_bytes": 1 << 30}
EACH = 10


def rows_of(count: int) -> Plain:
    pick = random.Random(3)
    keys = [b"key-%012d" % number for number in range(count // EACH)]
    return [(keys[pick.randrange(len(keys))], value) for value in values(count, 100)]


@contextmanager
def filled(folder: str, rows: Plain) -> Iterator[logstore.TopicHandle]:
    with logstore.open(f"{folder}/store") as store:
        topic = store.create_topic(ours.TOPIC, config=KEYED)
        with store.producer(acks=1) as producer:
            for call in chunks(rows, 5_000):
                producer.send_many(ours.TOPIC, call)
        yield topic


def run(bench: Bench) -> Iterator[Row]:
    small = bench.size(10_000, 5_000)
    for count in (small, small * 10, small * 100) if not bench.quick else (small, small * 10):
        rows = rows_of(count)
        case = f"{count:,} records, {count // EACH:,} keys"
        with bench.scratch() as folder, filled(folder, rows) as topic:
            gc.collect()
            gc.freeze()  # the rows are not what a table makes
            try:
                yield from _beginnings(topic, f"{folder}/snapshot", count, case)
                yield from _gets(bench, topic, rows, case)
            finally:
                gc.unfreeze()


def _beginnings(topic: logstore.TopicHandle, file: str, count: int, case: str) -> Iterator[Row]:
    topic.table(snapshot=file).close()
    calls: dict[str, Callable[[], object]] = {
        "build": lambda: topic.table().close(),
        "lean": lambda: topic.table(**ON_DISK).close(),
        "load": lambda: topic.table(snapshot=file).close(),
    }
    seen = latencies(calls, rounds=3, each=1)
    for name, words in (("build", "build"), ("lean", "build, values on disk")):
        paces = [count / took for took in seen[name]]
        yield alone(QUESTION, f"{words}, {case}", paces, unit="M/s", scale=MILLION)
    yield compared(
        QUESTION,
        f"restart, {case}",
        seen,
        ours="load",
        peer="build",
        unit="ms",
        scale=1e3,
        note="a current snapshot; peer: reading the topic again",
    )


def _gets(bench: Bench, topic: logstore.TopicHandle, rows: Plain, case: str) -> Iterator[Row]:
    keys = [key or b"" for key, _ in rows[:1_000]]
    with (
        topic.table() as memory,
        topic.table(max_age_ms=3_600_000) as unchecked,
        topic.table(**ON_DISK) as disk,
    ):
        tables = {"get": memory, "get, max_age_ms not over": unchecked, "get, values on disk": disk}
        calls = {words: getting(table, keys) for words, table in tables.items()}
        seen = latencies(calls, rounds=3, each=bench.size(500, 300))
    for words in tables:
        yield alone(QUESTION, f"{words}, {case}", seen[words], unit="us", scale=MICROSECONDS)


def getting(table: Any, keys: list[bytes]) -> Callable[[], object]:
    turn = cycle(keys)
    return lambda: table[next(turn)]
