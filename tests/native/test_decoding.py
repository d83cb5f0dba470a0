"""Sections read by both twins: the same records, or the same error in the same words."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import types
from logstore.errors import CorruptBatchError, LogStoreError
from logstore.format import record
from logstore.format.record import encode_rows
from tests.format.batches import CALM, row_lists
from tests.native.sections import sections
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.format.record")


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What it returned, or the error's class and words."""
    try:
        return call(*arguments)
    except LogStoreError as error:
        return type(error), str(error)


def both(*arguments: Any) -> Any:
    found = outcome(record.decode_rows, *arguments)
    expected = outcome(PYTHON.decode_rows, *arguments)
    assert found == expected
    if isinstance(found, list):
        assert {type(item) for item in found} <= {types.Record}
        assert list(map(repr, found)) == list(map(repr, expected))
    return found


@CALM
@given(rows=row_lists, base=st.integers(-5, (1 << 63) + 5), append_ms=st.none() | st.integers(-9, 1 << 63))
def test_what_was_encoded(rows: list[Any], base: int, append_ms: int | None) -> None:
    encoded = encode_rows(rows, 7)
    both(encoded.records, len(rows), base, encoded.base_timestamp, "t", 3, append_ms)


@CALM
@given(section=sections(), count=st.integers(0, 4), base_ms=st.sampled_from([0, (1 << 63) - 2, -(1 << 63)]))
def test_any_fields(section: bytes, count: int, base_ms: int) -> None:
    both(section, count, 10, base_ms, "t", 3, None)


@pytest.mark.parametrize("count", [-1, 0, 1 << 31, (1 << 31) - 1, 1 << 63, 1 << 80])
@pytest.mark.parametrize("section", [b"", bytes(7), b"\x0c\0\0\0\1\1\0", b"\xff" * 40])
def test_counts_that_cannot_be(count: int, section: bytes) -> None:
    both(section, count, 0, 0, "t", 0, None)


HOSTILE = {
    "length past the section": "feffffff0f 00 00 00 01 01 00",
    "length of 64 bits": "ffffffffffffffffff01 00 00 00 01 01 00",
    "key past the section": "0e 00 00 00 feffffff0f 01 00",
    "key past the record": "0c 00 00 00 04 01 00 0c 00 00 02 01 01 00",
    "value past the section": "0e 00 00 00 01 feffffff0f 00",
    "a null in two bytes": "0e 00 00 00 8100 01 00",
    "billions of headers": "14 00 00 00 01 01 feffffff0f",
    "header name past the record": "10 00 00 00 01 01 02 20 01",
    "header value past the record": "12 00 00 00 01 01 02 00 20 00",
    "a header name that is null": "10 00 00 00 01 01 02 01 01",
    "a header name that is no UTF-8": "14 00 00 00 01 01 02 04 c328 01",
    "a surrogate as a name": "16 00 00 00 01 01 02 06 eda080 01",
    "time past 64 bits": "1e 00 feffffffffffffffff01 00 01 01 00",
    "offset back": "0c 00 00 01 01 01 00",
    "nothing but zeros": "00" * 14,
    "all ones": "ff" * 70,
    "cut in a length": "8c",
    "cut behind the attributes": "0c 00",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("count", [1, 2])
def test_hostile_sections(name: str, count: int) -> None:
    section = bytes.fromhex(HOSTILE[name])
    found = both(section, count, 0, 1, "t", 0, None)
    assert isinstance(found, tuple)
    assert found[0] is CorruptBatchError


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_allocated_for_what_is_not_there(name: str) -> None:
    section = bytes.fromhex(HOSTILE[name])
    tracemalloc.start()
    try:
        for count in (1, 1 << 31):
            with pytest.raises(CorruptBatchError):
                record.decode_rows(section, count, 0, 1, "t", 0, None)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_names_of_headers_that_change_from_record_to_record() -> None:
    rows: list[Any] = [
        (
            None,
            None,
            [(f"n{number % 3}{place}" * (number % 2), b"%d" % number) for place in range(number % 12)],
        )
        for number in range(100)
    ]
    encoded = encode_rows(rows, 7)
    found = both(encoded.records, 100, 0, 7, "t", 0, None)
    assert [list(one.headers) for one in found] == [list(row[2]) for row in rows]


def checked_by_both(section: bytes, count: int, base_ms: int) -> None:
    for name, *arguments in (
        ("newest_record", section, count, base_ms),
        ("check_records", section, count, True),
        ("check_records", section, count, False),
    ):
        if name == "newest_record" and count < 1:
            continue  # a batch of no records has no last one
        found = outcome(getattr(record, name), *arguments)
        assert found == outcome(getattr(PYTHON, name), *arguments)


@CALM
@given(rows=row_lists)
def test_checks_of_what_was_encoded(rows: list[Any]) -> None:
    encoded = encode_rows(rows, 7)
    checked_by_both(encoded.records, len(rows), encoded.base_timestamp)
    newest = record.newest_record(encoded.records, len(rows), encoded.base_timestamp)
    assert newest == (len(rows) - 1, encoded.max_timestamp)


@CALM
@given(section=sections(), count=st.integers(0, 4), base_ms=st.sampled_from([0, (1 << 63) - 2, -(1 << 63)]))
def test_checks_of_any_fields(section: bytes, count: int, base_ms: int) -> None:
    checked_by_both(section, count, base_ms)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("count", [1, 2, 1 << 31, 1 << 80])
def test_checks_of_hostile_sections(name: str, count: int) -> None:
    checked_by_both(bytes.fromhex(HOSTILE[name]), count, 1)
