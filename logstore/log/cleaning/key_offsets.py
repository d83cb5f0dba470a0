"""The last offset of every key of a dirty section, within a bound in bytes.

Keys are compared exactly, never by a hash: whoever can choose keys could make two of them collide, and one
would be compacted away. The price is memory: about 120 bytes and the key for an entry (measured on CPython
3.11: the dictionary's slot, the key's object, its offset). When the bound is reached the map is full: it then
covers the records up to some offset, and a cleaning cleans only that prefix.

Where the bound leaves room for a byte an offset, ``settle`` notes which offsets of the section are the last of
their key. The section itself is then cleaned without a key of it being looked up, or cut out, once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import Final

ENTRY_BYTES = 120
"""What an entry is counted with, beside the bytes of its key."""

LIVE: Final = 1
LIVE_TOMBSTONE: Final = 2
_AT_ONCE = 500  # entries: some 0.1 ms


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
        self._start_offset = start_offset
        self._offsets: dict[bytes, int] = {}  # that of a tombstone as -2 - offset
        self._has_tombstones = False
        self._live: bytearray | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    def add(
        self, keys: Sequence[bytes], offsets: Sequence[int], next_offset: int, nulls: Sequence[int] = ()
    ) -> bool:
        """Enter the records of a batch in order; False when they did not all fit: then the map is full, and
        ``end_offset`` is the offset of the first that is not in. One key always fits, so that every cleaning
        comes further. ``next_offset``: the first offset past the batch; ``nulls``: numbers of the tombstones."""
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
            entry = ENTRY_BYTES + length
            if self.used_bytes + entry * len(keys) <= self.limit_bytes:  # even if all of them are new
                before = len(known)
                known.update(zip(keys, stored, strict=True))
                self.used_bytes += entry * (len(known) - before)
                self.end_offset = next_offset
                return True
        new = set(keys).difference(known)
        size = len(new) * ENTRY_BYTES + sum(map(len, new))
        if self.used_bytes + size <= self.limit_bytes:
            known.update(zip(keys, stored, strict=True))
            self.used_bytes += size
            self.end_offset = next_offset
            return True
        for key, offset, value in zip(keys, offsets, stored, strict=True):
            if key not in known:
                size = ENTRY_BYTES + len(key)
                if known and self.used_bytes + size > self.limit_bytes:
                    self.end_offset = offset
                    self.full = True
                    return False
                self.used_bytes += size
            known[key] = value
        self.end_offset = next_offset
        return True

    def newest(self, keys: Sequence[bytes | None]) -> list[int]:
        """For each key its last offset, -1 if the section has no record of it."""
        found: list[int] = list(map(self._offsets.get, keys, repeat(-1)))  # type: ignore[arg-type]
        if self._has_tombstones:
            return [offset if offset >= -1 else -2 - offset for offset in found]
        return found

    def settle(self) -> Iterator[None]:
        """After the last ``add``, in small steps: note what ``live`` tells, if the bound has room for it."""
        start, span = self._start_offset, self.end_offset - self._start_offset
        if self.used_bytes + span > self.limit_bytes:
            return
        live = bytearray(span)
        left = iter(self._offsets.values())
        while some := list(islice(left, _AT_ONCE)):
            for offset in some:
                if offset >= 0:
                    live[offset - start] = LIVE
                else:
                    live[-2 - offset - start] = LIVE_TOMBSTONE
            yield
        self._live = live

    def release(self) -> Iterator[None]:
        """Give the memory back in small steps: freed at once, 500,000 keys hold the interpreter for 30 ms."""
        self._live = None
        forget = self._offsets.popitem
        while left := len(self._offsets):
            for _ in range(min(left, _AT_ONCE)):
                forget()
            yield

    def live(self, first_offset: int, last_offset: int) -> bytearray | None:
        """For each of these offsets whether it is the last of its key: ``LIVE``, ``LIVE_TOMBSTONE`` or 0. None
        if that is not known, or the section does not hold all of them."""
        if self._live is None or first_offset < self._start_offset or last_offset >= self.end_offset:
            return None
        return self._live[first_offset - self._start_offset : last_offset + 1 - self._start_offset]
