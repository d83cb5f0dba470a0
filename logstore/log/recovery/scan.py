"""Walk the batches of a segment file from a position on, a chunk at a time, and say what stops the walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from logstore.errors import CorruptBatchError, LogStoreError
from logstore.format.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_crc, read_header
from logstore.types import Buffer

_CHUNK_BYTES = 1 << 20
_INT32_MAX = 2**31 - 1


class BadBatch(NamedTuple):
    """Why a walk ended early. ``incomplete``: the file ends inside the batch; ``zeros``: nothing but zeros
    follows (size grew, content never came); ``error``: what a check of the batch said."""

    position: int
    incomplete: bool
    zeros: bool
    error: LogStoreError


class SegmentScan:
    """Iterate ``(position, header, batch bytes)`` over [start, end); afterwards ``bad`` and ``position`` tell.

    ``read(position, length)`` gives up to ``length`` bytes. With ``check`` every CRC is verified. Offsets
    must not go back below ``next_offset``; from ``gapless_from`` on they must not jump either: a checksum does
    not cover them. Our compaction leaves no gaps (batches without records stand for those that went), Kafka's
    does.
    """

    def __init__(
        self,
        read: Callable[[int, int], Buffer],
        *,
        start: int,
        end: int,
        next_offset: int,
        check: bool = True,
        max_batch_bytes: int | None = None,
        gapless_from: int | None = None,
    ) -> None:
        self._read = read
        self._end = end
        self._check = check
        self._max_batch_bytes = max_batch_bytes
        self._gapless_from = gapless_from
        self.position = start  # end of the last good batch
        self.next_offset = self._first_offset = next_offset
        self.bad: BadBatch | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        while self.position < self._end and self.bad is None:
            chunk = memoryview(self._read(self.position, min(_CHUNK_BYTES, self._end - self.position)))
            yield from self._walk(chunk)

    def _walk(self, chunk: memoryview) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield the whole batches of a chunk that starts at ``self.position``; fetch an oversized one."""
        base, at = self.position, 0
        while at < len(chunk):
            need = self._bytes_needed(chunk, at)
            if need is None:
                return
            if at + need > len(chunk):
                if at > 0:
                    return  # the next chunk starts at this batch
                chunk = memoryview(self._read(base, need))
                if len(chunk) < need:
                    self._stop(base, CorruptBatchError("the file ends inside a batch"), incomplete=True)
                    return
            header = self._checked(chunk, at)
            if header is None:
                return
            yield base + at, header, chunk[at : at + header.size]
            at += header.size
            self.position = base + at
            self.next_offset = header.next_offset

    def _bytes_needed(self, chunk: memoryview, at: int) -> int | None:
        """Size of the batch at ``at``, HEADER_SIZE if the chunk ends before the length field, None if bad."""
        position = self.position
        left = self._end - position
        if left < HEADER_SIZE:
            self._stop(position, CorruptBatchError("the file ends inside a batch header"), incomplete=True)
            return None
        if len(chunk) - at < HEADER_SIZE:
            return HEADER_SIZE
        length = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            self._stop(position, CorruptBatchError(f"batch length {length} is impossible"), incomplete=False)
            return None
        size = length + LOG_OVERHEAD
        if size > left:
            plausible = self._max_batch_bytes is None or size <= self._max_batch_bytes
            error = CorruptBatchError(
                f"a batch of {size} bytes starts {left} bytes before the end of the file"
            )
            self._stop(position, error, incomplete=plausible and self._head_fits(chunk, at))
            return None
        return size

    def _head_fits(self, chunk: memoryview, at: int) -> bool:
        """Whether the head of a cut-off batch is the one that was due here, not damage that looks like it."""
        base_offset = int.from_bytes(chunk[at : at + 8], "big", signed=True)
        return self._may_follow(base_offset) and chunk[at + 16] == 2

    @property
    def _gapless(self) -> bool:
        return self._gapless_from is not None and self.next_offset >= self._gapless_from

    def _may_follow(self, base_offset: int) -> bool:
        due = self.next_offset
        return base_offset == due if self._gapless else base_offset >= due

    def _checked(self, chunk: memoryview, at: int) -> BatchHeader | None:
        try:
            header = read_header(chunk, at)
            if self._check:
                check_crc(chunk, at, header)
            if header.last_offset - self._first_offset > _INT32_MAX:
                raise CorruptBatchError(f"offset {header.last_offset} is too far from the segment's start")
            if not self._may_follow(header.base_offset):
                more = "" if self._gapless else " or more"
                raise CorruptBatchError(f"offset {header.base_offset} where {self.next_offset}{more} was due")
        except LogStoreError as error:
            self._stop(self.position, error, incomplete=False)
            return None
        return header

    def _stop(self, position: int, error: LogStoreError, *, incomplete: bool) -> None:
        self.bad = BadBatch(position, incomplete, self._only_zeros(position), error)

    def _only_zeros(self, position: int) -> bool:
        while position < self._end:
            part = self._read(position, min(_CHUNK_BYTES, self._end - position))
            if not part or any(memoryview(part)):
                return False
            position += len(part)
        return True
