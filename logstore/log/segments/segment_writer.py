"""Writing segments anew from whole batches that have their offsets: for salvage and backup.

Batches are written as they come, byte for byte; both indexes follow from them by the same rule as in an
append. Offsets that have no batch any more are covered by empty batches (no record, but a last offset), the
kind that compaction leaves behind: readers step over them, and no offset changes or is given out twice.
"""

from __future__ import annotations

from logstore.errors import from_os_error
from logstore.format.batch import MAGIC, BatchHeader, pack_batch, read_header
from logstore.invariants import invariant
from logstore.log import checkpoints, epochs
from logstore.log.epochs import Epochs
from logstore.log.inspection.inspect import INT32_MAX, segment_path
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.offset_index import IndexRule
from logstore.log.segments.time_index import TimeIndex
from logstore.seams.fs import File, FileSystem, replace_file, write_all
from logstore.types import Buffer

_WRITE_BYTES = 1 << 20


def empty_batch(start: int, end_exclusive: int, leader_epoch: int) -> bytes:
    """A batch without records that uses up the offsets [start, end_exclusive): at most 2**31 of them."""
    invariant(0 < end_exclusive - start <= INT32_MAX + 1, "an empty batch covers 1 to 2**31 offsets")
    header = BatchHeader(
        base_offset=start,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=end_exclusive - start - 1,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=0,
    )
    return pack_batch(header, b"")


class SegmentWriter:
    """One new segment: the log and its two indexes, all durable after ``finish`` but for their names.

    ``ending`` is added to the names of the three files.
    """

    def __init__(
        self, fs: FileSystem, folder: str, base_offset: int, index_interval_bytes: int, ending: str = ""
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self._fs = fs
        self._folder = folder
        self._ending = ending
        self._unsynced_bytes = 0
        self._rule = IndexRule(index_interval_bytes)
        self._offsets = GrowingTable(offset_index.ROW)
        self._times = TimeIndex(base_offset, GrowingTable(time_index.ROW))
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file: File = fs.open(segment_path(folder, base_offset) + ending, "create")

    def append(self, header: BatchHeader, data: Buffer) -> None:
        """The next batch; ``data`` is copied. ``OSError`` from the disk."""
        invariant(header.base_offset >= self.next_offset, "offsets in a segment grow")
        if self._rule.feed(header.last_offset, header.size, header.max_timestamp):
            self._offsets.append(header.last_offset - self.base_offset, self.size)
            self._times.maybe_append(self._rule.max_timestamp_ms, self._rule.offset_of_max)
        self._waiting.append(bytes(data))
        self._waiting_bytes += header.size
        self.size += header.size
        self.next_offset = header.next_offset
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        position = self.size - self._waiting_bytes
        write_all(self._file, self._waiting, position)
        self._file.write_soon(self._waiting_bytes, position)
        self._unsynced_bytes += self._waiting_bytes
        self._waiting.clear()
        self._waiting_bytes = 0

    def sync_beyond(self, limit_bytes: int) -> None:
        """Sync once more than that much was written since the last time, so that no sync takes long."""
        if self._unsynced_bytes > limit_bytes:
            self._file.sync()
            self._unsynced_bytes = 0

    def finish(self) -> None:
        if self._waiting:
            self._write()
        self._file.sync()
        self._file.close()
        times = self._times.table
        invariant(isinstance(times, GrowingTable), "an index under construction grows")
        self._write_index(offset_index.SUFFIX, self._offsets.encoded())
        self._write_index(time_index.SUFFIX, times.encoded())  # type: ignore[union-attr]

    def _write_index(self, suffix: str, content: bytes) -> None:
        file = self._fs.open(segment_path(self._folder, self.base_offset, suffix) + self._ending, "create")
        try:
            write_all(file, [content], 0)
            file.sync()
        finally:
            file.close()

    def abandon(self) -> None:
        self._file.close()


class PartitionWriter:
    """A new partition's folder, filled batch by batch. Offsets are kept; ``fill_to`` covers what is lost.

    ``start_offset``: the first offset of the log. Errors are named ones; after one, ``abandon``.
    """

    def __init__(
        self, fs: FileSystem, folder: str, topic_id: str, *, start_offset: int, index_interval_bytes: int
    ) -> None:
        self.next_offset = start_offset
        self.epochs = Epochs()
        self._fs = fs
        self.folder = folder
        self._topic_id = topic_id
        self._interval = index_interval_bytes
        self._segment: SegmentWriter | None = None
        try:
            fs.mkdir(folder)
        except OSError as error:
            raise from_os_error(error, "create", folder) from error

    @property
    def segment_base(self) -> int:
        """Of the segment with the last batch."""
        return self.next_offset if self._segment is None else self._segment.base_offset

    def append(self, header: BatchHeader, data: Buffer) -> None:
        """A batch that starts at ``next_offset`` or later (compaction leaves gaps)."""
        try:
            segment = self._segment
            if segment is not None and header.last_offset - segment.base_offset > INT32_MAX:
                self.roll()
                segment = None
            if segment is None:
                segment = self._segment = SegmentWriter(
                    self._fs, self.folder, self.next_offset, self._interval
                )
            segment.append(header, data)
        except OSError as error:
            raise from_os_error(error, "write to", self.folder) from error
        self.epochs.assign(header.leader_epoch, header.base_offset)
        self.next_offset = header.next_offset

    def fill_to(self, offset: int) -> None:
        """Cover the offsets from ``next_offset`` up to ``offset`` with empty batches."""
        epoch = max(self.epochs.latest, 0)
        while self.next_offset < offset:
            end = min(offset, self.next_offset + INT32_MAX)
            data = empty_batch(self.next_offset, end, epoch)
            self.append(read_header(data), data)

    def roll(self) -> None:
        """The next batch opens a new segment."""
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                segment.finish()
            except OSError as error:
                raise from_os_error(error, "write to", self.folder) from error

    def finish(self) -> None:
        """Complete and durable, but for the folder's own name in its parent."""
        if self._segment is None:
            try:
                self._segment = SegmentWriter(self._fs, self.folder, self.next_offset, self._interval)
            except OSError as error:
                raise from_os_error(error, "write to", self.folder) from error
        self.roll()
        write_texts(self._fs, self.folder, self._topic_id, self.epochs)

    def abandon(self) -> None:
        """Close without finishing; what was written stays."""
        if self._segment is not None:
            self._segment.abandon()
            self._segment = None


def write_texts(fs: FileSystem, folder: str, topic_id: str, table: Epochs) -> None:
    """The two small text files of a partition's folder, and the folder's names, durable."""
    try:
        replace_file(fs, f"{folder}/{checkpoints.METADATA_FILE}", checkpoints.encode_metadata(topic_id))
        replace_file(fs, f"{folder}/{epochs.FILE_NAME}", checkpoints.encode_pairs(table.entries))
        fs.sync_dir(folder)
    except OSError as error:
        raise from_os_error(error, "write to", folder) from error
