"""Variable-length integers: zigzag ones, as records use them (Kafka's ByteUtils, Protocol Buffers' sint32/64), and the
plain ones beneath (``encode_raw``, ``read_raw``) of the heads of messages.

A value is zigzagged (0, -1, 1, -2 -> 0, 1, 2, 3) and written in groups of seven bits, lowest first; the
top bit of a byte says that another follows. A varint holds 32 bits in at most 5 bytes, a varlong 64 in at
most 10. Encodings longer than needed are read, as Kafka reads them; ones with too many bits are not.

``VARINTS`` holds the ready bytes of 0 .. 8191 (all that fit two bytes) and, as its **last** entry, those of
-1: ``VARINTS[length]`` is right for every short length and for the -1 that stands for null.
"""

from __future__ import annotations

from logstore.errors import CorruptBatchError

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

VARINT_MAX_BYTES = 5
VARLONG_MAX_BYTES = 10

ONE_BYTE_END = 64
"""First non-negative value that needs two bytes."""

TWO_BYTE_END = 8192
"""First non-negative value that needs three bytes; the size of the ready-made table."""

VARINTS: list[bytes] = [bytes((value << 1,)) for value in range(ONE_BYTE_END)]
VARINTS += [bytes((value << 1 & 0x7F | 0x80, value >> 6)) for value in range(ONE_BYTE_END, TWO_BYTE_END)]
VARINTS.append(b"\x01")


def encode_raw(raw: int) -> bytes:
    """The bytes of an integer that is not negative, without zigzag: a varint of Kafka's flexible messages and of
    Protocol Buffers."""
    if raw < 1 << 21:
        if raw < 1 << 14:
            return bytes((raw & 0x7F | 0x80, raw >> 7)) if raw > 0x7F else bytes((raw,))
        return bytes((raw & 0x7F | 0x80, raw >> 7 & 0x7F | 0x80, raw >> 14))
    if raw < 1 << 28:
        return bytes((raw & 0x7F | 0x80, raw >> 7 & 0x7F | 0x80, raw >> 14 & 0x7F | 0x80, raw >> 21))
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """The bytes of an int32, which the caller has checked to be one (a length, a delta)."""
    if -1 <= value < TWO_BYTE_END:
        return VARINTS[value]
    return encode_raw((value << 1 ^ value >> 31) & 0xFFFFFFFF)


def encode_varlong(value: int) -> bytes:
    """The bytes of an int64."""
    if -1 <= value < TWO_BYTE_END:
        return VARINTS[value]
    return encode_raw((value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF)


def size_of_varint(value: int) -> int:
    """How many bytes ``encode_varint(value)`` takes."""
    raw = value << 1 ^ value >> 31
    return max(1, (raw.bit_length() + 6) // 7)


def read_raw(buffer: bytes | memoryview, position: int, max_bytes: int) -> tuple[int, int]:
    """The integer before zigzag is undone, and the position after it. ``IndexError`` past the end,
    ``CorruptBatchError``: it has more bits than 32 or, where ``max_bytes`` is not that of a varint, 64."""
    raw = buffer[position]
    if raw < 0x80:
        return raw, position + 1
    byte = buffer[position + 1]
    raw += (byte << 7) - 0x80
    if byte < 0x80:
        return raw, position + 2
    byte = buffer[position + 2]
    raw += (byte << 14) - 0x4000
    if byte < 0x80:
        return raw, position + 3
    raw -= 0x200000
    shift = 21
    for place in range(position + 3, position + max_bytes):
        byte = buffer[place]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> (32 if max_bytes == VARINT_MAX_BYTES else 64):
                break
            return raw, place + 1
        shift += 7
    raise CorruptBatchError(f"the integer at byte {position} has too many bits")


def read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """``(value, position after it)`` of an int32. ``CorruptBatchError`` if cut short or too long."""
    return _read(buffer, position, VARINT_MAX_BYTES)


def _read(buffer: bytes | memoryview, position: int, max_bytes: int) -> tuple[int, int]:
    try:
        raw, after = read_raw(buffer, position, max_bytes)
    except IndexError:
        raise CorruptBatchError(f"an integer is cut short at byte {len(buffer)}") from None
    return raw >> 1 ^ -(raw & 1), after
