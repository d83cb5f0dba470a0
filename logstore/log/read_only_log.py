"""A partition's log seen by a process that does not own it: read-only, beside a live writer or after it.

What may be seen comes from the writer's slot in `.live` while that is of this boot. Without one (nobody has
written since the machine started, or the slot is torn) the log is read to its first bad batch from the
recovery point on, which is what recovery would keep; of a replica's log no more is seen than its durable high
watermark covers, since what follows may be cut off again. Segments are listed again whenever a file is missing or
the writer's active segment is not known yet. Index files are hints: the batch at a position must confirm.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TypeVar

from logstore.directory.topic_state import PartitionState
from logstore.errors import CorruptBatchError, SegmentVanishedError, from_os_error
from logstore.format.batch import first_offset
from logstore.log.checkpoints import decode_pairs
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.epochs import Epochs
from logstore.log.log_offsets import LogOffsets
from logstore.log.producers.isolation import may_be_transactional
from logstore.log.producers.lost_rows import rows_from_markers, rows_of
from logstore.log.producers.producer_recovery import replay_from
from logstore.log.producers.producer_replay import ProducerReplay
from logstore.log.producers.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from logstore.log.producers.row_counts import read_counts
from logstore.log.producers.transaction_index import SUFFIX as ABORTED_SUFFIX
from logstore.log.producers.transaction_index import AbortedTransaction, read_rows
from logstore.log.recovery.scan import SegmentScan
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.listing import Listing
from logstore.log.segments.segment import LOG_SUFFIX, Chunk, Segment
from logstore.log.segments.segment_list import Back, SegmentList
from logstore.ownership.live import LiveBoard, LiveSlot
from logstore.seams.fs import FileSystem, read_file
from logstore.types import Buffer

Answer = TypeVar("Answer")
_TRIES = 5


class ReadOnlyLog:
    """``state``: the partition's row of the topic's state file (None: there is none); asked again whenever it
    matters, since the owner rewrites it. ``is_anothers``: whether the folder
    belongs to another topic."""

    def __init__(
        self,
        *,
        where: str,
        directory: str,
        pool: FilePool,
        live: LiveBoard,
        live_slot: int,
        state: Callable[[], PartitionState | None],
        is_anothers: Callable[[], bool] | None = None,
    ) -> None:
        self.where = where
        self.directory = directory
        self._pool = pool
        self._live = live
        self._live_slot = live_slot
        self._state = state
        self._is_anothers = is_anothers
        self._lock = threading.Lock()
        self.segments = SegmentList()
        self.gapless = True
        self._scanned: tuple[int, int, int] | None = None  # (segment base, position, next offset)
        self._went_on: tuple[Segment, int, int] | None = None  # the last read: where its end lies in the file
        self._snapshots: frozenset[int] = frozenset()
        self._replay: ProducerReplay | None = None  # what producers had done, where no writer says it

    @property
    def _fs(self) -> FileSystem:
        return self._pool.fs

    # --- what may be seen ---

    def bounds(self) -> LogOffsets:
        """Offsets as the writer last published them, or as a scan finds them. Never raises for an empty log."""
        slot = self._live.read(self._live_slot)
        if slot is not None:
            return LogOffsets(
                slot.log_start_offset,
                slot.high_watermark,
                slot.last_stable_offset,
                slot.log_end_offset,
                slot.leader_epoch,
            )
        return self._scanned_bounds()

    def _scanned_bounds(self) -> LogOffsets:
        with self._lock:
            self._refresh(None)
            state = self._state()
            start = self._first_offset(state)
            try:
                end = self._scan_end(state)
                stable = self._stable_end(state, end)
            except OSError as error:
                raise from_os_error(error, "read", self.directory) from error
            return LogOffsets(start, end, stable, end, self.epoch_table().latest)

    def _stable_end(self, state: PartitionState | None, end: int) -> int:
        """Where the first open transaction begins, else ``end``."""
        replay = self._replay
        if replay is None or replay.next_offset > end:
            none_at = state.no_producers_at if state is not None else 0
            replay = replay_from(self._fs, self.directory, self._snapshots, none_at, end, -1)
            self._replay = replay
        replay.advance(self.segments.segments, end)
        first = replay.states.first_unstable(end)
        return end if first is None else first

    def aborted(
        self, start_offset: int, end_offset: int, data: Buffer | None = None
    ) -> list[AbortedTransaction]:
        """As ``OwnedLog.aborted``; after a crash the rows that its writer had not synced are added. Nothing is looked
        up for batches (``data``) of no transaction: rows of a segment that another process appends to are read from
        its file each time."""
        if data is not None and not may_be_transactional(data):
            return []
        for _ in range(_TRIES - 1):
            try:
                return self._aborted(start_offset, end_offset)
            except (FileNotFoundError, CorruptBatchError):
                self._again()
        return self._aborted(start_offset, end_offset)

    def _aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        segments, replay = self._current(), self._replay
        if replay is None or self._live.read(self._live_slot) is not None:
            return segments.aborted(start_offset, end_offset)
        # No writer speaks for the files: of the rows behind the replay's start anything may have got lost.
        found: list[AbortedTransaction] = []
        newest = segments.active  # where it ends is not known of one that was just listed
        counts = read_counts(self._fs, self.directory)
        for number, segment in enumerate(segments.segments):
            if segment is not newest and segment.next_offset <= replay.start:
                found += rows_of(segments.segments, number, counts)
                continue
            path, due = segment.path(ABORTED_SUFFIX), counts.get(segment.base_offset, 0)
            met = replay.aborted.get(segment.base_offset, [])
            durable = read_rows(self._fs, path, segment.base_offset, replay.start)
            if len(durable) + len(met) < due:
                durable, met = rows_from_markers(segments.segments[: number + 1]), []
            found += [*durable, *met]
        return [row for row in found if row.last_offset >= start_offset and row.first_offset < end_offset]

    def _first_offset(self, state: PartitionState | None) -> int:
        return state.log_start_offset if state is not None else 0

    def _scan_end(self, state: PartitionState | None) -> int:
        """The first offset that recovery would not keep, or that is not committed; narrows the last segment to its
        good bytes before that."""
        active = self.segments.active
        committed: float = math.inf
        if state is not None and state.replica:
            committed = state.high_watermark
            if active is None or active.base_offset >= state.high_watermark:
                return state.high_watermark
        if active is None:
            # None was made yet, or all are gone: then what was durable is missed by the read that follows.
            return max(state.log_start_offset, state.recovery_point) if state is not None else 0
        if self._scanned is None or self._scanned[0] != active.base_offset:
            point = self._gapless_from(state, active.base_offset)
            # The last durable batch is there, whatever follows it may be torn.
            position = active.locate(point - 1) if point > active.base_offset else 0
            if position is None:
                position = active.size
            self._scanned = (active.base_offset, position, active.base_offset)
        base, position, next_offset = self._scanned
        point = self._gapless_from(state, base)
        scan = SegmentScan(
            active.bytes_at, start=position, end=active.size, next_offset=next_offset, gapless_from=point
        )
        batches = iter(scan)
        while scan.next_offset < committed and next(batches, None) is not None:
            pass
        self._scanned = (base, scan.position, scan.next_offset)
        active.size = scan.position
        active.next_offset = max(scan.next_offset, point)
        return active.next_offset

    @staticmethod
    def _gapless_from(state: PartitionState | None, base_offset: int) -> int:
        """The offset before which every batch is durable and committed."""
        if state is None:
            return base_offset
        return min(state.recovery_point, state.high_watermark) if state.replica else state.recovery_point

    def epoch_table(self) -> Epochs:
        """The epoch table as the writer last wrote it (empty before the first record)."""
        path = f"{self.directory}/{EPOCHS_FILE}"
        try:
            return Epochs(decode_pairs(read_file(self._fs, path), path))
        except FileNotFoundError:
            return Epochs()
        except OSError as error:
            raise from_os_error(error, "read", path) from error

    # --- segments ---

    def refresh(self) -> None:
        """List the segments again, for callers that look at ``segments`` themselves."""
        slot = self._live.read(self._live_slot)
        with self._lock:
            if slot is not None or not self.segments.segments:
                self._refresh(slot)

    def _refresh(self, slot: LiveSlot | None) -> None:
        """List the directory again. The lock is held."""
        try:
            self._fs.stat(self.directory)  # refuses a symbolic link, which a listing would follow
            if self._is_anothers is not None and self._is_anothers():
                self.segments = SegmentList()  # an earlier topic's folder, or one that got here by mistake
                return
            for _ in range(_TRIES):
                listing = Listing.of(self._fs.listdir(self.directory), self.directory)
                segments = self._opened(listing)
                if len(segments) == len(listing.bases):
                    break  # else some went meanwhile, and what took their place must be seen in whole
        except FileNotFoundError:
            self.segments = SegmentList()  # the directory is made by the first append
            return
        except OSError as error:
            raise from_os_error(error, "list", self.directory) from error
        self._snapshots = frozenset(base for base, suffix in listing.indexes if suffix == SNAPSHOT_SUFFIX)
        self.segments = SegmentList(segments)
        if slot is not None:
            self._follow(slot)

    def _opened(self, listing: Listing) -> list[Segment]:
        known = {segment.base_offset: segment for segment in self.segments.segments}
        segments = []
        for number, base in enumerate(listing.bases):
            last = number == len(listing.bases) - 1
            segment = self._segment(base, None if last else listing.bases[number + 1])
            old = known.get(base)
            if segment is not None and old is not None and old.closed and old.is_same(segment):
                segment = old  # and what it has found out
            if segment is not None:
                segments.append(segment)
        return segments

    def _segment(self, base: int, following: int | None) -> Segment | None:
        path = f"{self.directory}/{base:020d}{LOG_SUFFIX}"
        try:
            found = self._fs.stat(path)
        except FileNotFoundError:
            return None  # removed since it was listed
        except OSError as error:
            raise from_os_error(error, "look at", path) from error
        closed = following is not None  # below the writer's durable recovery point: never changed in place
        segment = Segment(
            self._pool,
            self.directory,
            base,
            size=found.size,
            next_offset=base if following is None else following,
            identity=found.identity if closed else found.identity._replace(mtime_ns=-1),
        )
        segment.closed = closed
        return segment

    def _follow(self, slot: LiveSlot) -> None:
        """Take the writer's word for where its active segment ends."""
        active = self.segments.active
        if active is not None and active.base_offset == slot.segment_base:
            active.size = slot.end_position
            active.next_offset = slot.log_end_offset

    def _current(self) -> SegmentList:
        """Segments that reach as far as the writer says it has written."""
        slot = self._live.read(self._live_slot)
        with self._lock:
            active = self.segments.active
            if slot is None:
                if active is None:
                    self._refresh(None)
            elif active is None or active.base_offset != slot.segment_base:
                self._refresh(slot)
            else:
                self._follow(slot)
            return self.segments

    # --- read ---

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        """As ``OwnedLog.read``. A file that vanished makes it list again; if the offset stays unreadable,
        ``SegmentVanishedError`` with the lost range; a damaged batch is read again before it is reported."""
        for attempt in range(_TRIES):
            segments = self._current()
            try:
                if not segments.segments:
                    if offset >= limit_offset:
                        return None
                    self._again()
                    continue
                first = segments.segments[0].base_offset
                if offset < first:
                    raise SegmentVanishedError(
                        f"{self.where}: offsets {offset} to {first - 1} are gone",
                        hint=f"go on at offset {first}",
                        lost=(offset, first),
                    )
                chunk = self._read_on(segments, offset, max_bytes, limit_offset)
                if chunk is not None and first_offset(chunk.data) > offset and not self._is_settled(segments):
                    continue  # a cleaning may have put its segments in between the listing and the read
            except FileNotFoundError:
                self._again()
                continue
            except CorruptBatchError:
                if attempt == _TRIES - 1:
                    raise
                self._again()
                continue
            if chunk is not None or offset >= limit_offset:
                return chunk
            self._again()  # below the limit there must be something: the list may be old
        raise SegmentVanishedError(
            f"{self.where}: no segment in {self.directory} holds offset {offset}, and the log goes on to "
            f"{limit_offset}",
            hint="read again; if it stays so, `logstore log verify` says what is missing",
            lost=(offset, limit_offset),
        )

    def _read_on(self, segments: SegmentList, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        """``SegmentList.read``. Where the last read ended nothing has to be located: what is there must confirm, since
        another process may have cut its file and written on."""
        last, self._went_on = self._went_on, None
        chunk = None
        if last is not None and last[1] == offset and last[0] is segments.segments[segments.floor(offset)]:
            chunk = segments.read(offset, max_bytes, limit_offset, last[2])
        if chunk is None or first_offset(chunk.data) != offset:
            chunk = segments.read(offset, max_bytes, limit_offset)
        if chunk is not None:
            segment = segments.segments[segments.floor(first_offset(chunk.data))]
            self._went_on = segment, chunk.next_offset, chunk.end_position
        return chunk

    def read_back(self, end_offset: int) -> Back | None:
        """As ``OwnedLog.read_back``; what vanished, is missing or looks damaged is looked at again first."""
        for _ in range(_TRIES - 1):
            try:
                back = self._current().read_back(end_offset)
            except (FileNotFoundError, CorruptBatchError):
                self._again()
                continue
            if not self.gapless or (back is not None and back.next_offset >= end_offset):
                return back
            self._again()
        return self._current().read_back(end_offset)

    def look(self, read: Callable[[SegmentList], Answer]) -> Answer:
        """As ``OwnedLog.look``; a file that vanished or looks damaged is looked at again first."""
        for _ in range(_TRIES - 1):
            try:
                return read(self.segments)
            except (FileNotFoundError, CorruptBatchError):
                self._again()
        return read(self.segments)

    def _is_settled(self, before: SegmentList) -> bool:
        """Whether a new listing shows the very same files."""
        self._again()
        after = self.segments.segments
        return len(after) == len(before) and all(map(Segment.is_same, before.segments, after))

    def _again(self) -> None:
        with self._lock:
            self._pool.forget(self.directory)
            self.segments = SegmentList()
            self._refresh(self._live.read(self._live_slot))
