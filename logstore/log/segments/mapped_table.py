"""A table of fixed-width big-endian rows over a read-only view, searched floor-wise.

The first column of a row is its key; keys grow strictly. Kafka preallocates its index files and leaves zero
rows behind the last entry when it was not shut down cleanly; such padding is not counted.
"""

from __future__ import annotations

import struct
from typing import Any

# The newest rows are asked for most. Searching them first keeps a lookup inside pages that are warm; a plain
# binary search over a cold mapping faults a page in at every probe (KAFKA-6432 measured the effect).
_WARM_ROWS = 1024


class MappedTable:
    """Rows of ``row`` (a ``struct.Struct``) in ``view``. Immutable, safe for any thread."""

    __slots__ = ("_row", "_view", "count")

    def __init__(self, view: memoryview, row: struct.Struct) -> None:
        self._view = view
        self._row = row
        self.count = self._count_rows()

    def _count_rows(self) -> int:
        size = self._row.size
        count = len(self._view) // size
        if count < 2 or any(self._view[(count - 1) * size : count * size]):
            return count
        low, high = 1, count - 1  # rows from `high` on are zero; row 0 may be zero by right
        while low < high:
            middle = (low + high) // 2
            if any(self._view[middle * size : (middle + 1) * size]):
                low = middle + 1
            else:
                high = middle
        return low if low > 1 or any(self._view[:size]) else 0  # two rows of zeros are padding alone

    def row(self, number: int) -> tuple[Any, ...]:
        return self._row.unpack_from(self._view, number * self._row.size)

    def floor(self, key: int) -> int:
        """Number of the last row whose key is <= ``key``; -1 if there is none."""
        low, high = 0, self.count  # answer + 1 lies in [low, high]
        warm = high - _WARM_ROWS
        if warm > 0:
            if self.row(warm)[0] <= key:
                low = warm + 1
            else:
                high = warm
        while low < high:
            middle = (low + high) // 2
            if self.row(middle)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def first_break(self) -> int | None:
        """Number of the first row whose key does not grow, or None: a full check, for verification."""
        last: int | None = None
        for number, row in enumerate(self._row.iter_unpack(self._view[: self.count * self._row.size])):
            if last is not None and row[0] <= last:
                return number
            last = row[0]
        return None
