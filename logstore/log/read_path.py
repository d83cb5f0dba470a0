"""How the owner of a log reads it: from the tail in memory, else from the files, with places to go on at."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from logstore.errors import SegmentVanishedError
from logstore.log.segment import Chunk
from logstore.log.segment_list import Back, SegmentList
from logstore.log.tail_cache import TailCache
from logstore.log.transaction_index import AbortedTransaction

Answer = TypeVar("Answer")
_TRIES = 3
_CURSORS = 64  # places where sequential readers will go on, so that they need no index


class ReadPath:
    """Any number of threads. ``segments``: the log's list of the moment, replaced whenever it changes."""

    def __init__(self, where: str, tail: TailCache, segments: Callable[[], SegmentList]) -> None:
        self.where = where
        self.tail = tail
        self._segments = segments
        self._cursors: OrderedDict[int, tuple[int, int]] = OrderedDict()  # offset -> (segment base, position)

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        cached = self.tail.read(offset, max_bytes, limit_offset)
        if cached is not None:
            return Chunk(*cached)
        return self._retried(offset, lambda segments: self._read(segments, offset, max_bytes, limit_offset))

    def read_back(self, end_offset: int) -> Back | None:
        return self._retried(end_offset, lambda segments: segments.read_back(end_offset))

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return self._retried(start_offset, lambda segments: segments.aborted(start_offset, end_offset))

    def _retried(self, offset: int, read: Callable[[SegmentList], Answer]) -> Answer:
        """Start over when a file went while it was read: retention took it out of the list first."""
        for _ in range(_TRIES):
            segments = self._segments()
            try:
                return read(segments)
            except FileNotFoundError:
                if segments is self._segments():
                    raise
        raise SegmentVanishedError(
            f"{self.where}: the segment that holds offset {offset} vanishes as it is read",
            hint="read again from the log start offset",
            lost=(offset, offset + 1),
        )

    def _read(self, segments: SegmentList, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        hint = self._cursors.pop(offset, None)
        known = None
        if hint is not None and segments.segments[segments.floor(offset)].base_offset == hint[0]:
            known = hint[1]
        chunk = segments.read(offset, max_bytes, limit_offset, known)
        if chunk is not None:
            self._remember(segments, chunk)
        return chunk

    def _remember(self, segments: SegmentList, chunk: Chunk) -> None:
        base = segments.segments[segments.floor(chunk.next_offset)].base_offset
        # Behind the last batch of a segment the next read starts at the next segment's first byte.
        position = 0 if base == chunk.next_offset else chunk.end_position
        self._cursors[chunk.next_offset] = (base, position)
        while len(self._cursors) > _CURSORS:
            try:
                self._cursors.popitem(last=False)
            except KeyError:
                break  # another reader took the last one

    def forget(self) -> None:
        """Files changed under it: the tail and all places go."""
        self.tail.clear()
        self._cursors.clear()
