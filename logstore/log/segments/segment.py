"""One segment: `%020d.log` with its offset and time index.

The active segment is appended to by its log's writer, under the log's lock, and read with ``pread``; its
index rows live in memory and follow into the files lazily. A closed segment lies wholly below the durable
recovery point, never changes, and is read through mappings. Readers may be in any thread; what they see is
bounded by ``size``, which grows only after the bytes are in the file.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from typing import NamedTuple

from logstore.errors import CorruptBatchError
from logstore.format.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    first_offset,
    iter_headers,
    read_header,
    whole_batches,
)
from logstore.format.varint import INT64_MAX
from logstore.invariants import invariant
from logstore.log.producers.row_counts import note_counts
from logstore.log.producers.transaction_index import ROW as ABORTED_ROW
from logstore.log.producers.transaction_index import SUFFIX as ABORTED_SUFFIX
from logstore.log.producers.transaction_index import AbortedTransaction, encode_rows, read_rows
from logstore.log.recovery.scan import SegmentScan
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.mapped_table import MappedTable
from logstore.log.segments.offset_index import IndexRule, OffsetIndex
from logstore.log.segments.segment_tail import SegmentTail
from logstore.log.segments.time_index import TimeIndex
from logstore.seams.fs import File, FileIdentity, FileSystem, exists, read_whole, replace_file, write_all
from logstore.types import Buffer

LOG_SUFFIX = ".log"
_HEAD = struct.Struct(">qi")
_LOCATE_BYTES = 8192
_BACK_ENTRIES = 64  # index entries that one step of a backward read goes back
_STALE_BYTES = 1 << 20  # how far a copied index of somebody else's active segment may lag


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class Chunk(NamedTuple):
    """Whole batches as they stand in the log, where to read on, and the position behind them."""

    data: Buffer
    next_offset: int
    end_position: int


class LentIndex(NamedTuple):
    """An index file under a sync that began when it had so many ``rows``."""

    suffix: str
    file: File
    rows: int


class Segment(SegmentTail):
    """See ``SegmentTail`` for its fields that appends change."""

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        base_offset: int,
        *,
        size: int,
        next_offset: int,
        interval_bytes: int = 4096,
        identity: FileIdentity | None = None,
    ) -> None:
        super().__init__(base_offset, size, next_offset)
        self._pool = pool
        self.interval_bytes = interval_bytes
        self.directory = directory
        self._log_path = f"{directory}/{base_offset:020d}{LOG_SUFFIX}"
        self.gapless = True  # only a broker's compaction leaves gaps; ours puts empty batches there
        self.retired = False  # its files are, or are about to be, those of a cleaned segment
        self._identity = identity  # of the log, when somebody else may put another in its place
        self._checked = False  # whether the index files were found plausible
        self._loaded: tuple[MappedTable, MappedTable, int] | None = None
        self._max_timestamp: int | None = None
        self._end: int | None = None
        self.active_since_s = 0.0  # by the monotonic clock, when this process began to append to it
        self._aborted: list[AbortedTransaction] | None = None
        self._aborted_unsynced = False
        self.unsynced_indexes = {
            offset_index.SUFFIX,
            time_index.SUFFIX,
        }  # files that may not be durable as they are
        self._aborted_uncounted = False

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        if suffix is LOG_SUFFIX:
            return self._log_path  # every durable append asks for it
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    def is_same(self, other: Segment) -> bool:
        """Whether both were made from the same file, by its identity, and both or neither as closed."""
        return (self.base_offset, self._identity, self.closed) == (
            other.base_offset,
            other._identity,
            other.closed,
        )

    # --- reading ---

    def bytes_at(self, position: int, length: int) -> Buffer:
        """Up to ``length`` bytes; a view of the mapping for a closed segment, else a fresh copy.
        ``FileNotFoundError`` also when a cleaned segment has taken its place: never bytes of another file."""
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        data: Buffer | None = None
        if self.closed:
            view = self._pool.mapping(self.path(), self._identity)
            data = None if view is None else view[position : position + length]
        if data is None:
            # The writer's own descriptor if this is its active segment; a reader must not need to be a writer.
            with self._pool.pinned(self.path(), self.rule is not None, self._identity) as file:
                data = file.pread(length, position)
        if self.retired:
            raise FileNotFoundError(errno.ENOENT, "another segment took its place", self.path())
        return data

    def locate(self, offset: int) -> int | None:
        """Position of the first batch whose last offset is >= ``offset``; None if the segment has none."""
        entry = self.offsets().entry_before(offset)
        position = 0 if entry is None else entry[1]
        if not 0 <= position <= self.size - HEADER_SIZE:
            position, entry = 0, None
        while position + HEADER_SIZE <= self.size:
            chunk = self.bytes_at(position, _LOCATE_BYTES)
            if entry is not None and not _confirms(chunk, entry[0]):
                position, entry = 0, None  # a hint that the log does not bear out is no hint
                continue
            entry = None
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                base, length = _HEAD.unpack_from(chunk, at)
                if length < HEADER_SIZE - LOG_OVERHEAD:
                    raise self._corrupt(position + at, f"batch length {length} is impossible")
                if base + _last_delta(chunk, at) >= offset:
                    return position + at
                at += length + LOG_OVERHEAD
            if at == 0:
                raise self._corrupt(position, "the file ends here, its records go on")
            position += at
        return None

    def position_well_before(self, offset: int) -> int:
        """Position of an entered batch some hundred KiB before the one that holds ``offset`` (0: the start)."""
        index = self.offsets()
        number = index.table.floor(offset - self.base_offset) - _BACK_ENTRIES
        if number < 0:
            return 0
        relative, position = index.table.row(number)
        confirmed = _confirms(self.bytes_at(position, HEADER_SIZE), self.base_offset + int(relative))
        return int(position) if confirmed else 0

    def read(self, position: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        """Whole batches from ``position`` on that start below ``limit_offset``: at most ``max_bytes``, but at
        least one; None at the end of the segment or at the limit."""
        if position + LOG_OVERHEAD > self.size:
            return None
        data = self.bytes_at(position, max(max_bytes, LOG_OVERHEAD))
        if len(data) < LOG_OVERHEAD:
            raise self._corrupt(position, "the file ends here, its records go on")
        try:
            end, next_offset, count = whole_batches(data, limit_offset=limit_offset, gapless=self.gapless)
        except CorruptBatchError as error:
            raise self._corrupt(position + max(error.position, 0), error.message) from error
        if count == 0:
            base, length = _HEAD.unpack_from(data, 0)
            if base >= limit_offset:
                return None
            size = length + LOG_OVERHEAD
            if length < HEADER_SIZE - LOG_OVERHEAD or position + size > self.size:
                raise self._corrupt(position, f"batch length {length} does not fit the file")
            data = self.bytes_at(position, size)
            end, next_offset, count = whole_batches(data, limit_offset=limit_offset)
            if count != 1:
                raise self._corrupt(position, f"the file ends inside a batch of {size} bytes")
        if self.gapless and position == 0 and first_offset(data) != self.base_offset:
            raise self._corrupt(0, f"offset {first_offset(data)} where {self.base_offset} was due")
        if end < len(data):
            data = memoryview(data)[:end]
        return Chunk(data, next_offset, position + end)

    def last_end(self) -> int:
        """The offset behind its last batch, as the file says; of a closed segment it is read once. OSError,
        CorruptBatchError."""
        if self._end is not None:
            return self._end
        end, position, entry = self.base_offset, 0, self.offsets().last()
        if entry is not None and _confirms(self.bytes_at(entry[1], HEADER_SIZE), entry[0]):
            position = entry[1]
        while (chunk := self.read(position, _STALE_BYTES, INT64_MAX)) is not None:
            end, position = chunk.next_offset, chunk.end_position
        if self.closed:
            self._end = end
        return end

    def _corrupt(self, position: int, reason: str) -> CorruptBatchError:
        path = self.path()
        return CorruptBatchError(f"{path} at byte {position}: {reason}", path=path, position=position)

    def max_timestamp(self, limit_offset: int) -> int:
        """The largest timestamp below ``limit_offset`` in ms, -1 if there is none: from the time index, and
        the headers of the few batches behind its newest entry. Found once for a closed segment."""
        if self._max_timestamp is not None and self.next_offset <= limit_offset:
            return self._max_timestamp
        newest, position = -1, 0
        known, entry = self.times().last(), self.offsets().last()
        if (
            known is not None
            and entry is not None
            and max(known[1], entry[0]) < limit_offset
            and _confirms(self.bytes_at(entry[1], HEADER_SIZE), entry[0])
        ):
            newest, position = known[0], entry[1]
        while (chunk := self.read(position, 1 << 20, limit_offset)) is not None:
            for _, header in iter_headers(chunk.data):
                newest = max(newest, header.max_timestamp)
            position = chunk.end_position
        if self.closed and self.next_offset <= limit_offset:
            self._max_timestamp = newest
        return newest

    def newest_ms(self, limit_offset: int) -> int:
        """The time that the segment's age counts from, as Kafka has it: the largest timestamp, or where none is of
        1970 or later, when the file last changed. -1 where that is no time."""
        newest = self.max_timestamp(limit_offset)
        if newest < 0 and self.size:
            newest = self._pool.fs.stat(self.path()).modified_ms
        return newest

    # --- indexes ---

    def aborted(self) -> list[AbortedTransaction]:
        """The transactions whose abort marker is in here, in the order of the markers; read once, but again
        and again for a segment that somebody else appends to. OSError, CorruptBatchError."""
        rows = self._aborted
        if rows is None:
            path, fs = self.path(ABORTED_SUFFIX), self._pool.fs
            rows = read_rows(fs, path, self.base_offset, whole=self.closed)
            if self.closed and (self._is_replaced() or (not rows and exists(fs, path + ".deleted"))):
                raise FileNotFoundError(errno.ENOENT, "it is being retired", self.path())
            if self.closed or self.rule is not None:
                self._aborted = rows
        return rows

    @property
    def fs(self) -> FileSystem:
        return self._pool.fs

    def believe_aborted(self, rows: list[AbortedTransaction]) -> None:
        """What ``aborted`` gives from now on: its file has lost rows."""
        if self.closed:
            self._aborted = rows

    def _is_replaced(self) -> bool:
        """Whether the log of this name is not, or not any more, the one that this segment was listed with."""
        if self.retired or not exists(self._pool.fs, self.path()):
            return True
        if self._identity is None:
            return False
        file = self._pool.fs.open(self.path(), "r")
        try:
            return file.identity() != self._identity
        finally:
            file.close()

    def offsets(self) -> OffsetIndex:
        return self._offsets or OffsetIndex(self.base_offset, self._indexes()[0])

    def times(self) -> TimeIndex:
        return self._times or TimeIndex(self.base_offset, self._indexes()[1])

    def _indexes(self) -> tuple[MappedTable | GrowingTable, MappedTable | GrowingTable]:
        """Both tables from the files; a missing or implausible one is rebuilt, in memory, and kept.

        Mapped tables are made anew for each lookup: an index object that stayed would pin its mapping, and
        with it a descriptor, for as long as the segment lives.
        """
        held = self._loaded
        if held is not None and self.size - held[2] < _STALE_BYTES:
            return held[0], held[1]
        offsets = self._table(offset_index.SUFFIX, offset_index.ROW)
        times = self._table(time_index.SUFFIX, time_index.ROW)
        if not self.closed and offsets is not None and times is not None:
            # Somebody else's active segment: a copy that may lag behind only makes a scan longer.
            self._loaded = (offsets, times, self.size)
            return offsets, times
        if offsets is None or times is None or not (self._checked or self._plausible(offsets, times)):
            self.rebuild_indexes(self.interval_bytes)
            invariant(self._offsets is not None and self._times is not None, "a rebuilt index is kept")
            return self._offsets.table, self._times.table  # type: ignore[union-attr]
        self._checked = self.closed
        return offsets, times

    def _table(self, suffix: str, row: struct.Struct) -> MappedTable | None:
        try:
            view = self._pool.mapping(self.path(suffix)) if self.closed else None
            if view is None:
                with self._pool.pinned(self.path(suffix)) as file:
                    view = memoryview(read_whole(file))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            return None  # no index is so large: it is made anew, in memory
        return MappedTable(view, row)

    def _plausible(self, offsets: MappedTable, times: MappedTable) -> bool:
        """The cheap check on open: the newest entries lie inside the segment and agree with their batch."""
        if offsets.count:
            relative, position = offsets.row(offsets.count - 1)
            if not 0 <= position <= self.size - HEADER_SIZE or relative < 0:
                return False
            head = self.bytes_at(position, HEADER_SIZE)
            base, length = _HEAD.unpack_from(head, 0)
            last = base + int.from_bytes(head[23:27], "big", signed=True)
            if last != self.base_offset + relative or position + length + LOG_OVERHEAD > self.size:
                return False
        if times.count:
            timestamp_ms, relative = times.row(times.count - 1)
            if relative < 0 or timestamp_ms < 0 or self.base_offset + relative >= self.next_offset:
                return False
            if times.count > 1 and times.row(times.count - 2)[0] >= timestamp_ms:
                return False
        return True

    def rebuild_indexes(self, interval_bytes: int) -> None:
        """Make both indexes anew from the segment's bytes, in memory."""
        self._offsets, self._times, _, _ = self._built(interval_bytes)

    def _built(self, interval_bytes: int) -> tuple[OffsetIndex, TimeIndex, IndexRule, SegmentScan]:
        offsets = OffsetIndex(self.base_offset, GrowingTable(offset_index.ROW))
        times = TimeIndex(self.base_offset, GrowingTable(time_index.ROW))
        rule = IndexRule(interval_bytes)
        scan = SegmentScan(self.bytes_at, start=0, end=self.size, next_offset=self.base_offset, check=False)
        for position, header, _ in scan:
            if rule.feed(header.last_offset, header.size, header.max_timestamp):
                offsets.append(header.last_offset, position)
                times.maybe_append(rule.max_timestamp_ms, rule.offset_of_max)
        if scan.bad is not None:
            raise self._corrupt(scan.bad.position, scan.bad.error.message)
        return offsets, times, rule, scan

    def rewrite_indexes(self, interval_bytes: int) -> None:
        """Rebuild and put both files in place durably (by rename: another process may read the old ones)."""
        self.rebuild_indexes(interval_bytes)
        for suffix, index in ((offset_index.SUFFIX, self._offsets), (time_index.SUFFIX, self._times)):
            table = index.table if index is not None else None
            invariant(isinstance(table, GrowingTable), "a rebuilt index is in memory")
            self._pool.forget_file(self.path(suffix))
            replace_file(self._pool.fs, self.path(suffix), table.encoded())  # type: ignore[union-attr]
        if self.closed:
            self._offsets = self._times = None
            self._checked = False

    # --- writing: only by the log's writer, under its lock ---

    def activate(
        self, offsets: OffsetIndex, times: TimeIndex, rule: IndexRule, first_timestamp_ms: int
    ) -> None:
        """Make this the segment that is appended to, with growing indexes."""
        self._times, self._offsets, self.rule = times, offsets, rule
        self.index_bytes = offsets.table.count * time_index.ROW.size
        self.first_timestamp_ms = first_timestamp_ms
        self.closed = False

    def reopen_for_appends(self) -> None:
        """Take a segment that was cut as the active one: indexes made anew, in memory and on disk."""
        self.closed = False
        offsets, times, rule, scan = self._built(self.interval_bytes)
        first_timestamp_ms = -1
        if self.size > 0:
            first_timestamp_ms = read_header(self.bytes_at(0, HEADER_SIZE)).max_timestamp
        self.activate(offsets, times, rule, first_timestamp_ms)
        self.next_offset = scan.next_offset
        for suffix, index in ((offset_index.SUFFIX, offsets), (time_index.SUFFIX, times)):
            if isinstance(index.table, GrowingTable):
                self._pool.forget_file(self.path(suffix))
                replace_file(self._pool.fs, self.path(suffix), index.table.encoded())
                index.table.mark_stored()

    def append_aborted(self, row: AbortedTransaction) -> None:
        """Put the row into the file, unsynced, before its marker is in the log. OSError: it is not there."""
        rows = self.aborted()
        path = self.path(ABORTED_SUFFIX)
        if not rows:
            try:
                self._pool.fs.open(path, "create").close()
            except FileExistsError:
                pass  # of a marker that did not get in
        self._aborted_unsynced = True
        with self._pool.pinned(path, True) as file:
            try:
                write_all(file, [encode_rows([row])], len(rows) * ABORTED_ROW.size)
            except OSError:
                file.truncate(len(rows) * ABORTED_ROW.size)
                raise
        rows.append(row)

    def take_back_aborted(self) -> None:
        """Its marker could not be written: cut the newest row off. OSError."""
        rows = self.aborted()
        rows.pop()
        with self._pool.pinned(self.path(ABORTED_SUFFIX), True) as file:
            file.truncate(len(rows) * ABORTED_ROW.size)

    def forget_aborted(self) -> None:
        """Another process appended a marker, and perhaps a row: what the file holds is to be read again, and
        to be synced before the segment is closed."""
        self._aborted = None
        self._aborted_unsynced = exists(self._pool.fs, self.path(ABORTED_SUFFIX))

    def store_indexes(self) -> None:
        """Write the index rows that the files lack."""
        for suffix, index in ((offset_index.SUFFIX, self._offsets), (time_index.SUFFIX, self._times)):
            table = index.table if index is not None else None
            if not isinstance(table, GrowingTable):
                continue
            rows, position = table.unstored()
            if rows:
                self.unsynced_indexes.add(suffix)
                with self._pool.pinned(self.path(suffix), True) as file:
                    write_all(file, [rows], position)
                    table.mark_stored()

    def _stored_rows(self, suffix: str) -> int:
        index = self._offsets if suffix == offset_index.SUFFIX else self._times
        table = None if index is None else index.table
        return table.count - table.unstored_rows if isinstance(table, GrowingTable) else -1

    @property
    def owes_aborted(self) -> bool:
        """Whether rows of the transaction index are to be made durable, or counted."""
        return self._aborted_unsynced or self._aborted_uncounted

    # ``sync_indexes`` in parts, for one sync of many segments' indexes: under the log's lock, but the sync itself.

    def begin_index_sync(self) -> tuple[LentIndex, ...]:
        """The files that may not be durable as they are, open until ``end_index_sync``. OSError."""
        lent: list[LentIndex] = []
        try:
            for suffix in sorted(self.unsynced_indexes):
                file = self._pool.pin(self.path(suffix), True)
                lent.append(LentIndex(suffix, file, self._stored_rows(suffix)))
        except BaseException:
            self.end_index_sync(lent, synced=False)
            raise
        return tuple(lent)

    def end_index_sync(self, lent: Sequence[LentIndex], *, synced: bool) -> None:
        """Files that have got rows meanwhile are still to be synced."""
        for one in lent:
            self._pool.unpin(one.file, True)
            if synced and self._stored_rows(one.suffix) == one.rows:
                self.unsynced_indexes.discard(one.suffix)

    def sync_indexes(self) -> None:
        """Make the index rows that were written durable. Files with nothing new are let be: the syncs of two empty
        indexes are a third of what the close of a partition with few records costs."""
        for suffix in sorted(self.unsynced_indexes):
            with self._pool.pinned(self.path(suffix), True) as file:
                file.sync()
            self.unsynced_indexes.discard(suffix)
        if self._aborted_unsynced:
            with self._pool.pinned(self.path(ABORTED_SUFFIX), True) as file:
                file.sync()
            self._pool.fs.sync_dir(self.directory)
            self._aborted_unsynced, self._aborted_uncounted = False, True

    def count_aborted(self) -> None:
        """Note durably how many rows the transaction index has, after ``sync_indexes``. OSError: to be tried again."""
        if self._aborted_uncounted:
            note_counts(self._pool.fs, self.directory, {self.base_offset: len(self.aborted())})
            self._aborted_uncounted = False

    def sync(self) -> None:
        with self._pool.pinned(self.path(), True) as file:
            file.sync()

    def close_for_appends(self) -> None:
        """From now on closed; its files are complete and synced."""
        self.closed = True
        self.rule = None
        self._offsets = self._times = None
        for suffix in (LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX, ABORTED_SUFFIX):
            self._pool.forget_file(self.path(suffix))

    @property
    def unstored_rows(self) -> int:
        """Index rows that the file lacks."""
        table = self._offsets.table if self._offsets is not None else None
        return table.unstored_rows if isinstance(table, GrowingTable) else 0


def _last_delta(chunk: Buffer, at: int) -> int:
    if chunk[at + 16] < 2:
        return 0  # an old message says its own (last) offset
    return int.from_bytes(chunk[at + 23 : at + 27], "big", signed=True)


def _confirms(chunk: Buffer, last_offset: int) -> bool:
    """Whether the chunk starts with a batch that ends at ``last_offset``, as an index entry says."""
    if len(chunk) < HEADER_SIZE:
        return False
    base, length = _HEAD.unpack_from(chunk, 0)
    sound = length >= HEADER_SIZE - LOG_OVERHEAD and chunk[16] == 2
    return sound and base + _last_delta(chunk, 0) == last_offset
