"""Rows of a ``send_many``: checked as a whole before any is queued, then cut into batches.

The work per row is done in C (``map``, ``set``, ``accumulate``) as long as rows are plain (key, value)
pairs; rows with headers or timestamps cost a Python step each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import add, itemgetter
from typing import Any, NamedTuple

from logstore.client.producer.pending import (
    HEADER_OVERHEAD,
    HEADERS_OVERHEAD,
    RECORD_OVERHEAD,
    TIMESTAMP_OVERHEAD,
    alone_bytes,
    row_bytes,
)
from logstore.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RecordTypeError,
)
from logstore.format.batch import HEADER_SIZE
from logstore.types import Header

_BYTES_OR_NONE = frozenset((bytes, type(None)))
_TUPLE = frozenset((tuple,))
_WIDTHS = frozenset((2, 3, 4))
_PAIR = frozenset((2,))
_KEY = itemgetter(0)
_VALUE = itemgetter(1)
_INT64_MAX = 2**63 - 1


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


def check_rows(topic: str, given: Iterable[Any]) -> CheckedRows:
    """RecordTypeError (or InvalidTimestampError) names the first row that is wrong, by its index."""
    try:
        rows = given if type(given) is list else list(given)
    except TypeError:
        raise RecordTypeError(
            f"rows for topic {topic!r} are {type(given).__name__}", hint="pass a list of (key, value) rows"
        ) from None
    if not _TUPLE.issuperset(set(map(type, rows))):
        rows = [_row_tuple(topic, index, row) for index, row in enumerate(rows)]
    widths = set(map(len, rows))
    if not widths <= _WIDTHS:
        index = next(i for i, row in enumerate(rows) if len(row) not in _WIDTHS)
        raise RecordTypeError(
            f"row {index} for topic {topic!r} has {len(rows[index])} fields",
            hint="a row is (key, value), (key, value, headers) or (key, value, headers, timestamp_ms)",
        )
    key_types = set(map(type, map(_KEY, rows)))
    value_types = set(map(type, map(_VALUE, rows)))
    if not (key_types | value_types) <= _BYTES_OR_NONE:
        _name_wrong_bytes(topic, rows)
    pairs = widths <= _PAIR
    timestamped = False
    if not pairs:
        rows, timestamped = _check_wide(topic, rows)
    return CheckedRows(rows, pairs, type(None) in key_types, bytes in key_types, timestamped)


def _row_tuple(topic: str, index: int, row: Any) -> tuple[Any, ...]:
    if isinstance(row, tuple | list):
        return tuple(row)
    raise RecordTypeError(
        f"row {index} for topic {topic!r} is {type(row).__name__}, not a tuple",
        hint="a row is (key, value), (key, value, headers) or (key, value, headers, timestamp_ms)",
    )


def _name_wrong_bytes(topic: str, rows: Sequence[Any]) -> None:
    for index, row in enumerate(rows):
        for name, content in zip(("key", "value"), row, strict=False):
            if type(content) not in _BYTES_OR_NONE:
                raise RecordTypeError(
                    f"row {index} for topic {topic!r}: the {name} is {type(content).__name__}"
                )


def _check_wide(topic: str, rows: Sequence[Any]) -> tuple[list[Any], bool]:
    """Rows with their headers as tuples, and whether any row has a timestamp."""
    checked: list[Any] = []
    timestamped = False
    for index, row in enumerate(rows):
        if len(row) == 2:
            checked.append(row)
            continue
        who = f"row {index} for topic {topic!r}"
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
        if not isinstance(name, str) or type(content) not in _BYTES_OR_NONE or not _is_text(name):
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


def measured_headers(headers: Any, topic: str) -> tuple[tuple[Header, ...], int]:
    """``check_headers`` and the headers' part of ``pending.row_bytes``, in one quick pass."""
    total = HEADERS_OVERHEAD
    try:
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
    if type(timestamp_ms) is not int:
        raise RecordTypeError(
            f"{who}: timestamp_ms is {type(timestamp_ms).__name__}",
            hint="a timestamp is whole milliseconds since 1970 UTC, as int(moment.timestamp() * 1000) gives",
        )
    if not 0 <= timestamp_ms <= _INT64_MAX:
        raise InvalidTimestampError(
            f"{who}: timestamp_ms={timestamp_ms} is outside 0 to 2^63-1",
            hint="give milliseconds since 1970 UTC, or None for now",
        )


def check_all_keyed(topic: str, checked: CheckedRows) -> None:
    """InvalidRecordError names the first row without a key: for a topic that compacts."""
    if checked.null_keys:
        index = next(index for index, row in enumerate(checked.rows) if row[0] is None)
        raise missing_key(f"row {index} for topic {topic!r}")


def missing_key(who: str) -> InvalidRecordError:
    return InvalidRecordError(
        f"{who} has no key, and the topic is compacted", hint="give every record of a compacted topic a key"
    )


def row_sizes(checked: CheckedRows, rows: Sequence[Any]) -> list[int]:
    """Bytes of each row, without the overhead every row has (see ``pending.row_bytes``)."""
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


def check_sizes(topic: str, checked: CheckedRows, limit: int, setting: str, sizes: Sequence[int]) -> None:
    """RecordTooLargeError for the first row that alone passes ``limit``, which ``setting`` names."""
    overhead = HEADER_SIZE + RECORD_OVERHEAD
    if not sizes or max(sizes) + overhead <= limit:
        return
    for index, size in enumerate(sizes):
        if size + overhead > limit:
            row = checked.rows[index]
            check_alone(f"row {index}", topic, row, limit, setting)


def check_alone(who: str, topic: str, row: Sequence[Any], limit: int, setting: str) -> int:
    """The exact size of a batch with just this row; RecordTooLargeError if that passes ``limit``."""
    alone = alone_bytes(row[0], row[1], row[2] if len(row) > 2 else None)
    if alone > limit:
        raise RecordTooLargeError(
            f"{who} for topic {topic!r} makes a batch of {alone} bytes, {setting} is {limit}",
            hint=f"raise {setting} or send smaller records",
        )
    return alone


def cut(rows: list[Any], sizes: Sequence[int], timestamped: bool, cap: int, limit: int) -> Iterator[Chunk]:
    """``rows`` in chunks that each make a batch of at most ``cap`` bytes; a row that alone passes it (but
    not ``limit``, see ``check_sizes``) makes a chunk of its own."""
    overhead = RECORD_OVERHEAD + (TIMESTAMP_OVERHEAD if timestamped else 0)
    ends = list(accumulate(sizes))
    count = len(rows)
    start = before = 0
    while start < count:
        size_at = _size_at(ends, start, before, overhead)
        last = min(count, start + 1 + (cap - HEADER_SIZE) // overhead)
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
