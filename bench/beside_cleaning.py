"""Latency of durable records while the cleaner works in the same store: at its default duty, and at full speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import logstore
from bench import compaction, ours
from bench.harness import Bench, Row, compared, percentile
from bench.workload import chunks
from logstore.cleaner import DEFAULT_DUTY

QUESTION = "produce beside compaction"
MICROSECONDS = 1e6
DUTIES = {f"default duty ({DEFAULT_DUTY:.0%})": DEFAULT_DUTY, "full speed": 1.0}
DIRTY = "dirty"
WAIT_S = 40.0  # the cleaner looks for work every 15 s
LATEST = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20), "min.cleanable.dirty.ratio": "0.01"}


def timed(call: Callable[[], object], seconds: float, goes_on: Callable[[], bool]) -> list[float]:
    """Seconds of each call, for so long or as long as it ``goes_on``."""
    clock = time.perf_counter
    took: list[float] = []
    end = clock() + seconds
    while (began := clock()) < end and (len(took) % 100 or goes_on()):
        call()
        took.append(clock() - began)
    return took


def is_cleaning(store: logstore.LogStore) -> bool:
    return store.metrics()["logstore_cleaning_running"] > 0


def fill(store: logstore.LogStore, records: int) -> None:
    """A compacted topic whose records are due: the cleaner looks for such every 15 s."""
    store.create_topic(DIRTY, config=LATEST)
    with store.producer() as producer:
        for call in chunks(compaction.twice(records), 5_000):
            producer.send_many(DIRTY, call)


def measured(folder: str, records: int, duty: float, seconds: float) -> tuple[list[float], list[float]]:
    """Latencies before there is anything to clean, and while the cleaner works."""
    with (
        logstore.open(folder, cleaner_duty=duty, cleaner_key_map_bytes=compaction.KEY_MAP_BYTES) as store,
        store.producer() as producer,
    ):
        store.create_topic(ours.TOPIC)

        def durable() -> object:
            return producer.send(ours.TOPIC, b"x" * 100).result(timeout_s=30)

        timed(durable, 0.3, lambda: True)
        before = timed(durable, seconds, lambda: True)
        fill(store, records)
        during: list[float] = []
        deadline = time.monotonic() + WAIT_S
        while sum(during) < seconds:
            if is_cleaning(store):
                during += timed(durable, seconds - sum(during), lambda: is_cleaning(store))
            elif time.monotonic() > deadline:
                break  # a cleaning at full speed may be over sooner
            else:
                time.sleep(0.01)
        if not during:
            raise TimeoutError(f"no cleaning began in {WAIT_S:g} s")
        return before, during


def run(bench: Bench) -> Iterator[Row]:
    records, seconds = bench.size(1_000_000, 300_000), bench.size(3, 1)
    for name, duty in DUTIES.items():
        rounds = []
        for _ in range(1 if bench.quick else 3):
            with bench.scratch() as folder:
                rounds.append(measured(folder, records, duty, seconds))
        for percent in (50, 99):
            figures = {
                "beside": [percentile(during, percent) for _, during in rounds],
                "without": [percentile(before, percent) for before, _ in rounds],
            }
            yield compared(
                QUESTION,
                f"one durable record, {name}, p{percent}",
                figures,
                ours="beside",
                peer="without",
                unit="us",
                scale=MICROSECONDS,
                at_most=2.0 if percent == 99 and duty == DEFAULT_DUTY else None,
                note="acks=all, send().result(); peer: ourselves, before there was anything to clean",
            )
