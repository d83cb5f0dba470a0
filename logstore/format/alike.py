"""Records that are all alike in shape: a short cut of ``record.encode_rows`` and ``record.decode_rows``.

Rows without headers and with one timestamp whose keys are all null, or all of one length, and whose values are
all of one length, differ in three things only: offset delta, key, value. What stands around those is then the
same for every batch, so it is kept as ready-made heads, and a batch is two slice assignments and one join. What
producers send in bulk is often like that.

The way back guesses: if the first record's shape, repeated, fills the section exactly, keys and values are cut
out by ready-made slices; joined again they must give the section, byte for byte, or the guess was wrong. Who
wants the keys alone compares what stands around them column by column: a byte of every record in one slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from logstore.errors import LogStoreError
from logstore.format.varint import ONE_BYTE_END, TWO_BYTE_END, VARINTS, read_varint

_MOST_RECORDS = 1024  # a shape's heads and slices take about 250 KB at the most, and 32 shapes are kept
_SHAPES = 32
_LONGEST = TWO_BYTE_END - 16  # key and value together, so that every length is in VARINTS


@lru_cache(maxsize=_SHAPES)
def _heads(key_length: int, value_length: int) -> list[bytes]:
    """For each offset delta: the end of the record before (no headers), then all that stands before the key
    (if there is one) or the value."""
    fixed = 3 + len(VARINTS[key_length]) + max(key_length, 0) + len(VARINTS[value_length]) + value_length
    heads = []
    for delta in range(_MOST_RECORDS):
        offset_delta = VARINTS[delta]
        fields = b"\0\0" + offset_delta + VARINTS[key_length]
        if key_length < 0:
            fields += VARINTS[value_length]
        heads.append(b"\0" + VARINTS[fixed + len(offset_delta)] + fields)
    return heads


def join_alike(keys: Sequence[Any], values: Sequence[Any]) -> bytes | None:
    """The records section of rows that are alike, all at the base timestamp; None if they are not, or hold
    anything but bytes (the general way encodes or refuses them)."""
    count = len(values)
    if count > _MOST_RECORDS or set(map(type, values)) != _BYTES:
        return None
    value_length = len(values[0])
    if set(map(len, values)) != {value_length}:
        return None
    if keys[0] is None:
        if keys.count(None) != count or value_length >= _LONGEST:
            return None
        parts: list[bytes] = [b""] * (2 * count + 1)
        parts[0:-1:2] = _heads(-1, value_length)[:count]
        parts[1::2] = values
    else:
        key_length = len(keys[0]) if type(keys[0]) is bytes else -1
        if set(map(type, keys)) != _BYTES or set(map(len, keys)) != {key_length}:
            return None
        if key_length + value_length >= _LONGEST:
            return None
        parts = [VARINTS[value_length]] * (4 * count + 1)
        parts[0:-1:4] = _heads(key_length, value_length)[:count]
        parts[1::4] = keys
        parts[3::4] = values
    parts[0] = parts[0][1:]  # nothing comes before the first record
    parts[-1] = b"\0"
    return b"".join(parts)


class _Cuts:
    """Where records of one shape lie: slices of keys and values."""

    __slots__ = ("key_slices", "value_slices")

    def __init__(self, key_length: int, value_length: int) -> None:
        self.key_slices: list[slice] = []
        self.value_slices: list[slice] = []
        at = 0
        middle = len(VARINTS[value_length]) if key_length >= 0 else 0
        for head in _heads(key_length, value_length):
            key_at = at + len(head) - 1  # the head's first byte ends the record before
            value_at = key_at + max(key_length, 0) + middle
            at = value_at + value_length + 1
            self.key_slices.append(slice(key_at, key_at + max(key_length, 0)))
            self.value_slices.append(slice(value_at, value_at + value_length))


_cuts = lru_cache(maxsize=_SHAPES)(_Cuts)


def _bounds(key_length: int, value_length: int, count: int) -> tuple[range, range]:
    """Where records of one shape begin, and the end of the last (-1: null keys): those whose offset delta takes
    one byte, then those of two."""
    fixed = 3 + len(VARINTS[key_length]) + max(key_length, 0) + len(VARINTS[value_length]) + value_length
    short = len(VARINTS[fixed + 1]) + fixed + 1  # with an offset delta of one byte
    long = len(VARINTS[fixed + 2]) + fixed + 2  # of two
    first = range(0, short * min(count, ONE_BYTE_END) + 1, short)
    return first, range(first[-1] + long, first[-1] + long * (count - ONE_BYTE_END) + 1, long)


def _end(key_length: int, value_length: int, count: int) -> int:
    first, second = _bounds(key_length, value_length, count)
    return second[-1] if second else first[-1]


class _Frame:
    """All that stands around the keys and values of ``count`` records of one shape: ``columns`` of bytes and
    what they must be, ``keys`` cuts those out, ``bounds`` is where each record begins and the last ends."""

    __slots__ = ("bounds", "columns", "keys")

    def __init__(self, key_length: int, value_length: int, count: int) -> None:
        first, second = _bounds(key_length, value_length, count)
        self.bounds = [*first, *second]
        self.columns: list[tuple[slice, bytes]] = []
        heads = [head[1:] for head in _heads(key_length, value_length)[:count]]  # without the end of the last
        middle = VARINTS[value_length] if key_length >= 0 else b""
        cuts = ""
        for some in (range(min(count, ONE_BYTE_END)), range(ONE_BYTE_END, count)):
            if not some:
                continue
            start, stop, size = (
                self.bounds[some[0]],
                self.bounds[some[-1] + 1],
                self.bounds[some[0] + 1] - self.bounds[some[0]],
            )
            head = len(heads[some[0]])
            after = head + max(key_length, 0)
            places = [bytes(column) for column in zip(*heads[some.start : some.stop], strict=True)]
            fixed = [
                *enumerate(places),
                *((after + at, bytes([byte]) * len(some)) for at, byte in enumerate(middle)),
            ]
            fixed.append((size - 1, bytes(len(some))))  # no headers
            self.columns += [(slice(start + place, stop, size), column) for place, column in fixed]
            cuts += f"{head}x{key_length}s{size - after}x" * len(some)
        self.keys = Struct(cuts) if key_length >= 0 else None


_frame = lru_cache(maxsize=_SHAPES)(_Frame)


def _shape(section: bytes, count: int) -> tuple[int, int] | None:
    """Lengths of the first key (-1: null) and value, if as many records of that shape would fill the section."""
    if not 2 <= count <= _MOST_RECORDS:
        return None
    try:
        length, at = read_varint(section, 0)
        key_length, key_at = read_varint(section, at + 3)
        value_length, value_at = read_varint(section, key_at + max(key_length, 0))
    except (IndexError, LogStoreError):
        return None  # the general way says what is wrong with it
    if key_length < -1 or value_length < 0 or key_length + value_length >= _LONGEST:
        return None
    if length != value_at - at + value_length + 1:
        return None
    if _end(key_length, value_length, count) != len(section):
        return None  # before a table is made for a shape that only the first record has
    return key_length, value_length


class AlikeKeys(NamedTuple):
    """``keys`` of records that are alike, and ``bounds``: where each begins, and the end of the last."""

    keys: Sequence[bytes | None]
    bounds: Sequence[int]


def _proved(section: bytes, count: int) -> _Frame | None:
    """What stands around keys and values of a section that ``join_alike`` could have made; None if it is not one."""
    shape = _shape(section, count)
    if shape is None:
        return None
    frame = _frame(*shape, count)
    for place, column in frame.columns:
        if section[place] != column:
            return None
    return frame


def is_alike(section: bytes, count: int) -> bool:
    """Whether ``join_alike`` could have made the section: ``count`` records at the base timestamp, without headers, at
    consecutive offsets."""
    return _proved(section, count) is not None


def keys_alike(section: bytes, count: int) -> AlikeKeys | None:
    """The keys of a section that ``join_alike`` could have made, which is proved; None if it is not one. All
    records then are at the base timestamp, have a value and no headers, and lie at consecutive offsets."""
    frame = _proved(section, count)
    if frame is None:
        return None
    return AlikeKeys((None,) * count if frame.keys is None else frame.keys.unpack(section), frame.bounds)


def split_alike(section: bytes, count: int) -> tuple[list[bytes | None], list[bytes | None]] | None:
    """Keys and values of a section that ``join_alike`` could have made, proved by making it again; None if
    it is not one. All records then are at the base timestamp, without headers, at consecutive offsets."""
    shape = _shape(section, count)
    if shape is None:
        return None
    key_length, value_length = shape
    cuts = _cuts(key_length, value_length)
    values: list[bytes | None] = list(map(section.__getitem__, cuts.value_slices[:count]))
    keys: list[bytes | None] = [None] * count
    if key_length >= 0:
        keys = list(map(section.__getitem__, cuts.key_slices[:count]))
    return (keys, values) if join_alike(keys, values) == section else None


_BYTES = {bytes}
