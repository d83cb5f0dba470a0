"""Keys, offsets and byte ranges of the records of an uncompressed section, without making records.

For who decides record by record what stays and copies the bytes of what does (compaction): one short loop that
reads the fields before the value and jumps over the rest. The CRC of the batch was checked before; headers are
not looked into. See ``record.py`` for the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import ge, itemgetter
from typing import Any, NamedTuple

from logstore.errors import CorruptBatchError
from logstore.format.alike import keys_alike
from logstore.format.record import MIN_RECORD_BYTES
from logstore.format.varint import (
    VARINT_MAX_BYTES,
    VARLONG_MAX_BYTES,
    encode_varint,
    encode_varlong,
    read_raw,
)
from logstore.native import compiled
from logstore.types import Buffer

_EVEN = bytes(range(0, 256, 2))


class KeyColumn(NamedTuple):
    """``keys`` and ``deltas`` (from the batch's base offset) of all records; ``nulls``: numbers of those
    without a value; ``bounds``: where each record begins, and the end of the last; ``shifted``: whether any has
    another time than the batch's base timestamp."""

    keys: Sequence[bytes | None]
    deltas: Sequence[int]
    nulls: Sequence[int]
    bounds: Sequence[int]
    shifted: bool


@compiled("format.spans")
def key_column(section: bytes, count: int) -> KeyColumn:
    """The keys in ``section``, which holds ``count`` records. ``CorruptBatchError`` if it does not."""
    if count * MIN_RECORD_BYTES > len(section):
        raise CorruptBatchError(f"{count} records cannot lie in a records section of {len(section)} bytes")
    alike = keys_alike(section, count)
    if alike is not None:
        return KeyColumn(alike.keys, range(count), (), alike.bounds, False)
    try:
        return _keys_of_one_length(section, count) or _scanned(section, count)
    except IndexError:
        raise CorruptBatchError("the records section ends in the middle of a record") from None


def _keys_of_one_length(section: bytes, count: int) -> KeyColumn | None:
    """The common shape, for speed: keys all of one length, all within 64 ms of the base timestamp, records under
    8 KiB. Only their lengths are read one by one; the bytes up to the value are compared column by column. None
    if the records are not so, or damaged."""
    _, at = read_raw(section, 0, VARINT_MAX_BYTES)
    if section[at + 1] > 127:
        return None
    _, at = read_raw(section, at + 2, VARINT_MAX_BYTES)
    raw, key_at = read_raw(section, at, VARINT_MAX_BYTES)
    if raw & 1:
        return None
    before_key = section[at:key_at]
    keys: list[bytes | None] = []
    deltas: list[int] = []
    nulls: list[int] = []
    bounds = [0]
    shifted = False
    for delta_bytes in (1, 2):  # offset deltas grow
        width = 2 + delta_bytes + len(before_key) + (raw >> 1) + 1  # from attributes to the value's length
        heads = _heads(section, bounds, count, width, delta_bytes == 1)
        if heads is None:
            return None
        packed = b"".join(heads)
        found = _deltas([packed[place::width] for place in range(2, 2 + delta_bytes)])
        fixed = b"\0" + before_key
        places = (0, *range(2 + delta_bytes, width))
        stamps = packed[1::width]
        if found is None or max(stamps, default=0) > 127:
            return None
        if any(
            packed[place::width].count(byte) != len(heads) for place, byte in zip(places, fixed, strict=False)
        ):
            return None
        shifted = shifted or stamps.count(0) != len(stamps)
        pick_key: Callable[[Any], bytes] = itemgetter(slice(width - 1 - (raw >> 1), width - 1))
        ends = packed[width - 1 :: width]
        if 1 in ends:
            nulls += [number for number, byte in enumerate(ends, len(keys)) if byte == 1]
        keys += map(pick_key, heads)
        deltas += found
    if bounds[-1] != len(section) or any(map(ge, deltas, deltas[1:])):
        return None
    return KeyColumn(keys, range(count) if deltas[-1] == count - 1 else deltas, nulls, bounds, shifted)


def _heads(section: bytes, bounds: list[int], count: int, width: int, short: bool) -> list[bytes] | None:
    """The first ``width`` bytes, after the length, of the records from the last bound on, whose ends are added
    to ``bounds``. ``short``: up to the first whose offset delta takes two bytes. None if one is too long or too
    short."""
    heads: list[bytes] = []
    at = bounds[-1]
    for _ in range(len(bounds), count + 1):
        length = section[at]
        start = at + 1
        if length > 127:
            high = section[start]
            if high > 127:
                return None
            length += (high << 7) - 128
            start += 1
        if short and section[start + 2] > 127:
            break
        at = start + (length >> 1)
        if at <= start + width:
            return None
        heads.append(section[start : start + width])
        bounds.append(at)
    return heads


def _deltas(columns: list[bytes]) -> list[int] | None:
    """Offset deltas from the first bytes of all, or the first and the second. None if one is negative, or of
    another width."""
    if columns[0].translate(None, _EVEN):
        return None  # the lowest bit is the sign
    if len(columns) == 1:
        return [raw >> 1 for raw in columns[0]]
    low, high = columns
    if low and (min(low) < 128 or max(high) > 127):
        return None
    return [(first >> 1) - 64 + (second << 6) for first, second in zip(low, high, strict=True)]


def _scanned(section: bytes, count: int) -> KeyColumn:
    """As ``record.decode_rows`` it reads varints of one and two bytes in place, for speed."""
    keys: list[bytes | None] = [None] * count
    deltas = [0] * count
    nulls: list[int] = []
    bounds = [0]
    shifted = False
    at = 0
    for number in range(count):
        raw = section[at]
        at += 1
        if raw > 127:
            if (high := section[at]) < 128:
                raw += (high << 7) - 128
                at += 1
            else:
                raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
        end = at + (raw >> 1)
        at += 1  # attributes
        if raw := section[at]:
            shifted = True
            if raw > 127:
                _, at = read_raw(section, at, VARLONG_MAX_BYTES)
                at -= 1
        raw = section[at + 1]
        at += 2
        if raw > 127:
            if (high := section[at]) < 128:
                raw += (high << 7) - 128
                at += 1
            else:
                raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
        deltas[number] = raw >> 1 ^ -(raw & 1)
        raw = section[at]
        at += 1
        if raw != 1:
            if raw > 127:
                raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
            keys[number] = section[at : (at := at + (raw >> 1))]
        if section[at] == 1:
            nulls.append(number)
        if at + 2 > end:
            raise CorruptBatchError(f"record {number} of the records section is shorter than its fields")
        at = end
        bounds.append(at)
    if at != len(section):
        raise CorruptBatchError(f"{count} records end at byte {at} of a section of {len(section)} bytes")
    if deltas[0] < 0 or any(map(ge, deltas, deltas[1:])):
        raise CorruptBatchError("the offsets in the records section do not grow")
    return KeyColumn(keys, deltas, nulls, bounds, shifted)


@compiled("format.spans")
def record_bounds(section: bytes, count: int) -> tuple[Sequence[int], bool]:
    """``bounds`` and ``shifted`` of ``key_column``, for a section that it has read before without an error."""
    alike = keys_alike(section, count)
    if alike is not None:
        return alike.bounds, False
    bounds = [0] * (count + 1)
    shifted = False
    at = 0
    for number in range(1, count + 1):
        raw = section[at]
        at += 1
        if raw > 127:
            if (high := section[at]) < 128:
                raw += (high << 7) - 128
                at += 1
            else:
                raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
        if section[at + 1]:
            shifted = True
        bounds[number] = at = at + (raw >> 1)
    return bounds, shifted


@compiled("format.spans")
def joined(section: bytes, bounds: Sequence[int], numbers: Iterable[int]) -> bytes:
    """The records of these numbers, as they stand."""
    return b"".join([section[bounds[number] : bounds[number + 1]] for number in numbers])


@compiled("format.spans")
def timestamp_deltas(section: bytes, bounds: Sequence[int], numbers: Iterable[int]) -> list[int]:
    """Milliseconds from the base timestamp of the records of these numbers."""
    found = []
    for number in numbers:
        at = bounds[number]
        if section[at] < 128:
            at += 2
        elif section[at + 1] < 128:
            at += 3
        else:
            at = read_raw(section, at, VARINT_MAX_BYTES)[1] + 1
        raw = section[at]
        if raw > 127:
            raw, _ = read_raw(section, at, VARLONG_MAX_BYTES)
        found.append(raw >> 1 ^ -(raw & 1))
    return found


@compiled("format.spans")
def kept_section(section: Buffer, live: bytes | bytearray) -> tuple[bytes, int, int]:
    """The records whose byte in ``live`` is not 0, joined as they stand, and their least and largest timestamp delta:
    of a section that ``key_column`` has read before without an error."""
    section = bytes(section)
    bounds, shifted = record_bounds(section, len(live))
    numbers = list(compress(range(len(live)), live))
    deltas = timestamp_deltas(section, bounds, numbers) if shifted else [0]
    return joined(section, bounds, numbers), min(deltas, default=0), max(deltas, default=0)


def rebased(section: bytes, bounds: Sequence[int], numbers: Iterable[int], shift_ms: int) -> bytes:
    """The records of these numbers with ``shift_ms`` added to their timestamp deltas (the base timestamp went
    down by as much). The sums fit 64 bits."""
    parts: list[bytes] = []
    for number in numbers:
        _, at = read_raw(section, bounds[number], VARINT_MAX_BYTES)
        raw, after = read_raw(section, at + 1, VARLONG_MAX_BYTES)
        delta = encode_varlong((raw >> 1 ^ -(raw & 1)) + shift_ms)
        rest = section[after : bounds[number + 1]]
        parts += (encode_varint(1 + len(delta) + len(rest)), section[at : at + 1], delta, rest)
    return b"".join(parts)
