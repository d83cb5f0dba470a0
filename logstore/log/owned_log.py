"""A partition's log in the process that owns it: append as leader, roll, sync, read.

Threads: one writer at a time (``_lock``), any number of readers. A failed write is undone; if the undo fails, or a
sync fails, the log is poisoned (``synced_log``).

A term is a leader epoch: that of a batch says who led when it was appended. A node that is alone writes under the
epoch that its recovery gave the log; a replica's leader names its term with each append, and is fenced as soon as
the log knows a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from logstore.errors import (
    FencedLeaderEpochError,
    LogStoreError,
    OffsetMismatchError,
    OutcomeUnknownError,
    PartitionPoisonedError,
    StorageError,
    from_os_error,
)
from logstore.format.batch import STAMP_SIZE, read_header, stamp
from logstore.format.control import ControlType, encode_control_batch, encode_marker
from logstore.log.append_path import LONE_TERM
from logstore.log.append_validation import CheckedBatch
from logstore.log.checkpoints import encode_pairs
from logstore.log.cleaning.swap import HalfPlacedError
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.epochs import Epochs
from logstore.log.log_offsets import Appended
from logstore.log.producers.producer_journal import write_aborted
from logstore.log.producers.producer_state import Marker
from logstore.log.recovery import snapshot_install
from logstore.log.recovery.scan import SegmentScan
from logstore.log.segments.rolling import must_roll
from logstore.log.segments.segment import Segment
from logstore.log.segments.segment_files import create_segment, put_in_place
from logstore.log.segments.segment_list import SegmentList
from logstore.log.synced_log import SyncedLog
from logstore.seams.fs import File, FileSystem, put_file, replace_file
from logstore.types import Buffer

PutFile: TypeAlias = Callable[[FileSystem, str, bytes], None]


class OwnedLog(SyncedLog):
    """See ``SyncedLog`` for what it is made of, its sync and its reads, ``AppendPath`` for ``append``.
    ``first_epoch``: what a log without records is prepared for."""

    first_epoch = 0

    # --- append ---

    def _append_carefully(
        self, batches: Sequence[CheckedBatch], expected_offset: int | None, term: int
    ) -> Appended:
        """``append`` of whatever is not one batch of a lone node; the lock is held."""
        if self._failure is not None:
            self._check_usable()
        if term != LONE_TERM:
            self._check_term(term)
        base = self.log_end_offset
        repeated = self.producers.repeated(batches)
        if repeated is not None:
            if repeated[0] == len(batches):
                return repeated[1]  # it was stored before, and only the answer got lost
            batches = batches[repeated[0] :]
        if expected_offset is not None and expected_offset != base:
            raise OffsetMismatchError(
                f"append to {self.where}: the log ends at offset {base}, expected was {expected_offset}",
                expected_offset=expected_offset,
                end_offset=base,
            )
        epoch = self._writing_epoch(term)
        if len(batches) == 1 and repeated is None:
            self._append_one(batches[0])
            return Appended(base, self.log_end_offset)
        self._roll_unless_all_fit(batches)
        start = 0
        while start < len(batches):
            try:
                start = self._append_run(batches, start, epoch)
            except LogStoreError as error:
                if start == 0:
                    raise
                kind = OutcomeUnknownError if self.poisoned else StorageError  # not to be tried again
                raise kind(
                    f"append to {self.where}: {start} of {len(batches)} batches are in, with offsets {base} "
                    f"to {self.log_end_offset - 1}, then: {error.message}"
                ) from error
        return Appended(base if repeated is None else repeated[1].base_offset, self.log_end_offset)

    def append_marker(
        self, marker: Marker, *, once: bool = False, open_since: int = -1, term: int = LONE_TERM
    ) -> Appended:
        """End a producer's transaction. ``ProducerFencedError``, ``CoordinatorFencedError``, and as ``append``.

        ``once``: for markers of a newer epoch than their transaction's. A log that knows the producer under that
        epoch has the marker, and perhaps records of the next transaction, which it must not end: nothing is done.
        ``open_since``: only if the producer's open transaction begins there, else ``TransactionStateError``.
        """
        value = encode_marker(marker.coordinator_epoch)
        data = encode_control_batch(
            ControlType.COMMIT if marker.committed else ControlType.ABORT,
            value,
            timestamp_ms=marker.timestamp_ms,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
        )
        with self._lock:
            self._check_usable()
            if term != LONE_TERM:
                self._check_term(term)
            self.producers.check_marker(marker)
            base = self.log_end_offset
            if once and self.producers.knows_epoch(marker.producer_id, marker.epoch):
                return Appended(base, base)
            if open_since >= 0:
                self.producers.check_open(marker.producer_id, open_since)
            batch = CheckedBatch(memoryview(data), read_header(data))
            self._append_run([batch], 0, self._writing_epoch(term))
            return Appended(base, self.log_end_offset)

    def _roll_unless_all_fit(self, batches: Sequence[CheckedBatch]) -> None:
        """As in Kafka one append lands in one segment, if it fits any: so it fails as a whole, too."""
        segment = self.segments.active
        if segment is not None and segment.size > 0 and len(batches) > 1:
            size = segment.size + sum(len(batch.data) for batch in batches)
            if size > self.config.segment_bytes:
                self._roll(segment)

    def _check_term(self, term: int) -> None:
        newest = self.epochs.latest
        if term < newest:
            raise FencedLeaderEpochError(
                f"append to {self.where} as leader: the log has records of term {newest}",
                term=term,
                newest_term=newest,
            )

    def prepare(self, twin: str | None = None) -> None:
        """Have what the first append needs: an epoch, and a segment to append to. Their names are in the folder, and
        the caller makes that durable before the append. Errors as ``append``. ``twin``: the folder of a log whose
        epochs are those of a new one: their file may be shared (``put_file``)."""
        with self._lock:
            self._check_usable()
            if self.epochs.latest < 0:
                self._assign_epoch(
                    self.first_epoch,
                    put_file if twin is None else partial(put_file, twin=f"{twin}/{EPOCHS_FILE}"),
                )
            if self.segments.active is None and not self._installing:
                try:
                    segment = create_segment(
                        self._pool,
                        self.directory,
                        self.log_end_offset,
                        self.config.index_interval_bytes,
                        sync=False,
                    )
                except OSError as error:
                    raise from_os_error(error, "make a segment of", self.directory) from error
                self.segments = self.segments.with_active(segment)

    def _writing_epoch(self, term: int) -> int:
        """The epoch for the next batches; a new one is durable before them."""
        epoch = max(self.epochs.latest, term, 0)
        if epoch > self.epochs.latest:
            self._assign_epoch(epoch)
        return epoch

    def _assign_epoch(self, epoch: int, put: PutFile = replace_file) -> None:
        """Durable before the first record of the epoch: a reader's position must never outlive its epoch."""
        before = self.epochs.entries
        if self.epochs.assign(epoch, self.log_end_offset):
            self._store_epochs(before, put)

    def _store_epochs(self, before: tuple[tuple[int, int], ...], put: PutFile = replace_file) -> None:
        """Durable when it returns; after an error they are those of ``before``."""
        path = f"{self.directory}/{EPOCHS_FILE}"
        try:
            put(self._pool.fs, path, encode_pairs(self.epochs.entries))
        except OSError as error:
            self.epochs = Epochs(before)
            raise from_os_error(error, "write", path) from error

    def _append_run(
        self, batches: Sequence[CheckedBatch], start: int, epoch: int, count: int | None = None
    ) -> int:
        """Append batches[start:] up to ``count`` or the next roll; returns the number of the next batch."""
        segment = self._segment_for(batches[start])
        buffers: list[Buffer] = []
        offset, size, number = self.log_end_offset, segment.size, start
        first_ms = segment.first_timestamp_ms if size > 0 else batches[start].header.max_timestamp
        while number < len(batches) and (count is None or number - start < count):
            data, header = batches[number]
            if number > start and self._must_roll(segment, batches[number], size, offset, first_ms):
                break
            buffers.append(stamp(data, offset, epoch))
            buffers.append(data[STAMP_SIZE:])
            offset += header.last_offset_delta + 1
            size += header.size
            number += 1
        row = None
        if batches[start].header.is_control:
            row = self.producers.aborted_by(batches[start], self.log_end_offset)
            write_aborted(segment, row)
        try:
            self._write(segment, buffers)
        except BaseException:
            if row is not None:
                self._take_back(segment)
            raise
        self._note(segment, batches[start:number], buffers)
        return number

    def _take_back(self, segment: Segment) -> None:
        try:
            segment.take_back_aborted()
        except OSError as error:
            self._poison(from_os_error(error, "cut the transaction index of", segment.path()))

    def _take_back_written(self, segment: Segment, file: File, error: BaseException) -> None:
        """What was half written goes; always raises: what ``error``, which stopped the write, means to the caller."""
        if not isinstance(error, OSError):
            try:
                file.truncate(segment.size)
            except BaseException:
                self._poison(self._cut_short("an append", error))
                raise
            raise error
        failure = from_os_error(error, "append to", segment.path())
        try:
            file.truncate(segment.size)
        except OSError:
            self._poison(failure)
            raise PartitionPoisonedError(
                f"{failure.message}; what was half written could not be cut"
            ) from error
        if not self.dirty:
            self._held.let_go()
        raise failure from error

    def _note(self, segment: Segment, batches: Sequence[CheckedBatch], buffers: Sequence[Buffer]) -> None:
        """Count what is in the file now, and let readers see it where the topic says so."""
        was_dirty, entered = self.dirty, False
        offset, position = self.log_end_offset, segment.size
        for number, (data, header) in enumerate(batches):
            last = offset + header.last_offset_delta
            if header.producer_id >= 0:
                self.producers.note(header, data, offset)
            entered = segment.note_appended(position, header.size, last, header.max_timestamp) or entered
            position += header.size
            parts = tuple(buffers[2 * number : 2 * number + 2])
            self.tail.add(offset, last + 1, position, parts, header.size)
            offset = last + 1
        self._count(segment, offset, was_dirty, entered)

    # --- roll ---

    def follow_to(self, end_offset: int, end_position: int) -> bool:
        """Count what another process appended to the active segment, and synced, while it held the lock that
        both take; it ends at ``end_offset`` and byte ``end_position``. False if the file does not hold just
        that: the log is then to be opened anew. ``OSError``, ``CorruptBatchError``."""
        with self._lock:
            segment = self.segments.active
            if self.dirty or segment is None or segment.closed:
                return False
            start, segment.size = segment.size, end_position
            try:
                new = memoryview(segment.bytes_at(start, end_position - start))
            finally:
                segment.size = start
            if len(new) != end_position - start:
                return False
            found: list[CheckedBatch] = []
            scan = SegmentScan(
                lambda at, length: new[at : at + length],
                start=0,
                end=len(new),
                next_offset=self.log_end_offset,
                gapless_from=self.log_end_offset,
            )
            for _, header, data in scan:
                found.append(CheckedBatch(data, header))
            if scan.bad is not None or scan.next_offset != end_offset:
                return False
            self.tail.clear()
            for data, header in found:
                if header.producer_id >= 0:
                    self.producers.note(header, data, header.base_offset)
                if header.is_control:
                    segment.forget_aborted()
                segment.note_appended(segment.size, header.size, header.last_offset, header.max_timestamp)
            self.log_end_offset = self.flushed_offset = end_offset
            self._advance_high_watermark(end_offset)
            return True

    def _segment_for(self, batch: CheckedBatch) -> Segment:
        segment = self.segments.active
        if segment is None or segment.closed:
            return self._roll(segment)
        full = must_roll(
            self.config,
            segment,
            batch,
            segment.size,
            self.log_end_offset,
            segment.first_timestamp_ms,
            self._roll_jitter_ms,
        )
        return self._roll(segment) if full else segment

    def _must_roll(
        self, segment: Segment, batch: CheckedBatch, size: int, offset: int, first_ms: int
    ) -> bool:
        return must_roll(
            self.config,
            segment,
            batch,
            size=size,
            offset=offset,
            first_ms=first_ms,
            jitter_ms=self._roll_jitter_ms,
        )

    def _roll(self, old: Segment | None) -> Segment:
        """Close ``old`` durably, make the recovery point durable, then create the next segment.

        Once ``old`` is closed nothing goes into it, even if the next one could not be made: files of that may
        be there, and recovery would take them for the end of the log.
        """
        try:
            if old is not None and not old.closed:
                self._sync_segment(old)
                self._synced_up_to(self.log_end_offset)
                self._store_indexes(old)
                self._held.let_go()
                self._snapshot_producers()
                self.recovery_point = self.log_end_offset
                self._before_roll(self)
                old.close_for_appends()
            if self._installing:
                self._finish_installing()
            segment = create_segment(
                self._pool, self.directory, self.log_end_offset, self.config.index_interval_bytes
            )
        except OSError as error:
            raise from_os_error(error, "roll a segment of", self.directory) from error
        self.segments = self.segments.with_active(segment)
        return segment

    def roll_idle(self) -> None:
        """Close the active segment although nothing is being appended, so that it can be retired."""
        with self._lock:
            self._check_usable()
            if (segment := self.segments.active) is not None and segment.size > 0:
                self._roll(segment)
                self._publish(self)  # the segment that was active may be cleaned from now on

    def _finish_installing(self) -> None:
        """Let the state say where the log begins; only then may the decision be forgotten, and records come."""
        self._before_roll(self)
        snapshot_install.finish(self._pool.fs, self.directory)
        self._installing = False

    # --- the front ---

    def raise_start(self, offset: int) -> bool:
        """Move the log start offset up to ``offset``, at most to the high watermark; True if it moved. The
        caller makes it durable, then publishes it to other processes, then may retire files."""
        with self._lock:
            target = min(offset, self.high_watermark)
            if target <= self.log_start_offset:
                return False
            self.log_start_offset = target
            return True

    def drop_front(self, count: int) -> tuple[Segment, ...]:
        """Take the oldest ``count`` segments out of the log; their files are the caller's to retire. Fewer
        where a cleaning has put others there since they were counted: none past the log start, nor the last."""
        with self._lock:
            segments = self.segments.segments
            closed = segments[:-1]
            count = min(count, sum(segment.next_offset <= self.log_start_offset for segment in closed))
            self.segments = SegmentList(segments[count:])
            return segments[:count]

    def replace_segments(
        self, old: Sequence[Segment], new: Sequence[Segment], place: Callable[[], None]
    ) -> bool:
        """``new`` for ``old``, which cover the same offsets; ``place`` renames the files. False if ``old`` are
        no neighbours in the list now. ``OSError``: nothing changed; ``HalfPlacedError``, or an interrupt that comes
        out of ``place``: poisoned, since files and memory differ."""
        with self._lock:
            self._check_usable()
            segments = self.segments.replaced(old, new)
            if segments is None:
                return False
            try:
                put_in_place(self._pool, old, place)
                self.segments = segments
                self._reads.forget()
            except HalfPlacedError as error:
                self._poison(from_os_error(error, "put a cleaned segment into", self.directory))
                raise
            except OSError:
                raise
            except BaseException as interrupt:
                self._poison(self._cut_short("the swap of cleaned segments", interrupt))
                raise
            return True
