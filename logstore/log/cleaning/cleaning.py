"""One cleaning of one partition, in steps: read what is dirty, write what stays, put it in place.

Closed segments only, below the high watermark and the last stable offset. The keys of the dirty section are
mapped to their last offsets; then every segment from the log's first on is held against that map, in groups of
neighbours that fit one segment. A group that would come out as it is is left alone; any other is written anew
beside the old files and swapped in (``swap.py``) before the next one begins, oldest first: so a tombstone never
goes before the values that it deletes. What it costs beside its time: the key map, and the disk space of the
largest group.

One thread at a time, which may be another than the log's users: readers see the old segments or the new ones.
Retention may take segments from the front between two steps.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from logstore.errors import CorruptBatchError, from_os_error
from logstore.format.batch import BatchHeader, records_section
from logstore.format.record_spans import key_column
from logstore.format.varint import INT32_MAX
from logstore.invariants import invariant
from logstore.log.cleaning import swap
from logstore.log.cleaning.cleaned_output import ChangeWatch, CleanedOutput
from logstore.log.cleaning.cleaner_mark import raise_mark
from logstore.log.cleaning.compaction import (
    AbortedRanges,
    Compaction,
    CompactionRules,
    Decision,
    Erasure,
    SegmentSize,
    first_group,
)
from logstore.log.cleaning.key_offsets import KeyOffsets
from logstore.log.cleaning.retirement import Retirement
from logstore.log.cleaning.swap import HalfPlacedError, Swap
from logstore.log.owned_log import OwnedLog
from logstore.log.producers import transaction_index
from logstore.log.producers.lost_rows import rows_from_markers
from logstore.log.producers.row_counts import note_counts, read_counts
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.recovery.scan import SegmentScan
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import Segment
from logstore.seams.clock import Clock
from logstore.seams.fs import exists

logger = logging.getLogger(__name__)

_Steps: TypeAlias = Generator[None, None, None]  # one item is the smallest piece of work
_KEYS_AT_ONCE = 500  # entered in one step: in a large map each costs a few cache misses


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanRequest:
    """What to clean, and the settings that count. Offsets need not be those of segments or batches.

    ``start_offset``: first dirty offset, the key map starts there; ``end_offset``: nothing at or past it is
    touched; ``now_ms``: wall clock, for horizons; ``key_map_bytes``: bound of the key map;
    ``active_producers``: producer id -> last offset of its last data batch, which stays, if only without
    records, for ``producer_expiration_ms``; ``erase``: instead of compacting, drop every record with one of these
    keys below ``end_offset`` (no key map, no tombstones, no merging); ``file_delete_delay_s``: how long old files
    stay as `.deleted`, 0 removes them at once.
    """

    start_offset: int
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    key_map_bytes: int
    active_producers: Mapping[int, int]
    producer_expiration_ms: int = 86_400_000
    erase: frozenset[bytes] | None = None
    file_delete_delay_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanResult:
    """``cleaned_to``: the new first dirty offset (a full key map: less than asked). Counts are of the segments
    looked at. ``next_horizon_ms``: the earliest delete horizon still to come, when another cleaning will have
    something to remove; -1 if there is none. ``tombstones``: those that stay, and wait for their horizon;
    ``removed_tombstones``: those whose horizon has passed (one that a newer record replaces is not counted)."""

    cleaned_to: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    segments_before: int
    segments_after: int
    next_horizon_ms: int
    tombstones: int = 0
    removed_tombstones: int = 0


class CleanProgress(NamedTuple):
    """``phase``: "map", "write", "swap" or "done"; bytes of both passes together."""

    phase: str
    bytes_done: int
    bytes_total: int


class _SegmentsChangedError(Exception):
    """Retention took segments from under the cleaning; it goes on with those that are left."""


@dataclass(slots=True)
class _Tally:
    """Counts of one group, added to the whole once the group is done."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    next_horizon_ms: int = -1
    tombstones: int = 0
    removed_tombstones: int = 0

    def count(self, header: BatchHeader, decision: Decision, now_ms: int) -> None:
        self.records_before += header.records_count
        self.records_after += decision.records
        self.tombstones += decision.tombstones
        self.removed_tombstones += decision.removed_tombstones
        self._note_horizon(decision.horizon_ms, now_ms)

    def _note_horizon(self, horizon_ms: int, now_ms: int) -> None:
        if horizon_ms > now_ms and not 0 <= self.next_horizon_ms <= horizon_ms:
            self.next_horizon_ms = horizon_ms

    def add(self, other: _Tally) -> None:
        self.bytes_before += other.bytes_before
        self.bytes_after += other.bytes_after
        self.records_before += other.records_before
        self.records_after += other.records_after
        self.segments_before += other.segments_before
        self.segments_after += other.segments_after
        self.tombstones += other.tombstones
        self.removed_tombstones += other.removed_tombstones
        self._note_horizon(other.next_horizon_ms, -1)


class Cleaning:
    """``step`` until it gives a result, or ``cancel``. ``largest_bytes``: what a position in an index can say;
    a segment that grew past it (its codec packs worse now) is cut in two.

    Errors of a step: ``CorruptBatchError`` with path and position, ``DiskFullError``, ``StorageError``,
    ``PartitionPoisonedError``, ``MissingExtraError``. The cleaning is over then; groups that were swapped
    already stay so, the rest of the log is as before, and temporary files are gone as far as possible.
    """

    def __init__(
        self,
        log: OwnedLog,
        pool: FilePool,
        clock: Clock,
        retirement: Retirement,
        request: CleanRequest,
        *,
        largest_bytes: int = INT32_MAX,
    ) -> None:
        self._log = log
        self._pool = pool
        self._clock = clock
        self._retirement = retirement
        self._request = request
        self._largest_bytes = largest_bytes
        self._phase = "map"
        self._bytes_done = 0
        self._bytes_total = 0
        self._tally = _Tally()
        self._result: CleanResult | None = None
        self._over = False
        self._end = request.end_offset
        self._at = -1  # base offset of the first segment that is not done
        self._output: CleanedOutput | None = None
        self._work = self._run()

    @property
    def progress(self) -> CleanProgress:
        done = self._bytes_total if self._phase == "done" else min(self._bytes_done, self._bytes_total)
        return CleanProgress(self._phase, done, self._bytes_total)

    def step(self, budget_s: float) -> CleanResult | None:
        """Work for about that many seconds, at least on one batch; None: there is more to do."""
        if self._result is None:
            invariant(not self._over, "a cleaning that failed or was cancelled takes no step")
            until_s = self._clock.monotonic_s() + budget_s
            try:
                for _ in self._work:
                    if self._clock.monotonic_s() >= until_s:
                        return None
            except OSError as error:
                self.cancel()
                raise from_os_error(error, "clean", self._log.directory) from error
            except BaseException:  # an interrupt, too: the generator is at its end
                self.cancel()
                raise
        return self._result

    def cancel(self) -> None:
        """Give up, and remove the temporary files. Groups that were swapped stay so. Never raises."""
        if self._result is not None or self._over:
            return
        self._over = True
        self._work.close()
        self._drop_output()

    # --- the whole ---

    def _run(self) -> _Steps:
        request = self._request
        self._settle()
        yield
        bounds = self._log.bounds()
        end = min(request.end_offset, bounds.high_watermark, bounds.last_stable_offset)
        self._log.segments.check_whole(bounds.log_start_offset)  # a cleaned log would hide what is missing
        segments = self._closed_below(end)
        end = min(end, segments[-1].next_offset) if segments else min(end, request.start_offset)
        self._bytes_total = sum(segment.size for segment in segments)
        judge: Compaction | Erasure
        keys: KeyOffsets | None = None
        aborted = AbortedRanges(self._aborted_rows())
        if request.erase is not None:
            judge = Erasure(request.erase, end)
        else:
            keys = KeyOffsets(request.key_map_bytes, min(request.start_offset, end))
            yield from self._map(segments, keys, end, aborted)
            yield from keys.settle()
            end = keys.end_offset
            rules = CompactionRules(
                now_ms=request.now_ms,
                delete_retention_ms=request.delete_retention_ms,
                active_producers=request.active_producers,
                producer_expiration_ms=request.producer_expiration_ms,
            )
            judge = Compaction(rules, keys, aborted)
        self._phase, self._end = "write", end
        while group := self._next_group(end):
            mark = judge.mark()
            try:
                yield from self._group(group, judge, aborted)
            except (FileNotFoundError, _SegmentsChangedError):
                self._drop_output()
                if self._is_current(group):
                    raise
                judge.return_to(mark)
        if keys is not None:
            yield from keys.release()
        self._phase = "done"
        tally = self._tally
        self._result = CleanResult(
            cleaned_to=end,
            bytes_before=tally.bytes_before,
            bytes_after=tally.bytes_after,
            records_before=tally.records_before,
            records_after=tally.records_after,
            segments_before=tally.segments_before,
            segments_after=tally.segments_after,
            next_horizon_ms=tally.next_horizon_ms,
            tombstones=tally.tombstones,
            removed_tombstones=tally.removed_tombstones,
        )

    def _settle(self) -> None:
        """Remove what an earlier cleaning left when the disk refused to let it clear up."""
        fs, directory = self._pool.fs, self._log.directory
        fs.sync_dir(directory)  # what was removed must not come back after what follows
        names = fs.listdir(directory)
        for left in swap.pending(fs, directory, names):
            if left.is_placed(fs):
                current = {segment.base_offset for segment in self._log.segments.segments}
                gone = tuple(row for row in left.old if row[0] not in current)
                left._replace(old=gone).finish(fs)
            else:
                left.undo(fs)
        for name in fs.listdir(directory):
            if name.endswith(swap.CLEANED_SUFFIX):
                fs.remove(f"{directory}/{name}")
        fs.sync_dir(directory)

    def _closed_below(self, end: int) -> list[Segment]:
        high_watermark = self._log.high_watermark
        return [
            segment
            for segment in self._log.segments.segments[:-1]
            if segment.closed and segment.base_offset < end and segment.next_offset <= high_watermark
        ]

    def _aborted_rows(self) -> list[AbortedTransaction]:
        """Of the whole log: the marker of a transaction may lie far behind its data."""
        rows: list[AbortedTransaction] = []
        segments = self._log.segments.segments
        counts = read_counts(self._pool.fs, self._log.directory)
        for number, segment in enumerate(segments):
            path = segment.path(transaction_index.SUFFIX)
            found = transaction_index.read_rows(self._pool.fs, path, segment.base_offset)
            if len(found) < counts.get(segment.base_offset, 0):
                found = rows_from_markers(segments[: number + 1])
            rows += found
        return rows

    def _is_current(self, group: Sequence[Segment]) -> bool:
        current = self._log.segments.segments
        return all(any(segment is one for one in current) for segment in group)

    # --- the key map ---

    def _map(self, segments: Sequence[Segment], keys: KeyOffsets, end: int, aborted: AbortedRanges) -> _Steps:
        start = keys.end_offset
        dirty = [segment for segment in segments if segment.next_offset > start]
        self._bytes_total += sum(segment.size for segment in dirty)
        for segment in dirty:
            try:
                position = 0 if segment.base_offset >= start else segment.locate(start)
                for _, header, data in self._batches(segment, segment.size if position is None else position):
                    if header.base_offset >= end:
                        break
                    self._bytes_done += header.size
                    if header.records_count and not header.is_control and not aborted.covers(header):
                        yield  # a batch in two steps: an appending thread waits for one at the most
                        yield from self._enter(keys, header, data, start, end)
                        if keys.full:
                            return
                    yield
            except FileNotFoundError:
                if self._is_current([segment]):
                    raise
                # Retention took it: nothing of it is left to be compared with.
        keys.end_offset = end

    @staticmethod
    def _enter(keys: KeyOffsets, header: BatchHeader, data: memoryview, start: int, end: int) -> _Steps:
        """The records of a batch that have a key, in [start, end)."""
        column = key_column(records_section(data, 0, header), header.records_count)
        yield
        base, deltas, nulls = header.base_offset, column.deltas, column.nulls
        if deltas[-1] > header.last_offset_delta:
            raise CorruptBatchError(
                f"offset {base + deltas[-1]} of a record is past its batch's last, {header.last_offset}"
            )
        found: Sequence[bytes | None] = column.keys
        offsets: Sequence[int] = range(base, base + len(deltas))
        if type(deltas) is not range:
            offsets = [base + delta for delta in deltas]
        if base < start or header.last_offset >= end or None in found:
            chosen = [
                number
                for number, (key, offset) in enumerate(zip(found, offsets, strict=True))
                if key is not None and start <= offset < end
            ]
            gone = frozenset(nulls)
            nulls = [place for place, number in enumerate(chosen) if number in gone]
            found, offsets = [found[number] for number in chosen], [offsets[number] for number in chosen]
        covered = min(header.next_offset, end)
        for first in range(0, len(found), _KEYS_AT_ONCE):
            past = first + _KEYS_AT_ONCE
            here = [number - first for number in nulls[bisect_left(nulls, first) : bisect_left(nulls, past)]]
            up_to = offsets[past] if past < len(offsets) else covered
            if not keys.add(found[first:past], offsets[first:past], up_to, here):  # type: ignore[arg-type]
                return
            yield
        keys.end_offset = covered

    def _batches(self, segment: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Every batch from ``position`` on, its CRC checked. CorruptBatchError with path and position."""
        scan = SegmentScan(
            segment.bytes_at, start=position, end=segment.size, next_offset=segment.base_offset
        )
        yield from scan
        if scan.bad is not None:
            path = segment.path()
            raise CorruptBatchError(
                f"cannot clean {path}, at byte {scan.bad.position}: {scan.bad.error.message}",
                hint="`logstore log verify` says what else is damaged, `logstore log salvage` copies the rest",
                path=path,
                position=scan.bad.position,
            )

    # --- groups ---

    def _next_group(self, end: int) -> list[Segment]:
        segments = [segment for segment in self._closed_below(end) if segment.base_offset >= self._at]
        if not segments or self._request.erase is not None:
            return segments[:1]
        sizes: list[SegmentSize] = []
        size = 0
        for segment in segments:
            size += segment.size
            if sizes and size > self._request.segment_bytes:
                break
            sizes.append(
                SegmentSize(
                    segment.base_offset, segment.next_offset, segment.size, self._index_bytes(segment)
                )
            )
        count = first_group(
            sizes,
            segment_bytes=self._request.segment_bytes,
            segment_index_bytes=self._request.segment_index_bytes,
        )
        return segments[:count]

    def _index_bytes(self, segment: Segment) -> int:
        largest = 0
        for suffix in (offset_index.SUFFIX, time_index.SUFFIX):
            try:
                largest = max(largest, self._pool.fs.stat(segment.path(suffix)).size)
            except FileNotFoundError:
                continue  # made anew by whoever needs it
        return largest

    def _group(self, group: Sequence[Segment], judge: Compaction | Erasure, aborted: AbortedRanges) -> _Steps:
        mark, done = judge.mark(), self._bytes_done
        before = sum(segment.size for segment in group)
        tally = _Tally(bytes_before=before, segments_before=len(group))
        if len(group) == 1:
            watch = ChangeWatch()
            yield from self._judged(group, judge, tally, watch)
            if not watch.changed:
                tally.bytes_after, tally.segments_after = before, 1
                self._finish_group(group, tally)
                return
            judge.return_to(mark)
            self._bytes_done = done
            tally = _Tally(bytes_before=before, segments_before=1)
        output = self._output = CleanedOutput(
            self._pool,
            self._log.directory,
            group[0].base_offset,
            self._request.index_interval_bytes,
            self._largest_bytes,
            aborted,
        )
        yield from self._judged(group, judge, tally, output)
        self._phase = "swap"
        yield from output.close(any(self._has_transactions(segment) for segment in group))
        self._swap(group, output, tally)
        self._output = None
        self._finish_group(group, tally)
        self._phase = "write"
        yield

    def _has_transactions(self, segment: Segment) -> bool:
        return exists(self._pool.fs, segment.path(transaction_index.SUFFIX))

    def _finish_group(self, group: Sequence[Segment], tally: _Tally) -> None:
        self._tally.add(tally)
        self._at = group[-1].next_offset

    def _judged(
        self,
        group: Sequence[Segment],
        judge: Compaction | Erasure,
        tally: _Tally,
        sink: ChangeWatch | CleanedOutput,
    ) -> _Steps:
        """Every batch of the group decided upon, and given to the sink until that has seen enough."""
        for segment in group:
            for _, header, data in self._batches(segment):
                yield
                decision = judge.decide(header, data)
                yield
                tally.count(header, decision, self._request.now_ms)
                self._bytes_done += header.size
                sink.take(header, data, decision)
                if sink.is_done:
                    return
                yield
                if not self._is_current(group):
                    raise _SegmentsChangedError
        sink.end()

    def _swap(self, group: Sequence[Segment], output: CleanedOutput, tally: _Tally) -> None:
        """The new segments become the log's. A failure before they are in place leaves the old ones."""
        fs, directory = self._pool.fs, self._log.directory
        if self._request.erase is None:
            raise_mark(fs, directory, self._end)
        new_bases = {writer.base_offset for writer in output.writers}
        gone = [segment for segment in group if segment.base_offset not in new_bases]
        exchange = output.swap = Swap(
            directory,
            tuple((writer.base_offset, writer.size) for writer in output.writers),
            tuple((segment.base_offset, segment.next_offset) for segment in gone),
        )
        # The new indexes may have fewer rows than the old ones: until they are in place nothing is promised.
        note_counts(fs, directory, {}, gone=[segment.base_offset for segment in group])
        exchange.commit(fs)
        new = output.segments(group[-1].next_offset)
        refused: list[OSError] = []
        interrupts: list[BaseException] = []

        def place() -> None:
            output.placed = True  # nothing may be taken back once a rename was tried, whatever ends it
            try:
                error = exchange.place(fs)
            except HalfPlacedError:
                raise  # the log is poisoned, and recovery goes on
            except OSError:
                output.placed = False
                raise
            except BaseException as interrupt:  # noqa: BLE001 - raised when the swap is through
                interrupts.append(interrupt)
                error = exchange.place(fs, again=True)
            if error is not None:
                refused.append(error)

        if not self._log.replace_segments(group, new, place):
            raise _SegmentsChangedError
        tally.bytes_after, tally.segments_after = sum(segment.size for segment in new), len(new)
        try:
            note_counts(fs, directory, output.row_counts)
        except OSError as error:
            logger.warning("%s: the next start counts aborted transactions: %s", directory, error)
        except BaseException as interrupt:  # noqa: BLE001 - raised below
            interrupts.append(interrupt)
        if refused:
            raise refused[0]  # the rest is for the next cleaning, or for recovery
        self._finish_swap(exchange, gone)
        if interrupts:
            raise interrupts[0]

    def _finish_swap(self, exchange: Swap, gone: Sequence[Segment]) -> None:
        """What follows the renames; an interrupt is let out when it is done all the same."""
        fs, delay_s = self._pool.fs, self._request.file_delete_delay_s
        retire: Callable[[], None] | None = None
        if delay_s > 0:
            due_s = self._clock.monotonic_s() + delay_s
            retire = partial(self._retirement.retire, self._log.directory, gone, due_s)
        try:
            exchange.finish(fs, retire)
        except OSError:
            raise  # the next cleaning goes on, or recovery
        except BaseException:
            exchange.finish(fs, retire)
            raise

    def _drop_output(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            try:
                output.drop()
            except OSError as error:
                logger.warning(
                    "temporary files of a cleaning stay in %s until the next one: %s",
                    self._log.directory,
                    error,
                )
