"""``ArrowRows``: the rows of an Arrow batch as fields of records, in the buffers that Arrow keeps them in.

Columns are ``value`` and, where they are there, ``key`` (binary or string), ``headers`` (a list of structs of ``key``
and ``value``) and ``timestamp`` (a timestamp, or whole ms since 1970). Others are passed over. Nothing of a row is
looked at before it is asked for: buffers come from other processes, so each offset is checked before it is followed.
"""

from __future__ import annotations

from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import mmh3

from logstore.errors import InvalidArgumentError, InvalidRecordError
from logstore.native import compiled
from logstore.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

_BITS = (1 << 64) - 1
_BETWEEN = b"\x00\xfe\x00"
_NULL = b"\x00\xff\x00"


class Payloads(NamedTuple):
    """A column of ``size`` byte strings. ``first``: where they begin in the buffers; ``wide``: offsets have 64 bits."""

    name: str
    size: int
    first: int
    wide: bool
    validity: Buffer | None
    offsets: Buffer
    data: Buffer | None
    array: pa.Array


class HeaderLists(NamedTuple):
    """A column of headers: the pairs of all rows, one after the other, and where those of each row begin."""

    first: int
    validity: Buffer | None
    offsets: Buffer
    names: Payloads
    contents: Payloads


class Times(NamedTuple):
    """A column of timestamps in ms."""

    first: int
    validity: Buffer | None
    data: Buffer
    array: pa.Array


class ArrowRows:
    """Rows of one batch, which is not copied: it must not change as long as they are used.

    ``InvalidArgumentError`` for a column that is missing or of another kind, ``InvalidRecordError`` for a null header.
    """

    __slots__ = ("count", "headers", "keys", "times", "values")

    def __init__(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        if "value" not in names:
            raise InvalidArgumentError(
                f"an Arrow batch of the columns {', '.join(names)} has no column value",
                hint="name the column of the records' values so",
            )
        self.count: int = batch.num_rows
        self.values = _payloads("value", batch.column("value"))
        self.keys = _payloads("key", batch.column("key")) if "key" in names else None
        self.headers = _headers(batch.column("headers")) if "headers" in names else None
        self.times = _times(batch.column("timestamp")) if "timestamp" in names else None

    def tuples(self) -> list[Any]:
        """Rows ``(key, value[, headers[, timestamp_ms]])``. ``InvalidRecordError`` for buffers that cannot be right."""
        keys = repeat(None) if self.keys is None else _items(self.keys)
        values = _items(self.values)
        if self.headers is None and self.times is None:
            return list(zip(keys, values, strict=False))
        headers = repeat(None) if self.headers is None else _pairs(self.headers, self.count)
        if self.times is None:
            return list(zip(keys, values, headers, strict=False))
        return list(zip(keys, values, headers, _moments(self.times, self.count), strict=False))

    def digest(self, seed: int) -> int:
        """``rows_digest``."""
        return rows_digest(self, seed)


@compiled("format.arrow_rows")
def rows_digest(rows: ArrowRows, seed: int) -> int:
    """The sum, in 64 bits, of the hashes of all rows: the same in any order and in any cut into batches. ``seed``: of
    32 bits. Errors as ``ArrowRows.tuples``."""
    texts = map(_text, rows.tuples())
    return sum(map(mmh3.mmh3_x64_128_uintdigest, texts, repeat(seed))) & _BITS


def _text(row: tuple[Any, ...]) -> bytes:
    """What is hashed of a row. A row without headers and timestamp gives the same whether the columns are there."""
    key, value, *more = row
    parts = [_NULL if key is None else key, _NULL if value is None else value]
    headers, timestamp_ms = more[0] or () if more else (), more[1] if len(more) > 1 else None
    if headers or timestamp_ms is not None:
        parts.append(_NULL if timestamp_ms is None else timestamp_ms.to_bytes(8, "big", signed=True))
        for name, content in headers:  # a name of None is refused by what encodes the rows
            parts += (_NULL if name is None else name.encode(), _NULL if content is None else content)
    return _BETWEEN.join(parts)


def _payloads(name: str, column: pa.Array) -> Payloads:
    import pyarrow as pa

    kind = column.type
    wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not wide and not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        column = _cast(name, column, pa.binary(), "binary or string")
    validity, offsets, data = column.buffers()
    return Payloads(name, len(column), column.offset, wide, validity, offsets or b"", data, column)


def _headers(column: pa.Array) -> HeaderLists:
    import pyarrow as pa

    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    if not pa.types.is_list(column.type) or column.type.value_type != pair:
        column = _cast("headers", column, pa.list_(pair), "a list of structs of key and value")
    validity, offsets, *_ = column.buffers()
    _check_offsets("headers", offsets or b"", column.offset, len(column), False, len(column.values), validity)
    if len(column) and column.values.null_count:
        starts = column.offsets
        used = column.values.slice(starts[0].as_py(), starts[-1].as_py() - starts[0].as_py())
        if used.null_count:
            raise InvalidRecordError(
                f"{used.null_count} headers are null", hint="a header has a name; its value may be null"
            )
    names, contents = column.values.flatten()
    return HeaderLists(
        column.offset,
        validity,
        offsets or b"",
        _payloads("headers.key", names),
        _payloads("headers.value", contents),
    )


def _times(column: pa.Array) -> Times:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        if column.type.unit != "ms":  # a cast would cut times before 1970 towards it
            column = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz))
        column = column.cast(pa.int64())
    elif column.type != pa.int64():
        column = _cast("timestamp", column, pa.int64(), "a timestamp, or whole ms")
    validity, data = column.buffers()
    return Times(column.offset, validity, data or b"", column)


def _cast(name: str, column: pa.Array, kind: pa.DataType, expected: str) -> pa.Array:
    import pyarrow as pa

    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidArgumentError(
            f"column {name} of an Arrow batch is {column.type}, not {expected}", hint="cast it before"
        ) from error


def _check_offsets(
    name: str, offsets: Buffer, first: int, count: int, wide: bool, end: int, validity: Buffer | None
) -> None:
    """``InvalidRecordError`` unless the offsets of the items lie in their order within ``end``, and the bits that say
    which are null are all there."""
    if not count:
        return
    import numpy as np

    width = 8 if wide else 4
    held = memoryview(offsets).cast("B")[width * first : width * (first + count + 1)]
    whole = len(held) == width * (count + 1)
    if whole and (validity is None or 8 * len(memoryview(validity).cast("B")) >= first + count):
        found = np.frombuffer(held, np.int32).astype(np.int64) if not wide else np.frombuffer(held, np.int64)
        if found[0] >= 0 and found[-1] <= end and not np.any(found[1:] < found[:-1]):
            return
    raise damaged(name, count)


def damaged(name: str, count: int) -> InvalidRecordError:
    return InvalidRecordError(
        f"column {name} of an Arrow batch is damaged: its {count} items do not lie within its buffers",
        hint="write the batch anew",
    )


def _items(column: Payloads) -> list[Any]:
    import pyarrow as pa

    end = 0 if column.data is None else len(memoryview(column.data).cast("B"))
    _check_offsets(column.name, column.offsets, column.first, column.size, column.wide, end, column.validity)
    array = column.array
    if pa.types.is_string(array.type):
        array = array.cast(pa.binary())
    elif pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary())
    found: list[Any] = array.to_pylist()
    return found


def _pairs(column: HeaderLists, count: int) -> list[Any]:
    """A list of (name, bytes) for each row, None where there is none."""
    if not count:
        return []
    first, names, contents = column.first, _items(column.names), _items(column.contents)
    _check_offsets("headers", column.offsets, first, count, False, len(names), column.validity)
    ends = memoryview(column.offsets).cast("B")[4 * first : 4 * (first + count + 1)].cast("i").tolist()
    bits = None if column.validity is None else memoryview(column.validity).cast("B")
    try:
        return [
            [(_name(names[at]), contents[at]) for at in range(start, end)]
            if bits is None or bits[place >> 3] >> (place & 7) & 1
            else None
            for place, (start, end) in enumerate(pairwise(ends), first)
        ]
    except UnicodeDecodeError as error:
        raise InvalidRecordError(
            "a header's name in an Arrow batch is not UTF-8", hint="names of headers are text"
        ) from error


def _name(held: bytes | None) -> str | None:
    return None if held is None else held.decode()


def _moments(column: Times, count: int) -> list[Any]:
    held, bits = (
        None if one is None else memoryview(one).cast("B") for one in (column.data, column.validity)
    )
    end = column.first + count
    if count and (held is None or len(held) < 8 * end or (bits is not None and 8 * len(bits) < end)):
        raise damaged("timestamp", count)
    found: list[Any] = column.array.to_pylist()
    return found
