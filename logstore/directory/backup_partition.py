"""The copy of one partition up to its end at the cut, with its indexes, producer snapshots and last markers.

A segment that lies wholly below the durable recovery point never changes again, so it is hard-linked where the file
system can, and copied elsewhere. The last one is copied batch by batch, checked, with its indexes made anew from
what was copied, and so are all segments that a cleaning might replace meanwhile. The last segment is always a file
of its own: appending to either store leaves the other alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from logstore.directory.backup_cut import HeldSegment, PartitionCut, segment_bases
from logstore.directory.topic_state import PartitionState
from logstore.errors import (
    CorruptBatchError,
    DamagedStoreError,
    LogStoreError,
    SegmentVanishedError,
    StorageError,
    from_os_error,
)
from logstore.format.batch import BatchHeader, encode_batch, read_header
from logstore.format.control import ControlType, encode_control_batch, encode_marker
from logstore.log import checkpoints
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.epochs import Epochs
from logstore.log.inspection.inspect import (
    LOG_SUFFIX,
    BadSpan,
    ScannedBatch,
    Span,
    scan_file,
    scan_segment,
    segment_path,
)
from logstore.log.producers import producer_snapshot, transaction_index
from logstore.log.producers.producer_recovery import replay_from
from logstore.log.producers.producer_replay import ProducerReplay
from logstore.log.producers.producer_snapshot import encode_snapshot
from logstore.log.producers.producer_state import Marker, ProducerStates
from logstore.log.producers.row_counts import count_files, read_counts
from logstore.log.producers.transaction_index import AbortedTransaction, encode_rows, read_rows
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.listing import Listing
from logstore.log.segments.segment import Segment
from logstore.log.segments.segment_writer import SegmentWriter, write_texts
from logstore.machine import Change
from logstore.seams.fs import NO_LINKS, FileIdentity, FileSystem, exists, read_file, replace_file, write_all
from logstore.types import Buffer

logger = logging.getLogger(__name__)

_COPY_BYTES = 1 << 20
_TRIES = 5  # a partition is copied anew when its segments were retired or replaced meanwhile
_SUFFIXES = (LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX, transaction_index.SUFFIX)
_CHANGES_A_BATCH = 500


class Copied(NamedTuple):
    """What became of a partition. ``aborted``: transactions that no coordinator knew, ended in the copy."""

    state: PartitionState
    copied_bytes: int
    linked_bytes: int
    aborted: int


class PartitionCopy:
    """One partition on its way into ``target``, which does not exist yet.

    ``known``: its row of the source's state, as it is now. ``log_start``: the offset from which on the source has
    records by now: retention goes on beside the copy. ``held``: its segments if they may be cleaned meanwhile.
    ``markers``: of transactions that ended at the cut; those that the log knows already are left out. ``on_batch``:
    gets each batch of a held partition, in order; ``changes``, asked afterwards, are appended as records.
    """

    def __init__(
        self,
        fs: FileSystem,
        source: str,
        target: str,
        *,
        topic_id: str,
        cut: PartitionCut,
        known: PartitionState | None,
        interval_bytes: int,
        now_ms: int,
        link: bool,
        log_start: Callable[[], int],
        held: Sequence[HeldSegment] | None = None,
        markers: Sequence[Marker] = (),
        on_batch: Callable[[BatchHeader, Buffer], None] | None = None,
        changes: Callable[[], Sequence[Change]] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._fs = fs
        self._source = source
        self._target = target
        self._topic_id = topic_id
        self._start, self._end = cut
        self._known = known
        self._interval_bytes = interval_bytes
        self._now_ms = now_ms
        self._link = link
        self._log_start = log_start
        self._held = held
        self._markers = markers
        self._on_batch = on_batch
        self._changes = changes
        self._progress = progress
        self._epochs = Epochs()
        self._replay = ProducerReplay(ProducerStates(), 0)
        self._copied_bytes = 0
        self._linked_bytes = 0
        self._aborted = 0

    def run(self) -> Copied:
        """Errors: DamagedStoreError (a batch to be copied is bad), SegmentVanishedError (records are gone that
        retention did not take), StorageError, DiskFullError."""
        try:
            self._fs.mkdir(self._target)
        except OSError as error:
            raise from_os_error(error, "create", self._target) from error
        self._epochs = self._source_epochs()
        end = self._copy_named() if self._held is None else self._copy_held(self._held)
        write_texts(self._fs, self._target, self._topic_id, self._epochs)
        try:
            count_files(self._fs, self._target)
        except OSError as error:
            raise from_os_error(error, "write to", self._target) from error
        none_at = end
        if len(self._replay.states):
            self._write_file(end, producer_snapshot.SUFFIX, encode_snapshot(self._replay.states))
            none_at = min(self._none_at(), end)
        state = PartitionState(end, min(self._start, end), end, end, none_at)
        return Copied(state, self._copied_bytes, self._linked_bytes, self._aborted)

    def _none_at(self) -> int:
        """An offset, at most the cut's end, at which no producer had state."""
        none_at = 0 if self._known is None else self._known.no_producers_at
        return none_at if none_at <= self._end else 0

    # --- segments read by their names: only the front may go meanwhile ---

    def _copy_named(self) -> int:
        failure: LogStoreError | None = None
        for _ in range(_TRIES):
            self._start = min(max(self._start, self._log_start()), self._end)
            before = self._files()
            try:
                end = self._copy_segments(sorted(before))
            except SegmentVanishedError as error:
                failure = error
            else:
                after = self._files()
                if all(after.get(base, found) == found for base, found in before.items()):
                    return end
                failure = StorageError(
                    f"{self._source} was cleaned each of {_TRIES} times that it was copied",
                    hint="back up again when less is being compacted",
                )
            self._empty()  # old and new segments must not mix
        raise failure or StorageError(f"{self._source} could not be copied")

    def _copy_segments(self, bases: list[int]) -> int:
        kept = [
            (base, following)
            for base, following in zip_longest(bases, bases[1:])
            if base < self._end and (following is None or following > self._start)
        ]
        self._check_front(kept[0][0] if kept else self._end)
        durable = 0 if self._known is None else self._known.recovery_point
        tail, closed = self._end, []
        for base, following in kept:
            if following is not None and following <= self._end:
                self._check_joined(base, following)
                self._copy_closed(base, linked=following < durable)
                closed.append(base)
            else:
                tail = base
        self._begin_replay(tail, closed)
        if tail == self._end:
            return self._write_last(tail, iter(()))
        try:
            return self._write_last(tail, scan_segment(self._fs, segment_path(self._source, tail), tail))
        except LogStoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise SegmentVanishedError(f"{error.message}: it was removed while it was copied") from error
            raise

    def _check_front(self, first: int) -> None:
        if self._start < self._end and first > self._start:
            raise SegmentVanishedError(
                f"{self._source}: offsets {self._start} to {first - 1} are gone", lost=(self._start, first)
            )

    def _check_joined(self, base: int, following: int) -> None:
        """DamagedStoreError where the segment ends before the next one begins: others between them are missing."""
        path = segment_path(self._source, base)
        pool = FilePool(self._fs, 2)
        try:
            size = self._fs.stat(path).size
            end = Segment(pool, self._source, base, size=size, next_offset=following).last_end()
        except FileNotFoundError as error:
            raise SegmentVanishedError(f"{path} was removed while it was copied") from error
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        finally:
            pool.close()
        if end < following:
            raise DamagedStoreError(
                f"{path} ends at offset {end}, the next one begins at {following}", path=path
            )

    def _files(self) -> dict[int, FileIdentity]:
        """Which file each segment is. The times of those that grow change, so only the inode counts."""
        found = {}
        for base in segment_bases(self._fs, self._source):
            path = segment_path(self._source, base)
            try:
                found[base] = self._fs.stat(path).identity._replace(mtime_ns=-1)
            except FileNotFoundError:
                continue  # retention took it, or it is missed when it is to be copied
            except OSError as error:
                raise from_os_error(error, "look at", path) from error
        return found

    def _empty(self) -> None:
        try:
            for name in self._fs.listdir(self._target):
                self._fs.remove(f"{self._target}/{name}")
        except OSError as error:
            raise from_os_error(error, "empty", self._target) from error

    def _copy_closed(self, base: int, *, linked: bool) -> None:
        for suffix in _SUFFIXES:
            source_path, target_path = (segment_path(at, base, suffix) for at in (self._source, self._target))
            try:
                if not (linked and self._link and self._linked(source_path, target_path)):
                    self._copy_file(source_path, target_path)
            except FileNotFoundError as error:
                if suffix != LOG_SUFFIX:
                    continue  # none was needed, or it is made anew when the copy is opened
                raise SegmentVanishedError(f"{source_path} was removed while it was copied") from error
            except OSError as error:
                raise from_os_error(error, f"copy {source_path} to", target_path) from error

    def _linked(self, source_path: str, target_path: str) -> bool:
        """Hard-link the file; False where that cannot be done. ``OSError`` otherwise."""
        try:
            self._fs.link(source_path, target_path)
        except OSError as error:
            if error.errno in NO_LINKS:
                return False
            raise
        size = self._fs.stat(target_path).size
        self._linked_bytes += size
        self._advance(size)
        return True

    def _copy_file(self, source_path: str, target_path: str) -> None:
        source = self._fs.open(source_path, "r")
        try:
            target = self._fs.open(target_path, "create")
            try:
                position = 0
                while part := source.pread(_COPY_BYTES, position):
                    write_all(target, [part], position)
                    position += len(part)
                    self._copied_bytes += len(part)
                    self._advance(len(part))
                target.sync()
            finally:
                target.close()
        finally:
            source.close()

    # --- segments held open since before the cut ---

    def _copy_held(self, held: Sequence[HeldSegment]) -> int:
        """All are written anew, so that log and indexes are of one version whatever a cleaning does meanwhile."""
        untils = [*(segment.base_offset for segment in held[1:]), self._end][: len(held)]
        kept = [
            (segment, until)
            for segment, until in zip(held, untils, strict=True)
            if segment.base_offset < self._end and (until > self._start or segment is held[-1])
        ]
        self._check_front(kept[0][0].base_offset if kept else self._end)
        self._begin_replay(kept[0][0].base_offset if kept else self._end, [])
        for segment, until in kept[:-1]:
            self._write_closed(segment, until)
        if not kept:
            return self._write_last(self._end, iter(()))
        last = kept[-1][0]
        return self._write_last(last.base_offset, scan_file(last.file, last.file.path, last.base_offset))

    def _write_closed(self, segment: HeldSegment, until: int) -> None:
        base = segment.base_offset
        writer = SegmentWriter(self._fs, self._target, base, self._interval_bytes)
        try:
            self._copy_batches(scan_file(segment.file, segment.file.path, base), writer)
            writer.finish()
        except OSError as error:
            raise from_os_error(error, "write to", self._target) from error
        finally:
            writer.abandon()
        if writer.next_offset != until:
            text = f"{segment.file.path} ends at offset {writer.next_offset}, the next one begins at {until}"
            raise DamagedStoreError(text, path=segment.file.path, position=writer.size)
        self._write_aborted(base)
        if len(self._replay.states):
            self._write_file(until, producer_snapshot.SUFFIX, encode_snapshot(self._replay.states))

    # --- producers ---

    def _begin_replay(self, first: int, closed: Sequence[int]) -> None:
        """Find out what producers had done before ``first``, the base of the first segment that is written anew.
        Rows of aborted transactions that the closed segments' own files lack are put in."""
        listing = Listing.of(self._listed(), self._source)
        snapshots = [
            at for at, suffix in listing.indexes if suffix == producer_snapshot.SUFFIX and at <= first
        ]
        begin = min(self._lacking_rows(closed), default=first)
        usable = [at for at in snapshots if at <= begin]
        self._replay = replay_from(self._fs, self._source, usable, self._none_at(), begin, -1)
        for at in snapshots:
            if at in closed or at == first:
                self._copy_snapshot(at)
        for number, base in enumerate(closed):
            following = closed[number + 1] if number + 1 < len(closed) else first
            if following <= self._replay.next_offset:
                continue
            for span in scan_segment(self._fs, segment_path(self._target, base), base):
                if isinstance(span, ScannedBatch):
                    self._take(base, span)
            self._write_aborted(base)

    def _lacking_rows(self, closed: Sequence[int]) -> list[int]:
        """The segments whose transaction index has lost rows."""
        lacking = []
        try:
            counts = read_counts(self._fs, self._source)
            for base in closed:
                path = segment_path(self._target, base, transaction_index.SUFFIX)
                size = self._fs.stat(path).size if exists(self._fs, path) else 0
                if size // transaction_index.ROW.size < counts.get(base, 0):
                    logger.warning("%s lacks aborted transactions: they are taken from its log", path)
                    lacking.append(base)
        except OSError as error:
            raise from_os_error(error, "look at a transaction index of", self._source) from error
        return lacking

    def _listed(self) -> list[str]:
        try:
            return self._fs.listdir(self._source)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise from_os_error(error, "list", self._source) from error

    def _copy_snapshot(self, offset: int) -> None:
        path = segment_path(self._source, offset, producer_snapshot.SUFFIX)
        try:
            content = read_file(self._fs, path)
        except FileNotFoundError:
            return  # its segment was retired meanwhile
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        self._write_file(offset, producer_snapshot.SUFFIX, content)

    def _take(self, base: int, batch: ScannedBatch) -> None:
        header = batch.header
        if header.producer_id >= 0 and header.base_offset >= self._replay.next_offset:
            self._replay.take(base, header, batch.data)
        self._replay.next_offset = max(self._replay.next_offset, header.next_offset)

    def _write_aborted(self, base: int) -> None:
        """The rows of the segment's transaction index that its own markers tell, beside those it has already."""
        met = self._replay.aborted.get(base, [])
        if not met:
            return
        path = segment_path(self._target, base, transaction_index.SUFFIX)
        known: list[AbortedTransaction] = []
        try:
            known = read_rows(self._fs, path, base)
        except CorruptBatchError as error:
            logger.warning("a transaction index is made anew from its log: %s", error)
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        rows = {row.last_offset: row for row in [*known, *met]}
        self._write_file(base, transaction_index.SUFFIX, encode_rows(rows[at] for at in sorted(rows)))

    # --- what is written anew ---

    def _copy_batches(self, spans: Iterator[Span], writer: SegmentWriter) -> None:
        """The batches below the cut's end."""
        path = segment_path(self._source, writer.base_offset)
        for span in spans:
            if writer.next_offset >= self._end:
                break
            if isinstance(span, BadSpan):
                text = f"{path} at byte {span.position}, below offset {self._end}: {span.message}"
                raise DamagedStoreError(text, path=path, position=span.position)
            if span.header.base_offset >= self._end:
                break
            writer.append(span.header, span.data)
            self._take(writer.base_offset, span)
            if self._on_batch is not None:
                self._on_batch(span.header, span.data)
            self._copied_bytes += span.header.size
            self._advance(span.header.size)

    def _write_last(self, base: int, spans: Iterator[Span]) -> int:
        """The segment that reaches the cut's end, and what the copy gets behind it; the copy's end offset."""
        writer = SegmentWriter(self._fs, self._target, base, self._interval_bytes)
        try:
            self._copy_batches(spans, writer)
            if writer.next_offset < self._end:
                path = segment_path(self._source, base)
                text = f"{path} ends at offset {writer.next_offset}, its log at {self._end}"
                raise DamagedStoreError(text, path=path, position=writer.size)
            self._append_changes(writer)
            self._append_markers(writer)
            writer.finish()
        except OSError as error:
            raise from_os_error(error, "write to", self._target) from error
        finally:
            writer.abandon()
        self._write_aborted(base)
        return writer.next_offset

    def _append_changes(self, writer: SegmentWriter) -> None:
        changes = self._changes() if self._changes is not None else ()
        for at in range(0, len(changes), _CHANGES_A_BATCH):
            batch = encode_batch(
                changes[at : at + _CHANGES_A_BATCH],
                now_ms=self._now_ms,
                base_offset=writer.next_offset,
                leader_epoch=self._epoch(),
            )
            writer.append(read_header(batch), batch)

    def _append_markers(self, writer: SegmentWriter) -> None:
        """Those that are due, then an abort of whatever is open still: no coordinator knows of it, and its
        producer writes to the original."""
        states = self._replay.states
        for marker in self._markers:
            entry = states.entry(marker.producer_id)
            if entry is None or entry.epoch < marker.epoch:  # else it was there at the cut
                self._append_marker(writer, marker)
        for producer_id in states.open_transactions():
            entry = states.entry(producer_id)
            if entry is not None:
                self._append_marker(writer, Marker(producer_id, entry.epoch, 0, False, self._now_ms))
                self._aborted += 1

    def _append_marker(self, writer: SegmentWriter, marker: Marker) -> None:
        data = encode_control_batch(
            ControlType.COMMIT if marker.committed else ControlType.ABORT,
            encode_marker(marker.coordinator_epoch),
            timestamp_ms=marker.timestamp_ms,
            base_offset=writer.next_offset,
            leader_epoch=self._epoch(),
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
        )
        header = read_header(data)
        writer.append(header, data)
        self._replay.take(writer.base_offset, header, data)

    def _epoch(self) -> int:
        if self._epochs.latest < 0:
            self._epochs.assign(0, self._end)
        return self._epochs.latest

    def _source_epochs(self) -> Epochs:
        path = f"{self._source}/{EPOCHS_FILE}"
        try:
            table = Epochs(checkpoints.decode_pairs(read_file(self._fs, path), path))
        except FileNotFoundError:
            return Epochs()
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        latest = table.latest
        table.truncate(self._end)
        table.assign(latest, self._end)  # an epoch without records in the copy must not be given again
        return table

    def _write_file(self, base: int, suffix: str, content: bytes) -> None:
        path = segment_path(self._target, base, suffix)
        try:
            replace_file(self._fs, path, content)
        except OSError as error:
            raise from_os_error(error, "write", path) from error

    def _advance(self, count: int) -> None:
        if self._progress is not None:
            self._progress(count)
