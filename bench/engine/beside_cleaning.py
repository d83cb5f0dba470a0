"""Latency of durable records while the cleaner works in the same store: at its default duty, in a topic that was taken
just for that, and at full speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import logstore
from bench import ours
from bench.engine import compaction
from bench.harness import Bench, Row, compared, percentile
from bench.workload import chunks
from logstore.upkeep.cleaner import BORROWED_DUTY, DEFAULT_DUTY

QUESTION = "produce beside compaction"
MICROSECONDS = 1e6
CASES = {  # duty, and whether the topic that is cleaned is this process's anyway
    f"default duty ({DEFAULT_DUTY:.0%})": (DEFAULT_DUTY, True),
    f"a topic taken just to be cleaned ({BORROWED_DUTY:.0%})": (DEFAULT_DUTY, False),
    "full speed": (1.0, True),
}
DIRTY = "dirty"
WAIT_S = 40.0  # the cleaner looks for work every 15 s
MOST_S = 60.0  # of a cleaning, which is watched from its begin to its end
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


def measured(
    folder: str, records: int, duty: float, pinned: bool, seconds: float
) -> tuple[list[float], list[float]]:
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
        if pinned:
            store.pin(DIRTY)  # else it is given up as idle before the cleaner comes to it
        deadline = time.monotonic() + WAIT_S
        while not is_cleaning(store):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no cleaning began in {WAIT_S:g} s")
            time.sleep(0.01)
        return before, timed(durable, MOST_S, lambda: is_cleaning(store))


def run(bench: Bench) -> Iterator[Row]:
    records, seconds = bench.size(500_000, 100_000), bench.size(3, 1)
    for name, (duty, pinned) in CASES.items():
        rounds = []
        for _ in range(1 if bench.quick else 3):
            with bench.scratch() as folder:
                rounds.append(measured(folder, records, duty, pinned, seconds))
        for percent in (50, 99):
            figures = {
                "beside": [percentile(during, percent) for _, during in rounds],
                "without": [percentile(before, percent) for before, _ in rounds],
            }
            target = percent == 99 and name == next(iter(CASES))
            yield compared(
                QUESTION,
                f"one durable record, {name}, p{percent}",
                figures,
                ours="beside",
                peer="without",
                unit="us",
                scale=MICROSECONDS,
                at_most=2.0 if target else None,
                note="acks=all, send().result(), from a cleaning's begin to its end; peer: ourselves, before it",
            )
