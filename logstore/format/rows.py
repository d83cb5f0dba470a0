"""Rows as callers give them: the one rule of what a record may be, its size, and the cut into batches.

``PartitionLog.append``, ``Producer.send`` and ``send_many``, transactions, the command and Spark's sink all take what
these functions take and refuse what they refuse, with the same error. Sizes are in bytes, without compression.

The work per row is done in C (``map``, ``set``, ``accumulate``) as long as rows are plain (key, value)
pairs; rows with headers or timestamps cost a Python step each, unless the compiled twin serves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import add, itemgetter
from typing import Any, NamedTuple

from logstore.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RecordTypeError,
)
from logstore.format.batch import HEADER_SIZE
from logstore.native import compiled
from logstore.types import Header

# The varying fields of a record at their longest (see record.py): length 5, attributes 1, timestamp
# delta 1 (all rows of a batch without timestamps carry the same one), offset delta 5, key length 5, value
# length 5, header count 1.
RECORD_OVERHEAD = 23
# A batch with timestamps of the caller's may need ten bytes a delta instead of one.
TIMESTAMP_OVERHEAD = 9
HEADERS_OVERHEAD = 4  # a header count of five bytes instead of one
HEADER_OVERHEAD = 10  # of one header: two lengths

MIN_TIMESTAMP_MS = -(2**62)
MAX_TIMESTAMP_MS = 2**62 - 1
"""Times before 1970 are negative. Half of 64 bits, so that any two times fit one batch, which keeps differences. -1 is
Kafka's "no time" and taken as it is: what a Kafka broker wrote can be read and written again."""

_BYTES_OR_NONE = frozenset((bytes, type(None)))
_TUPLE = frozenset((tuple,))
_WIDTHS = frozenset((2, 3, 4))
_PAIR = frozenset((2,))
_KEY = itemgetter(0)
_VALUE = itemgetter(1)


class CheckedRows(NamedTuple):
    """``rows``: tuples of 2, 3 or 4; ``pairs``: all of 2. ``null_keys``/``some_keys``: whether there are such
    rows. ``timestamped``: a row has a timestamp of its own."""

    rows: list[Any]
    pairs: bool
    null_keys: bool
    some_keys: bool
    timestamped: bool


class Chunk(NamedTuple):
    """Rows that make one batch of ``size`` bytes at most."""

    rows: list[Any]
    size: int


def is_plain(row: Any) -> bool:
    """A (key, value) tuple of bytes or None: there is nothing to be checked but its size."""
    return (
        type(row) is tuple
        and len(row) == 2
        and type(row[0]) in _BYTES_OR_NONE
        and type(row[1]) in _BYTES_OR_NONE
    )


def check_rows(where: str, given: Iterable[Any]) -> CheckedRows:
    """RecordTypeError (or InvalidTimestampError) names the first row that is wrong, by its index. ``where`` they go,
    for messages: a topic or a partition."""
    try:
        rows = given if type(given) is list else list(given)
    except TypeError:
        raise RecordTypeError(
            f"rows for {where} are {type(given).__name__}", hint="pass a list of (key, value) rows"
        ) from None
    shape = shape_of(rows)
    if not shape.tuples:
        rows = [_row_tuple(where, index, row) for index, row in enumerate(rows)]
        shape = shape_of(rows)
    if not shape.widths_fit:
        index = next(i for i, row in enumerate(rows) if len(row) not in _WIDTHS)
        raise RecordTypeError(
            f"row {index} for {where} has {len(rows[index])} fields",
            hint="a row is (key, value), (key, value, headers) or (key, value, headers, timestamp_ms)",
        )
    if not shape.plain_bytes:
        _name_wrong_bytes(where, rows)
    timestamped = False
    if not shape.pairs:
        rows, timestamped = wide_rows(where, rows)
    return CheckedRows(rows, shape.pairs, shape.null_keys, shape.some_keys, timestamped)


class RowShape(NamedTuple):
    """What a look at the types of rows finds. ``tuples``: all are; where not, the rest is not looked at, nor where
    one has another width than ``widths_fit``. ``plain_bytes``: all keys and values are bytes or None, not of a class
    derived from bytes."""

    tuples: bool
    widths_fit: bool
    pairs: bool
    plain_bytes: bool
    null_keys: bool
    some_keys: bool


@compiled("format.rows")
def shape_of(rows: list[Any]) -> RowShape:
    if not _TUPLE.issuperset(set(map(type, rows))):
        return RowShape(False, False, False, False, False, False)
    widths = set(map(len, rows))
    if not widths <= _WIDTHS:
        return RowShape(True, False, False, False, False, False)
    key_types = set(map(type, map(_KEY, rows)))
    plain_bytes = (key_types | set(map(type, map(_VALUE, rows)))) <= _BYTES_OR_NONE
    null_keys = type(None) in key_types
    return RowShape(True, True, widths <= _PAIR, plain_bytes, null_keys, len(key_types) > null_keys)


class PlainRows(NamedTuple):
    """Plain (key, value) rows: ``total`` bytes of all, the ``largest`` one's, both without the overhead of every row.
    ``sizes`` of each, where the look at them came by these; they are ``row_sizes``."""

    null_keys: bool
    some_keys: bool
    total: int
    largest: int
    sizes: list[int] | None


@compiled("format.rows")
def plain_rows(rows: Any) -> PlainRows | None:
    """What ``check_rows`` and ``row_sizes`` find of a list of (key, value) tuples, keys and values bytes or None. None
    of all else, and of no rows."""
    if type(rows) is not list or not rows:
        return None
    shape = shape_of(rows)
    if not (shape.pairs and shape.plain_bytes):
        return None
    sizes = row_sizes(CheckedRows(rows, True, shape.null_keys, shape.some_keys, False), rows)
    return PlainRows(shape.null_keys, shape.some_keys, sum(sizes), max(sizes), sizes)


def _row_tuple(where: str, index: int, row: Any) -> tuple[Any, ...]:
    if isinstance(row, tuple | list):
        return tuple(row)
    raise RecordTypeError(
        f"row {index} for {where} is {type(row).__name__}, not a tuple",
        hint="a row is (key, value), (key, value, headers) or (key, value, headers, timestamp_ms)",
    )


def _name_wrong_bytes(where: str, rows: Sequence[Any]) -> None:
    for index, row in enumerate(rows):
        for name, content in zip(("key", "value"), row, strict=False):
            if content is not None and not isinstance(content, bytes):
                raise RecordTypeError(f"row {index} for {where}: the {name} is {type(content).__name__}")


@compiled("format.rows")
def wide_rows(where: str, rows: Sequence[Any]) -> tuple[list[Any], bool]:
    """Rows with their headers as tuples, and whether any row has a timestamp."""
    checked: list[Any] = []
    timestamped = False
    for index, row in enumerate(rows):
        if len(row) == 2:
            checked.append(row)
            continue
        who = f"row {index} for {where}"
        headers = check_headers(row[2], who) if row[2] else None
        timestamp_ms = row[3] if len(row) == 4 else None
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms, who)
            timestamped = True
            checked.append((row[0], row[1], headers, timestamp_ms))
        elif headers:
            checked.append((row[0], row[1], headers))
        else:
            checked.append((row[0], row[1]))
    return checked, timestamped


def check_headers(headers: Any, who: str) -> tuple[Header, ...]:
    """A tuple of (str, bytes | None), so that the caller's list may change. RecordTypeError names ``who``."""
    try:
        pairs = tuple([(name, content) for name, content in headers])
    except (TypeError, ValueError):
        raise RecordTypeError(
            f"{who}: headers are {type(headers).__name__} and not pairs",
            hint='headers are a sequence of (str, bytes or None), as in [("trace", b"7")]',
        ) from None
    for name, content in pairs:
        fits = content is None or isinstance(content, bytes)
        if not isinstance(name, str) or not fits or not _is_text(name):
            raise RecordTypeError(
                f"{who}: header ({type(name).__name__}, {type(content).__name__})",
                hint='headers are a sequence of (str, bytes or None), as in [("trace", b"7")]',
            )
    return pairs


def _is_text(name: str) -> bool:
    """Whether a header's name can be encoded: half of a surrogate pair cannot."""
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:
        return False


@compiled("format.rows")
def measured_headers(headers: Any, topic: str) -> tuple[tuple[Header, ...], int]:
    """``check_headers`` and the headers' part of ``row_bytes``, in one quick pass."""
    total = HEADERS_OVERHEAD
    try:
        if isinstance(headers, Iterator):
            headers = tuple(headers)  # once: it gives them no second time
        pairs = tuple(headers)
        for pair in pairs:
            name, content = pair
            if pair.__class__ is not tuple or name.__class__ is not str:
                break
            total += HEADER_OVERHEAD + (len(name) if name.isascii() else len(name.encode()))
            if content is not None:
                if content.__class__ is not bytes:
                    break
                total += len(content)
        else:
            return pairs, total
    except (TypeError, ValueError):
        pass  # not pairs: the thorough check says what they are
    checked = check_headers(headers, f"a record for topic {topic!r}")
    return checked, row_bytes(None, None, checked)


def check_timestamp(timestamp_ms: Any, who: str) -> None:
    """RecordTypeError or InvalidTimestampError, which name ``who``."""
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise RecordTypeError(
            f"{who}: timestamp_ms is {type(timestamp_ms).__name__}",
            hint="a timestamp is whole milliseconds since 1970 UTC, as int(moment.timestamp() * 1000) gives",
        )
    if not MIN_TIMESTAMP_MS <= timestamp_ms <= MAX_TIMESTAMP_MS:
        raise InvalidTimestampError(
            f"{who}: timestamp_ms={timestamp_ms} is outside -2^62 to 2^62-1",
            hint="give milliseconds since 1970 UTC, or None for now",
        )


def check_all_keyed(where: str, checked: CheckedRows) -> None:
    """InvalidRecordError names the first row without a key: for a topic that compacts."""
    if checked.null_keys:
        index = next(index for index, row in enumerate(checked.rows) if row[0] is None)
        raise missing_key(f"row {index} for {where}")


def missing_key(who: str) -> InvalidRecordError:
    return InvalidRecordError(
        f"{who} has no key, and the topic is compacted", hint="give every record of a compacted topic a key"
    )


@compiled("format.rows")
def row_sizes(checked: CheckedRows, rows: Sequence[Any]) -> list[int]:
    """Bytes of each row, without the overhead every row has (see ``row_bytes``)."""
    if not checked.pairs:
        return [row_bytes(row[0], row[1], row[2] if len(row) > 2 else None) for row in rows]
    values = map(_VALUE, rows)
    try:
        # None has no length: rows that are all bytes take the quick way, others the next one.
        if not checked.some_keys:
            return list(map(len, values))
        if not checked.null_keys:
            return list(map(add, map(len, map(_KEY, rows)), map(len, values)))
    except TypeError:
        pass  # a null value: a tombstone
    return [len(key or b"") + len(value or b"") for key, value in rows]


def check_sizes(where: str, checked: CheckedRows, limit: int, setting: str, sizes: Sequence[int]) -> None:
    """RecordTooLargeError for the first row that alone passes ``limit``, which ``setting`` names."""
    overhead = HEADER_SIZE + RECORD_OVERHEAD
    if largest(sizes) + overhead <= limit:
        return
    for index, size in enumerate(sizes):
        if size + overhead > limit:
            row = checked.rows[index]
            check_alone(f"row {index} for {where}", row, limit, setting)


@compiled("format.rows")
def largest(sizes: Sequence[int]) -> int:
    """0 of none."""
    return max(sizes, default=0)


def check_alone(who: str, row: Sequence[Any], limit: int, setting: str) -> int:
    """The exact size of a batch with just this row; RecordTooLargeError if that passes ``limit``, the value of
    ``setting``."""
    alone = alone_bytes(row[0], row[1], row[2] if len(row) > 2 else None)
    if alone > limit:
        raise RecordTooLargeError(
            f"{who} makes a batch of {alone} bytes, {setting} is {limit}",
            hint=f"raise {setting} or send smaller records",
        )
    return alone


@compiled("format.rows")
def cut(
    rows: list[Any], sizes: Sequence[int], timestamped: bool, cap: int, limit: int, most: int = 1 << 31
) -> Iterator[Chunk]:
    """``rows`` in chunks of ``most`` rows that each make a batch of at most ``cap`` bytes; a row that alone passes
    it (but not ``limit``, see ``check_sizes``) makes a chunk of its own."""
    overhead = RECORD_OVERHEAD + (TIMESTAMP_OVERHEAD if timestamped else 0)
    ends = list(accumulate(sizes))
    count = len(rows)
    start = before = 0
    while start < count:
        size_at = _size_at(ends, start, before, overhead)
        last = min(count, start + most, start + 1 + (cap - HEADER_SIZE) // overhead)
        end = bisect_right(range(start, last), cap, key=size_at) + start
        if end == start:
            row = rows[start]
            end += 1
            alone = alone_bytes(row[0], row[1], row[2] if len(row) > 2 else None)
            size = max(alone, min(limit, size_at(start)))
        else:
            size = size_at(end - 1)
        yield Chunk(rows[start:end], size)  # a copy: the list given stays the caller's
        before = ends[end - 1]
        start = end


def _size_at(ends: Sequence[int], start: int, before: int, overhead: int) -> Callable[[int], int]:
    """The size of a batch of rows ``start`` to the given index, that one included."""
    return lambda index: HEADER_SIZE + ends[index] - before + overhead * (index - start + 1)


def row_bytes(key: bytes | None, value: bytes | None, headers: Any) -> int:
    """An upper bound of a record's bytes, without the overhead that every record has."""
    total = (0 if key is None else len(key)) + (0 if value is None else len(value))
    if headers:
        total += HEADERS_OVERHEAD + HEADER_OVERHEAD * len(headers)
        for name, content in headers:
            total += len(name) if name.isascii() else len(name.encode())
            if content is not None:
                total += len(content)
    return total


def alone_bytes(key: bytes | None, value: bytes | None, headers: Any) -> int:
    """The exact size of a batch that holds this record alone, uncompressed."""
    body = 3 + _field_bytes(key) + _field_bytes(value) + _varint_bytes(len(headers or ()))
    for name, content in headers or ():
        body += _field_bytes(name.encode()) + _field_bytes(content)
    return HEADER_SIZE + _varint_bytes(body) + body


def _field_bytes(content: bytes | None) -> int:
    return 1 if content is None else _varint_bytes(len(content)) + len(content)


def _varint_bytes(length: int) -> int:
    return max(1, ((length << 1).bit_length() + 6) // 7)
