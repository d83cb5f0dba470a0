"""Rows in Arrow's columns for both twins: batches of every kind of columns, sound and damaged, and the comparison."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from logstore.client import arrow_encoder
from logstore.client.arrow_encoder import Limits, Spread
from logstore.errors import LogStoreError
from logstore.format import arrow_rows
from logstore.format.arrow_rows import ArrowRows
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.client.arrow_encoder")
PYTHON_ROWS = python_twin("logstore.format.arrow_rows")
COLUMNS = ("keys", "values", "headers", "times")
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
KINDS = {
    "key": [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null()],
    "value": [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()],
    "headers": [pa.list_(PAIR), pa.large_list(PAIR)],
    "timestamp": [pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.timestamp("ns"), pa.int64()],
}
texts = st.none() | st.text("abé", max_size=9) | st.text("x", min_size=60, max_size=140)
FIELDS: dict[str, Any] = {
    "key": texts,
    "value": texts,
    "headers": st.none()
    | st.lists(st.tuples(st.text("aé", max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    "timestamp": st.none() | st.integers(-(1 << 52), 1 << 52),
}


def plain(text: Any, kind: pa.DataType) -> Any:
    if text is None or pa.types.is_null(kind):
        return None
    return text if pa.types.is_string(kind) or pa.types.is_large_string(kind) else text.encode()


@st.composite
def batches(draw: Any) -> pa.RecordBatch:
    """Batches of every set and kind of columns, some of them slices of larger ones."""
    names = ["value", *draw(st.sets(st.sampled_from(["key", "headers", "timestamp"])))]
    count = draw(st.integers(0, 12))
    columns = {}
    for name in names:
        kind = draw(st.sampled_from(KINDS[name]))
        fields = draw(st.lists(FIELDS[name], min_size=count, max_size=count))
        if name in ("key", "value"):
            fields = [plain(field, kind) for field in fields]
        elif name == "headers":
            fields = [None if f is None else [{"key": k, "value": v} for k, v in f] for f in fields]
        columns[name] = pa.array(fields, kind)
    batch = pa.record_batch(columns)
    start = draw(st.integers(0, count))
    return batch.slice(start, draw(st.integers(0, count - start)))


def outcome(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except LogStoreError as error:
        return type(error), str(error)


def both(rows: Any, spread: Spread, limits: Limits, now_ms: int = 7) -> Any:
    """What encoding the rows comes to. AssertionError at a difference."""
    found = outcome(arrow_encoder.encode_arrow, rows, "topic 't'", spread, limits, now_ms)
    python = outcome(PYTHON.encode_arrow, rows, "topic 't'", spread, limits, now_ms)
    _same("encode_arrow", found, python, rows)
    return found


def both_digests(rows: Any, seed: int) -> Any:
    """The digest of the rows. AssertionError at a difference."""
    found = outcome(arrow_rows.rows_digest, rows, seed)
    _same("rows_digest", found, outcome(PYTHON_ROWS.rows_digest, rows, seed), rows)
    return found


def _same(name: str, compiled: Any, python: Any, rows: ArrowRows) -> None:
    if compiled != python:
        columns = [getattr(rows, column) for column in COLUMNS]
        raise AssertionError(f"{name} of {columns}:\n  in use  {compiled!r}\n  Python's {python!r}")


spreads = st.builds(
    lambda name, partitions, given, sticky: Spread(
        name, partitions, given % partitions if given >= 0 else -1, sticky % partitions
    ),
    st.sampled_from(["murmur3", "murmur2", "crc32", "round_robin"]),
    st.integers(1, 4),
    st.integers(-3, 3),
    st.integers(0, 3),
)
limits = st.builds(
    lambda cap, keyed, whole: Limits(cap, max(cap, 400), "max.message.bytes", keyed, whole),
    st.sampled_from([62, 100, 300, 1000]),
    st.booleans(),
    st.booleans(),
)


@st.composite
def damaged_rows(draw: Any) -> ArrowRows:
    """Rows with one buffer of one column cut, or one of its offsets far outside of its data. A wrong one that is sound
    would be no damage: Python's twin takes such a row from the array, which has other offsets."""
    rows = ArrowRows(draw(batches()))
    name = draw(st.sampled_from([name for name in COLUMNS if getattr(rows, name) is not None]))
    column = getattr(rows, name)
    buffers = [field for field in ("offsets", "validity", "data") if getattr(column, field, None) is not None]
    if not buffers:
        return rows
    field = draw(st.sampled_from(buffers))
    damaged = bytearray(getattr(column, field))
    width = 4 if getattr(column, "wide", None) is False else 8
    if field == "offsets" and len(damaged) >= width and draw(st.booleans()):
        number = draw(st.integers(1, len(damaged) // width))
        damaged[number * width - 1] = draw(st.integers(0x40, 0xFF))  # its highest byte
    else:
        del damaged[draw(st.integers(0, len(damaged))) :]
    setattr(rows, name, column._replace(**{field: bytes(damaged)}))
    return rows
