"""The segments in a Kafka broker's partition folder: by name, and as files that their writer may shorten.

A broker's cleaner writes a new segment as `.cleaned`, renames its files one by one (the log first, then its
indexes) to `.swap` when it is complete, renames the segments that it replaces to `.deleted`, and takes the suffix
off. One that was killed in between finishes the swap when it starts again, or drops it; the same rule is applied
here to names only, nothing is renamed:

- a `.swap` segment counts in place of all segments that start within its offsets;
- unless any file, also an index, of the same or a smaller base is still `.cleaned`: then not all of the new ones
  were complete, and the old segments, still in place, count.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from logstore.errors import CorruptBatchError, UnsupportedMagicError
from logstore.format.batch import LOG_OVERHEAD, MAGIC
from logstore.format.varint import INT64_MAX
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.mapped_table import MappedTable
from logstore.log.segments.segment import LOG_SUFFIX, Chunk, Segment
from logstore.types import Buffer

SWAP_SUFFIX = ".swap"
_LOG_NAME = re.compile(r"(\d{20})\.log(\.swap)?")
_CLEANED_NAME = re.compile(r"(\d{20})\.[a-z]+\.cleaned")
_MAGIC_AT = 16
_INDEX_ROWS = 8192  # read at a time: an active index is preallocated, its rows are a small part of it


@dataclass(slots=True)
class BrokerListing:
    """``bases``: segments in place, sorted; ``swapped``: complete ones whose swap was not finished; ``refused``:
    those that the broker drops, as not all of their swap was complete."""

    bases: list[int] = field(default_factory=list)
    swapped: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

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
        swaps = sorted(found.swapped)
        found.swapped = [base for base in swaps if base < first_unfinished]
        found.refused = [base for base in swaps if base >= first_unfinished]
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

    # --- messages older than record batches ---

    def locate(self, offset: int) -> int | None:
        """As of any segment; UnsupportedMagicError for messages too short to be walked as batches."""
        try:
            return super().locate(offset)
        except CorruptBatchError as error:
            self.refuse_old_message(error.position)
            raise

    def read(self, position: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        """As of any segment, up to the first message of magic 0 or 1: UnsupportedMagicError at one."""
        if position + LOG_OVERHEAD <= self.size:
            self.refuse_old_message(position)
        try:
            chunk = super().read(position, max_bytes, limit_offset)
        except CorruptBatchError:
            old = self._first_old(self.bytes_at(position, max_bytes))
            if old is None:
                raise
            return super().read(position, old, limit_offset)
        if chunk is None or (old := self._first_old(chunk.data)) is None:
            return chunk
        return super().read(position, old, limit_offset)

    def refuse_old_message(self, position: int) -> None:
        """UnsupportedMagicError if what stands at ``position`` is a message of magic 0 or 1."""
        head = self.bytes_at(max(position, 0), _MAGIC_AT + 1)
        if len(head) > _MAGIC_AT and head[_MAGIC_AT] < MAGIC and any(head[:_MAGIC_AT]):
            offset = int.from_bytes(head[:8], "big")
            raise UnsupportedMagicError(
                f"{self.path()} at byte {position}: offset {offset} is in the message format of magic "
                f"{head[_MAGIC_AT]}",
                hint="only record batches of magic 2 are read: let a Kafka broker of a 3.x version convert the "
                "topic, or read from a later offset",
            )

    @staticmethod
    def _first_old(data: Buffer) -> int | None:
        at = 0
        while at + _MAGIC_AT < len(data):
            if data[at + _MAGIC_AT] < MAGIC:
                return at
            at += max(int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big"), 0) + LOG_OVERHEAD
        return None

    # --- indexes ---

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
