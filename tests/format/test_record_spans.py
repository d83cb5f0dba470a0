"""Keys and byte ranges against the decoder that makes records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptBatchError
from logstore.format import record_spans
from logstore.format.record import decode_rows, encode_rows
from logstore.format.record_spans import (
    KeyColumn,
    joined,
    kept_section,
    key_column,
    rebased,
    record_bounds,
    timestamp_deltas,
)
from tests.native.twins import python_twin

NOW_MS = 1_700_000_000_000

ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        st.integers(10**12, 10**12 + 10**6),
    ),
    min_size=1,
    max_size=90,
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(rows=ROWS, data=st.data())
def test_it_agrees_with_the_decoder(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    encoded = encode_rows(rows, 0)  # type: ignore[arg-type]
    section, count, base_ms = encoded.records, encoded.records_count, encoded.base_timestamp
    records = decode_rows(section, count, 0, base_ms, "", 0, None)
    column = key_column(section, count)
    assert list(column.keys) == [record.key for record in records]
    assert list(column.deltas) == list(range(count))
    assert list(column.nulls) == [record.offset for record in records if record.value is None]
    assert column.shifted == any(record.timestamp_ms != base_ms for record in records)
    numbers = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    kept = [records[number] for number in numbers]
    deltas = timestamp_deltas(section, column.bounds, numbers)
    assert deltas == [record.timestamp_ms - base_ms for record in kept]
    part = joined(section, column.bounds, numbers)
    assert decode_rows(part, len(numbers), 0, base_ms, "", 0, None) == kept
    python = python_twin(record_spans.__name__)
    assert python.timestamp_deltas(section, column.bounds, iter(numbers)) == deltas
    assert python.joined(section, column.bounds, iter(numbers)) == part
    assert joined(section, column.bounds, iter(numbers)) == part
    live = bytearray(number in numbers for number in range(count))
    for twin in (kept_section, python.kept_section):
        assert twin(memoryview(section), live) == (part, min(deltas), max(deltas))
        assert twin(section, bytes(count)) == (b"", 0, 0)
    moved = rebased(section, column.bounds, numbers, -(10**9))
    assert decode_rows(moved, len(numbers), 0, base_ms + 10**9, "", 0, None) == kept
    assert list(key_column(part, len(numbers)).deltas) == numbers


@pytest.mark.parametrize("count", [2, 63, 64, 65, 300])
def test_records_that_are_alike_have_the_same_bounds(count: int) -> None:
    section = encode_rows([(b"key", b"%04d" % number) for number in range(count)], 0).records
    column = key_column(section, count)
    whole = joined(section, column.bounds, range(count))
    assert whole == section
    assert len(column.bounds) == count + 1
    one = joined(section, column.bounds, [count - 1])
    assert decode_rows(one, 1, 0, 0, "", 0, None)[0].value == b"%04d" % (count - 1)


def test_keys_and_bounds_are_sequences() -> None:
    section = encode_rows([(b"a", b"1"), (None, b"2"), (b"ccc", None), (b"d", b"4")], 0).records
    column = key_column(section, 4)
    keys, wanted = column.keys, [b"a", None, b"ccc", b"d"]
    assert (len(keys), list(keys), list(keys[1:3]), list(keys[1:][1:])) == (
        4,
        wanted,
        wanted[1:3],
        wanted[2:],
    )
    assert (keys[0], keys[-2], keys[3], list(keys[3:1]), list(keys[::2])) == (
        b"a",
        b"ccc",
        b"d",
        [],
        wanted[::2],
    )
    assert None in keys
    assert None not in keys[2:]
    assert b"ccc" in keys
    assert b"c" not in keys
    bounds = list(column.bounds)
    assert (bounds[0], bounds[-1], len(column.bounds)) == (0, len(section), 5)
    assert [column.bounds[number] for number in range(5)] == bounds
    assert (column.bounds[-1], column.bounds[1:3]) == (bounds[-1], bounds[1:3])
    for sequence in (keys, column.bounds):
        for number in (len(sequence), -len(sequence) - 1):
            with pytest.raises(IndexError):
                sequence[number]


def test_flags_for_more_records_than_there_are_are_refused() -> None:
    section = encode_rows([(b"a", b"1")], 0).records
    for twin in (kept_section, python_twin(record_spans.__name__).kept_section):
        with pytest.raises(IndexError):
            twin(section, b"\1\1")


def test_damage_is_named() -> None:
    section = encode_rows([(b"a", b"1"), (b"bb", None)], 0).records
    for bad, count in ((section[:-1], 2), (section, 1), (section, 3), (section + b"\0", 2), (b"", 1)):
        with pytest.raises(CorruptBatchError):
            key_column(bad, count)
    for position in range(len(section)):
        damaged = bytearray(section)
        damaged[position] ^= 0xFF
        try:
            key_column(bytes(damaged), 2)
        except CorruptBatchError:
            continue


SHAPES = st.tuples(
    st.integers(0, 3), st.integers(0, 70), st.booleans(), st.sampled_from([0, 1, -1, 40]), st.integers(1, 150)
)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(shape=SHAPES, data=st.data())
def test_keys_of_one_length_agree_with_the_general_way(
    shape: tuple[int, int, bool, int, int], data: st.DataObject
) -> None:
    """The short cuts, around every border that they have: two-byte offset deltas and lengths, tombstones."""
    key_length, least, tombstones, step_ms, count = shape
    rows = [
        (
            bytes([number % 256]) * key_length,
            None if tombstones and number % 7 == 3 else b"v" * (least + number % 3),
            (),
            NOW_MS + number // 40 * step_ms,
        )
        for number in range(count)
    ]
    section = encode_rows(rows, 0).records
    gone = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    numbers = [number for number in range(count) if number not in gone]
    section = joined(section, key_column(section, count).bounds, numbers)
    column = key_column(section, len(numbers))
    records = decode_rows(section, len(numbers), 0, NOW_MS, "", 0, None)
    assert list(column.keys) == [record.key for record in records]
    assert list(column.deltas) == [record.offset for record in records] == numbers
    assert [numbers[null] for null in column.nulls] == [one.offset for one in records if one.value is None]
    assert column.shifted == any(record.timestamp_ms != NOW_MS for record in records)
    assert record_bounds(section, len(numbers)) == (column.bounds, column.shifted)
    assert joined(section, column.bounds, range(len(numbers))) == section


@pytest.mark.parametrize("shift_ms", [1, 63, 64, 10**4, 10**8, 10**12, 10**17])
def test_records_far_from_their_base_timestamp(shift_ms: int) -> None:
    """As a delete horizon leaves them: the timestamp deltas take up to ten bytes."""
    section = encode_rows([(b"key", b"v" * number) for number in range(70)], 0).records
    for sign in (1, -1):
        moved = rebased(section, key_column(section, 70).bounds, range(70), sign * shift_ms)
        column = key_column(moved, 70)
        assert list(column.keys) == [b"key"] * 70
        assert column.shifted
        assert timestamp_deltas(moved, column.bounds, range(70)) == [sign * shift_ms] * 70
        agrees(moved, 70)


@pytest.mark.parametrize("count", [3, 70])
def test_damage_is_refused_or_read_as_the_general_way_reads_it(count: int) -> None:
    for sizes in (1, 2):
        rows = [(b"kk", b"v" * (1 + number % sizes)) for number in range(count)]
        section = encode_rows(rows, 0).records
        for position in range(len(section)):
            for bit in (1, 0x80, 0x7E):
                damaged = bytearray(section)
                damaged[position] ^= bit
                agrees(bytes(damaged), count)


def agrees(section: bytes, count: int) -> None:
    try:
        wanted = record_spans._scanned(section, count)
    except (CorruptBatchError, IndexError):
        with pytest.raises(CorruptBatchError):
            key_column(section, count)
        return
    assert plain(key_column(section, count)) == plain(wanted)


def plain(column: KeyColumn) -> tuple[list[bytes | None], list[int], list[int], list[int], bool]:
    return list(column.keys), list(column.deltas), list(column.nulls), list(column.bounds), column.shifted
