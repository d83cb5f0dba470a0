"""``KeyTable``: the last offset of every key, exactly, and what that takes of memory.

Keys are compared exactly, never by a hash: whoever can choose keys could make two of them collide, and one would be
compacted away. Python's hash of bytes here and SipHash in the compiled twin take Python's secret, which is chosen at
the process's start (unless ``PYTHONHASHSEED`` says otherwise), so that keys cannot be chosen to make a table slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import Final

from logstore.native import compiled

LIVE: Final = 1
LIVE_TOMBSTONE: Final = 2
_AT_ONCE = 500  # entries: some 0.1 ms


@compiled("log.keytable")
class KeyTable:
    """Used by one thread at a time: a cleaning's. ``used_bytes``: of all entries, as they are reckoned.

    The bytes of an entry beside those of its key, measured on CPython 3.11: 120 for the dictionary's slot, the key's
    object and its offset. The compiled twin's is 24: it keeps keys and offsets in an arena.
    """

    ENTRY_BYTES = 120

    def __init__(self) -> None:
        self.used_bytes = 0
        self._offsets: dict[bytes, int] = {}  # that of a tombstone as -2 - offset
        self._has_tombstones = False

    def __len__(self) -> int:
        return len(self._offsets)

    def enter(
        self, keys: Sequence[bytes], offsets: Sequence[int], nulls: Sequence[int], limit_bytes: int
    ) -> int:
        """Enter records in order, until a new key would take the table past ``limit_bytes``; how many are in. One key
        always fits. ``nulls``: numbers of the tombstones, ascending."""
        stored = offsets
        if nulls:
            self._has_tombstones = True
            stored = list(offsets)
            for number in nulls:
                stored[number] = -2 - offsets[number]
        known = self._offsets
        lengths = set(map(len, keys))
        if len(lengths) == 1:
            (length,) = lengths
            entry = self.ENTRY_BYTES + length
            if self.used_bytes + entry * len(keys) <= limit_bytes:  # even if all of them are new
                before = len(known)
                known.update(zip(keys, stored, strict=True))
                self.used_bytes += entry * (len(known) - before)
                return len(keys)
        new = set(keys).difference(known)
        size = len(new) * self.ENTRY_BYTES + sum(map(len, new))
        if self.used_bytes + size <= limit_bytes:
            known.update(zip(keys, stored, strict=True))
            self.used_bytes += size
            return len(keys)
        for number, (key, value) in enumerate(zip(keys, stored, strict=True)):
            if key not in known:
                size = self.ENTRY_BYTES + len(key)
                if known and self.used_bytes + size > limit_bytes:
                    return number
                self.used_bytes += size
            known[key] = value
        return len(keys)

    def newest(self, keys: Sequence[bytes | None]) -> list[int]:
        """For each key its last offset, -1 if there is no record of it."""
        found: list[int] = list(map(self._offsets.get, keys, repeat(-1)))  # type: ignore[arg-type]
        if self._has_tombstones:
            return [offset if offset >= -1 else -2 - offset for offset in found]
        return found

    def mark(self, live: bytearray, start_offset: int) -> Iterator[None]:
        """In small steps: ``LIVE`` or ``LIVE_TOMBSTONE`` for each offset, from ``start_offset`` on."""
        left = iter(self._offsets.values())
        while some := list(islice(left, _AT_ONCE)):
            for offset in some:
                if offset >= 0:
                    live[offset - start_offset] = LIVE
                else:
                    live[-2 - offset - start_offset] = LIVE_TOMBSTONE
            yield

    def forget(self) -> Iterator[None]:
        """Give the memory back in small steps: freed at once, 500,000 keys hold the interpreter for 30 ms."""
        forget = self._offsets.popitem
        while left := len(self._offsets):
            for _ in range(min(left, _AT_ONCE)):
                forget()
            yield
        self.used_bytes = 0
