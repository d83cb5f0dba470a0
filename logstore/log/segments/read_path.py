"""How the owner of a log reads it: from the tail in memory, else from the files, with places to go on at."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from logstore.errors import SegmentVanishedError
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.segments.segment import Chunk, Segment
from logstore.log.segments.segment_list import Back, SegmentList
from logstore.log.segments.tail_cache import TailCache

Answer = TypeVar("Answer")
_TRIES = 5
_CURSORS = 64  # places where sequential readers will go on, so that they need no index


class ReadPath:
    """Any number of threads. ``segments``: the log's list of the moment, replaced whenever it changes, with
    ``lock`` held."""

    def __init__(
        self,
        where: str,
        tail: TailCache,
        segments: Callable[[], SegmentList],
        lock: AbstractContextManager[Any],
    ) -> None:
        self.where = where
        self.tail = tail
        self._segments = segments
        self._lock = lock
        # offset -> (segment, position); the segment itself, since a cleaned one has the same base
        self._cursors: OrderedDict[int, tuple[Segment, int]] = OrderedDict()

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        cached = self.tail.read(offset, max_bytes, limit_offset)
        if cached is not None:
            return Chunk(*cached)
        return self._retried(offset, lambda segments: self._read(segments, offset, max_bytes, limit_offset))

    def read_back(self, end_offset: int) -> Back | None:
        return self._retried(end_offset, lambda segments: segments.read_back(end_offset))

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return self._retried(start_offset, lambda segments: segments.aborted(start_offset, end_offset))

    def look(self, read: Callable[[SegmentList], Answer]) -> Answer:
        """What ``read`` makes of the segments, of one list from beginning to end. Errors as ``read``."""
        return self._retried(0, read)

    def _retried(self, offset: int, read: Callable[[SegmentList], Answer]) -> Answer:
        """Start over when a file went while it was read: retention took it out of the list first, or a
        cleaning is about to put another list there, and holds the lock until it has."""
        missed: SegmentList | None = None
        for _ in range(_TRIES):
            segments = self._segments()
            try:
                return read(segments)
            except FileNotFoundError:
                with self._lock:
                    if segments is self._segments() and segments is missed:
                        raise
                missed = segments
        raise SegmentVanishedError(
            f"{self.where}: the segment that holds offset {offset} vanishes as it is read",
            hint="read again from the log start offset",
            lost=(offset, offset + 1),
        )

    def _read(self, segments: SegmentList, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        hint = self._cursors.pop(offset, None)
        known = None
        if hint is not None and segments.segments[segments.floor(offset)] is hint[0]:
            known = hint[1]
        chunk = segments.read(offset, max_bytes, limit_offset, known)
        if chunk is not None:
            self._remember(segments, chunk)
        return chunk

    def _remember(self, segments: SegmentList, chunk: Chunk) -> None:
        segment = segments.segments[segments.floor(chunk.next_offset)]
        # Behind the last batch of a segment the next read starts at the next segment's first byte.
        position = 0 if segment.base_offset == chunk.next_offset else chunk.end_position
        self._cursors[chunk.next_offset] = (segment, position)
        while len(self._cursors) > _CURSORS:
            try:
                self._cursors.popitem(last=False)
            except KeyError:
                break  # another reader took the last one

    def forget(self) -> None:
        """Files changed under it: the tail and all places go."""
        self.tail.clear()
        self._cursors.clear()
