"""Stores to read from, and the source's readers without a Spark session (they need no Java)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

import logstore
from logstore import TopicPartition
from logstore.seams.clock import Clock
from spark_connector.connection import Logs
from spark_connector.reading.offsets import StreamOffset
from spark_connector.reading.reader import LogStoreReader
from spark_connector.reading.schema import spark_schema
from spark_connector.reading.stream_reader import LogStoreStreamReader
from spark_connector.settings.options import parse
from spark_connector.settings.positions import Place
from spark_connector.settings.target import Target
from spark_connector.source import LogStoreDataSource

TOPIC = "flights"


def place(partition: int, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(topic, partition)


def fill(path: object, counts: Iterable[int], topic: str = TOPIC, **config: str) -> None:
    """A topic with so many records in each partition; ``value`` is "partition:offset"."""
    counts = list(counts)
    with logstore.open(str(path)) as store:
        if topic not in store.list_topics():
            store.create_topic(topic, partitions=len(counts), config=config)
        for partition, count in enumerate(counts):
            append(store, partition, count, topic)


def append(store: logstore.LogStore, partition: int, count: int, topic: str = TOPIC) -> None:
    if count:
        log = store.partition(topic, partition)
        first = log.log_end_offset
        log.append([(b"k", f"{partition}:{first + number}".encode()) for number in range(count)])


def schema_of(path: object, **options: str) -> StructType:
    given = {"path": str(path), "subscribe": TOPIC, **options}
    if "assign" in given or "subscribePattern" in given:
        del given["subscribe"]
    found = spark_schema(parse(given, "any"))
    assert isinstance(found, StructType)
    return found


def given(path: object, options: dict[str, str]) -> dict[str, str]:
    chosen = {"assign", "subscribe", "subscribePattern"} & set(options)
    return {"path": str(path), **({} if chosen else {"subscribe": TOPIC}), **options}


def batch_reader(path: object, schema: StructType | None = None, /, **options: str) -> LogStoreReader:
    schema = schema_of(path, **options) if schema is None else schema
    return LogStoreReader(parse(given(path, options), "batch"), schema)


def stream_reader(path: object, clock: Clock | None = None, /, **options: str) -> LogStoreStreamReader:
    return LogStoreStreamReader(parse(given(path, options), "stream"), schema_of(path, **options), clock)


def data_source(path: object, **options: str) -> LogStoreDataSource:
    return LogStoreDataSource(given(path, options))


def rows(reader: Any, partitions: Iterable[Any]) -> pa.Table:
    """What the tasks read, in one table."""
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return (
        pa.Table.from_batches(batches) if batches else pa.table({"value": [], "partition": [], "offset": []})
    )


def places_of(table: pa.Table) -> list[tuple[int, int]]:
    """(partition, offset) of the rows, sorted."""
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def offsets_of(path: object, **places: int) -> dict[str, Any]:
    """An offset as Spark keeps it: ``offsets_of(path, p0=3, p1=0)``."""
    logs = Logs(Target(str(path)), "read_committed")
    topic_id = logs.backend.topic(TOPIC).topic_id
    at = {place(int(name[1:])): Place(offset, 0) for name, offset in places.items()}
    return StreamOffset(at, {TOPIC: topic_id}).to_json()


def ends_of(offset: dict[str, Any]) -> dict[int, int]:
    """By partition of the one topic."""
    return {place.partition: at.offset for place, at in StreamOffset.from_json(offset).places.items()}
