"""Cleanings for tests of what drives them: one that only keeps a diary, and a plain one that rewrites files."""

from __future__ import annotations

from typing import Any

from logstore.errors import LogStoreError
from logstore.format.batch import decode_batches, encode_batch, iter_headers
from logstore.log.cleaning.cleaning import CleanProgress, CleanRequest, CleanResult
from logstore.log.segments.segment import Segment
from logstore.log.segments.segment_list import SegmentList
from logstore.seams.clock import ManualClock
from logstore.seams.fs import replace_file


def result(request: CleanRequest, **fields: int) -> CleanResult:
    numbers: dict[str, int] = {
        "cleaned_to": request.end_offset,
        "bytes_before": 1000,
        "bytes_after": 400,
        "records_before": 10,
        "records_after": 4,
        "segments_before": 3,
        "segments_after": 1,
        "next_horizon_ms": -1,
    }
    return CleanResult(**(numbers | fields))


class Diary:
    """Makes cleanings that take ``steps`` slices of ``work_ms`` each, or fail with ``error`` in the last one.

    ``made``: requests with their partition; ``slices``: (monotonic ms, budget s); ``cancelled``: how many."""

    def __init__(self, clock: ManualClock, *, steps: int = 3, work_ms: int = 1) -> None:
        self.clock, self.steps, self.work_ms = clock, steps, work_ms
        self.error: Exception | None = None
        self.fields: dict[str, int] = {}
        self.made: list[tuple[str, CleanRequest]] = []
        self.slices: list[tuple[int, float]] = []
        self.cancelled = 0
        self.during: Any = None  # called in each slice

    def __call__(self, log: Any, pool: Any, clock: Any, retirement: Any, request: CleanRequest) -> Any:
        self.made.append((log.where, request))
        return _Written(self, request)


class _Written:
    def __init__(self, diary: Diary, request: CleanRequest) -> None:
        self._diary, self._request, self._left = diary, request, diary.steps

    def step(self, budget_s: float) -> CleanResult | None:
        diary = self._diary
        diary.slices.append((round(diary.clock.monotonic_s() * 1000), budget_s))
        if diary.during is not None:
            diary.during()
        diary.clock.advance(diary.work_ms)
        self._left -= 1
        if self._left > 0:
            return None
        if diary.error is not None:
            raise diary.error
        return result(self._request, **diary.fields)

    def cancel(self) -> None:
        self._diary.cancelled += 1

    @property
    def progress(self) -> CleanProgress:
        return CleanProgress("write", self._diary.steps - self._left, self._diary.steps)


class PlainCleaning:
    """Last value of each key, or erasure; whole log in memory, one segment a step, no crash in mind."""

    fail: LogStoreError | None = None

    def __init__(self, log: Any, pool: Any, clock: Any, retirement: Any, request: CleanRequest) -> None:
        del clock, retirement
        self._log, self._pool, self._request = log, pool, request
        self._todo = [s for s in log.segments.segments if s.closed and s.next_offset <= request.end_offset]
        self._count = len(self._todo)
        self._last: dict[bytes | None, int] = {}
        self._sums = [0, 0, 0, 0]
        for segment in self._todo:
            for record in decode_batches(segment.bytes_at(0, segment.size), "", 0):
                self._last[record.key] = record.offset

    def _keeps(self, record: Any) -> bool:
        if self._request.erase is not None:
            return record.key not in self._request.erase
        return self._last[record.key] == record.offset

    def step(self, budget_s: float) -> CleanResult | None:
        del budget_s
        if self.fail is not None:
            raise self.fail
        if self._todo:
            self._rewrite(self._todo.pop(0))
        if self._todo:
            return None
        before, after, read, kept = self._sums
        return CleanResult(
            cleaned_to=self._request.end_offset,
            bytes_before=before,
            bytes_after=after,
            records_before=read,
            records_after=kept,
            segments_before=self._count,
            segments_after=self._count,
            next_horizon_ms=-1,
        )

    def _rewrite(self, old: Segment) -> None:
        data = memoryview(old.bytes_at(0, old.size))
        parts: list[bytes] = []
        for position, header in iter_headers(data):
            for record in decode_batches(data[position : position + header.size], "", 0):
                self._sums[2] += 1
                if self._keeps(record):
                    self._sums[3] += 1
                    row = (record.key, record.value, record.headers, record.timestamp_ms)
                    parts.append(
                        encode_batch(
                            [row], now_ms=0, base_offset=record.offset, leader_epoch=header.leader_epoch
                        )
                    )
        content = b"".join(parts)
        self._sums[0] += old.size
        self._sums[1] += len(content)
        for suffix in (".index", ".timeindex"):
            self._pool.forget_file(old.path(suffix))
            self._pool.fs.remove(old.path(suffix))
        self._pool.forget_file(old.path())
        replace_file(self._pool.fs, old.path(), content)
        new = Segment(
            self._pool, old.directory, old.base_offset, size=len(content), next_offset=old.next_offset
        )
        new.rewrite_indexes(4096)
        self._log.segments = SegmentList([new if s is old else s for s in self._log.segments.segments])

    def cancel(self) -> None:
        self._todo.clear()

    @property
    def progress(self) -> CleanProgress:
        return CleanProgress("write" if self._todo else "done", self._count - len(self._todo), self._count)
