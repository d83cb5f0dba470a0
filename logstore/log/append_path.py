"""``AppendPath``: what an append of one batch touches of a log, from its lock to what readers may see, and its sync.

Every step counts here, after a sync above all, when code and objects are cold; whatever is unusual (several batches,
a term of a leader, a roll, a failed write) is left to ``OwnedLog``, and a failed sync to ``SyncedLog``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from logstore.config import TopicConfig
from logstore.errors import LogStoreError
from logstore.format.batch import HEADER_SIZE, STAMP_SIZE, TRANSACTIONAL_BIT, BatchHeader, stamp, stamped
from logstore.invariants import invariant
from logstore.log.append_validation import CheckedBatch
from logstore.log.commit_policy import CommitPolicy
from logstore.log.epochs import Epochs
from logstore.log.log_offsets import Appended, LogOffsets, Waiter
from logstore.log.producers.producer_journal import ProducerJournal
from logstore.log.producers.producer_state import SEQUENCE_MASK
from logstore.log.segments.held_file import HeldFile
from logstore.log.segments.segment import Segment
from logstore.log.segments.segment_list import SegmentList
from logstore.log.segments.tail_cache import TailCache
from logstore.log.segments.time_index import ROW_BYTES as LARGEST_ROW
from logstore.native import compiled
from logstore.seams.clock import Clock
from logstore.seams.fs import File, write_all
from logstore.types import Buffer

LONE_TERM: Final = -1
"""No term: the log's own epoch, of a node that leads because it is alone."""
_COPIED_BYTES = 2048  # a batch up to this is written as one buffer
_MOST_TOGETHER = 128  # batches of one write: with two parts each a quarter of what the system takes


@compiled("log.appending")
class AppendPath:
    """The positions of a log, its quick append and its sync. ``_lock`` is held wherever one of these fields changes;
    ``_sync_lock`` lets one sync run at a time."""

    def __init__(self) -> None:
        self.log_start_offset = self.log_end_offset = self.flushed_offset = self.high_watermark = 0
        self.unsynced_records = self.syncs = 0
        self.dirty_since_s = 0.0
        self.store_rows = 256  # index rows kept back before they are written to the file
        self.shows_appended = False
        self._failure: LogStoreError | None = None

    config: TopicConfig
    epochs: Epochs
    segments: SegmentList
    tail: TailCache
    producers: ProducerJournal
    commit_policy: CommitPolicy
    _held: HeldFile
    _clock: Clock
    _lock: threading.Lock
    _sync_lock: threading.Lock
    _waiters: dict[Waiter, None]
    _publish: Callable[[Any], None]
    _on_dirty: Callable[[Any], None]
    _roll_jitter_ms: int

    if TYPE_CHECKING:

        def _append_carefully(
            self, batches: Sequence[CheckedBatch], expected_offset: int | None, term: int
        ) -> Appended: ...
        def _append_run(
            self, batches: Sequence[CheckedBatch], start: int, epoch: int, count: int | None = None
        ) -> int: ...
        def _must_roll(
            self, segment: Segment, batch: CheckedBatch, size: int, offset: int, first_ms: int
        ) -> bool: ...
        def _writing_epoch(self, term: int) -> int: ...
        def _segment_for(self, batch: CheckedBatch) -> Segment: ...
        def _take_back_written(self, segment: Segment, file: File, error: BaseException) -> None: ...
        def wake_waiters(self) -> None: ...
        def _sync_now(self) -> None: ...

    @property
    def dirty(self) -> bool:
        return self.flushed_offset < self.log_end_offset

    def bounds(self) -> LogOffsets:
        high_watermark = self.high_watermark  # before the other: a transaction that ends moves it first
        unstable = self.producers.first_unstable
        stable = high_watermark if unstable is None else min(unstable, high_watermark)
        return LogOffsets(
            self.log_start_offset, high_watermark, stable, self.log_end_offset, self.epochs.latest
        )

    def shown(self) -> tuple[int, int, int, int, int, int, int]:
        """What other processes are to know, in the order of ``LiveBoard.publish``."""
        bounds, active = self.bounds(), self.segments.active
        base, position = (self.log_end_offset, 0) if active is None else (active.base_offset, active.size)
        return (*bounds[:4], base, position, bounds.leader_epoch)

    def append(
        self, batches: Sequence[CheckedBatch], expected_offset: int | None = None, term: int = LONE_TERM
    ) -> Appended:
        """As leader: give offsets and the epoch, write, index. One write call for all batches of a segment.

        The batches were checked (``append_validation``). ``expected_offset``: append only if the log ends
        there, else ``OffsetMismatchError``. ``term``: under which the caller leads, else the log's own;
        ``FencedLeaderEpochError`` if the log knows a newer one. Other errors: ``DiskFullError`` or ``StorageError``
        (the log is as before), ``PartitionPoisonedError``; ``StorageError`` or ``OutcomeUnknownError`` that say so
        when batches that take more than one segment got in only in part.
        """
        with self._lock:
            if (
                self._failure is not None
                or term != LONE_TERM
                or len(batches) != 1
                or not (expected_offset is None or expected_offset == self.log_end_offset)
            ):
                return self._append_carefully(batches, expected_offset, term)
            lone, base = batches[0], self.log_end_offset
            if (
                lone.header.producer_id >= 0
                and (known := self.producers.repeated_one(lone.header)) is not None
            ):
                return known  # it was stored before, and only the answer got lost
            self._append_one(lone)
            return Appended(base, self.log_end_offset)

    def append_run(self, batches: list[CheckedBatch]) -> list[Appended]:
        """As leader of a lone node: as many batches as the active segment takes, from the first on, with one write;
        where each of them is. None of them, where ``append`` has more to ask: of one batch, of a repeated one, of a
        roll. Errors as ``append``; then none is in."""
        with self._lock:
            segment, epoch, count = self.segments.active, self.epochs.latest, 0
            if self._failure is not None or epoch < 0 or segment is None or segment.closed:
                return []
            most = min(_MOST_TOGETHER, (self.config.segment_index_bytes - segment.index_bytes) // LARGEST_ROW)
            before: BatchHeader | None = None
            while count < min(len(batches), most) and _goes_with(batches[count].header, before):
                before = batches[count].header
                count += 1
            end, first = self.log_end_offset, batches[0]
            if count < 2 or self._must_roll(segment, first, segment.size, end, segment.first_timestamp_ms):
                return []
            if first.header.producer_id >= 0 and self.producers.repeated_one(first.header) is not None:
                return []
            placed = []
            for batch in batches[: self._append_run(batches, 0, epoch, count)]:
                start, end = end, end + batch.header.last_offset_delta + 1
                placed.append(Appended(start, end))
            return placed

    def _append_one(self, batch: CheckedBatch) -> None:
        """The way of one data batch, which most appends are: as that of several, without their loops."""
        epoch = self.epochs.latest
        if epoch < 0:
            epoch = self._writing_epoch(LONE_TERM)
        segment = self._segment_for(batch)
        data, header = batch
        size = len(data)
        invariant(size >= HEADER_SIZE, "a checked batch has its header")
        offset, position, was_dirty = self.log_end_offset, segment.size, self.dirty
        # One buffer is written faster than two, and is one object in the tail cache instead of four.
        parts: tuple[Buffer, ...]
        if size <= _COPIED_BYTES:
            parts = (stamped(data, offset, epoch),)
        else:
            parts = (stamp(data, offset, epoch), data[STAMP_SIZE:])
        self._write(segment, parts)
        last = offset + header.last_offset_delta
        if header.producer_id >= 0:
            self.producers.note(header, data, offset)
        entered = segment.note_appended(position, size, last, header.max_timestamp)
        self.tail.add(offset, last + 1, position + size, parts, size)
        self._count(segment, last + 1, was_dirty, entered)

    def _write(self, segment: Segment, buffers: Sequence[Buffer]) -> None:
        file = self._held.file
        if file is None:
            file = self._hold(segment)
        try:
            write_all(file, buffers, segment.size)  # behind what is valid: it may be cut back to that
        except BaseException as error:
            self._take_back_written(segment, file, error)
            raise

    def _hold(self, segment: Segment) -> File:
        """The segment's file, which stays open until what is written to it is synced."""
        file = self._held.hold(segment)
        self.dirty_since_s = self._clock.monotonic_s()
        return file

    def _count(self, segment: Segment, offset: int, was_dirty: bool, entered: bool) -> None:
        """The log reaches to ``offset`` now; ``entered``: the segment's indexes have got new rows."""
        self.unsynced_records += offset - self.log_end_offset
        self.log_end_offset = offset
        if not was_dirty:
            self._on_dirty(self)
        if entered and segment.unstored_rows >= self.store_rows:
            try:
                segment.store_indexes()
            except OSError:
                pass  # the batches are in; the rows wait in memory for the next try, a checkpoint or a roll
        if self.shows_appended:
            self._advance_high_watermark(offset)
            self._publish(self)  # else nothing that other processes may see has changed before the sync

    def _advance_high_watermark(self, offset: int) -> None:
        """The one place where the high watermark moves. The lock is held; ``offset`` lies between two batches."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.first_unstable is not None:
                self.producers.settle(offset)
            if self._waiters:
                self.wake_waiters()

    # --- sync ---

    def sync(self) -> None:
        """Make everything appended so far durable, then visible. ``OutcomeUnknownError`` if the disk refuses
        (the log is poisoned then), ``PartitionPoisonedError`` if it was refused before."""
        with self._sync_lock:
            self._sync_now()

    def _synced_up_to(self, target: int) -> None:
        """The lock is held; ``target`` was the end when the sync began."""
        self.syncs += 1
        if target > self.flushed_offset:
            self.flushed_offset = target
        self.unsynced_records = self.log_end_offset - self.flushed_offset
        if self.flushed_offset >= self.log_end_offset:
            self._held.let_go()
        else:
            self.dirty_since_s = self._clock.monotonic_s()
        if self.commit_policy is not CommitPolicy.INDEX:
            self._advance_high_watermark(self.flushed_offset)
        self._publish(self)


def _goes_with(header: BatchHeader, before: BatchHeader | None) -> bool:
    """Whether the batch may be written behind the one ``before`` (None: it is the first) with nothing asked of it: its
    producer has no id, or it is the next one of the same producer."""
    if header.is_control or before is None:
        return not header.is_control
    if header.producer_id < 0:
        return before.producer_id < 0
    return (
        header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and not (header.attributes ^ before.attributes) & TRANSACTIONAL_BIT
        and header.base_sequence == (before.base_sequence + before.last_offset_delta + 1) & SEQUENCE_MASK
    )
