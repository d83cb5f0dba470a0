"""The newest batches of each log in memory, so that tailing readers and followers touch no disk.

The bytes are those that were written (no copy). One budget serves all logs of a store, the oldest entry of
any log goes first; a log's own setting ``tail.cache.bytes`` bounds its part.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from typing import TypeAlias

from logstore.native import compiled
from logstore.types import Buffer

# (base offset, next offset, end position in the active segment, one whole batch in parts, its size). A plain
# tuple: the garbage collector stops looking at those once it has seen that they hold nothing of its own, and of
# these there are as many as batches that fit the tail.
CachedBatch: TypeAlias = tuple[int, int, int, tuple[Buffer, ...], int]


@compiled("log.tail_cache")
class TailBudget:
    """Bytes that all tails of a store may hold together."""

    def __init__(self, limit_bytes: int = 32 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.lock = threading.Lock()
        self.entries = 0  # held by all caches together
        self._order: deque[tuple[TailCache, int]] = deque()  # (cache, number of its entry), oldest first

    def added(self, cache: TailCache, number: int, size: int) -> None:
        """Count a new entry and make room for it; the caller holds ``lock``."""
        self.used_bytes += size
        self.entries += 1
        self._order.append((cache, number))
        if len(self._order) > 2 * self.entries + 64:
            # Caches drop entries by themselves, too; what is noted of those must not pile up.
            self._order = deque(item for item in self._order if item[1] >= item[0].first_number)
        while self.used_bytes > self.limit_bytes and self._order:
            oldest, its_number = self._order.popleft()
            if its_number >= oldest.first_number:  # else the cache dropped it by itself
                oldest.drop_first()


@compiled("log.tail_cache")
class TailCache:
    """The tail of one log. ``read`` is safe beside the appending thread."""

    def __init__(self, budget: TailBudget, limit_bytes: int) -> None:
        self._budget = budget
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.first_number = 0  # entries are numbered for ever; this one is at `_head`
        # Replaced, never cut in place, so that a reader that took the tuple sees whole lists; the writer
        # only appends to them (entries first: a base that is seen has its entry).
        self._state: tuple[list[int], list[CachedBatch], int] = ([], [], 0)

    def add(
        self, base_offset: int, next_offset: int, end_position: int, parts: tuple[Buffer, ...], size: int
    ) -> None:
        """``parts``: one whole batch of ``size`` bytes, which ends at byte ``end_position``."""
        if size > self.limit_bytes:
            self.clear()  # the tail must not have a hole
            return
        with self._budget.lock:
            bases, entries, head = self._state
            entries.append((base_offset, next_offset, end_position, parts, size))
            bases.append(base_offset)
            self.used_bytes += size
            self._budget.added(self, self.first_number + len(bases) - 1 - head, size)
            while self.used_bytes > self.limit_bytes:
                self.drop_first()

    def drop_first(self) -> None:
        """Forget the oldest entry; the budget's lock is held."""
        bases, entries, head = self._state
        size = entries[head][4]
        self.used_bytes -= size
        self._budget.used_bytes -= size
        self._budget.entries -= 1
        self.first_number += 1
        head += 1
        if head > 64 and head * 2 > len(bases):
            bases, entries, head = bases[head:], entries[head:], 0
        else:
            entries[head - 1] = _DROPPED  # let the bytes go now
        self._state = (bases, entries, head)

    def clear(self) -> None:
        with self._budget.lock:
            bases, _, head = self._state
            self.first_number += len(bases) - head
            self._budget.used_bytes -= self.used_bytes
            self._budget.entries -= len(bases) - head
            self.used_bytes = 0
            self._state = ([], [], 0)

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> tuple[Buffer, int, int] | None:
        """(batches, next offset, end position) from the batch holding ``offset`` on, or None if not cached."""
        bases, entries, head = self._state
        number = bisect_right(bases, offset, lo=head) - 1
        if number < head:
            return None
        parts: list[Buffer] = []
        size = 0
        _, next_offset, end_position, _, _ = entries[number]
        if offset >= next_offset:
            return None
        while number < len(bases):
            entry = entries[number]
            if entry is _DROPPED:
                return None  # dropped while we looked: the file has the same bytes
            if entry[0] >= limit_offset or (parts and size + entry[4] > max_bytes):
                break
            _, next_offset, end_position, more, more_bytes = entry
            parts.extend(more)
            size += more_bytes
            number += 1
        return (b"".join(parts), next_offset, end_position) if parts else None


_DROPPED: CachedBatch = (-1, -1, -1, (), 0)
