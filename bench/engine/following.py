"""How late a follower is: from an append's acknowledgement to the record in a consumer's hands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import logstore
from bench import child, ours
from bench.harness import Bench, Row, alone, percentile

QUESTION = "following a writer"
MILLISECONDS = 1e3
RATES = {10: (5.0, 3.0), 1_000: (3.0, 1.5)}  # records a second: seconds of a full round, of a quick one
DEADLINE_S = 30.0

Seen = dict[int, float]  # record's number -> when it was in the reader's hands


def paced(log: logstore.PartitionLog, rate: float, count: int) -> list[float]:
    """When each of ``count`` durable appends, one record each, was acknowledged; ``rate`` a second. The clock
    is the machine's monotonic one, the same in every process."""
    clock = time.monotonic
    acked: list[float] = []
    began = clock()
    for number in range(count):
        wait = began + number / rate - clock()
        if wait > 0:
            time.sleep(wait)
        log.append([(None, b"%d" % number)])
        acked.append(clock())
    return acked


def follow(consumer: logstore.Consumer[bytes, bytes], count: int, ready: Callable[[], None]) -> Seen:
    """Poll until ``count`` numbered records were seen. ``ready`` is called once the reader hangs on the log."""
    clock = time.monotonic
    seen: Seen = {}
    deadline = clock() + DEADLINE_S
    while len(seen) < count:
        if clock() > deadline:
            raise TimeoutError(f"{len(seen)} of {count} records were seen in {DEADLINE_S:g} s")
        for record in consumer.poll(timeout_s=0.5):
            if record.value == b"ready":
                ready()
            else:
                seen[int(record.value)] = clock()
    return seen


def delays(acked: list[float], seen: Seen) -> list[float]:
    return [seen[number] - at for number, at in enumerate(acked)]


def across(folder: str, rate: float, count: int) -> list[float]:
    """The reader is another process, which has opened the store to read."""
    with logstore.open(folder) as store:
        store.create_topic(ours.TOPIC)
        log = store.partition(ours.TOPIC, 0)
        reader = child.begin("follow", folder=folder, count=count)
        log.append([(None, b"ready")])
        reader.await_line()
        acked = paced(log, rate, count)
        seen = {int(number): at for number, at in reader.figures().items()}
    return delays(acked, seen)


def within(folder: str, rate: float, count: int) -> list[float]:
    """The reader is a thread beside the writer, on the same store."""
    hangs = threading.Event()
    found: list[Seen] = []
    with logstore.open(folder) as store:
        store.create_topic(ours.TOPIC)
        log = store.partition(ours.TOPIC, 0)
        with store.consumer(ours.TOPIC) as consumer:
            thread = threading.Thread(target=lambda: found.append(follow(consumer, count, hangs.set)))
            thread.start()
            log.append([(None, b"ready")])
            if not hangs.wait(DEADLINE_S):
                raise TimeoutError(f"the reader saw nothing in {DEADLINE_S:g} s")
            acked = paced(log, rate, count)
            thread.join()
    return delays(acked, found[0])


def run(bench: Bench) -> Iterator[Row]:
    for rate, (full_s, quick_s) in RATES.items():
        count = int(rate * (quick_s if bench.quick else full_s))
        for where, measure in (("another process", across), ("a thread of this process", within)):
            rounds: list[list[float]] = []
            for _ in range(3):
                with bench.scratch() as folder:
                    rounds.append(measure(folder, rate, count))
            for percent in (50, 99):
                yield alone(
                    QUESTION,
                    f"{where}, {rate:,} records/s, p{percent}",
                    [percentile(one, percent) for one in rounds],
                    unit="ms",
                    scale=MILLISECONDS,
                    note=f"acks=all, one record a batch, {count:,} a round; acknowledged to polled",
                )
