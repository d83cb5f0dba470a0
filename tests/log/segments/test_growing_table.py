"""The table of the active segment: rows in memory, and which of them the file still lacks."""

from __future__ import annotations

import struct

from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.mapped_table import MappedTable

ROW = struct.Struct(">ii")


def test_rows_and_floor() -> None:
    table = GrowingTable(ROW)
    assert table.count == 0
    assert table.floor(10) == -1
    for key in (3, 5, 9):
        table.append(key, key * 10)
    assert [table.row(number) for number in range(table.count)] == [(3, 30), (5, 50), (9, 90)]
    assert [table.floor(key) for key in (2, 3, 4, 9, 99)] == [-1, 0, 0, 2, 2]
    assert table.size_bytes == 24


def test_what_the_file_lacks() -> None:
    table = GrowingTable(ROW)
    table.append(1, 10)
    table.append(2, 20)
    assert table.unstored() == (ROW.pack(1, 10) + ROW.pack(2, 20), 0)
    table.mark_stored()
    assert table.unstored() == (b"", 16)
    table.append(3, 30)
    assert table.unstored_rows == 1
    assert table.unstored() == (ROW.pack(3, 30), 16)


def test_loaded_from_a_file_it_lacks_nothing() -> None:
    content = ROW.pack(1, 10) + ROW.pack(2, 20)
    table = GrowingTable(ROW, content + b"\0\0")  # half a row is no row
    assert table.count == 2
    assert table.unstored_rows == 0
    assert table.encoded() == content


def test_encoded_reads_back_as_a_mapped_table() -> None:
    table = GrowingTable(ROW)
    for key in range(1, 50):
        table.append(key, key)
    mapped = MappedTable(memoryview(table.encoded()), ROW)
    assert [mapped.row(n) for n in range(mapped.count)] == [table.row(n) for n in range(table.count)]
