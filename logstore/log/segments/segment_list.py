"""The ordered segments of a log: floor lookup, and reads that walk from one segment to the next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logstore.errors import CorruptBatchError
from logstore.format.batch import HEADER_SIZE, iter_headers, read_header
from logstore.log.cleaning.retention import SegmentFacts
from logstore.log.producers.lost_rows import rows_of, rows_of_all
from logstore.log.producers.row_counts import read_counts
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.segments.segment import Chunk, Segment
from logstore.types import Buffer, SegmentDescription

_BACK_BYTES = 1 << 20


class TimestampFloor(NamedTuple):
    """A batch (as bytes) that holds the first record at least as new as was asked."""

    batch: Buffer
    base_offset: int


class Back(NamedTuple):
    """Whole batches that hold the records before some offset, the first offset they may hold, and the one
    behind them: at least the offset that was asked for, unless something is missing."""

    data: Buffer
    first_offset: int
    next_offset: int


class SegmentList:
    """Immutable; the writer replaces the whole list when it rolls, so readers never see it half changed."""

    __slots__ = ("_aborted", "_bases", "active", "segments")

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self.segments = tuple(segments)
        self.active: Segment | None = self.segments[-1] if self.segments else None
        self._bases = [segment.base_offset for segment in self.segments]
        self._aborted: list[AbortedTransaction] | None = None  # of all but the last segment

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def with_active(self, segment: Segment) -> SegmentList:
        return SegmentList((*self.segments, segment))

    def replaced(self, old: Sequence[Segment], new: Sequence[Segment]) -> SegmentList | None:
        """The list with ``new`` in the place of ``old``; None unless those are neighbours in it."""
        first = self.floor(old[0].base_offset)
        found = self.segments[first : first + len(old)]
        if len(found) != len(old) or any(one is not two for one, two in zip(found, old, strict=True)):
            return None
        return SegmentList((*self.segments[:first], *new, *self.segments[first + len(old) :]))

    def floor(self, offset: int) -> int:
        """Number of the last segment whose base is <= ``offset`` (0 if all are newer)."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def read(self, offset: int, max_bytes: int, limit_offset: int, hint: int | None = None) -> Chunk | None:
        """Whole batches from the one holding ``offset`` (or the next survivor) on, below ``limit_offset``.

        Stays within one segment. ``hint``: position in the floor segment where the batch starts, when known.
        None: nothing below the limit.
        """
        for number in range(self.floor(offset), len(self.segments)):
            segment = self.segments[number]
            position = hint if hint is not None else segment.locate(offset)
            hint = None
            if position is None:
                continue
            chunk = segment.read(position, max_bytes, limit_offset)
            if chunk is not None:
                return chunk
        return None

    def check_whole(self, start_offset: int = 0) -> None:
        """``CorruptBatchError`` where a segment is missing between two others: all are opened by their names, so that
        nothing else tells. What lies before ``start_offset`` does not count. Reads the end of each segment. OSError."""
        for number in range(1, len(self.segments)):
            if self._bases[number] > start_offset:
                self._check_joined(number)

    def _check_joined(self, number: int) -> None:
        before, segment = self.segments[number - 1 : number + 1]
        if before.gapless and (end := before.last_end()) < segment.base_offset:
            path = segment.path()
            raise CorruptBatchError(
                f"{path}: offsets {end} to {segment.base_offset - 1}, which come before it, are missing",
                hint="run `logstore log verify`; `logstore log salvage` copies what is readable",
                path=path,
                position=0,
            )

    def read_back(self, end_offset: int) -> Back | None:
        """The batches that hold the records right before ``end_offset``: some hundred KiB of them, from a
        batch that the offset index knows. None if there are none. Costs the same wherever it starts."""
        if not self.segments:
            return None
        for number in range(self.floor(max(end_offset - 1, 0)), -1, -1):
            segment = self.segments[number]
            if segment.base_offset >= end_offset:
                continue
            position = segment.position_well_before(end_offset - 1)
            parts: list[Buffer] = []
            next_offset = 0
            while (chunk := segment.read(position, _BACK_BYTES, end_offset)) is not None:
                parts.append(chunk.data)
                position, next_offset = chunk.end_position, chunk.next_offset
            if parts:
                data = parts[0] if len(parts) == 1 else b"".join(parts)
                return Back(data, read_header(data).base_offset, next_offset)
        return None

    def first_at_or_after(self, timestamp_ms: int, limit_offset: int) -> Iterator[TimestampFloor]:
        """Batches in offset order that may hold the first record >= ``timestamp_ms``: those whose largest
        timestamp is at least that (records may be out of order in time, so each has to be looked into).
        CorruptBatchError where a segment before them is missing."""
        for number, segment in enumerate(self.segments):
            if number:
                self._check_joined(number)
            start = segment.times().offset_before(timestamp_ms)
            position = segment.locate(start)
            while position is not None and position + HEADER_SIZE <= segment.size:
                chunk = segment.read(position, 1 << 20, limit_offset)
                if chunk is None:
                    break
                yield from _new_enough(chunk.data, timestamp_ms)
                position = chunk.end_position

    def max_timestamp(self, limit_offset: int) -> int:
        """The largest timestamp below ``limit_offset`` in ms, -1 if there is none. Errors as ``check_whole``."""
        self.check_whole()
        return max((segment.max_timestamp(limit_offset) for segment in self.segments), default=-1)

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that may have data in [start_offset, end_offset). OSError."""
        closed = self._aborted
        if closed is None:
            closed = self._aborted = rows_of_all(self.segments[:-1])
        newest = self._newest_aborted() if self.segments else []
        if not closed and not newest:
            return []
        found = []
        for rows in (closed, newest):
            first = bisect_left(rows, start_offset, key=_last_offset)
            for number in range(first, len(rows)):
                row = rows[number]
                if row.first_offset < end_offset:
                    found.append(row)
                if row.last_stable_offset >= end_offset:
                    return found  # whatever ended later began later
        return found

    def _newest_aborted(self) -> list[AbortedTransaction]:
        newest = self.segments[-1]
        if newest.rule is not None:
            return newest.aborted()  # this process appends to it
        return rows_of(self.segments, len(self.segments) - 1, read_counts(newest.fs, newest.directory))

    def max_record_timestamp(self, limit_offset: int) -> int:
        """As ``max_timestamp``, but of records that readers see, not of markers and of batches that have lost
        their records. Reads every header: for when ``max_timestamp`` is nobody's."""
        newest = -1
        for segment in self.segments:
            position = 0
            while (chunk := segment.read(position, _BACK_BYTES, limit_offset)) is not None:
                for _, header in iter_headers(chunk.data):
                    if header.records_count and not header.is_control:
                        newest = max(newest, header.max_timestamp)
                position = chunk.end_position
        return newest

    def descriptions(self, limit_offset: int) -> list[SegmentDescription]:
        """What is public of the segments, with their newest timestamps below ``limit_offset``."""
        return [
            SegmentDescription(
                segment.base_offset,
                segment.next_offset,
                segment.size,
                segment.max_timestamp(limit_offset),
                segment.closed,
            )
            for segment in self.segments
        ]

    def facts(self, limit_offset: int) -> list[SegmentFacts]:
        """What retention decides from."""
        return [
            SegmentFacts(
                segment.base_offset,
                segment.next_offset,
                segment.size,
                segment.newest_ms(limit_offset),
            )
            for segment in self.segments
        ]


def _last_offset(row: AbortedTransaction) -> int:
    return row.last_offset


def _new_enough(data: Buffer, timestamp_ms: int) -> Iterator[TimestampFloor]:
    view, at = memoryview(data), 0
    while at < len(view):
        header = read_header(view, at)
        if header.max_timestamp >= timestamp_ms and header.records_count and not header.is_control:
            yield TimestampFloor(view[at : at + header.size], header.base_offset)
        at += header.size
