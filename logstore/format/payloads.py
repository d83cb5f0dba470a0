"""Keys and values of a batch's records, for who needs nothing else of them: state machines that follow a log.

Their batches mostly hold one record, plain: read in place, it costs a third of what a ``Record`` would.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from logstore.format.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from logstore.format.record import decode_rows

Payload = tuple[bytes | None, bytes | None]
_PLAIN = b"\0\0\0"  # attributes, timestamp delta, offset delta
_HEAD = struct.Struct(">qi4xbIhi30xi")  # offset, length, magic, crc, attributes, last offset delta, count
_ATTRIBUTES_AT = 21


def take_plain(view: memoryview, position: int, start_offset: int, into: list[Payload]) -> int:
    """Read on from the batch at ``position``, as long as they are plain (no codec, no producer's transaction, no
    control batch) and sound; the position of the first that is not, which is to be read with more care.

    Keys and values go to ``into``; batches that end before ``start_offset`` are passed over.
    """
    size = len(view)
    while position + HEADER_SIZE <= size:
        base, length, magic, crc, attributes, last_delta, count = _HEAD.unpack_from(view, position)
        end = position + length + LOG_OVERHEAD
        if magic != MAGIC or attributes or end > size or length < HEADER_SIZE - LOG_OVERHEAD:
            break
        if base + last_delta >= start_offset:
            if crc32c(view[position + _ATTRIBUTES_AT : end]) != crc or not 0 < count <= last_delta + 1:
                break
            section = bytes(view[position + HEADER_SIZE : end])
            only = _only(section) if count == 1 else None
            if only is not None:
                into.append(only)
            else:
                into += payloads(section, count, base)
        position = end
    return position


def payloads(section: bytes, count: int, base_offset: int) -> list[Payload]:
    """Of all records of an uncompressed section, in order. ``CorruptBatchError`` as ``record.decode_rows``, which
    gets ``base_offset`` for its messages."""
    records = decode_rows(section, count, base_offset, 0, "", 0, 0)
    return [(record.key, record.value) for record in records]


def _only(section: bytes) -> Payload | None:
    """The one record in ``section`` if it is plain: a key and a value of less than 8 KiB, no header. None: it is
    not, or is damaged, and has to be read with more care."""
    size = len(section)
    if size < 9:
        return None
    raw, at = section[0], 1
    if raw > 127:
        raw, at = raw & 127 | section[1] << 7, 2
    if raw >> 1 != size - at or section[at : at + 3] != _PLAIN:
        return None
    raw, at = section[at + 3], at + 4
    if raw > 127:
        raw, at = raw & 127 | section[at] << 7, at + 1
    end = at + (raw >> 1)
    if raw & 1 or raw > 0x3FFF or end + 3 > size:
        return None
    key = section[at:end]
    raw, at = section[end], end + 1
    if raw > 127:
        raw, at = raw & 127 | section[at] << 7, at + 1
    if raw == 1:
        return (key, None) if at + 1 == size and section[at] == 0 else None
    end = at + (raw >> 1)
    if raw & 1 or raw > 0x3FFF or end + 1 != size or section[end] != 0:
        return None
    return key, section[at:end]
