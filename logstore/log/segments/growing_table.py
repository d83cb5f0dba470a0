"""The in-memory twin of ``MappedTable`` for the active segment: rows are appended, the file follows lazily.

Readers in this process search the arrays; the file on disk gets the rows in plain appends (never through a
mapping, so that the file-system seam sees every byte). Rows not yet in the file are only a longer scan for
readers in other processes.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

from logstore.native import compiled


@compiled("log.segment_tail")
class GrowingTable:
    """Rows (key, value); keys grow strictly. One writer, any number of readers."""

    __slots__ = ("_keys", "_row", "_stored", "_values")

    def __init__(self, row: struct.Struct, content: bytes = b"") -> None:
        self._row = row
        self._keys = array("q")
        self._values = array("q")
        for key, value in row.iter_unpack(content[: len(content) // row.size * row.size]):
            self._keys.append(key)
            self._values.append(value)
        self._stored = len(self._keys)  # rows that the file has

    @property
    def count(self) -> int:
        # the value is appended before the key, so a reader that sees a key finds its value
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        return len(self._keys) * self._row.size

    def row(self, number: int) -> tuple[int, int]:
        return self._keys[number], self._values[number]

    def floor(self, key: int) -> int:
        return bisect_right(self._keys, key) - 1

    def append(self, key: int, value: int) -> None:
        self._values.append(value)
        self._keys.append(key)

    def unstored(self) -> tuple[bytes, int]:
        """Rows that the file lacks, encoded, and the position in the file where they go."""
        pack = self._row.pack
        rows = zip(self._keys[self._stored :], self._values[self._stored :], strict=True)
        return b"".join([pack(key, value) for key, value in rows]), self._stored * self._row.size

    @property
    def unstored_rows(self) -> int:
        return len(self._keys) - self._stored

    def mark_stored(self) -> None:
        self._stored = len(self._keys)

    def encoded(self) -> bytes:
        pack = self._row.pack
        return b"".join([pack(key, value) for key, value in zip(self._keys, self._values, strict=True)])
