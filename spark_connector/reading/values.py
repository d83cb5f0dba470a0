"""``valueFormat``: a column of bytes to texts or structs, and for each value that cannot be decoded, why.

Whole columns at a time: JSON goes through Arrow's reader, one line a value. Only a column in which some value is
bad is looked into value by value. Dates, binary and times without a zone are read as texts, and made what they are as
Spark's ``from_json`` does: ISO 8601, base64.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from logstore.errors import InvalidArgumentError

_ROW: Final = "__logstore_row__"
"""A field put in front of every JSON object, so that each line surely gives a row of its own."""


class Decoded(NamedTuple):
    """Values (null where there was none, or a bad one), and the reason for each bad one, else null."""

    values: pa.Array
    errors: pa.Array


def decode_strings(values: pa.Array) -> Decoded:
    """Bytes as UTF-8."""
    try:
        return Decoded(values.cast(pa.string()), pa.nulls(len(values), pa.string()))
    except pa.ArrowInvalid:
        pass  # some value is bad: which one is found out below
    texts: list[str | None] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        text, error = _text(value)
        texts.append(text)
        errors.append(error)
    return Decoded(pa.array(texts, pa.string()), pa.array(errors, pa.string()))


def _text(value: bytes | None) -> tuple[str | None, str | None]:
    if value is None:
        return None, None
    try:
        return value.decode(), None
    except UnicodeDecodeError as error:
        return None, f"not UTF-8: {error.reason} at byte {error.start}"


def check_json_type(kind: pa.DataType) -> None:
    """``InvalidArgumentError`` for a type of columns that JSON values cannot be read as."""
    try:
        _read_lines(f'{{"{_ROW}":0}}'.encode(), kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidArgumentError(
            f"valueSchema: JSON values cannot be read as {kind}: {error}",
            hint="use STRING for such a field, and cast it with DataFrame functions",
        ) from error


def decode_json(values: pa.Array, kind: pa.StructType) -> Decoded:
    """Bytes, each a JSON object, as structs of type ``kind``. Fields that ``kind`` lacks are passed over, fields
    that an object lacks are null; a field of another type makes the value a bad one."""
    count = len(values)
    present = values.drop_null()
    structs = _all_good(present, kind)
    errors = pa.nulls(len(present), pa.string())
    if structs is None:
        structs, reasons = _one_by_one(present.to_pylist(), kind)
        errors = pa.array(reasons, pa.string())
    if len(present) == count:
        return Decoded(structs, errors)
    valid = values.is_valid()
    ranks = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    places = pc.if_else(valid, ranks, pa.scalar(None, pa.int64()))
    return Decoded(structs.take(places), errors.take(places))


def _all_good(values: pa.Array, kind: pa.StructType) -> pa.Array | None:
    """The structs if every value is an object on one line that fits ``kind``, else None."""
    if not len(values):
        return pa.nulls(0, kind)
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        return None  # some are not UTF-8
    if not pc.all(pc.starts_with(texts, "{")).as_py() or pc.any(pc.match_substring(texts, "\n")).as_py():
        return None
    numbers = pc.cast(pa.array(range(len(texts)), pa.int64()), pa.string())
    rest = pc.replace_substring(texts, "{", "", max_replacements=1)
    lines = pc.binary_join_element_wise(f'{{"{_ROW}":', numbers, ",", rest, "\n", "")
    return _structs(b"".join(_bytes_of(lines)), len(texts), kind)


def _bytes_of(texts: pa.Array) -> list[memoryview]:
    """What the texts hold, one after another."""
    _, offsets, data = texts.buffers()
    ends = memoryview(offsets).cast("i")
    return [memoryview(data)[ends[texts.offset] : ends[texts.offset + len(texts)]]]


def _structs(lines: bytes, count: int, kind: pa.StructType) -> pa.Array | None:
    try:
        table = _read_lines(lines, kind)
        if table.num_rows != count:
            return None
        columns = [
            _converted(_whole(table.column(field.name).combine_chunks()), field.type) for field in kind
        ]
    except pa.ArrowInvalid:
        return None
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _as_read(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow's reader is to read values that become ``kind``."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    in_words = pa.types.is_date(kind) or pa.types.is_binary(kind)
    return pa.string() if in_words or (pa.types.is_timestamp(kind) and kind.tz is None) else kind


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """What was read as ``_as_read(kind)``, as ``kind``. ``ArrowInvalid`` for a text that is no such thing."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        fields = [_converted(column.field(number), field.type) for number, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        values = _converted(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=column.is_null())
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else _base64(text) for text in column.to_pylist()], kind)
    return pc.cast(column, kind)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise pa.ArrowInvalid(f"no base64: {error}") from error


def _read_lines(lines: bytes, kind: pa.StructType) -> pa.Table:
    schema = pa.schema([pa.field(_ROW, pa.int64()), *_as_read(kind)])
    parse = pa_json.ParseOptions(
        explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="ignore"
    )
    read = pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    return pa_json.read_json(pa.BufferReader(lines), read_options=read, parse_options=parse)


def _one_by_one(values: list[bytes], kind: pa.StructType) -> tuple[pa.Array, list[str | None]]:
    """As ``_all_good``, with the reason for each value that is bad."""
    reasons: list[str | None] = [None] * len(values)
    good: list[tuple[int, bytes]] = []
    for number, value in enumerate(values):
        line, reasons[number] = _line(value)
        if line is not None:
            good.append((number, line))
    parts: list[tuple[list[int], pa.Array]] = []
    waiting = [good] if good else []
    while waiting:
        some = waiting.pop()
        numbers = [number for number, _ in some]
        structs = _structs(b"".join(line for _, line in some), len(some), kind)
        if structs is not None:
            parts.append((numbers, structs))
        elif len(some) == 1:
            reasons[numbers[0]] = _misfit(some[0][1], kind)
        else:
            middle = len(some) // 2
            waiting += [some[:middle], some[middle:]]
    places: list[int | None] = [None] * len(values)
    at = 0
    for numbers, _ in parts:
        for number in numbers:
            places[number] = at
            at += 1
    found = pa.concat_arrays([structs for _, structs in parts]) if parts else pa.nulls(0, kind)
    return found.take(pa.array(places, pa.int64())), reasons


def _line(value: bytes) -> tuple[bytes | None, str | None]:
    """The value as a line for Arrow's reader, or why it is no JSON object."""
    text, error = _text(value)
    if text is None:
        return None, error
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    if not isinstance(found, dict):
        return None, f"not a JSON object but {_NAMES.get(type(found), 'a number')}"
    # Line ends can only stand between tokens here: within a text they are no JSON.
    rest = text.strip().replace("\n", " ").replace("\r", " ")[1:]
    return f'{{"{_ROW}":0{"," if found else ""}{rest}\n'.encode(), None


_NAMES: Final = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _misfit(line: bytes, kind: pa.StructType) -> str:
    try:
        table = _read_lines(line, kind)
        for field in kind:
            _converted(_whole(table.column(field.name).combine_chunks()), field.type)
    except pa.ArrowInvalid as error:
        return f"does not fit valueSchema: {str(error).removeprefix('JSON parse error: ')}"
    return "does not fit valueSchema"
