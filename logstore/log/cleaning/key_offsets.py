"""The last offset of every key of a dirty section, within a bound in bytes.

When the bound is reached the map is full: it then covers the records up to some offset, and a cleaning cleans only
that prefix. ``KeyTable`` says what an entry takes.

Where the bound leaves room for a byte an offset, ``settle`` notes which offsets of the section are the last of
their key. The section itself is then cleaned without a key of it being looked up, or cut out, once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logstore.log.cleaning.key_table import KeyTable

ENTRY_BYTES = KeyTable.ENTRY_BYTES
"""What an entry is counted with, beside the bytes of its key."""


class KeyOffsets:
    """``end_offset``: records before it (and from the start of the section on) are in."""

    def __init__(self, limit_bytes: int, start_offset: int) -> None:
        self.limit_bytes = limit_bytes
        self.end_offset = start_offset
        self.full = False
        self._start_offset = start_offset
        self._table = KeyTable()
        self._live: bytearray | None = None

    def __len__(self) -> int:
        return len(self._table)

    @property
    def used_bytes(self) -> int:
        return self._table.used_bytes

    def add(
        self, keys: Sequence[bytes], offsets: Sequence[int], next_offset: int, nulls: Sequence[int] = ()
    ) -> bool:
        """Enter the records of a batch in order; False when they did not all fit: then the map is full, and
        ``end_offset`` is the offset of the first that is not in. One key always fits, so that every cleaning
        comes further. ``next_offset``: the first offset past the batch; ``nulls``: numbers of the tombstones."""
        entered = self._table.enter(keys, offsets, nulls, self.limit_bytes)
        if entered < len(keys):
            self.end_offset = offsets[entered]
            self.full = True
            return False
        self.end_offset = next_offset
        return True

    def newest(self, keys: Sequence[bytes | None]) -> list[int]:
        """For each key its last offset, -1 if the section has no record of it."""
        return self._table.newest(keys)

    def settle(self) -> Iterator[None]:
        """After the last ``add``, in small steps: note what ``live`` tells, if the bound has room for it."""
        span = self.end_offset - self._start_offset
        if self.used_bytes + span > self.limit_bytes:
            return
        live = bytearray(span)
        yield from self._table.mark(live, self._start_offset)
        self._live = live

    def release(self) -> Iterator[None]:
        """Give the memory back in small steps."""
        self._live = None
        yield from self._table.forget()

    def live(self, first_offset: int, last_offset: int) -> bytearray | None:
        """For each of these offsets whether it is the last of its key: ``LIVE``, ``LIVE_TOMBSTONE`` or 0. None
        if that is not known, or the section does not hold all of them."""
        if self._live is None or first_offset < self._start_offset or last_offset >= self.end_offset:
            return None
        return self._live[first_offset - self._start_offset : last_offset + 1 - self._start_offset]
