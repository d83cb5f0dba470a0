"""Columns are checked by name and type; Arrow batches become rows, each where it goes, in order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from logstore import ArrowRows
from logstore.errors import InvalidArgumentError, InvalidRecordError
from spark_connector.reading.schema import arrow_schema
from spark_connector.writing.sink_rows import check_columns, placed


def headers_of(name: str, value: str) -> ArrayType:
    return ArrayType(StructType([StructField(name, StringType()), StructField(value, BinaryType())]))


TYPES: dict[str, DataType] = {
    "BINARY": BinaryType(),
    "STRING": StringType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "HEADERS": headers_of("key", "value"),
    "PAIRS": headers_of("k", "v"),
    "MAP": MapType(StringType(), BinaryType()),
}


def columns(text: str) -> StructType:
    """Of "name TYPE, name TYPE": Spark's own parser of such texts needs Java."""
    fields = [part.split() for part in text.split(",")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


ALL = columns("key BINARY, value STRING, topic STRING, partition INT, timestamp TIMESTAMP, headers HEADERS")


def rows_of(found: pa.RecordBatch) -> list[Any]:
    return ArrowRows(found).tuples()


def batch(schema: StructType | str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    kind = columns(schema) if isinstance(schema, str) else schema
    return pa.RecordBatch.from_pylist(rows, arrow_schema(kind))


@pytest.mark.parametrize(
    ("ddl", "topic", "text"),
    [
        ("key STRING", "t", "no column value among key"),
        ("value STRING", None, "neither option topic nor a column topic"),
        ("value STRING, value STRING", "t", "same name"),
        ("value INT", "t", "column value is int, not string or binary"),
        ("value STRING, key BIGINT", "t", "column key is bigint"),
        ("value STRING, topic BINARY", None, "column topic is binary"),
        ("value STRING, topic INT", "t", "column topic is int"),
        ("value STRING, partition BIGINT", "t", "column partition is bigint, not int"),
        ("value STRING, timestamp BIGINT", "t", "column timestamp is bigint"),
        ("value STRING, timestamp TIMESTAMP_NTZ", "t", "column timestamp is timestamp_ntz"),
        ("value STRING, headers MAP", "t", "column headers is map"),
        ("value STRING, headers PAIRS", "t", "column headers is array"),
    ],
)
def test_wrong_columns_are_named(ddl: str, topic: str | None, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        check_columns(columns(ddl), topic)


def test_right_columns() -> None:
    assert check_columns(ALL, None) == []
    assert check_columns(columns("value BINARY"), "t") == []
    read = "value BINARY, topic STRING, offset BIGINT, timestampType INT, more INT, Key STRING"
    assert check_columns(columns(read), None) == ["more", "Key"]


def test_all_fields() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    rows = [
        {"key": b"k", "value": "é", "timestamp": at, "headers": [{"key": "a", "value": b"1"}, {"key": "b"}]},
        {"key": None, "value": None, "timestamp": None, "headers": None},
        {"key": b"", "value": "", "timestamp": at, "headers": []},
        {"key": b"z", "value": "z", "timestamp": None, "headers": [{"key": "c", "value": b"3"}]},
    ]
    found = batch(ALL, rows)
    at_ms = int(at.timestamp() * 1000)
    expected = [
        (b"k", "é".encode(), [("a", b"1"), ("b", None)], at_ms),
        (None, None, None, None),
        (b"", b"", [], at_ms),
        (b"z", b"z", [("c", b"3")], None),
    ]
    assert rows_of(found) == expected
    assert rows_of(found.slice(1, 3)) == expected[1:]


def test_times_are_cut_to_the_millisecond_before_them() -> None:
    """As Spark's Kafka sink cuts them, before 1970 too."""
    times = pa.array([1_500, 500, 0, -1, -500, -1_000, -1_001], pa.timestamp("us", tz="UTC"))
    found = pa.record_batch({"value": pa.array([b"v"] * 7), "timestamp": times})
    assert [row[3] for row in rows_of(found)] == [1, 0, 0, -1, -1, -1, -2]


def test_the_fewest_fields() -> None:
    assert rows_of(batch("value BINARY", [{"value": b"1"}, {"value": None}])) == [(None, b"1"), (None, None)]
    headed = batch("value STRING, headers HEADERS", [{"value": "1", "headers": []}])
    assert rows_of(headed) == [(None, b"1", [])]
    large = pa.record_batch({"value": pa.array(["1"], pa.large_string())})
    assert rows_of(large) == [(None, b"1")]


def test_the_option_beats_the_column() -> None:
    found = batch("value STRING, topic STRING", [{"value": "1", "topic": "a"}, {"value": "2", "topic": None}])
    (part,) = placed(found, "t")
    assert (part.topic, part.partition, rows_of(part.rows)) == ("t", None, [(None, b"1"), (None, b"2")])
    assert list(placed(found.slice(0, 0), "t")) == []


def test_rows_without_a_topic_and_null_headers_are_refused() -> None:
    found = batch("value STRING, topic STRING", [{"value": "1", "topic": "a"}, {"value": "2", "topic": None}])
    with pytest.raises(InvalidRecordError, match="1 of 2 rows have no topic"):
        list(placed(found, None))
    headed = batch(ALL, [{"value": "1", "headers": [None]}])
    with pytest.raises(InvalidRecordError, match="1 headers are null"):
        rows_of(headed)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(-1, 2)), min_size=1, max_size=30),
    st.booleans(),
)
def test_each_row_goes_where_it_says_in_order(places: list[tuple[str, int | None]], fixed: bool) -> None:
    rows = [{"value": str(n), "topic": t, "partition": p} for n, (t, p) in enumerate(places)]
    found = batch("value STRING, topic STRING, partition INT", rows)
    expected: dict[tuple[str, int | None], list[int]] = {}
    for number, (topic, partition) in enumerate(places):
        expected.setdefault(("t" if fixed else topic, partition), []).append(number)
    parts = list(placed(found, "t" if fixed else None))
    assert {(p.topic, p.partition): [int(row[1]) for row in rows_of(p.rows)] for p in parts} == expected
    assert len(parts) == len(expected)
