"""The sparse map from offset to position, and the one rule that says when a batch is entered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import InvariantError
from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.mapped_table import MappedTable
from logstore.log.segments.offset_index import ROW, IndexRule, OffsetIndex
from tests.format.batches import CALM


def index(base: int = 100) -> OffsetIndex:
    found = OffsetIndex(base, GrowingTable(ROW))
    found.append(base + 4, 500)
    found.append(base + 9, 1_500)
    return found


def test_entry_before_an_offset() -> None:
    found = index()
    assert found.entry_before(103) is None
    assert found.entry_before(104) == (104, 500)
    assert found.entry_before(108) == (104, 500)
    assert found.entry_before(10_000) == (109, 1_500)
    assert found.last() == (109, 1_500)
    assert OffsetIndex(0, GrowingTable(ROW)).last() is None


def test_the_same_rows_mapped() -> None:
    grown = index().table
    assert isinstance(grown, GrowingTable)
    assert grown.encoded() == ROW.pack(4, 500) + ROW.pack(9, 1_500)
    mapped = OffsetIndex(100, MappedTable(memoryview(grown.encoded()), ROW))
    assert mapped.entry_before(108) == (104, 500)
    assert mapped.last() == (109, 1_500)
    with pytest.raises(InvariantError, match="active segment's index grows"):
        mapped.append(200, 1)


def test_a_batch_is_entered_when_more_than_the_interval_lies_behind() -> None:
    rule = IndexRule(100)
    fed = [rule.feed(offset, size, 5) for offset, size in enumerate([60, 40, 1, 200, 10, 90, 1])]
    # 60; 100 is not more; 101 is: entered, counts itself; 201; 10 and 90 are 100; 101
    assert fed == [False, False, False, True, True, False, False]


def test_the_largest_timestamp_and_where_it_is() -> None:
    rule = IndexRule(0)
    for offset, timestamp_ms in [(3, 50), (5, 40), (9, 50), (12, 51)]:
        rule.feed(offset, 10, timestamp_ms)
    assert (rule.max_timestamp_ms, rule.offset_of_max) == (51, 12)
    assert rule.interval_bytes == 0


@CALM
@given(st.integers(0, 500), st.lists(st.integers(61, 400), max_size=40), st.integers(0, 40))
def test_the_rule_goes_on_from_any_entry_as_if_from_the_start(
    interval: int, sizes: list[int], resume: int
) -> None:
    """Recovery starts at an entered batch with a fresh rule; its entries must be those of the whole walk."""
    whole = IndexRule(interval)
    entered = [number for number, size in enumerate(sizes) if whole.feed(number, size, number)]
    later = [number for number in entered if number >= resume]
    if not later:
        return
    again = IndexRule(interval)
    start = later[0]
    found = [start + n for n, size in enumerate(sizes[start:]) if again.feed(start + n, size, start + n)]
    assert [start, *found] == later
