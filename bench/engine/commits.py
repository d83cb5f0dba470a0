"""Committed offsets: commits a second by threads and processes, one commit's own price, loading what there is."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from threading import get_ident
from typing import Any

import logstore
from bench import ours
from bench.engine.group_commit import together
from bench.harness import Bench, Row, alone
from logstore.coordination.runtime import CoordinatorRuntime
from logstore.format.batch import encode_batch
from logstore.groups.offset_values import OffsetValue, encode_value
from logstore.groups.offsets import OffsetStore, encode_key
from logstore.log.append_validation import own_batch
from logstore.partition.partition import result_of
from logstore.seams.fs import OsFile
from logstore.types import OffsetAndMetadata, TopicPartition

QUESTION = "commits"
THREADS = (1, 16, 64)
LEAST_PER_S = 5000.0
RECORDS = 1000
PARTITIONS = 100
MOST_COMMIT_MS = 1.0
MOST_LOAD_S = 5.0
OFFSETS = "__consumer_offsets"


def run(bench: Bench) -> Iterator[Row]:
    yield from _threads(bench)
    yield from _processes(bench)
    yield from _one_commit(bench)
    yield from _load(bench)


def _threads(bench: Bench) -> Iterator[Row]:
    """Each thread commits one partition of a group of its own, durably, as fast as it can."""
    seconds = 0.5 if bench.quick else 2.0
    note = "one partition a commit, each synced before it returns; threads share syncs"
    for owned in (True, False):
        with bench.scratch() as folder:
            _produce(folder)
            with logstore.open(folder) as store:
                if owned:
                    store.partition(ours.TOPIC, 0).append([(None, b"x")])
                for threads in THREADS:
                    rounds = [together(_committer(store), threads, seconds) for _ in range(bench.rounds + 1)]
                    least = None if threads == 1 else LEAST_PER_S
                    case = f"{threads} threads" if threads > 1 else "1 thread"
                    case += "" if owned else ", a topic that no process writes"
                    yield alone(QUESTION, case, rounds[1:], unit="/s", at_least=least, note=note)


def _produce(folder: str) -> None:
    with logstore.open(folder) as store:
        store.create_topic(ours.TOPIC)
        with store.producer() as producer:
            producer.send_many(ours.TOPIC, [(None, b"x")] * RECORDS)


def _committer(store: Any) -> Callable[[], object]:
    """Commits the offsets of ``_produce`` one after the other, round and round."""
    place = TopicPartition(ours.TOPIC, 0)
    offsets = cycle(range(RECORDS + 1))
    return lambda: store.commit_offsets(f"g{get_ident()}", {place: OffsetAndMetadata(next(offsets))})


def _process(folder: str, seconds: float, start: Any, counts: Any) -> None:
    with logstore.open(folder) as store:
        commit, done = _committer(store), 0
        commit()
        start.wait()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            commit()
            done += 1
    counts.put(done)


def _processes(bench: Bench) -> Iterator[Row]:
    """Two processes, each committing without a pause: what both do together, and how even the shares are."""
    seconds = 0.5 if bench.quick else 2.0
    rates: list[float] = []
    shares: list[float] = []
    spawn = multiprocessing.get_context("spawn")
    for _ in range(bench.rounds):
        with bench.scratch() as folder:
            _produce(folder)
            start, counts = spawn.Barrier(2), spawn.Queue()
            workers = [
                spawn.Process(target=_process, args=(folder, seconds, start, counts)) for _ in range(2)
            ]
            for worker in workers:
                worker.start()
            done = sorted(counts.get() for _ in workers)
            for worker in workers:
                worker.join()
        rates.append(sum(done) / seconds)
        shares.append(done[0] / max(sum(done), 1))
    yield alone(QUESTION, "2 processes", rates, unit="/s", note="one thread each, always busy; both together")
    case = "2 processes, the slower one's share"
    yield alone(QUESTION, case, shares, unit="of all", note="0.5 is even")


def _one_commit(bench: Bench) -> Iterator[Row]:
    """A commit of many partitions with the sync left out: decide, encode, write, replay, lock and unlock."""
    places = {TopicPartition(ours.TOPIC, number): OffsetAndMetadata(0) for number in range(PARTITIONS)}
    figures: list[float] = []
    sync = OsFile.sync
    with bench.scratch() as folder, logstore.open(folder) as store:
        store.create_topic(ours.TOPIC, PARTITIONS)
        store.commit_offsets("g", places)
        topic = _coordinator(store)
        OsFile.sync = lambda _: None  # type: ignore[method-assign, assignment]
        try:
            for _ in range(bench.size(1000, 200)):
                began = time.perf_counter()
                topic.decide(lambda machine: machine.decide_commit("g", places, 0))
                figures.append((time.perf_counter() - began) * 1000)
        finally:
            OsFile.sync = sync  # type: ignore[method-assign]
    note = "without the sync; the median of single commits"
    yield alone(QUESTION, f"{PARTITIONS} partitions", figures, unit="ms", at_most=MOST_COMMIT_MS, note=note)


def _load(bench: Bench) -> Iterator[Row]:
    """A process that has seen nothing reads the state: every record of its own key, or the same keys anew."""
    records = bench.size(1_000_000, 200_000)
    scale = records / 1_000_000
    for case, batch, keys in (
        ("100 a batch, all keys new", 100, records),
        ("1 a batch, all keys new", 1, records),
        ("1 a batch, 1,000 keys", 1, 1000),
    ):
        with bench.scratch() as folder, logstore.open(folder) as store:
            store.create_topic(ours.TOPIC)
            store.commit_offsets("g", {TopicPartition(ours.TOPIC, 0): OffsetAndMetadata(0)})
            _fill(store, records, batch, keys)
            figures = []
            for _ in range(bench.rounds):
                began = time.perf_counter()
                topic = _coordinator(store)
                topic.look(OffsetStore.groups)
                figures.append((time.perf_counter() - began) / scale)
            note = f"{records:,} records" + ("" if scale == 1 else ", scaled to a million")
            yield alone(QUESTION, f"load, {case}", figures, unit="s", at_most=MOST_LOAD_S, note=note)


def _coordinator(store: Any) -> CoordinatorRuntime[Any]:
    """One that has replayed nothing yet."""
    log = store._registry.coordinator_logs.of(store._registry.entry(OFFSETS))
    return CoordinatorRuntime(store._context, log, OffsetStore)


def _fill(store: Any, records: int, batch: int, keys: int) -> None:
    log = store._registry.coordinator_logs.of(store._registry.entry(OFFSETS))
    encoded = [encode_key(f"group-{number // 1000}", ours.TOPIC, number % 1000) for number in range(keys)]
    with log.held(30) as held:
        ready = []
        for first in range(0, records, batch):
            rows = [
                (encoded[number % keys], encode_value(OffsetValue(number, 0, "", 1_700_000_000_000)))
                for number in range(first, first + batch)
            ]
            ready.append(own_batch(encode_batch(rows, now_ms=1_700_000_000_000)))
            if len(ready) == 1000:
                result_of(held.append(ready))
                ready = []
        if ready:
            result_of(held.append(ready))
