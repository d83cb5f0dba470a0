"""The last offset of every key of a dirty section, within a bound in bytes.

Keys are compared exactly, never by a hash: whoever can choose keys could make two of them collide, and one
would be compacted away. The price is memory: about 120 bytes and the key for an entry (measured on CPython
3.11: the dictionary's slot, the key's object, its offset). When the bound is reached the map is full: it then
covers the records up to some offset, and a cleaning cleans only that prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

ENTRY_BYTES = 120
"""What an entry is counted with, beside the bytes of its key."""


def keys_in(limit_bytes: int, key_bytes: int) -> int:
    """How many keys of ``key_bytes`` each a map of ``limit_bytes`` holds: 64 MiB holds 493,447 of 16 bytes."""
    return max(limit_bytes // (ENTRY_BYTES + key_bytes), 1)


class KeyOffsets:
    """``end_offset``: records before it (and from the start of the section on) are in."""

    def __init__(self, limit_bytes: int, start_offset: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.end_offset = start_offset
        self.full = False
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, keys: Sequence[bytes], offsets: Sequence[int], next_offset: int) -> bool:
        """Enter the records of a batch in order; False when they did not all fit: then the map is full, and
        ``end_offset`` is the offset of the first that is not in. One key always fits, so that every cleaning
        comes further. ``next_offset``: the first offset past the batch."""
        new = set(keys).difference(self._offsets)
        size = len(new) * ENTRY_BYTES + sum(map(len, new))
        if self.used_bytes + size <= self.limit_bytes:
            self._offsets.update(zip(keys, offsets, strict=True))
            self.used_bytes += size
            self.end_offset = next_offset
            return True
        for key, offset in zip(keys, offsets, strict=True):
            if key not in self._offsets:
                size = ENTRY_BYTES + len(key)
                if self._offsets and self.used_bytes + size > self.limit_bytes:
                    self.end_offset = offset
                    self.full = True
                    return False
                self.used_bytes += size
            self._offsets[key] = offset
        self.end_offset = next_offset
        return True

    def newest(self, keys: Sequence[bytes | None]) -> list[int]:
        """For each key its last offset, -1 if the section has no record of it."""
        return list(map(self._offsets.get, keys, repeat(-1)))  # type: ignore[arg-type]
