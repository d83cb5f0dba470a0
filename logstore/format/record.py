"""Rows to the records section of a batch, and back: the two hot functions.

One record (integers are zigzag varints, see ``varint.py``)::

    length          varint   bytes after this field
    attributes      i8       0
    timestampDelta  varlong  ms from the batch's base timestamp, may be negative
    offsetDelta     varint   from the batch's base offset
    keyLength       varint   -1: null
    key             bytes
    valueLength     varint   -1: null
    value           bytes
    headerCount     varint
      keyLength     varint   UTF-8, never null
      key           bytes
      valueLength   varint   -1: null
      value         bytes

``encode_rows`` and ``decode_rows`` are the only places that touch records one by one; a compiled twin of
these two may replace them. Both work on columns: a step over a column is a ``map`` or a slice assignment,
so that Python's own work per record stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import repeat, starmap
from operator import add, itemgetter
from typing import Any, NamedTuple

from logstore.errors import CorruptBatchError, InvalidRecordError, InvalidTimestampError, RecordTypeError
from logstore.format.alike import is_alike, join_alike, keys_alike, split_alike
from logstore.format.headers import header_columns
from logstore.format.varint import (
    INT64_MAX,
    INT64_MIN,
    ONE_BYTE_END,
    TWO_BYTE_END,
    VARINT_MAX_BYTES,
    VARINTS,
    VARLONG_MAX_BYTES,
    encode_varint,
    encode_varlong,
    read_raw,
    size_of_varint,
)
from logstore.native import compiled
from logstore.types import Buffer, Header, Record, Row

MIN_RECORD_BYTES = 7
"""The smallest record: a length and six fields of one byte. LogOffsets a count before anything is allocated."""

_NULL_ROW: tuple[None, None, None, None] = (None, None, None, None)
_BYTES_TYPE = frozenset((bytes,))
_NULLABLE_BYTES = frozenset((bytes, type(None)))
_NULLABLE_INT = frozenset((int, type(None)))

_ONE_RECORD_BYTES = TWO_BYTE_END - 16  # key and value of a single record whose lengths are all in VARINTS
# Ready-made tables over 0 .. 8191, each with the null's entry last (see varint.py); about 2 MB in all, with
# those of ``_heads``.
_SIZES = [length + (1 if length < ONE_BYTE_END else 2) for length in range(TWO_BYTE_END)]
_SIZES.append(1)
_DELTA_SIZES = [1] * ONE_BYTE_END + [2] * (TWO_BYTE_END - ONE_BYTE_END)
# Offset delta, then the length -1 of a null key.
_DELTAS_NULL_KEY = [varint + b"\x01" for varint in VARINTS]


class EncodedRows(NamedTuple):
    """A records section, uncompressed, with what the batch header says about it. Timestamps in ms."""

    records: bytes
    base_timestamp: int
    max_timestamp: int
    records_count: int


class _Column(NamedTuple):
    """Keys or values: their payloads (b"" for null), length fields, and the bytes both take together."""

    payloads: Sequence[bytes]
    lengths: Sequence[bytes]
    sizes: Sequence[int]


@compiled("format.encoding")
def encode_rows(rows: Sequence[Row], now_ms: int) -> EncodedRows:
    """The records section of ``rows`` (tuples of 2, 3 or 4: key, value[, headers[, timestamp_ms]]).

    A timestamp of None becomes ``now_ms``; the base timestamp is the first record's, as Kafka has it.
    Errors: ``InvalidRecordError`` (no rows), ``RecordTypeError`` (which row, and what is wrong),
    ``InvalidTimestampError`` (outside int64).
    """
    count = len(rows)
    if not count:
        raise InvalidRecordError("cannot encode a batch of no rows", hint="send at least one record")
    if count == 1 and (one := _encode_one(rows[0], now_ms)) is not None:
        return one
    keys, values, headers, timestamps = _columns(rows)
    if headers is None and timestamps is None and (alike := join_alike(keys, values)) is not None:
        return EncodedRows(alike, now_ms, now_ms, count)
    deltas, delta_sizes = _offset_deltas(count)
    value = _payload_column(values, "value")
    stamps = tails = None
    base_ms = max_ms = now_ms
    if timestamps is not None:
        base_ms, max_ms, stamps = _timestamp_deltas(timestamps, now_ms)
    if headers is not None:
        tails = header_columns(headers)

    if keys[0] is None and keys.count(None) == count:
        sizes: Sequence[int] = list(map(add, value.sizes, delta_sizes))
        columns: list[Sequence[bytes]] = [_null_key_deltas(count), value.lengths, value.payloads]
        fixed = 4  # attributes, timestamp delta, key length, header count
    else:
        key = _payload_column(keys, "key")
        sizes = list(map(add, map(add, key.sizes, value.sizes), delta_sizes))
        columns = [deltas, key.lengths, key.payloads, value.lengths, value.payloads]
        fixed = 3
    return EncodedRows(_join(sizes, fixed, columns, stamps, tails), base_ms, max_ms, count)


def _encode_one(row: Any, now_ms: int) -> EncodedRows | None:
    """The batch of one record that a durable send makes, without columns; None if it is not of the plain kind
    (headers, large or odd fields), which the general way encodes or refuses."""
    if type(row) is not tuple:
        return None
    width = len(row)
    if width != 2 and (not 3 <= width <= 4 or row[2]):
        return None
    key, value = row[0], row[1]
    stamp_ms = row[3] if width == 4 and row[3] is not None else now_ms
    if type(stamp_ms) is not int or not INT64_MIN <= stamp_ms <= INT64_MAX:
        return None
    if type(key) not in _NULLABLE_BYTES or type(value) not in _NULLABLE_BYTES:
        return None
    key_length = -1 if key is None else len(key)
    value_length = -1 if value is None else len(value)
    if key_length + value_length >= _ONE_RECORD_BYTES:
        return None
    body = b"".join((b"\0\0\0", VARINTS[key_length], key or b"", VARINTS[value_length], value or b"", b"\0"))
    return EncodedRows(VARINTS[len(body)] + body, stamp_ms, stamp_ms, 1)


def _join(
    sizes: Sequence[int],
    fixed: int,
    columns: list[Sequence[bytes]],
    stamps: list[bytes] | None,
    tails: list[Sequence[bytes]] | None,
) -> bytes:
    """Put each record's length in front, its header section behind, and join all fields of all records.

    ``sizes``: bytes of each record's varying fields; ``fixed``: bytes of the one-byte fields of all.
    ``stamps``: timestamp deltas; None if all are 0. ``tails``: columns that make the header sections; None if all
    are empty.
    """
    count = len(sizes)
    if stamps is not None:
        fixed -= 1
        sizes = list(map(add, sizes, map(len, stamps)))
        columns = [stamps, *columns]
    if tails is not None:
        fixed -= 1
        for tail in tails:
            sizes = list(map(add, sizes, map(len, tail)))
        columns = [*columns, *tails]
    lengths = [size + fixed for size in sizes]
    # The header count 0 of a record goes into the head of the next one: one field less to join.
    before, after = (b"\0", b"\0") if tails is None else (b"", b"")
    zeros = b"\0\0" if stamps is None else b"\0"
    if max(lengths) < TWO_BYTE_END:
        heads = list(map(_heads(before, zeros).__getitem__, lengths))
    else:
        heads = [before + encode_varint(length) + zeros for length in lengths]
    heads[0] = heads[0][len(before) :]
    width = len(columns) + 1
    parts = [after] * (count * width + 1)
    parts[:-1:width] = heads
    for place, column in enumerate(columns, 1):
        parts[place:-1:width] = column
    return b"".join(parts)


@cache
def _heads(before: bytes, zeros: bytes) -> list[bytes]:
    """Ready heads by record length: ``before`` (the end of the record before), length, ``zeros``.

    ``zeros``: the attributes, and the timestamp delta if it is 0 in all records. Four tables at most.
    """
    return [before + varint + zeros for varint in VARINTS]


def _columns(
    rows: Sequence[Row],
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any] | None, Sequence[Any] | None]:
    """Rows turned into columns; the columns of headers and timestamps are None if no row has any."""
    try:
        columns = tuple(zip(*rows, strict=True))
    except (TypeError, ValueError):  # rows of several widths, or of none: the slow way, which names the row
        columns = ()
    if not 2 <= len(columns) <= 4 or set(map(type, rows)) != {tuple}:
        padded = [_padded(index, row) for index, row in enumerate(rows)]
        columns = tuple(zip(*padded, strict=True))
    headers = columns[2] if len(columns) > 2 and any(columns[2]) else None
    timestamps = columns[3] if len(columns) > 3 and columns[3].count(None) != len(rows) else None
    return columns[0], columns[1], headers, timestamps


def _padded(index: int, row: Any) -> tuple[Any, ...]:
    if not isinstance(row, (tuple, list)) or not 2 <= len(row) <= 4:
        shape = f"{len(row)} items" if isinstance(row, (tuple, list)) else type(row).__name__
        raise RecordTypeError(
            f"row {index} is no tuple of 2, 3 or 4 items but {shape}",
            hint="a row is (key, value), (key, value, headers) or (key, value, headers, timestamp_ms)",
        )
    return (*row, *_NULL_ROW[len(row) :])


def _payload_column(column: Sequence[Any], what: str) -> _Column:
    types = set(map(type, column))
    if not types <= _NULLABLE_BYTES:
        _check_payloads(column, what)
    if types == _BYTES_TYPE:
        lengths = list(map(len, column))
    else:
        lengths = [-1 if payload is None else len(payload) for payload in column]
        column = [payload or b"" for payload in column]
    length = lengths[0]
    if length < TWO_BYTE_END and lengths.count(length) == len(lengths):  # all alike: no map at all
        count = len(lengths)
        return _Column(column, [VARINTS[length]] * count, [_SIZES[length]] * count)
    if max(lengths) < TWO_BYTE_END:
        return _Column(
            column, list(map(VARINTS.__getitem__, lengths)), list(map(_SIZES.__getitem__, lengths))
        )
    return _Column(
        column,
        [encode_varint(length) for length in lengths],
        [max(length, 0) + size_of_varint(length) for length in lengths],
    )


def _check_payloads(column: Sequence[Any], what: str) -> None:
    for index, payload in enumerate(column):
        if payload is not None and not isinstance(payload, bytes):
            raise RecordTypeError(f"the {what} of row {index} is {type(payload).__name__}, not bytes or None")


def _offset_deltas(count: int) -> tuple[Sequence[bytes], Sequence[int]]:
    if count <= TWO_BYTE_END:
        return VARINTS[:count], _DELTA_SIZES[:count]
    more = range(TWO_BYTE_END, count)
    return (
        VARINTS[:TWO_BYTE_END] + [encode_varint(delta) for delta in more],
        _DELTA_SIZES + [size_of_varint(delta) for delta in more],
    )


def _null_key_deltas(count: int) -> Sequence[bytes]:
    if count <= TWO_BYTE_END:
        return _DELTAS_NULL_KEY[:count]
    more = [encode_varint(delta) + b"\x01" for delta in range(TWO_BYTE_END, count)]
    return _DELTAS_NULL_KEY[:TWO_BYTE_END] + more


def _timestamp_deltas(column: Sequence[Any], now_ms: int) -> tuple[int, int, list[bytes] | None]:
    """``(base_ms, max_ms, encoded deltas or None if all are 0)``."""
    if not set(map(type, column)) <= _NULLABLE_INT:
        for index, stamp in enumerate(column):
            if stamp is not None and (not isinstance(stamp, int) or isinstance(stamp, bool)):
                raise RecordTypeError(
                    f"the timestamp of row {index} is {type(stamp).__name__}, not int or None",
                    hint="give milliseconds since 1970 UTC: int(moment.timestamp() * 1000)",
                )
    stamps = [now_ms if stamp is None else stamp for stamp in column]
    base_ms, lowest, highest = stamps[0], min(stamps), max(stamps)
    if lowest < INT64_MIN or highest > INT64_MAX:
        culprit = lowest if lowest < INT64_MIN else highest
        raise InvalidTimestampError(
            f"the timestamp {culprit} of row {stamps.index(culprit)} does not fit 64 bits",
            hint="give milliseconds since 1970 UTC",
        )
    if highest - base_ms > INT64_MAX or lowest - base_ms < INT64_MIN:
        raise InvalidTimestampError(
            f"the timestamps {lowest} and {highest} are too far apart for one batch",
            hint="give milliseconds since 1970 UTC",
        )
    if lowest == highest:
        return base_ms, highest, None
    deltas = [stamp - base_ms for stamp in stamps]
    if lowest - base_ms >= 0 and highest - base_ms < TWO_BYTE_END:
        return base_ms, highest, list(map(VARINTS.__getitem__, deltas))
    return base_ms, highest, list(map(encode_varlong, deltas))


@compiled("format.decoding")
def decode_rows(
    section: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    topic: str,
    partition: int,
    log_append_ms: int | None,
) -> list[Record]:
    """The records of one uncompressed section. ``log_append_ms``: the timestamp of all, if not None.

    Strict: the section holds exactly ``count`` records, each exactly as long as it says, with growing
    offset deltas; otherwise ``CorruptBatchError``.
    """
    section = bytes(section)
    if count * MIN_RECORD_BYTES > len(section):
        raise CorruptBatchError(
            f"the batch at offset {base_offset} says {count} records, its records section has only "
            f"{len(section)} bytes"
        )
    offsets: Sequence[int] = range(base_offset, base_offset + count)
    alike = split_alike(section, count)
    if alike is not None:
        time_ms = base_timestamp if log_append_ms is None else log_append_ms
        return _records(topic, partition, offsets, repeat(time_ms), *alike, repeat(()))
    try:
        columns = _decode_columns(section, count)
    except IndexError:
        raise CorruptBatchError(f"the batch at offset {base_offset} ends in the middle of a record") from None
    except UnicodeDecodeError as error:
        raise CorruptBatchError(
            f"a header's name in the batch at offset {base_offset} is not UTF-8: {error}"
        ) from None
    keys, values, headers, deltas, shifts = columns
    if deltas is not None:
        if any(delta < 0 for delta in deltas) or sorted(set(deltas)) != deltas:
            raise CorruptBatchError(f"the offsets in the batch at offset {base_offset} do not grow")
        offsets = [base_offset + delta for delta in deltas]
    times: Any = repeat(base_timestamp if log_append_ms is None else log_append_ms)
    if log_append_ms is None and shifts is not None:
        times = [base_timestamp + (raw >> 1 ^ -(raw & 1)) for raw in shifts]
        if min(times) < INT64_MIN or max(times) > INT64_MAX:
            raise CorruptBatchError(f"a timestamp in the batch at offset {base_offset} does not fit 64 bits")
    return _records(topic, partition, offsets, times, keys, values, headers)


def _records(topic: str, partition: int, *columns: Iterable[Any]) -> list[Record]:
    fields: Any = zip(repeat(topic), repeat(partition), *columns, strict=False)
    if not issubclass(Record, tuple):  # the compiled twin of Record
        return list(starmap(Record, fields))
    make: Any = tuple.__new__  # three times cheaper than calling Record(...)
    return list(map(make, repeat(Record), fields))


_Columns = tuple[
    list[bytes | None],
    list[bytes | None],
    list[tuple[Header, ...]],
    list[int] | None,
    list[int] | None,
]


def _decode_columns(section: bytes, count: int) -> _Columns:
    """Keys, values, headers, offset deltas (None: 0, 1, 2, ...), raw timestamp deltas (None: all 0).

    Varints of one and two bytes are read in place: a call per field would cost more than all the rest.
    """
    keys: list[bytes | None] = [None] * count
    values: list[bytes | None] = [None] * count
    headers: list[tuple[Header, ...]] = [()] * count
    deltas: list[int] | None = None
    shifts: list[int] | None = None
    at = 0
    for index in range(count):
        raw = section[at]
        at += 1
        if raw > 127:
            if (high := section[at]) < 128:
                raw += (high << 7) - 128
                at += 1
            else:
                raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
        # Twice the record's end: an odd, that is negative, length can never meet it.
        end_twice = raw + at + at
        raw = section[at + 1]  # the attributes before it carry nothing yet; Kafka reads past them too
        at += 2
        if raw:
            if raw > 127:
                raw, at = read_raw(section, at - 1, VARLONG_MAX_BYTES)
            if shifts is None:
                shifts = [0] * count
            shifts[index] = raw
        raw = section[at]
        at += 1
        if raw > 127:
            if (high := section[at]) < 128:
                raw += (high << 7) - 128
                at += 1
            else:
                raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
        if raw != index + index:
            if deltas is None:
                deltas = list(range(count))
            deltas[index] = raw >> 1 ^ -(raw & 1)
        raw = section[at]
        at += 1
        if raw != 1:
            if raw > 127:
                raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
            if raw & 1:
                raise _negative("key", index)
            keys[index] = section[at : (at := at + (raw >> 1))]
        raw = section[at]
        at += 1
        if raw != 1:
            if raw > 127:
                if (high := section[at]) < 128:
                    raw += (high << 7) - 128
                    at += 1
                else:
                    raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
            if raw & 1:
                raise _negative("value", index)
            values[index] = section[at : (at := at + (raw >> 1))]
        at += 1
        if section[at - 1]:
            headers[index], at = _decode_headers(section, at - 1, index)
        if at + at != end_twice:
            raise _misfit(f"record {index}", at, end_twice / 2)
    if at != len(section):
        raise _misfit(f"the last of {count} records", at, len(section))
    return keys, values, headers, deltas, shifts


def _misfit(what: str, at: int, end: float) -> CorruptBatchError:
    return CorruptBatchError(
        f"{what} of a batch ends at byte {at} of the records section, not at {end:g} where it should"
    )


def _negative(what: str, index: int) -> CorruptBatchError:
    return CorruptBatchError(f"the length of the {what} of record {index} is negative")


def _decode_headers(section: bytes, at: int, index: int) -> tuple[tuple[Header, ...], int]:
    """The headers that start with their count at ``at``, and the position after them."""
    raw = section[at]
    at += 1
    if raw > 127:
        raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
    if raw & 1:
        raise _negative("list of headers", index)
    found: list[Header] = []
    for _ in range(raw >> 1):
        raw = section[at]
        at += 1
        if raw > 127:
            raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
        if raw & 1:
            raise _negative("name of a header", index)
        name = section[at : (at := at + (raw >> 1))].decode()
        raw = section[at]
        at += 1
        if raw == 1:
            found.append((name, None))
            continue
        if raw > 127:
            raw, at = read_raw(section, at - 1, VARINT_MAX_BYTES)
        if raw & 1:
            raise _negative("value of a header", index)
        found.append((name, section[at : (at := at + (raw >> 1))]))
    return tuple(found), at


@compiled("format.record_checks")
def newest_record(section: Buffer, count: int, base_timestamp: int) -> tuple[int, int]:
    """The offset delta of the last record and the largest timestamp of all, in ms, of a section that is proved:
    ``CorruptBatchError`` as ``decode_rows``."""
    section = bytes(section)
    if is_alike(section, count):
        return count - 1, base_timestamp
    records = decode_rows(section, count, 0, base_timestamp, "", 0, None)
    return records[-1].offset, max(record.timestamp_ms for record in records)


@compiled("format.record_checks")
def check_records(section: Buffer, count: int, need_key: bool) -> None:
    """Prove the structure of an uncompressed section without keeping its records.

    Errors: ``CorruptBatchError`` as ``decode_rows``; with ``need_key`` (a compacted topic)
    ``InvalidRecordError`` for a record without a key.
    """
    section = bytes(section)
    alike = keys_alike(section, count)
    if alike is not None and not (need_key and alike.keys[0] is None):
        return
    records = decode_rows(section, count, 0, 0, "", 0, None)
    if need_key and None in map(itemgetter(Record._fields.index("key")), records):
        index = next(index for index, record in enumerate(records) if record.key is None)
        raise InvalidRecordError(
            f"record {index} of the batch has no key, and its topic is compacted",
            hint="give every record of a compacted topic a key",
        )
