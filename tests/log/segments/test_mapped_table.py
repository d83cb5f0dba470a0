"""Floor search over fixed-width rows, and the zero padding of Kafka's preallocated indexes."""

from __future__ import annotations

import struct
from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from logstore.log.segments.mapped_table import MappedTable
from tests.format.batches import CALM

ROW = struct.Struct(">ii")


def table(keys: list[int], padding: int = 0) -> MappedTable:
    content = b"".join(ROW.pack(key, 3 * key + 1) for key in keys) + bytes(padding * ROW.size)
    return MappedTable(memoryview(content), ROW)


@CALM
@given(st.lists(st.integers(0, 10_000), unique=True).map(sorted), st.integers(-5, 10_010))
def test_floor_is_that_of_a_sorted_list(keys: list[int], wanted: int) -> None:
    found = table(keys)
    assert found.count == len(keys)
    assert found.floor(wanted) == bisect_right(keys, wanted) - 1


def test_the_warm_end_and_the_cold_rest_agree() -> None:
    keys = list(range(0, 30_000, 7))  # more rows than are searched first
    found = table(keys)
    for wanted in [-1, 0, 6, 7, 20_000, keys[-1024] - 1, keys[-1024], keys[-1023], keys[-1], 10**6]:
        assert found.floor(wanted) == bisect_right(keys, wanted) - 1


@CALM
@given(st.integers(0, 300), st.integers(0, 300))
def test_zero_padding_is_not_counted(rows: int, padding: int) -> None:
    keys = list(range(5, 5 + rows))
    found = table(keys, padding)
    assert found.count == (rows if rows or padding != 1 else 1)
    if rows:
        assert found.row(found.count - 1) == (keys[-1], 3 * keys[-1] + 1)


def test_one_row_of_zeros_is_a_row() -> None:
    # Offset 0 at position 0 cannot be told from padding, and does no harm as a hint.
    assert table([], padding=1).count == 1
    assert MappedTable(memoryview(ROW.pack(0, 0) + ROW.pack(4, 90)), ROW).count == 2
    assert MappedTable(memoryview(ROW.pack(0, 0) + ROW.pack(4, 90) + bytes(800)), ROW).count == 2


def test_half_a_row_at_the_end_is_ignored() -> None:
    assert MappedTable(memoryview(ROW.pack(1, 2) + b"\1\2\3"), ROW).count == 1
    assert MappedTable(memoryview(b""), ROW).count == 0
    assert MappedTable(memoryview(b""), ROW).floor(5) == -1


def test_first_break_names_the_row() -> None:
    assert table([1, 2, 9]).first_break() is None
    assert table([1, 2, 2, 9]).first_break() == 2
    assert table([4, 3]).first_break() == 1
    assert table([]).first_break() is None
