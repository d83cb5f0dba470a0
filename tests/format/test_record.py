"""Rows to a records section and back, without a batch around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTypeError,
)
from logstore.format.record import MIN_RECORD_BYTES, check_records, decode_rows, encode_rows
from logstore.types import Record
from tests.format.batches import CALM, NOW_MS, records_of, row_lists


def round_trip(rows: list[Any], now_ms: int = NOW_MS, base_offset: int = 0) -> list[Record]:
    encoded = encode_rows(rows, now_ms)
    assert encoded.records_count == len(rows)
    return decode_rows(
        encoded.records, encoded.records_count, base_offset, encoded.base_timestamp, "t", 3, None
    )


@CALM
@given(row_lists, st.integers(0, 1 << 62))
def test_round_trip(rows: list[Any], base_offset: int) -> None:
    expected = records_of(rows, base_offset)
    encoded = encode_rows(rows, NOW_MS)
    assert encoded.base_timestamp == expected[0].timestamp_ms
    assert encoded.max_timestamp == max(record.timestamp_ms for record in expected)
    assert round_trip(rows, base_offset=base_offset) == expected


def test_one_record_byte_by_byte() -> None:
    encoded = encode_rows([(b"k", b"vv", [("h", None)], 5)], NOW_MS)
    assert encoded.records.hex(" ") == "18 00 00 00 02 6b 04 76 76 02 02 68 01"
    assert (encoded.base_timestamp, encoded.max_timestamp, encoded.records_count) == (5, 5, 1)


def test_smallest_record() -> None:
    assert len(encode_rows([(None, None)], NOW_MS).records) == MIN_RECORD_BYTES


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 8400])
@pytest.mark.parametrize("key", [None, b"key"])
def test_offset_deltas_of_one_two_and_three_bytes(count: int, key: bytes | None) -> None:
    rows: list[Any] = [(key, b"v")] * count
    assert round_trip(rows) == records_of(rows)


@pytest.mark.parametrize("size", [0, 1, 50, 63, 64, 8000, 8170, 8180, 8185, 8191, 8192, 100_000, 3_000_000])
@pytest.mark.parametrize("make", [lambda v: (None, v), lambda v: (v, None), lambda v: (v[:9000], v)])
def test_sizes_around_each_length_of_a_length(size: int, make: Callable[[bytes], Any]) -> None:
    rows = [make(b"x" * size), make(b"y" * (size + 1)), (None, b"z")]
    assert round_trip(rows) == records_of(rows)


def test_rows_of_every_width_and_sequences_of_rows() -> None:
    rows: list[Any] = [(b"a", b"1"), (b"b", None, None), (None, b"3", (("h", b"x"),)), (b"d", b"4", [], -7)]
    assert round_trip(rows) == records_of(rows)
    assert encode_rows(tuple(rows), NOW_MS) == encode_rows(rows, NOW_MS)


def test_kafkas_own_null_timestamp_and_the_ends_of_int64() -> None:
    for stamps in ([-1, 0], [(1 << 63) - 1, 0], [-(1 << 63), -1], [5, 1, 9]):
        rows = [(None, b"v", None, stamp) for stamp in stamps]
        assert [record.timestamp_ms for record in round_trip(rows)] == stamps
        assert encode_rows(rows, NOW_MS).max_timestamp == max(stamps)


def test_subclasses_of_bytes_are_bytes() -> None:
    class Name(bytes):
        pass

    assert round_trip([(Name(b"k"), Name(b"v"))]) == records_of([(b"k", b"v")])


def test_no_rows() -> None:
    with pytest.raises(InvalidRecordError, match="no rows"):
        encode_rows([], NOW_MS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("k", b"v"), "key of row 2 is str"),
        ((b"k", "v"), "value of row 2 is str"),
        ((b"k", 5), "value of row 2 is int"),
        ((bytearray(b"k"), b"v"), "key of row 2 is bytearray"),
        ((b"k", b"v", [(b"h", b"v")]), "headers of row 2 .* name b'h' is bytes"),
        ((b"k", b"v", [("h", "v")]), "headers of row 2 .* value of header 'h' is str"),
        ((b"k", b"v", [("h",)]), "headers of row 2"),
        ((b"k", b"v", ["hv"]), "headers of row 2"),
        ((b"k", b"v", 5), "headers of row 2"),
        ((b"k", b"v", [("\ud800", b"")]), "headers of row 2 .*surrogates"),
        ((b"k", b"v", None, 1.5), "timestamp of row 2 is float"),
        ((b"k", b"v", None, True), "timestamp of row 2 is bool"),
        ((b"k", b"v", None, "now"), "timestamp of row 2 is str"),
        ((b"k",), "row 2 .* 1 items"),
        ((b"k", b"v", None, 1, 2), "row 2 .* 5 items"),
        (b"kv", "row 2 .* bytes"),
        ({b"k", b"v"}, "row 2 .* set"),
        (None, "row 2 .* NoneType"),
        (7, "row 2 .* int"),
    ],
)
def test_wrong_types_name_the_row(row: Any, message: str) -> None:
    with pytest.raises(RecordTypeError, match=message):
        encode_rows([(b"k", b"v"), (None, None), row], NOW_MS)


@pytest.mark.parametrize("row", [b"kv", {b"k", b"v"}, None, 7, (), (b"k",)])
def test_wrong_rows_alone(row: Any) -> None:
    with pytest.raises(RecordTypeError, match="row 0"):
        encode_rows([row], NOW_MS)


@pytest.mark.parametrize("stamps", [[1 << 63], [0, -(1 << 63) - 1], [(1 << 63) - 1, -2]])
def test_timestamps_that_do_not_fit(stamps: list[int]) -> None:
    with pytest.raises(InvalidTimestampError, match=r"fit 64 bits|too far apart"):
        encode_rows([(None, b"v", None, stamp) for stamp in stamps], NOW_MS)


def decode(text: str, count: int = 1) -> list[Record]:
    return decode_rows(bytes.fromhex(text), count, 10, 1000, "t", 3, None)


def test_gaps_that_compaction_left() -> None:
    section = "0c 00 00 02 01 01 00" + "0c 00 01 08 01 01 00"
    assert [(record.offset, record.timestamp_ms) for record in decode(section, 2)] == [(11, 1000), (14, 999)]


def test_log_append_time_covers_every_record() -> None:
    encoded = encode_rows([(None, b"a", None, 5), (None, b"b", None, 6)], NOW_MS)
    records = decode_rows(encoded.records, 2, 0, encoded.base_timestamp, "t", 3, 77)
    assert [record.timestamp_ms for record in records] == [77, 77]


@pytest.mark.parametrize(
    ("text", "count", "message"),
    [
        ("", 1, "only 0 bytes"),
        ("0c 00 00 00 01 01 00", 1 << 31, "2147483648 records"),
        ("0c 00 00 00 01 01 00", 0, "last of 0 records"),
        ("0c 00 00 00 01 01 00 00", 1, "last of 1 records"),
        ("0e 00 00 00 01 01 00", 1, "record 0 of a batch"),
        ("0b 00 00 00 01 01 00", 1, "record 0 of a batch"),
        ("0d 00 00 00 01 01 00", 1, "record 0 of a batch"),
        ("0c 00 00 00 03 01 00", 1, "length of the key of record 0 is negative"),
        ("0c 00 00 00 01 03 00", 1, "length of the value of record 0 is negative"),
        ("0c 00 00 00 01 01 01", 1, "list of headers of record 0 is negative"),
        ("10 00 00 00 01 01 02 01 00", 1, "name of a header of record 0 is negative"),
        ("10 00 00 00 01 01 02 00 03", 1, "value of a header of record 0 is negative"),
        ("12 00 00 00 01 01 02 02 ff 00", 1, "not UTF-8"),
        ("0c 00 00 00 01 7e 00", 1, "middle of a record"),
        ("0c 00 00 00 01 01 02", 1, "middle of a record"),
        ("0c 00 00 01 01 01 00", 1, "do not grow"),
        ("0c 00 00 02 01 01 00 0c 00 00 02 01 01 00", 2, "do not grow"),
        ("0c 00 00 02 01 01 00 0c 00 00 00 01 01 00", 2, "do not grow"),
        ("1e 00 feffffffffffffffff01 00 01 01 00", 1, "fit 64 bits"),
        ("ff ff ff ff ff ff ff ff", 1, "too many bits"),
    ],
)
def test_damage_is_named(text: str, count: int, message: str) -> None:
    with pytest.raises(CorruptBatchError, match=message):
        decode(text, count)


def test_check_records() -> None:
    keyed = encode_rows([(b"a", b"1"), (b"", None)], NOW_MS)
    check_records(keyed.records, 2, need_key=True)
    half = encode_rows([(b"a", b"1"), (None, b"2")], NOW_MS)
    check_records(half.records, 2, need_key=False)
    with pytest.raises(InvalidRecordError, match="record 1 of the batch has no key"):
        check_records(half.records, 2, need_key=True)
    with pytest.raises(CorruptBatchError):
        check_records(half.records[:-1], 2, need_key=False)


@given(
    key=st.one_of(st.none(), st.binary(max_size=80), st.just(b"k" * 8180)),
    value=st.one_of(st.none(), st.binary(max_size=80), st.just(b"v" * 9000)),
    more=st.sampled_from([(), (None,), ([],), ((), 7), (None, None), (None, -3)]),
)
@CALM
def test_a_batch_of_one_is_encoded_as_the_general_way_would(
    key: bytes | None, value: bytes | None, more: tuple[object, ...]
) -> None:
    one = encode_rows([(key, value, *more)], 99)  # type: ignore[list-item]
    two = encode_rows([(key, value, *more), (None, None)], 99)  # type: ignore[list-item]
    assert two.records.startswith(one.records)
    assert (one.records_count, one.base_timestamp) == (1, two.base_timestamp)
