"""`%020d.timeindex`: sparse map from timestamp to offset.

    row: timestamp i64 (largest so far), relativeOffset i32 (last offset of the batch that holds it)

Timestamps grow strictly. A row says: no record up to that offset is newer than that timestamp.
"""

from __future__ import annotations

import struct

from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.mapped_table import MappedTable

ROW = struct.Struct(">qi")
ROW_BYTES = ROW.size
SUFFIX = ".timeindex"


class TimeIndex:
    __slots__ = ("base_offset", "table")

    def __init__(self, base_offset: int, table: GrowingTable | MappedTable) -> None:
        self.base_offset = base_offset
        self.table = table

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset from which a search for the first record >= ``timestamp_ms`` may start."""
        number = self.table.floor(timestamp_ms - 1)
        return self.base_offset if number < 0 else self.base_offset + int(self.table.row(number)[1]) + 1

    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the newest entry."""
        if self.table.count == 0:
            return None
        timestamp_ms, relative = self.table.row(self.table.count - 1)
        return timestamp_ms, self.base_offset + relative

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Append when the largest timestamp has grown; only for the active segment's index."""
        table = self.table
        if isinstance(table, GrowingTable) and timestamp_ms >= 0:
            last = self.last()
            if last is None or timestamp_ms > last[0]:
                table.append(timestamp_ms, offset - self.base_offset)
