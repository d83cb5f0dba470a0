"""Looking into a store's files without its engine: what is in a segment, an index, a folder.

Works on files alone, through the file-system seam: no lock is taken, nothing is written, and damage is
described instead of raised, so that it serves dump, verify and salvage alike. ``scan_segment`` goes on behind
damage: it trusts a bad batch's length only if an intact batch follows it, and else searches byte by byte for
the next batch whose CRC is right. The walk is not the one that recovery uses (``log/scan.py``): what verifies
the engine's files must not repeat the engine's mistakes.

A batch found inside the payload of a damaged one (a log that stores logs) would be taken for the log's own if
its offset fits; nothing in the format tells them apart.
"""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from logstore.directory.catalogue import MAX_PARTITIONS
from logstore.errors import CorruptBatchError, UnsupportedMagicError, from_os_error
from logstore.format.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    check_crc,
    decode_batches,
    read_header,
)
from logstore.log.cleaning import swap
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.mapped_table import MappedTable
from logstore.seams.fs import File, FileSystem, read_file
from logstore.types import Record

LOG_SUFFIX = ".log"
WINDOW_BYTES = 4 << 20  # read this much at a time; a larger batch is read whole
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_SEGMENT_NAME = re.compile(r"(\d{20})\.log")
_PARTITION_NAME = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_SIZE = struct.Struct(">i")
_MAGIC_AT = 16
_BLOCK_BYTES = 4096


class ScannedBatch(NamedTuple):
    """An intact batch: header sound, CRC right. ``data`` is the whole batch, valid until the next one."""

    position: int
    header: BatchHeader
    data: memoryview


class BadSpan(NamedTuple):
    """Bytes that are no batch. ``kind``: torn (the file ends inside), zeros (zeros to the end of the file),
    crc, magic, header (fields that no batch can have), length (the length leads nowhere) or unreadable (the
    disk refuses)."""

    position: int
    length: int
    kind: str
    message: str


Span: TypeAlias = ScannedBatch | BadSpan


class Window:
    """Bounded reads of one file of known size; each view is valid until the next call.

    Blocks that the disk refuses (EIO) read as zeros and are noted, so that what lies around them is seen.
    """

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._data = b""
        self._start = 0
        self._refused: set[int] = set()  # block numbers
        self.size = size

    def at(self, position: int, length: int) -> memoryview:
        """Up to ``length`` bytes at ``position``; short only at the end."""
        length = min(length, self.size - position)
        inside = position - self._start
        if inside < 0 or inside + length > len(self._data):
            ahead = min(max(length, WINDOW_BYTES), self.size - position)
            self._data = self._read(ahead, position)
            self._start, inside = position, 0
        return memoryview(self._data)[inside : inside + length]

    def _read(self, length: int, position: int) -> bytes:
        try:
            return self._file.pread(length, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        blocks = range(position // _BLOCK_BYTES, (position + length - 1) // _BLOCK_BYTES + 1)
        data = b"".join(map(self._block, blocks))
        skip = position - blocks.start * _BLOCK_BYTES
        return data[skip : skip + length]

    def _block(self, number: int) -> bytes:
        start = number * _BLOCK_BYTES
        try:
            return self._file.pread(min(_BLOCK_BYTES, self.size - start), start)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._refused.add(number)
            return bytes(min(_BLOCK_BYTES, self.size - start))

    def refused(self, start: int, end: int) -> bool:
        """Whether a block in [start, end) could not be read."""
        first, last = start // _BLOCK_BYTES, (end - 1) // _BLOCK_BYTES
        return any(first <= number <= last for number in self._refused)


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """A folder `<topic>-<partition>` of a store."""

    topic: str
    partition: int
    path: str


def partition_folders(fs: FileSystem, root: str) -> list[PartitionFolder]:
    """The folders under ``root`` that are named like partitions, in order of topic and partition."""
    found = []
    for name in list_folder(fs, root):
        match = _PARTITION_NAME.fullmatch(name)
        if match and int(match[2]) < MAX_PARTITIONS and is_folder(fs, f"{root}/{name}"):
            found.append(PartitionFolder(match[1], int(match[2]), f"{root}/{name}"))
    return sorted(found, key=lambda folder: (folder.topic, folder.partition))


def is_folder(fs: FileSystem, path: str) -> bool:
    """Whether there is a folder of that name, which is no symbolic link."""
    try:
        return fs.stat(path).is_dir
    except OSError:
        return False  # it went away meanwhile, or is a link, which leads out of the store


def partition_folder(path: str) -> PartitionFolder | None:
    """The folder that ``path`` names, if its last part is named like a partition's; nothing is read."""
    match = _PARTITION_NAME.fullmatch(path.rstrip("/").rpartition("/")[2])
    return PartitionFolder(match[1], int(match[2]), path.rstrip("/")) if match else None


def segment_base_offsets(fs: FileSystem, folder: str) -> list[int]:
    """Base offsets of the segments in a partition's folder, ascending; without those that a cleaned segment
    has replaced, when a crash or a look at the wrong moment finds their files still there."""
    names = list_folder(fs, folder)
    bases = {base for base in map(segment_base_offset, names) if base is not None}
    try:
        gone = swap.superseded(fs, folder, names)
    except OSError as error:
        raise from_os_error(error, "read a swap in", folder) from error
    return sorted(bases - gone)


def segment_path(folder: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    return f"{folder}/{base_offset:020d}{suffix}"


def segment_base_offset(path: str) -> int | None:
    """The base offset that a segment's path names, or None if it is no segment."""
    match = _SEGMENT_NAME.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match and int(match[1]) <= INT64_MAX else None


def read_small(fs: FileSystem, path: str) -> bytes:
    """The whole of a checkpoint or an index. FileNotFoundError, or the named error."""
    try:
        return read_file(fs, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise from_os_error(error, "read", path) from error


def list_folder(fs: FileSystem, path: str) -> list[str]:
    """Names in a folder, sorted. Errors as named ones."""
    try:
        return sorted(fs.listdir(path))
    except OSError as error:
        raise from_os_error(error, "list", path) from error


def scan_segment(fs: FileSystem, path: str, base_offset: int, *, position: int = 0) -> Iterator[Span]:
    """Every intact batch and every bad span of a segment from ``position`` on, in the file's order.

    Offsets are not judged here. The size is taken once: what a writer appends meanwhile is not looked at.
    StorageError and its kin when the file cannot be opened.
    """
    try:
        file = fs.open(path, "r")
    except OSError as error:
        raise from_os_error(error, "open", path) from error
    try:
        yield from scan_file(file, path, base_offset, position=position)
    finally:
        file.close()


def scan_file(file: File, path: str, base_offset: int, *, position: int = 0) -> Iterator[Span]:
    """As ``scan_segment``, of a segment that the caller has open; its name ``path`` is for messages."""
    try:
        window = Window(file, file.size())
        while position < window.size:
            span = _span_at(window, position, base_offset)
            yield span
            position += span.header.size if isinstance(span, ScannedBatch) else span.length
    except OSError as error:
        raise from_os_error(error, "read", path) from error


class _DamageError(Exception):
    """Why the bytes at a place are no batch; stays inside this module."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _span_at(window: Window, position: int, base_offset: int) -> Span:
    try:
        return _batch_at(window, position)
    except _DamageError as error:
        kind, message = error.kind, str(error)
    left = window.size - position
    if _only_zeros(window, position) and not window.refused(position, window.size):
        return BadSpan(position, left, "zeros", f"nothing but zeros in the last {left} bytes")
    end = _next_batch(window, position, base_offset)
    if window.refused(position, window.size if end is None else end):
        kind, message = "unreadable", "the disk refuses to read blocks here (EIO)"
    if end is None:
        return BadSpan(position, left, "torn" if kind == "length" else kind, message)
    return BadSpan(position, end - position, kind, message)


def _batch_at(window: Window, position: int) -> ScannedBatch:
    """The intact batch that starts at ``position``. _DamageError otherwise."""
    left = window.size - position
    head = window.at(position, HEADER_SIZE)
    try:
        header = read_header(head)
    except UnsupportedMagicError as error:
        raise _DamageError("magic", f"magic {head[_MAGIC_AT]} where 2 was due") from error
    except CorruptBatchError as error:
        if len(head) < HEADER_SIZE:
            raise _DamageError("length", f"the file ends {left} bytes into a batch's header") from error
        reason = error.message.partition(": ")[2] or error.message
        raise _DamageError("header", f"a batch header that cannot be: {reason}") from error
    if header.size > left:
        text = f"the batch of offset {header.base_offset} has {header.size} bytes, {left} are there"
        raise _DamageError("length", text)
    data = window.at(position, header.size)
    try:
        check_crc(data, 0, header)
    except CorruptBatchError as error:
        reason = error.message.partition(": ")[2] or error.message
        text = f"wrong CRC-32C in the batch of offset {header.base_offset}: {reason}"
        raise _DamageError("crc", text) from error
    return ScannedBatch(position, header, data)


def _only_zeros(window: Window, position: int) -> bool:
    while position < window.size:
        piece = window.at(position, min(WINDOW_BYTES, window.size - position))
        if any(piece[:64]) or piece != bytes(len(piece)):
            return False
        position += len(piece)
    return True


def _next_batch(window: Window, position: int, base_offset: int) -> int | None:
    """Where the next intact batch starts behind the bad one at ``position``; None: nowhere.

    The bad batch's own length is believed if it leads to an intact batch or exactly to the end of the file.
    """
    head = window.at(position, LOG_OVERHEAD)
    if len(head) == LOG_OVERHEAD:
        size = int(_SIZE.unpack_from(head, 8)[0]) + LOG_OVERHEAD
        end = position + size
        if size >= HEADER_SIZE and end == window.size:
            return None  # the last batch of the file: nothing behind it
        if size >= HEADER_SIZE and end < window.size and _is_batch(window, end, base_offset):
            return end
    return _search(window, position + 1, base_offset)


def _search(window: Window, position: int, base_offset: int) -> int | None:
    shape = _header_shape(base_offset)
    while position + HEADER_SIZE <= window.size:
        piece = bytes(window.at(position, WINDOW_BYTES))
        for match in shape.finditer(piece):
            if _is_batch(window, position + match.start(), base_offset):
                return position + match.start()
        if len(piece) <= HEADER_SIZE:
            return None
        position += len(piece) - HEADER_SIZE + 1
    return None


def _header_shape(base_offset: int) -> re.Pattern[bytes]:
    """Bytes that may start a header of this segment: the high half of the offset is known, then signs,
    magic and the unused attribute bits."""
    halves = sorted({base_offset >> 32, (base_offset + INT32_MAX) >> 32})
    high = b"|".join(re.escape(struct.pack(">I", half)) for half in halves)
    return re.compile(
        rb"(?=(?:" + high + rb").{4}[\x00-\x7f].{7}\x02.{4}\x00[\x00-\x7f][\x00-\x7f])", re.DOTALL
    )


def _is_batch(window: Window, position: int, base_offset: int) -> bool:
    try:
        header = _batch_at(window, position).header
    except _DamageError:
        return False
    return base_offset <= header.base_offset <= base_offset + INT32_MAX


# --- what dump shows --------------------------------------------------------------------------------


class BatchRow(NamedTuple):
    """One line of a batch listing. Sizes and positions in bytes, times in ms; ``flags`` names set bits."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    records: int
    codec: str
    leader_epoch: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    flags: str


class IndexRow(NamedTuple):
    """One index entry. ``key``: offset (offset index) or timestamp in ms (time index); ``value``: position
    or offset."""

    kind: str
    entry: int
    key: int
    value: int


def dump_batches(fs: FileSystem, path: str, base_offset: int) -> Iterator[BatchRow | BadSpan]:
    """Headers of a segment's batches, bad spans between them. Errors of ``scan_segment``."""
    for span in scan_segment(fs, path, base_offset):
        yield span if isinstance(span, BadSpan) else batch_row(span)


def batch_row(batch: ScannedBatch) -> BatchRow:
    header = batch.header
    flags = (
        (header.is_log_append_time, "log-append-time"),
        (header.is_transactional, "transactional"),
        (header.is_control, "control"),
        (header.has_delete_horizon, "delete-horizon"),
    )
    return BatchRow(
        position=batch.position,
        size=header.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        records=header.records_count,
        codec=codec_text(header),
        leader_epoch=header.leader_epoch,
        base_timestamp_ms=header.base_timestamp,
        max_timestamp_ms=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        flags=",".join(name for is_set, name in flags if is_set),
    )


def codec_text(header: BatchHeader) -> str:
    """The codec's name, also for the numbers that none has."""
    number = header.attributes & 0x07
    return header.codec if number <= 4 else f"codec {number}"


def dump_records(
    fs: FileSystem, folder: PartitionFolder, path: str, base_offset: int
) -> Iterator[list[Record] | BadSpan]:
    """The records of each batch, control batches left out; spans that cannot be read as they come."""
    for span in scan_segment(fs, path, base_offset):
        if isinstance(span, BadSpan):
            yield span
            continue
        try:
            yield decode_batches(span.data, folder.topic, folder.partition, check=False)
        except CorruptBatchError as error:
            yield BadSpan(span.position, span.header.size, "records", error.message)


def dump_indexes(fs: FileSystem, folder: str, base_offset: int) -> Iterator[IndexRow]:
    """Entries of a segment's offset and time index; an index that is missing has none."""
    for kind, module in (("offset", offset_index), ("time", time_index)):
        table = index_table(fs, segment_path(folder, base_offset, module.SUFFIX), module.ROW)
        if table is None:
            continue
        for entry in range(table.count):
            key, value = table.row(entry)
            if kind == "offset":
                yield IndexRow(kind, entry, base_offset + key, value)
            else:
                yield IndexRow(kind, entry, key, base_offset + value)


def index_table(fs: FileSystem, path: str, row: struct.Struct) -> MappedTable | None:
    """An index file's rows without padding; None if there is no such file."""
    try:
        return MappedTable(memoryview(read_small(fs, path)), row)
    except FileNotFoundError:
        return None
