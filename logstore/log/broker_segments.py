"""The segments in a Kafka broker's partition folder: by name, and as files that their writer may shorten.

A broker's cleaner writes a new segment as `.cleaned`, renames it to `.swap` when it is complete, renames the
segments that it replaces to `.deleted`, and takes the suffix off. One that was killed in between finishes the
swap when it starts again; the same rule is applied here to names only, nothing is renamed:

- a `.swap` segment counts in place of all segments that start within its offsets;
- unless a `.cleaned` of the same or a smaller base is there: then not all of the new ones were complete, and
  the old segments, still in place, count.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from logstore.format.varint import INT64_MAX
from logstore.log.file_pool import FilePool
from logstore.log.mapped_table import MappedTable
from logstore.log.segment import LOG_SUFFIX, Segment

SWAP_SUFFIX = ".swap"
_LOG_NAME = re.compile(r"(\d{20})\.log(\.swap)?")
_CLEANED_NAME = re.compile(r"(\d{20})\.log\.cleaned")
_INDEX_ROWS = 8192  # read at a time: an active index is preallocated, its rows are a small part of it


@dataclass(slots=True)
class BrokerListing:
    """``bases``: segments in place, sorted; ``swapped``: complete ones whose swap was not finished."""

    bases: list[int] = field(default_factory=list)
    swapped: list[int] = field(default_factory=list)

    @staticmethod
    def of(names: Iterable[str]) -> BrokerListing:
        found = BrokerListing()
        unfinished: list[int] = []
        for name in names:
            match = _LOG_NAME.fullmatch(name)
            cleaned = _CLEANED_NAME.fullmatch(name)
            if match is not None and int(match[1]) <= INT64_MAX:
                (found.bases if match[2] is None else found.swapped).append(int(match[1]))
            elif cleaned is not None:
                unfinished.append(int(cleaned[1]))
        found.bases.sort()
        first_unfinished = min(unfinished, default=INT64_MAX + 1)
        found.swapped = sorted(base for base in found.swapped if base < first_unfinished)
        return found

    def counted(self, end_of: Callable[[int], int]) -> list[tuple[int, bool]]:
        """(base, is swapped) of the segments that count, sorted. ``end_of``: the first offset past a swapped
        segment, from its bytes."""
        if not self.swapped:
            return [(base, False) for base in self.bases]
        start, end = self.swapped[0], max(map(end_of, self.swapped))
        replaced = set(self.swapped)
        kept = [(base, False) for base in self.bases if base not in replaced and not start <= base < end]
        return sorted([*kept, *((base, True) for base in self.swapped)])


class BrokerSegment(Segment):
    """A segment that somebody else may cut in place, so it is never mapped: a mapping behind a file's new end
    is a crash. Offsets may be missing in it (compaction). ``swapped``: its files still have their `.swap`."""

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        base_offset: int,
        *,
        size: int,
        next_offset: int,
        swapped: bool = False,
    ) -> None:
        super().__init__(pool, directory, base_offset, size=size, next_offset=next_offset)
        self.swapped = swapped
        self.closed = False
        self.gapless = False

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return super().path(suffix) + (SWAP_SUFFIX if self.swapped else "")

    def _table(self, suffix: str, row: struct.Struct) -> MappedTable | None:
        """Up to the first piece that ends in zeros."""
        parts: list[bytes] = []
        length = row.size * _INDEX_ROWS
        try:
            with self._pool.pinned(self.path(suffix)) as file:
                while part := file.pread(length, length * len(parts)):
                    parts.append(part)
                    if len(part) < length or not any(part[-row.size :]):
                        break
        except FileNotFoundError:
            return None
        return MappedTable(memoryview(b"".join(parts)), row)
