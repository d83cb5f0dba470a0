"""Our own sides. Each promise has its topic settings, so that a peer is asked for the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import logstore
from bench.harness import Run, Side
from bench.workload import Plain, chunks
from logstore.types import Acks, Row

TOPIC = "bench"
# The promise of the page cache: nothing is synced while the clock runs, records show at once.
CACHED = {"flush.ms": "3600000", "visible.after": "append"}


def take(store: logstore.LogStore, partitions: int) -> None:
    """Before the clock starts the topic is taken and each of its partitions made, as a peer's file is."""
    for number in range(partitions):
        store.partition(TOPIC, number).append([(None, b"")], acks=1)


def send_many(
    rows: Sequence[Row], batch: int, *, partitions: int = 1, acks: Acks = 1, defaults: bool = False
) -> Side:
    """``send_many`` of ``batch`` rows a call; ends when every delivery has resolved."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            store.create_topic(TOPIC, partitions=partitions, config={} if defaults else CACHED)
            take(store, partitions)
            calls = chunks(rows, batch)
            with store.producer(acks=acks) as producer:

                def run() -> int:
                    groups = [producer.send_many(TOPIC, call) for call in calls]
                    producer.flush()
                    return sum(
                        landed.end_exclusive - landed.start for group in groups for landed in group.result(60)
                    )

                yield run

    return side


def send(rows: Sequence[Row], *, partitions: int = 1, acks: Acks = 1, defaults: bool = False) -> Side:
    """``send`` one at a time, every delivery kept; ends when each has resolved."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            store.create_topic(TOPIC, partitions=partitions, config={} if defaults else CACHED)
            take(store, partitions)
            with store.producer(acks=acks) as producer:

                def run() -> int:
                    one = producer.send
                    if len(rows[0]) > 2:
                        kept = [one(TOPIC, value, key=key, headers=headers) for key, value, headers in rows]  # type: ignore[misc]  # rows of three
                    else:
                        kept = [one(TOPIC, value, key=key) for key, value in rows]  # type: ignore[misc]  # rows of two
                    producer.flush()
                    kept[-1].result(60)
                    return sum(1 for delivery in kept if delivery.done())

                yield run

    return side


def append_rows(rows: Plain, batch: int) -> Side:
    """``PartitionLog.append`` of ``batch`` rows a call, in the caller's thread."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            store.create_topic(TOPIC, config=CACHED)
            log = store.partition(TOPIC, 0)
            calls = chunks(rows, batch)

            def run() -> int:
                for call in calls:
                    log.append(call, acks=1)
                return log.log_end_offset

            yield run

    return side


@contextmanager
def filled(folder: str, rows: Sequence[Row], partitions: int) -> Iterator[logstore.LogStore]:
    """A store that holds the rows, all of them synced, in batches of the producer's default size."""
    with logstore.open(folder) as store:
        store.create_topic(TOPIC, partitions=partitions)
        with store.producer() as producer:
            for call in chunks(rows, 5000):
                producer.send_many(TOPIC, call)
        yield store


def poll(rows: Sequence[Row], *, partitions: int = 1, max_records: int = 500) -> Side:
    """A consumer's ``poll`` until the end."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with filled(folder, rows, partitions) as store, store.consumer(TOPIC, until_end=True) as consumer:

            def run() -> int:
                seen = 0
                while got := consumer.poll(max_records=max_records):
                    seen += len(got)
                return seen

            yield run

    return side


def iterate(rows: Sequence[Row], *, partitions: int = 1) -> Side:
    """``for record in consumer`` until the end."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with filled(folder, rows, partitions) as store, store.consumer(TOPIC, until_end=True) as consumer:

            def run() -> int:
                seen = 0
                for _record in consumer:
                    seen += 1
                return seen

            yield run

    return side


def records(rows: Sequence[Row]) -> Side:
    """``PartitionLog.records`` over one partition."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with filled(folder, rows, 1) as store:
            log = store.partition(TOPIC, 0)

            def run() -> int:
                seen = 0
                for _record in log.records(log.log_start_offset):
                    seen += 1
                return seen

            yield run

    return side


def arrow(rows: Sequence[Row]) -> Side:
    """``PartitionLog.to_arrow`` over one partition."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with filled(folder, rows, 1) as store:
            log = store.partition(TOPIC, 0)

            def run() -> int:
                return int(log.to_arrow(log.log_start_offset).num_rows)

            yield run

    return side
