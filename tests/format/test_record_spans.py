"""Keys and byte ranges against the decoder that makes records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptBatchError
from logstore.format.record import decode_rows, encode_rows
from logstore.format.record_spans import joined, key_column, rebased, timestamp_deltas

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
    section, count, base_ms = encoded.records, encoded.count, encoded.base_timestamp
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
