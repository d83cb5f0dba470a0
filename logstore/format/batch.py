"""The record batch of Apache Kafka, magic 2: the unit of write, transfer, compression and checksum.

All integers big-endian (Kafka's DefaultRecordBatch; KIP-98 brought it, KIP-534 bit 6)::

    0   baseOffset            i64   first offset of the batch; stays as it was through compaction
    8   batchLength           i32   bytes after this field
    12  partitionLeaderEpoch  i32   stamped by the leader; outside the CRC
    16  magic                 i8    2; checked before anything that depends on it
    17  crc                   u32   CRC-32C of everything from attributes to the end
    21  attributes            i16   bits 0-2 codec (0 none 1 gzip 2 snappy 3 lz4 4 zstd), 3 LogAppendTime,
                                    4 transactional, 5 control, 6 base timestamp is a delete horizon
    23  lastOffsetDelta       i32
    27  baseTimestamp         i64   ms
    35  maxTimestamp          i64   ms
    43  producerId            i64   -1 none
    51  producerEpoch         i16
    53  baseSequence          i32
    57  recordsCount          i32   may be less than lastOffsetDelta + 1 after compaction; may be 0
    61  records                     the compressed part starts here; see record.py

The first 16 bytes can be rewritten without touching the rest: offsets and the epoch are the log's to give.
A function that takes ``position`` reads the batch that starts there; positions and sizes are in bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from logstore.arguments import shown
from logstore.errors import (
    CorruptBatchError,
    InvalidArgumentError,
    RecordTooLargeError,
    UnsupportedMagicError,
)
from logstore.format.compression import (
    CODEC_NAMES,
    MAX_DECOMPRESSED_BYTES,
    codec_id,
    codec_name,
    compress,
    decompress,
)
from logstore.format.record import decode_rows, encode_rows
from logstore.format.varint import INT32_MAX, INT64_MAX
from logstore.native import compiled
from logstore.types import Buffer, Record, Row

__all__ = [
    "BatchHeader",
    "CODEC_NAMES",
    "as_produced",
    "check_crc",
    "data_batches",
    "decode_batches",
    "decode_each",
    "encode_batch",
    "encode_with_header",
    "first_offset",
    "iter_headers",
    "pack_batch",
    "pack_rows",
    "read_header",
    "recompress",
    "records_section",
    "section_view",
    "stamp",
    "stamp_log_append_time",
    "stamped",
    "whole_batches",
]

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Bytes of baseOffset and batchLength: what batchLength does not count."""
STAMP_SIZE = 16
MAGIC = 2
MIN_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
KNOWN_BITS = 0x7F

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

_MAGIC_AT = 16
_ATTRIBUTES_AT = 21
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LOG_HEAD = struct.Struct(">qi")
_STAMP = struct.Struct(">qii")
_BEFORE_ATTRIBUTES = struct.Struct(">qiibI")
_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
_INT32 = struct.Struct(">i")


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as they stand in the batch. Timestamps in ms since 1970 UTC."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> str:
        """The codec's name. ``UnsupportedCodecError`` for the numbers 5 to 7, which are not in use."""
        return codec_name(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """The base timestamp is the time from which tombstones and markers may go (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at ``position``; the records need not be there yet.

    Errors: ``UnsupportedMagicError`` (known as soon as 17 bytes are there), ``CorruptBatchError`` (too
    short, or fields that no batch can have). The CRC is not checked, nor whether the codec exists.
    """
    left = len(buffer) - position
    if left > _MAGIC_AT and buffer[position + _MAGIC_AT] != MAGIC:
        found = buffer[position + _MAGIC_AT]
        raise UnsupportedMagicError(f"the record batch at byte {position} has magic {found}, not {MAGIC}")
    if left < HEADER_SIZE:
        raise CorruptBatchError(
            f"a record batch starts at byte {position}, but only {max(left, 0)} bytes are there: "
            f"its header alone has {HEADER_SIZE}",
            position=position,
        )
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    attributes = header.attributes
    if (
        header.batch_length < MIN_BATCH_LENGTH
        or attributes & ~KNOWN_BITS
        or header.base_offset < 0
        or not 0 <= header.records_count <= header.last_offset_delta + 1
        or header.last_offset_delta < 0
        or header.base_offset > INT64_MAX - header.last_offset_delta
    ):
        raise CorruptBatchError(
            f"the record batch at byte {position} is impossible: {_impossible(header)}", position=position
        )
    return header


def _impossible(header: BatchHeader) -> str:
    if header.batch_length < MIN_BATCH_LENGTH:
        return f"length {header.batch_length}, at least {MIN_BATCH_LENGTH} are needed"
    if header.attributes & ~KNOWN_BITS:
        return f"attributes {header.attributes & 0xFFFF:#06x} with bits that magic {MAGIC} does not have"
    if header.base_offset < 0:
        return f"base offset {header.base_offset}"
    if header.last_offset_delta < 0 or header.base_offset > INT64_MAX - header.last_offset_delta:
        return f"last offset delta {header.last_offset_delta} after base offset {header.base_offset}"
    return f"{header.records_count} records with last offset delta {header.last_offset_delta}"


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise ``CorruptBatchError`` unless the batch is all there and its CRC-32C right. Copies nothing."""
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        raise CorruptBatchError(
            f"the record batch at byte {position} (offset {header.base_offset}) has {header.size} bytes, "
            f"only {len(buffer) - position} are there",
            position=position,
        )
    found = crc32c(memoryview(buffer)[position + _ATTRIBUTES_AT : end])
    if found != header.crc:
        raise CorruptBatchError(
            f"the record batch at byte {position} (offset {header.base_offset}) has a wrong CRC-32C: "
            f"its bytes give {found:#010x}, its header says {header.crc:#010x}",
            position=position,
        )


def stamp(buffer: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """New first 16 bytes for the batch in ``buffer``: write them, then ``memoryview(buffer)[16:]``.

    They lie outside the CRC, so that the log gives offsets and epoch without a copy of the payload.
    """
    return _STAMP.pack(base_offset, _INT32.unpack_from(buffer, 8)[0], leader_epoch)


@compiled("format.encoding")
def stamped(buffer: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """A copy of the batch in ``buffer`` with new first 16 bytes: see ``stamp``."""
    return b"".join((stamp(buffer, base_offset, leader_epoch), memoryview(buffer)[STAMP_SIZE:]))


def stamp_log_append_time(buffer: Buffer, timestamp_ms: int) -> bytes:
    """A copy of the batch in ``buffer`` of type LogAppendTime: bit 3, max timestamp and CRC are new."""
    header = read_header(buffer)
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    return pack_batch(
        header._replace(attributes=attributes, max_timestamp=timestamp_ms),
        memoryview(buffer)[HEADER_SIZE : header.size],
    )


def as_produced(
    buffer: Buffer, *, producer_id: int, epoch: int, base_sequence: int, transactional: bool
) -> bytes:
    """A copy of the batch in ``buffer`` as another producer sends it: whose it is, its sequence and the CRC are
    new, the records section is as it was, neither decoded nor decompressed."""
    header = read_header(buffer)
    kept = header.attributes & ~(TRANSACTIONAL_BIT | DELETE_HORIZON_BIT)
    return pack_batch(
        header._replace(
            base_offset=0,
            leader_epoch=NO_LEADER_EPOCH,
            attributes=kept | (TRANSACTIONAL_BIT if transactional else 0),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
        ),
        memoryview(buffer)[HEADER_SIZE : header.size],
    )


def first_offset(buffer: Buffer) -> int:
    """The base offset of the batch that the buffer starts with."""
    base_offset: int = _LOG_HEAD.unpack_from(buffer)[0]
    return base_offset


@compiled("format.batches")
def whole_batches(
    buffer: Buffer, *, limit_offset: int | None = None, position: int = 0, gapless: bool = False
) -> tuple[int, int, int]:
    """How far whole batches reach: ``(end position, next offset, how many)``.

    Stops at a batch that is not all there, or whose base offset is ``limit_offset`` or more. With no batch:
    ``(position, -1, 0)``. Only sizes and offsets are read; ``CorruptBatchError`` for an impossible size, and
    for offsets that go back or, if ``gapless``, jump: no checksum covers them.
    """
    size = len(buffer)
    unpack = _LOG_HEAD.unpack_from
    delta = _INT32.unpack_from
    count = 0
    due = -1
    while position + HEADER_SIZE <= size:
        base_offset, batch_length = unpack(buffer, position)
        if batch_length < MIN_BATCH_LENGTH:
            raise CorruptBatchError(
                f"the record batch at byte {position} is impossible: length {batch_length}, at least "
                f"{MIN_BATCH_LENGTH} are needed",
                position=position,
            )
        if base_offset != due and count and (gapless or base_offset < due):
            raise CorruptBatchError(
                f"the record batch at byte {position} has offset {base_offset} where {due} was due",
                position=position,
            )
        end = position + batch_length + LOG_OVERHEAD
        if end > size or (limit_offset is not None and base_offset >= limit_offset):
            break
        due = base_offset + delta(buffer, position + 23)[0] + 1
        position = end
        count += 1
    return position, due, count


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """``(position, header)`` of every batch from ``position`` on.

    ``CorruptBatchError`` if the last is not all there; other errors as in ``read_header``.
    """
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position)
        after = position + header.batch_length + LOG_OVERHEAD
        if after > end:
            raise CorruptBatchError(
                f"the record batch at byte {position} (offset {header.base_offset}) has {header.size} "
                f"bytes, only {end - position} are there",
                position=position,
            )
        yield position, header
        position = after


def encode_batch(
    rows: Sequence[Row],
    *,
    now_ms: int,
    codec: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytes:
    """One batch of ``rows``: tuples of key, value[, headers[, timestamp_ms]]. No timestamp: ``now_ms``.

    Errors: ``InvalidRecordError`` (no rows), ``RecordTypeError`` (names the row), ``InvalidTimestampError``,
    ``RecordTooLargeError`` (past the 2 GiB of the format), those of ``compression.compress``.
    """
    return encode_with_header(
        rows,
        now_ms,
        codec,
        level,
        base_offset,
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
        transactional,
    )[0]


@compiled("format.encoding")
def encode_with_header(
    rows: Sequence[Row],
    now_ms: int,
    codec: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> tuple[bytes, BatchHeader]:
    """``encode_batch``, and the header of what it made, for who would have to read it again at once."""
    return pack_rows(
        encode_rows(rows, now_ms),
        codec,
        level,
        base_offset,
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
        transactional,
    )


def pack_rows(
    encoded: tuple[Buffer, int, int, int],
    codec: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> tuple[bytes, BatchHeader]:
    """``encode_with_header`` of rows that are encoded: an ``EncodedRows``."""
    records, base_ms, max_ms, count = encoded
    attributes = 0
    if codec != "none":
        attributes = codec_id(codec)
        records = compress(codec, records, level)
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    fields = (attributes, count - 1, base_ms, max_ms, producer_id, producer_epoch, base_sequence, count)
    return _packed(base_offset, leader_epoch, fields, records)


def pack_batch(header: BatchHeader, records: Buffer) -> bytes:
    """A batch of a header and a records section, already compressed as its attributes say.

    ``batch_length``, ``magic`` and ``crc`` of ``header`` are not used but computed. ``InvalidArgumentError`` for
    a field that its width cannot hold.
    """
    return _packed(header.base_offset, header.leader_epoch, header[5:], records)[0]


def _packed(
    base_offset: int, leader_epoch: int, fields: tuple[int, ...], records: Buffer
) -> tuple[bytes, BatchHeader]:
    """A batch of the header fields from ``attributes`` on and a records section, and its header."""
    size = MIN_BATCH_LENGTH + len(records)
    if size > INT32_MAX:
        raise RecordTooLargeError(f"a batch of {size} bytes does not fit the format's {INT32_MAX}")
    try:
        checked = _FROM_ATTRIBUTES.pack(*fields)
        crc = crc32c(records, crc32c(checked))
        head = _BEFORE_ATTRIBUTES.pack(base_offset, size, leader_epoch, MAGIC, crc)
    except (struct.error, TypeError) as error:
        wrong = BatchHeader._make((base_offset, size, leader_epoch, MAGIC, 0, *fields))
        raise InvalidArgumentError(
            f"a batch cannot say {shown(wrong)}: {error}",
            hint="offsets and producer ids are of 64 bits, sequences and leader epochs of 32, producer epochs of 16",
        ) from error
    header = BatchHeader._make((base_offset, size, leader_epoch, MAGIC, crc, *fields))
    return b"".join((head, checked, records)), header


def records_section(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """The records of a batch, decompressed. Errors of ``decompress``."""
    return bytes(section_view(buffer, position, header, max_bytes))


def section_view(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Buffer:
    """``records_section`` without a copy of what is not compressed: input for ``record.decode_rows``."""
    section = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    if not header.attributes & CODEC_MASK:
        return section
    return decompress(header.codec, section, max_bytes)


@compiled("format.batches")
def data_batches(
    buffer: Buffer, start_offset: int, end_offset: int | None, check: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """``(position, header)`` of the batches that may hold records in [start_offset, end_offset).

    Control batches and empty ones are left out. With ``check`` each CRC is proved; errors of ``check_crc``
    and ``iter_headers``.
    """
    for position, header in iter_headers(buffer):
        if end_offset is not None and header.base_offset >= end_offset:
            break
        if header.last_offset < start_offset:
            continue
        if check:
            check_crc(buffer, position, header)
        if header.records_count and not header.is_control:
            yield position, header


def decode_batches(
    buffer: Buffer,
    topic: str,
    partition: int,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    check: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """The records of whole batches, one after another, with start_offset <= offset < end_offset.

    Control batches are left out; records of LogAppendTime batches carry the batch's timestamp. ``check``:
    prove each CRC first. ``max_decompressed_bytes`` bounds each batch. Errors: ``CorruptBatchError``,
    ``UnsupportedMagicError``, ``UnsupportedCodecError``, ``MissingExtraError``, ``DecompressionBombError``.
    """
    records: list[Record] = []
    for found in decode_each(
        buffer,
        topic,
        partition,
        start_offset=start_offset,
        end_offset=end_offset,
        check=check,
        max_decompressed_bytes=max_decompressed_bytes,
    ):
        records += found
    return records


def decode_each(
    buffer: Buffer,
    topic: str,
    partition: int,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    check: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> Iterator[list[Record]]:
    """``decode_batches``, a batch at a time: for who hands records on as they come, and so keeps few of them."""
    for position, header in data_batches(buffer, start_offset, end_offset, check):
        found = decode_rows(
            section_view(buffer, position, header, max_decompressed_bytes),
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            topic,
            partition,
            header.max_timestamp if header.is_log_append_time else None,
        )
        if found[-1].offset > header.last_offset:
            raise CorruptBatchError(
                f"a record in the batch at byte {position} has offset {found[-1].offset}, past the "
                f"batch's last offset {header.last_offset}",
                position=position,
            )
        if header.base_offset < start_offset or (end_offset is not None and header.last_offset >= end_offset):
            last = header.last_offset if end_offset is None else end_offset - 1
            found = [record for record in found if start_offset <= record.offset <= last]
        yield found


def recompress(buffer: Buffer, codec: str, level: int | None = None) -> bytes:
    """The batches of ``buffer`` in another codec: the same records and headers, only lengths and CRCs new.

    Control batches stay as they are, since Kafka never compresses them. No record is decoded.
    Errors: as ``decode_batches``, and those of ``compression.compress``.
    """
    number = codec_id(codec)
    batches: list[Buffer] = []
    for position, header in iter_headers(buffer):
        check_crc(buffer, position, header)
        if header.is_control:
            batches.append(memoryview(buffer)[position : position + header.size])
            continue
        section = compress(codec, records_section(buffer, position, header), level)
        attributes = header.attributes & ~CODEC_MASK | number
        batches.append(pack_batch(header._replace(attributes=attributes), section))
    return b"".join(batches)
