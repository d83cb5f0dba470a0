"""The flights of the tests of examples, and what an example left in its store, read without Spark."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import logstore
from logstore import Record
from spark_connector.examples.flights import read_flights

_MOST = 2_000


@lru_cache(maxsize=1)
def _flights() -> list[dict[str, str]]:
    return read_flights()[:_MOST]


def flights(count: int) -> list[dict[str, str]]:
    """The first so many, up to 2,000: reading them all takes seconds."""
    return _flights()[:count]


def partitions(store: Path | str, topic: str) -> list[list[Record]]:
    """The records of committed transactions by partition, in the order of the log."""
    with (
        logstore.open(store, mode="r") as opened,
        opened.consumer(topic, isolation="read_committed", until_end=True) as consumer,
    ):
        found: list[list[Record]] = [[] for _ in range(opened.topic(topic).partitions)]
        for records in consumer.batches():
            for record in records:
                found[record.partition].append(record)
    return found


def values(store: Path | str, topic: str) -> list[list[bytes | None]]:
    """As ``partitions``, the values alone."""
    return [[record.value for record in records] for records in partitions(store, topic)]
