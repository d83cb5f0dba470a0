"""The sparse map from timestamp to offset: strictly growing, a floor says where a search may start."""

from __future__ import annotations

from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.mapped_table import MappedTable
from logstore.log.segments.time_index import ROW, TimeIndex


def index() -> TimeIndex:
    found = TimeIndex(100, GrowingTable(ROW))
    for timestamp_ms, offset in [(1_000, 104), (1_000, 109), (999, 112), (1_500, 120), (-1, 130)]:
        found.maybe_append(timestamp_ms, offset)
    return found


def test_only_a_larger_timestamp_is_entered() -> None:
    table = index().table
    assert isinstance(table, GrowingTable)
    assert table.encoded() == ROW.pack(1_000, 4) + ROW.pack(1_500, 20)
    assert index().last() == (1_500, 120)


def test_where_a_search_may_start() -> None:
    found = index()
    assert found.offset_before(1_000) == 100  # no row says that all before is older
    assert found.offset_before(1_001) == 105
    assert found.offset_before(1_500) == 105
    assert found.offset_before(1_501) == 121
    assert TimeIndex(7, GrowingTable(ROW)).offset_before(10**15) == 7
    assert TimeIndex(7, GrowingTable(ROW)).last() is None


def test_a_mapped_one_never_grows() -> None:
    content = ROW.pack(1_000, 4)
    found = TimeIndex(100, MappedTable(memoryview(content), ROW))
    found.maybe_append(9_999, 200)
    assert found.last() == (1_000, 104)
