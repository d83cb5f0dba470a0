"""`%020d.index`: sparse map from offset to position.

    row: relativeOffset i32 (last offset of a batch - base offset), position i32 (where that batch starts)

Rows follow from the segment's bytes and ``index.interval.bytes`` alone (see ``IndexRule``): an index that was
deleted is rebuilt, identical. An entry is a hint: the batch at its position must confirm it.
"""

from __future__ import annotations

import struct

from logstore.invariants import invariant
from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.mapped_table import MappedTable
from logstore.native import compiled

ROW = struct.Struct(">ii")
SUFFIX = ".index"


class OffsetIndex:
    """Floor lookup over either table. ``base_offset``: the segment's."""

    __slots__ = ("base_offset", "table")

    def __init__(self, base_offset: int, table: GrowingTable | MappedTable) -> None:
        self.base_offset = base_offset
        self.table = table

    def entry_before(self, offset: int) -> tuple[int, int] | None:
        """(last offset, position) of the newest entered batch that ends at or before ``offset``; None: start
        at the segment's first byte."""
        number = self.table.floor(offset - self.base_offset)
        if number < 0:
            return None
        relative, position = self.table.row(number)
        return self.base_offset + int(relative), int(position)

    def last(self) -> tuple[int, int] | None:
        """(last offset of the batch, its position) of the newest entry."""
        if self.table.count == 0:
            return None
        relative, position = self.table.row(self.table.count - 1)
        return self.base_offset + relative, position

    def append(self, last_offset: int, position: int) -> None:
        """Enter a batch; only for the active segment's index."""
        table = self.table
        invariant(isinstance(table, GrowingTable), "only the active segment's index grows")
        table.append(last_offset - self.base_offset, position)  # type: ignore[union-attr]


@compiled("log.segment_tail")
class IndexRule:
    """When a batch gets index entries: one place for append, recovery and rebuild, so that they agree.

    As in Kafka, a batch is entered when more than ``interval_bytes`` were written since the last entry, and
    the bytes of the batch itself count towards the next one.
    """

    __slots__ = ("bytes_since_entry", "interval_bytes", "max_timestamp_ms", "offset_of_max")

    def __init__(self, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self.bytes_since_entry = 0
        self.max_timestamp_ms = -1
        self.offset_of_max = -1

    def feed(self, last_offset: int, size: int, max_timestamp_ms: int) -> bool:
        """Count one batch; True if it gets an entry in the offset index (and maybe in the time index)."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.offset_of_max = last_offset
        due = self.bytes_since_entry > self.interval_bytes
        if due:
            self.bytes_since_entry = 0
        self.bytes_since_entry += size
        return due
