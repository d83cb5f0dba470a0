"""Rows in Arrow's columns encoded and digested by both twins: the same batches, or the same error in the same words."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.client import arrow_encoder
from logstore.client.arrow_encoder import Limits, Spread
from logstore.errors import InvalidArgumentError, InvalidRecordError, RecordTypeError
from logstore.format.arrow_rows import ArrowRows
from logstore.format.batch import decode_batches
from tests.format.batches import CALM
from tests.native.arrow_batches import PAIR, batches, both, both_digests, damaged_rows, limits, spreads


@CALM
@given(
    batch=batches(),
    spread=spreads,
    bounds=limits,
    now_ms=st.integers(-(1 << 40), 1 << 40),
    seed=st.integers(0, (1 << 32) - 1),
)
def test_any_batch(batch: pa.RecordBatch, spread: Spread, bounds: Limits, now_ms: int, seed: int) -> None:
    rows = ArrowRows(batch)
    found = both(rows, spread, bounds, now_ms)
    assert isinstance(both_digests(rows, seed), int)
    if bounds.whole and isinstance(found, arrow_encoder.Encoded):
        written = [
            (record.key, record.value, record.timestamp_ms, list(record.headers))
            for partition, part in found.parts
            for record in decode_batches(part.records, "t", partition)
        ]
        given_ = [
            (
                key,
                value,
                now_ms if more[-1:] == [None] or len(more) < 2 else more[-1],
                (more[0] or []) if more else [],
            )
            for key, value, *more in rows.tuples()
        ]
        assert sorted(map(repr, written)) == sorted(map(repr, given_))


@CALM
@given(rows=damaged_rows(), spread=spreads, bounds=limits, seed=st.integers(0, (1 << 32) - 1))
def test_any_damage(rows: ArrowRows, spread: Spread, bounds: Limits, seed: int) -> None:
    both(rows, spread, bounds)
    both_digests(rows, seed)


@pytest.mark.parametrize(
    "time_ms", [(1 << 62) - 1, 1 << 62, -(1 << 62), -(1 << 62) - 1, (1 << 63) - 1, -(1 << 63)]
)
def test_the_ends_of_time(time_ms: int) -> None:
    rows = ArrowRows(pa.record_batch({"value": pa.array([b"v"] * 2), "timestamp": pa.array([0, time_ms])}))
    both(rows, Spread("murmur3", 1, -1, 0), Limits(1000, 1000, "x", False, True))
    both_digests(rows, 0)


def test_rows_near_the_limit_and_past_it() -> None:
    for size in range(380, 420):
        rows = ArrowRows(pa.record_batch({"value": pa.array([b"v", b"v" * size])}))
        both(rows, Spread("murmur3", 2, -1, 0), Limits(100, 400, "max.message.bytes", False, True))


def test_lengths_around_each_step_of_the_hash() -> None:
    for size in range(70):
        rows = ArrowRows(pa.record_batch({"value": pa.array([bytes(range(size))])}))
        both_digests(rows, size)


DAMAGED: dict[str, dict[str, Any]] = {
    "past the end": {"offsets": struct.pack("3i", 0, 2, 9)},
    "back": {"offsets": struct.pack("3i", 3, 1, 2)},
    "back in the middle": {"offsets": struct.pack("3i", 0, 4, 3)},
    "negative": {"offsets": struct.pack("3i", -1, 1, 2)},
    "too few offsets": {"offsets": struct.pack("2i", 0, 1)},
    "half an offset": {"offsets": struct.pack("3i", 0, 1, 2)[:-1]},
    "too few for its place": {"first": 1},
    "too few bits": {"validity": b""},
    "too few bits for its place": {
        "validity": b"\xff",
        "first": 7,
        "offsets": struct.pack("10i", *range(10)),
    },
    "wide, past the end": {"offsets": struct.pack("3q", 0, 1, 1 << 40), "wide": True},
    "wide, and narrow offsets": {"wide": True},
    "no data": {"data": None},
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("column", ["keys", "values"])
def test_buffers_that_contradict_themselves_are_refused(column: str, name: str) -> None:
    """Exact buffers, without a byte behind the last, which a sanitizer watches."""
    rows = ArrowRows(pa.record_batch({"value": pa.array([b"1", b"2"]), "key": pa.array([b"1", b"2"])}))
    sound = {"first": 0, "offsets": struct.pack("3i", 0, 1, 2), "validity": None, "data": b"abcd"}
    setattr(rows, column, getattr(rows, column)._replace(**(sound | DAMAGED[name])))
    found = both(rows, Spread("murmur3", 2, -1, 0), Limits(1000, 1000, "x", False, True))
    assert found[0] is InvalidRecordError
    assert both_digests(rows, 1) == found


HEADERS_DAMAGED: dict[str, dict[str, Any]] = {
    "past the end": {"offsets": struct.pack("2i", 0, 9)},
    "back": {"offsets": struct.pack("2i", 1, 0)},
    "negative": {"offsets": struct.pack("2i", -1, 1)},
    "too few offsets": {"offsets": struct.pack("i", 0)},
    "too few bits": {"validity": b""},
}


@pytest.mark.parametrize("name", HEADERS_DAMAGED)
def test_headers_that_lie_outside_are_refused(name: str) -> None:
    pairs = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}]], pa.list_(PAIR))
    rows = ArrowRows(pa.RecordBatch.from_arrays([pa.array([b"v"]), pairs], ["value", "headers"]))
    assert rows.headers is not None
    rows.headers = rows.headers._replace(**HEADERS_DAMAGED[name])
    found = both(rows, Spread("murmur3", 1, -1, 0), Limits(1000, 1000, "x", False, True))
    assert "column headers of an Arrow batch is damaged" in found[1]
    assert both_digests(rows, 1) == found


@pytest.mark.parametrize("field", ["names", "contents"])
def test_names_and_contents_that_lie_outside_are_refused(field: str) -> None:
    pairs = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}]], pa.list_(PAIR))
    rows = ArrowRows(pa.RecordBatch.from_arrays([pa.array([b"v"]), pairs], ["value", "headers"]))
    assert rows.headers is not None
    broken = getattr(rows.headers, field)._replace(offsets=struct.pack("3i", 0, 1, 9))
    rows.headers = rows.headers._replace(**{field: broken})
    found = both(rows, Spread("murmur3", 1, -1, 0), Limits(1000, 1000, "x", False, True))
    assert found[0] is InvalidRecordError
    assert both_digests(rows, 1) == found


@pytest.mark.parametrize("damage", [{"data": bytes(15)}, {"validity": b""}, {"first": 1}])
def test_times_that_are_not_all_there_are_refused(damage: dict[str, Any]) -> None:
    batch = pa.record_batch({"value": pa.array([b"v"] * 2), "timestamp": pa.array([1, 2])})
    rows = ArrowRows(batch)
    assert rows.times is not None
    rows.times = rows.times._replace(**({"data": bytes(16)} | damage))
    found = both(rows, Spread("murmur3", 1, -1, 0), Limits(1000, 1000, "x", False, True))
    assert "column timestamp of an Arrow batch is damaged" in found[1]
    assert both_digests(rows, 1) == found


def test_a_header_without_a_name_is_refused() -> None:
    lists = pa.array([[{"key": None, "value": b"1"}]], pa.list_(PAIR))
    rows = ArrowRows(pa.RecordBatch.from_arrays([pa.array([b"v"]), lists], ["value", "headers"]))
    found = both(rows, Spread("murmur3", 1, -1, 0), Limits(1000, 1000, "x", False, True))
    assert found[0] is RecordTypeError
    assert isinstance(both_digests(rows, 1), int)


def test_a_name_that_is_no_text_is_refused() -> None:
    names = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("2i", 0, 1)), pa.py_buffer(b"\xff")]
    )
    pairs = pa.StructArray.from_arrays([names, pa.array([b"1"])], ["key", "value"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs)
    rows = ArrowRows(pa.RecordBatch.from_arrays([pa.array([b"v"]), lists], ["value", "headers"]))
    found = both(rows, Spread("murmur3", 1, -1, 0), Limits(1000, 1000, "x", False, True))
    assert "not UTF-8" in found[1]
    assert both_digests(rows, 1) == found


@pytest.mark.parametrize("columns", [{"key": [b"1"]}, {"value": [1]}, {"value": [b"1"], "timestamp": ["x"]}])
def test_columns_of_another_kind_are_named(columns: Any) -> None:
    batch = pa.record_batch({name: pa.array(fields) for name, fields in columns.items()})
    with pytest.raises(InvalidArgumentError, match=r"column (value|timestamp)"):
        ArrowRows(batch)


def test_the_digest_is_the_same_in_any_order_and_cut() -> None:
    rows = [{"key": b"%d" % n, "value": b"v" * n, "timestamp": None if n % 3 else n} for n in range(50)]
    kind = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.int64())])
    whole = ArrowRows(pa.RecordBatch.from_pylist(rows, kind)).digest(5)
    random.Random(1).shuffle(rows)
    parts = [ArrowRows(pa.RecordBatch.from_pylist(part, kind)).digest(5) for part in (rows[:17], rows[17:])]
    assert sum(parts) % (1 << 64) == whole
