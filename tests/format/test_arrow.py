"""Arrow tables hold what ``decode_batches`` reads, record for record, and refuse what it refuses."""

from __future__ import annotations

import datetime
import random
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptBatchError, DecompressionBombError, MissingExtraError
from logstore.format import arrow
from logstore.format.batch import (
    decode_batches,
    encode_batch,
    pack_batch,
    read_header,
    stamp_log_append_time,
)
from logstore.format.control import encode_control_batch, encode_marker
from logstore.types import Record
from tests.format.batches import CODECS, FEW, NOW_MS, golden, row_lists


def records_in(table: pa.Table) -> list[Record]:
    columns = [table.column(name).to_pylist() for name in ("topic", "partition", "offset")]
    columns.append(table.column("timestamp").cast(pa.int64()).to_pylist())
    columns += [table.column(name).to_pylist() for name in ("key", "value")]
    headers = [
        tuple((header["key"], header["value"]) for header in row)
        for row in table.column("headers").to_pylist()
    ]
    return [Record(*fields) for fields in zip(*columns, headers, strict=True)]


def log_of(lists: list[list[Any]], codecs: tuple[str, ...] = ("none",)) -> bytes:
    batches, base = [], 0
    for number, rows in enumerate(lists):
        codec = codecs[number % len(codecs)]
        batches.append(encode_batch(rows, now_ms=NOW_MS, base_offset=base, codec=codec))
        base += len(rows)
    return b"".join(batches)


@FEW
@given(lists=st.lists(row_lists, max_size=5), start=st.integers(0, 20), length=st.integers(0, 40))
def test_same_records_as_decode_batches(lists: list[list[Any]], start: int, length: int) -> None:
    buffer = log_of(lists, CODECS)
    assert records_in(arrow.to_table(buffer, "t", 3)) == decode_batches(buffer, "t", 3)
    some: dict[str, Any] = {"start_offset": start, "end_offset": start + length}
    assert records_in(arrow.to_table(buffer, "t", 3, **some)) == decode_batches(buffer, "t", 3, **some)


@pytest.mark.parametrize("step", [1, 10, 500])
@pytest.mark.parametrize("chunk_bytes", [1, 10_000, 1 << 29])
def test_chunks_small_and_large(monkeypatch: pytest.MonkeyPatch, step: int, chunk_bytes: int) -> None:
    monkeypatch.setattr(arrow, "_CHUNK_BYTES", chunk_bytes)
    values = random.Random(5)
    rows: list[Any] = [
        (b"key-%d" % n, values.randbytes(values.choice((100, 100, 7, 12, 13, 300)))) for n in range(2000)
    ]
    buffer = log_of([rows[at : at + step] for at in range(0, len(rows), step)])
    table = arrow.to_table(buffer, "t", 0)
    assert records_in(table) == decode_batches(buffer, "t", 0)
    assert table.column("value").to_pylist() == [row[1] for row in rows]


@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 54, 57, 58, 59, 60, 100, 8170, 8180, 8185, 9000])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 65, 300])
def test_records_of_equal_length(size: int, count: int) -> None:
    buffer = log_of([[(None, bytes([n % 256]) * size) for n in range(count)]] * 2)
    assert records_in(arrow.to_table(buffer, "t", 0)) == decode_batches(buffer, "t", 0)


def test_equal_lengths_change_in_the_middle() -> None:
    sizes = [100] * 40 + [101] * 3 + [100] * 300 + [50] * 20 + [200] * 600
    buffer = log_of([[(None, b"x" * size) for size in sizes]])
    assert records_in(arrow.to_table(buffer, "t", 0)) == decode_batches(buffer, "t", 0)


def test_many_headers() -> None:
    rows: list[Any] = [
        (None, b"v", [(f"name {number}", b"%d" % number) for number in range(count)])
        for count in (0, 1, 31, 32, 33, 70, 0, 500, 2)
    ]
    buffer = log_of([rows])
    assert records_in(arrow.to_table(buffer, "t", 0)) == decode_batches(buffer, "t", 0)
    some = arrow.to_table(buffer, "t", 0, start_offset=4, end_offset=8)
    assert records_in(some) == decode_batches(buffer, "t", 0, start_offset=4, end_offset=8)


def test_schema_and_types() -> None:
    append = stamp_log_append_time(encode_batch([(b"k", None)], now_ms=NOW_MS, base_offset=1), 77)
    marker = encode_control_batch(1, encode_marker(0), timestamp_ms=NOW_MS, base_offset=2, producer_id=1)
    table = arrow.to_table(encode_batch([(None, b"v")], now_ms=NOW_MS) + append + marker, "flights", 5)
    assert table.schema == arrow.schema()
    assert [str(field.type) for field in table.schema] == [
        "binary", "binary", "string", "int32", "int64", "timestamp[ms, tz=UTC]", "int32",
        "list<item: struct<key: string not null, value: binary>>",
    ]  # fmt: skip
    utc = datetime.timezone.utc  # noqa: UP017  # the name that pyarrow's repr uses
    assert table.column("timestamp").to_pylist() == [
        datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=utc),
        datetime.datetime(1970, 1, 1, 0, 0, 0, 77000, tzinfo=utc),
    ]
    assert table.column("timestamp_type").to_pylist() == [0, 1]
    assert table.column("topic").to_pylist() == ["flights", "flights"]
    assert table.column("partition").to_pylist() == [5, 5]
    table.validate(full=True)


def test_without_headers_and_without_records() -> None:
    buffer = encode_batch([(b"k", b"v", [("h", b"x")])], now_ms=NOW_MS)
    table = arrow.to_table(buffer, "t", 0, headers=False)
    assert table.schema == arrow.schema(headers=False)
    assert table.num_rows == 1
    for nothing in (arrow.to_table(b"", "t", 0), arrow.to_table(buffer, "t", 0, start_offset=1)):
        assert nothing.num_rows == 0
        assert nothing.schema == arrow.schema()


def test_the_table_owns_its_memory() -> None:
    buffer = bytearray(log_of([[(b"key", b"a value of more than twelve bytes")] * 20]))
    expected = decode_batches(buffer, "t", 0)
    table = arrow.to_table(buffer, "t", 0)
    buffer[:] = bytes(len(buffer))
    assert records_in(table) == expected


def test_compacted_batch() -> None:
    batch = golden("batch_compacted.hex")
    assert records_in(arrow.to_table(batch, "t", 0)) == decode_batches(batch, "t", 0)


def test_check_and_bound() -> None:
    batch = bytearray(encode_batch([(None, bytes(10_000))], now_ms=NOW_MS, codec="gzip"))
    with pytest.raises(DecompressionBombError):
        arrow.to_table(batch, "t", 0, max_decompressed_bytes=9_000)
    batch[17] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        arrow.to_table(batch, "t", 0)
    assert arrow.to_table(batch, "t", 0, check=False).num_rows == 1


@FEW
@given(section=st.binary(max_size=60), count=st.integers(1, 5))
def test_random_sections_are_refused_by_both_or_read_alike(section: bytes, count: int) -> None:
    header = read_header(encode_batch([(None, None)] * 9, now_ms=NOW_MS))
    batch = pack_batch(header._replace(records_count=count), section)
    try:
        expected = decode_batches(batch, "t", 0)
    except CorruptBatchError:
        with pytest.raises(CorruptBatchError):
            arrow.to_table(batch, "t", 0)
    else:
        assert records_in(arrow.to_table(batch, "t", 0)) == expected


def test_a_section_of_zeros_is_refused_at_once() -> None:
    header = read_header(encode_batch([(None, None)], now_ms=NOW_MS))
    batch = pack_batch(header._replace(records_count=1 << 30, last_offset_delta=1 << 30), bytes(1 << 20))
    with pytest.raises(CorruptBatchError, match="do not fill"):
        arrow.to_table(batch, "t", 0)


@pytest.mark.parametrize("package", ["numpy", "pyarrow"])
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    arrow.schema.cache_clear()
    with pytest.raises(MissingExtraError, match=rf"package {package}, .*logstore-engine\[arrow\]"):
        arrow.to_table(b"", "t", 0)


@pytest.mark.parametrize("last", [None, b"", b"a", b"abc", b"12 bytes lon", b"13 bytes long"])
@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_a_short_record_at_the_very_end_of_the_bytes(last: bytes | None, key: bytes | None) -> None:
    for rows in ([(key, last)], [(b"key", b"v" * 100), (b"a key that is long", b"v"), (key, last)]):
        buffer = log_of([rows])
        assert records_in(arrow.to_table(buffer, "t", 0)) == decode_batches(buffer, "t", 0)


@pytest.mark.parametrize("codecs", [("none", "gzip"), ("gzip", "none", "none"), ("gzip",)])
def test_plain_and_compressed_batches_in_turn(codecs: tuple[str, ...]) -> None:
    buffer = log_of([[(b"%d" % n, b"value %d" % n) for n in range(at, at + 5)] for at in range(12)], codecs)
    for form in (bytes, bytearray, memoryview):
        assert records_in(arrow.to_table(form(buffer), "t", 0)) == decode_batches(buffer, "t", 0)


def test_integers_of_all_widths_in_one_column() -> None:
    deltas = [
        0,
        1,
        63,
        64,
        -64,
        -65,
        8191,
        8192,
        -8192,
        -8193,
        1 << 20,
        -(1 << 20),
        1 << 34,
        1 << 40,
        -(1 << 40),
    ]
    for some in (deltas[:3], deltas[:6], deltas[3:8], deltas[6:10], deltas):
        rows: list[Any] = [(None, b"v" * (n * n), (), NOW_MS + delta) for n, delta in enumerate(some)]
        buffer = log_of([rows])
        assert records_in(arrow.to_table(buffer, "t", 0)) == decode_batches(buffer, "t", 0)


@pytest.mark.parametrize(
    "tail", [b"\x80", b"\x80\x80", b"\x14\x00\x00\x00\x01\x80", b"\x0c\x00\x00\x00\x01\x01\x80"]
)
def test_an_integer_that_goes_on_past_the_end_of_the_bytes(tail: bytes) -> None:
    buffer = pack_batch(read_header(log_of([[(None, b"v")]]), 0)._replace(records_count=1), tail)
    with pytest.raises(CorruptBatchError):
        arrow.to_table(buffer, "t", 0)


def test_lengths_of_one_two_and_three_bytes_in_turn() -> None:
    values = random.Random(4)
    rows: list[Any] = [(None, b"x" * values.choice((3, 40, 56, 57, 58, 100, 8200))) for _ in range(300)]
    rows += [(None, b"x" * (100 + n)) for n in range(300)]
    buffer = log_of([rows])
    assert records_in(arrow.to_table(buffer, "t", 0)) == decode_batches(buffer, "t", 0)
