"""The batch reader without a session: planned as on the driver, read as in a task."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import logstore
from logstore.api.batches import to_table
from logstore.errors import (
    DataLossError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    StoreNotFoundError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.format.batch import encode_batch
from logstore.types import OffsetAndMetadata
from spark_connector import connection
from spark_connector.reading.ranges import BATCH_ROWS, Split
from spark_connector.reading.schema import arrow_schema, spark_schema, to_columns
from spark_connector.settings.options import parse
from tests.spark.sources import (
    TOPIC,
    append,
    batch_reader,
    data_source,
    fill,
    place,
    places_of,
    rows,
    schema_of,
)


def read(path: object, **options: str) -> list[tuple[int, int]]:
    reader = batch_reader(path, **options)
    return places_of(rows(reader, reader.partitions()))


def offsets(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def test_columns_are_those_of_sparks_kafka_source(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC)
        store.partition(TOPIC, 0).append(
            [(b"k", b"v", [("h", b"1"), ("h", None)], 1_700_000_000_123), (None, None)]
        )
    reader = batch_reader(tmp_path, includeHeaders="true")
    table = rows(reader, reader.partitions())
    assert table.schema.equals(arrow_schema(schema_of(tmp_path, includeHeaders="true")))
    assert table.column_names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    first, second = table.to_pylist()
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert (first["key"], first["value"], first["topic"], first["partition"]) == (b"k", b"v", TOPIC, 0)
    assert (first["offset"], first["timestampType"]) == (0, 0)
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)
    assert "headers" not in schema_of(tmp_path).fieldNames()


@pytest.mark.parametrize("start", [0, 1, 3, 9])
def test_rows_without_headers_have_null_wherever_the_batch_begins(start: int) -> None:
    """Batches that Python's twin reads may be slices."""
    pairs: list[list[tuple[str, bytes | None]]] = [
        [("h", b"%d" % n), ("i", None)][: n % 3] for n in range(10)
    ]
    buffer = encode_batch([(None, b"v", headers) for headers in pairs], now_ms=7)
    options = parse({"path": "-", "subscribe": TOPIC, "includeHeaders": "true"}, "batch")
    schema = spark_schema(options)
    assert not isinstance(schema, str)
    (batch,) = to_table(buffer, TOPIC, 0).to_batches()
    found = to_columns(batch.slice(start), options, arrow_schema(schema))
    found.validate(full=True)
    expected = [[{"key": key, "value": value} for key, value in headers] or None for headers in pairs]
    assert found.column("headers").to_pylist() == expected[start:]


def test_values_decoded(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC)
        store.partition(TOPIC, 0).append([(None, b'{"a":1}'), (None, b"\xff"), (None, None)])
    reader = batch_reader(tmp_path, valueFormat="string")
    table = rows(reader, reader.partitions())
    assert table["value"].to_pylist() == ['{"a":1}', None, None]
    assert table["valueError"].to_pylist() == [None, "not UTF-8: invalid start byte at byte 0", None]
    kind = '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true,"metadata":{}}]}'
    reader = batch_reader(tmp_path, valueFormat="json", valueSchema=kind)
    table = rows(reader, reader.partitions())
    assert table["value"].to_pylist() == [{"a": 1}, None, None]


def test_a_task_a_partition_and_all_is_read(tmp_path: Path) -> None:
    fill(tmp_path, [5, 0, 7])
    reader = batch_reader(tmp_path)
    tasks = reader.partitions()
    assert [repr(task) for task in tasks] == ["Split(flights-0 [0, 5))", "Split(flights-2 [0, 7))"]
    assert places_of(rows(reader, tasks)) == offsets(0, 0, 5) + offsets(2, 0, 7)
    assert list(reader.read(InputPartition(None))) == []


def test_batches_of_twenty_thousand_rows(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC)
        log = store.partition(TOPIC, 0)
        for _ in range(12):
            log.append([(None, b"v" * 100)] * 5_000, acks=1)
        log.flush()
    reader = batch_reader(tmp_path)
    sizes = [batch.num_rows for task in reader.partitions() for batch in reader.read(task)]
    assert sum(sizes) == 60_000
    assert max(sizes) <= BATCH_ROWS
    assert len(sizes) <= 6


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"flights":{"0":2,"1":-2}}'}, offsets(0, 2, 5) + offsets(1, 0, 5)),
        ({"endingOffsets": '{"flights":{"0":2,"1":-1}}'}, offsets(0, 0, 2) + offsets(1, 0, 5)),
        (
            {"startingOffsets": '{"flights":{"0":1,"1":4}}', "endingOffsets": '{"flights":{"0":1,"1":5}}'},
            offsets(1, 4, 5),
        ),
        ({"assign": '{"flights":[1]}'}, offsets(1, 0, 5)),
        ({"subscribePattern": "fl.*s"}, offsets(0, 0, 5) + offsets(1, 0, 5)),
        ({"subscribePattern": "fl"}, []),
        ({"subscribePattern": ".*", "minPartitions": "10"}, offsets(0, 0, 5) + offsets(1, 0, 5)),
        ({"maxRecordsPerPartition": "2"}, offsets(0, 0, 5) + offsets(1, 0, 5)),
        ({"startingTimestamp": "1003"}, offsets(0, 3, 5) + offsets(1, 3, 5)),
        ({"endingTimestamp": "1003"}, offsets(0, 0, 3) + offsets(1, 0, 3)),
        ({"startingTimestamp": "-1"}, offsets(0, 0, 5) + offsets(1, 0, 5)),  # a time, not Kafka's latest
        ({"endingTimestamp": "-1"}, []),
        ({"endingOffsetsByTimestamp": '{"flights":{"0":-2,"1":1001}}'}, offsets(1, 0, 1)),
        ({"endingTimestamp": "9999"}, offsets(0, 0, 5) + offsets(1, 0, 5)),
        (
            {"startingOffsetsByTimestamp": '{"flights":{"0":1004,"1":1001}}'},
            offsets(0, 4, 5) + offsets(1, 1, 5),
        ),
        ({"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "latest"}, []),
    ],
    ids=str,
)
def test_where_it_begins_and_ends(
    tmp_path: Path, options: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC, partitions=2)
        for partition in range(2):
            rows_of = [(None, b"v", None, 1000 + number) for number in range(5)]
            store.partition(TOPIC, partition).append(rows_of)
        store.commit_offsets("g", {place(0): logstore.OffsetAndMetadata(1)})  # an internal topic is there
    assert read(tmp_path, **options) == expected


def test_splits(tmp_path: Path) -> None:
    fill(tmp_path, [10, 2])
    reader = batch_reader(tmp_path, minPartitions="6")
    assert len(reader.partitions()) == 6
    reader = batch_reader(tmp_path, maxRecordsPerPartition="3")
    tasks = [task for task in reader.partitions() if isinstance(task, Split)]
    assert [task.piece.size for task in tasks] == [2, 3, 2, 3, 2]
    assert places_of(rows(reader, tasks)) == offsets(0, 0, 10) + offsets(1, 0, 2)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"subscribe": "nope"}, UnknownTopicError, "topic 'nope'"),
        ({"assign": '{"flights":[0,7]}'}, UnknownPartitionError, "partitions 0 to 1, not 7"),
        ({"startingOffsets": '{"flights":{"0":0}}'}, InvalidArgumentError, "it lacks flights-1"),
        (
            {"endingOffsets": '{"flights":{"0":0,"1":6}}'},
            OffsetOutOfRangeError,
            "offset 6 of flights-1 is past",
        ),
        ({"startingTimestamp": "99999999999999"}, InvalidArgumentError, "no record as new"),
    ],
    ids=str,
)
def test_errors_when_it_is_planned(
    tmp_path: Path, options: dict[str, str], error: type[Exception], text: str
) -> None:
    fill(tmp_path, [5, 5])
    with pytest.raises(error, match=text):
        batch_reader(tmp_path, **options).partitions()


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no log store at"):
        batch_reader(tmp_path / "none").partitions()


def test_ends_are_pinned_when_it_is_planned(tmp_path: Path) -> None:
    fill(tmp_path, [3])
    reader = batch_reader(tmp_path)
    tasks = reader.partitions()
    fill(tmp_path, [4])
    assert places_of(rows(reader, tasks)) == offsets(0, 0, 3)
    assert read(tmp_path) == offsets(0, 0, 7)


def test_aborted_records_are_left_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC)
        log = store.partition(TOPIC, 0)
        append(store, 0, 2)
        batch = encode_batch(
            [(None, b"aborted")] * 3,
            now_ms=1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        log.append_batch(batch)
        log.end_transaction(7, 0, commit=False)
        append(store, 0, 2)
    assert read(tmp_path) == [(0, 0), (0, 1), (0, 6), (0, 7)]
    assert read(tmp_path, isolation="read_uncommitted") == offsets(0, 0, 5) + offsets(0, 6, 8)


def lose(path: Path, before: int) -> None:
    with logstore.open(path) as store:
        store.delete_records(TOPIC, {0: before})


def test_offsets_that_are_gone(tmp_path: Path) -> None:
    """Before it was planned, and between the plan and the task."""
    fill(tmp_path, [10])
    options = {"startingOffsets": '{"flights":{"0":2}}'}
    strict, lenient = (batch_reader(tmp_path, failOnDataLoss=fail, **options) for fail in ("true", "false"))
    planned = strict.partitions()
    lose(tmp_path, 5)
    with pytest.raises(DataLossError, match="flights-0: offsets 2 to 4 are gone"):
        rows(strict, planned)
    assert places_of(rows(lenient, planned)) == offsets(0, 5, 10)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 2 to 4 of flights-0 are gone"):
        strict.partitions()
    assert places_of(rows(lenient, lenient.partitions())) == offsets(0, 5, 10)


def test_all_of_a_task_may_be_gone(tmp_path: Path) -> None:
    fill(tmp_path, [10])
    reader = batch_reader(tmp_path, failOnDataLoss="false", maxRecordsPerPartition="5")
    planned = reader.partitions()
    lose(tmp_path, 7)
    assert places_of(rows(reader, planned)) == offsets(0, 7, 10)
    with logstore.open(tmp_path) as store:
        store.delete_topic(TOPIC)
        store.create_topic(TOPIC)
    assert places_of(rows(reader, planned)) == []
    with pytest.raises(DataLossError):
        rows(batch_reader(tmp_path), planned)


def test_what_travels_to_a_task_is_pickled(tmp_path: Path) -> None:
    fill(tmp_path, [3])
    reader = batch_reader(tmp_path)
    tasks = reader.partitions()
    assert rows(reader, tasks).num_rows == 3  # the store is open in this process now
    copy, tasks = pickle.loads(pickle.dumps((reader, tasks)))
    assert places_of(rows(copy, tasks)) == offsets(0, 0, 3)


def test_a_forked_worker_opens_the_store_itself(tmp_path: Path) -> None:
    fill(tmp_path, [3])
    reader = batch_reader(tmp_path)
    tasks = reader.partitions()
    parents = connection.store_at(str(tmp_path))
    pid = os.fork()
    if pid == 0:
        try:
            good = rows(reader, tasks).num_rows == 3 and connection.store_at(str(tmp_path)) is not parents
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert connection.store_at(str(tmp_path)) is parents
    assert rows(reader, tasks).num_rows == 3


def _removed(path: Path) -> None:
    shutil.rmtree(path)


def _emptied(path: Path) -> None:
    for found in list(path.iterdir()):
        shutil.rmtree(found) if found.is_dir() else found.unlink()


def _moved_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


@pytest.mark.parametrize("away", [_removed, _emptied, _moved_away])
def test_a_store_made_anew_under_a_session_is_seen_at_the_first_read(
    tmp_path: Path, away: Callable[[Path], None]
) -> None:
    path = tmp_path / "store"

    def make(count: int) -> None:
        fill(path, [count])
        with logstore.open(path) as store:
            store.commit_offsets("g", {place(0): OffsetAndMetadata(count)})

    make(3)
    assert read(path) == [(0, n) for n in range(3)]
    assert connection.store_at(str(path)).committed_offsets("g")[place(0)].offset == 3
    away(path)
    make(5)
    assert read(path) == [(0, n) for n in range(5)]
    assert connection.store_at(str(path)).committed_offsets("g")[place(0)].offset == 5
    away(path) if away is not _moved_away else shutil.rmtree(path)
    with pytest.raises(StoreNotFoundError):
        read(path)
    make(1)
    assert read(path) == [(0, 0)]


def test_open_stores_are_bounded(tmp_path: Path) -> None:
    connection.forget_stores()
    for number in range(20):
        fill(tmp_path / str(number), [1])
        assert read(tmp_path / str(number)) == [(0, 0)]
    assert len(connection._stores) == 16
    connection.forget_stores()
    assert not connection._stores


def test_no_filter_is_taken_from_spark(tmp_path: Path) -> None:
    """Spark keeps the planned reader for the DataFrame's next query, so a filter that one took would act in both."""
    fill(tmp_path, [5, 5])
    asked: list[spark.Filter] = [spark.EqualTo(("partition",), 1), spark.LessThan(("offset",), 3)]
    reader = batch_reader(tmp_path)
    assert list(reader.pushFilters(asked)) == asked
    assert places_of(rows(reader, reader.partitions())) == offsets(0, 0, 5) + offsets(1, 0, 5)
    # With Spark's setting off, Spark refuses a reader that has a method of its own.
    assert type(reader).pushFilters is spark.DataSourceReader.pushFilters


def test_the_source_takes_no_other_schema(tmp_path: Path) -> None:
    fill(tmp_path, [1])
    source = data_source(tmp_path)
    for other in (
        StructType([StructField("a", StringType())]),
        StructType([StructField("value", BinaryType())]),
    ):
        with pytest.raises(InvalidArgumentError, match="takes no other"):
            source.reader(other)
