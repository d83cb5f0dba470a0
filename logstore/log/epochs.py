"""Leader epoch -> start offset, and the `leader-epoch-checkpoint` file that keeps it.

The epoch grows at every unclean open (embedded) or election (replicated). A position read under epoch E is
still good only if it does not lie past E's end, which is the start of the next epoch: this is how a reader
learns that records it saw are gone (Kafka's KIP-101 and KIP-320 use the same table).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

FILE_NAME = "leader-epoch-checkpoint"


class Epochs:
    """Entries (epoch, start offset), both growing. Not thread-safe by itself; its log guards it. ``latest``: the newest
    epoch, -1 if none was ever assigned; every append asks for it."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[tuple[int, int]] = []
        self.latest = -1
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` starts at ``start_offset``; True if the table changed.

        An older epoch that starts there too or later has no records and goes.
        """
        if epoch <= self.latest:
            return False
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self.latest = epoch
        return True

    def end_offset(self, epoch: int, log_end_offset: int) -> int:
        """First offset that does not belong to ``epoch`` or an older one."""
        number = bisect_right(self._entries, (epoch, 1 << 63))
        return self._entries[number][1] if number < len(self._entries) else log_end_offset

    def floor(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The newest epoch up to ``epoch`` (-1: none is that old) and its end: where the next one starts."""
        number = bisect_right(self._entries, (epoch, 1 << 63))
        end = self._entries[number][1] if number < len(self._entries) else log_end_offset
        return (self._entries[number - 1][0], end) if number > 0 else (-1, end)

    def epoch_at(self, offset: int) -> int:
        """Epoch of the record at ``offset``, -1 if it lies before the first entry."""
        found = -1
        for epoch, start in self._entries:
            if start > offset:
                break
            found = epoch
        return found

    def truncate(self, end_offset: int) -> bool:
        """Forget epochs that start at or past ``end_offset``; True if the table changed."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        changed = len(kept) != len(self._entries)
        self._entries = kept
        self.latest = kept[-1][0] if kept else -1
        return changed
