"""Keys, offsets and byte ranges of the records of an uncompressed section, without making records.

For who decides record by record what stays and copies the bytes of what does (compaction): one short loop that
reads the fields before the value and jumps over the rest. The CRC of the batch was checked before; headers are
not looked into. See ``record.py`` for the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import ge
from typing import NamedTuple

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


class KeyColumn(NamedTuple):
    """``keys`` and ``deltas`` (from the batch's base offset) of all records; ``nulls``: numbers of those
    without a value; ``bounds``: where each record begins, and the end of the last; ``shifted``: whether any has
    another time than the batch's base timestamp."""

    keys: Sequence[bytes | None]
    deltas: Sequence[int]
    nulls: Sequence[int]
    bounds: Sequence[int]
    shifted: bool


def key_column(section: bytes, count: int) -> KeyColumn:
    """The keys in ``section``, which holds ``count`` records. ``CorruptBatchError`` if it does not."""
    if count * MIN_RECORD_BYTES > len(section):
        raise CorruptBatchError(f"{count} records cannot lie in a records section of {len(section)} bytes")
    alike = keys_alike(section, count)
    if alike is not None:
        return KeyColumn(alike.keys, range(count), (), alike.bounds, False)
    try:
        return _scanned(section, count)
    except IndexError:
        raise CorruptBatchError("the records section ends in the middle of a record") from None


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


def joined(section: bytes, bounds: Sequence[int], numbers: Iterable[int]) -> bytes:
    """The records of these numbers, as they stand."""
    return b"".join([section[bounds[number] : bounds[number + 1]] for number in numbers])


def timestamp_deltas(section: bytes, bounds: Sequence[int], numbers: Iterable[int]) -> list[int]:
    """Milliseconds from the base timestamp of the records of these numbers."""
    found = []
    for number in numbers:
        _, at = read_raw(section, bounds[number], VARINT_MAX_BYTES)
        raw, _ = read_raw(section, at + 1, VARLONG_MAX_BYTES)
        found.append(raw >> 1 ^ -(raw & 1))
    return found


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
