"""Headers of a batch's records as columns of fields: the header sections of ``record.encode_rows``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logstore.errors import RecordTypeError
from logstore.format.varint import encode_varint
from logstore.types import Headers

_NULLABLE_BYTES = frozenset((bytes, type(None)))
_STR = frozenset((str,))


def header_columns(column: Sequence[Headers | None]) -> list[Sequence[bytes]]:
    """Columns that, joined row by row, are each record's header count and headers. ``RecordTypeError`` names the
    row whose headers are no pairs of (str, bytes or None)."""
    alike = _alike(column)
    if alike is not None:
        return alike
    names: dict[str, bytes] = {}
    return [[_section(headers, index, names) if headers else b"\0" for index, headers in enumerate(column)]]


def _alike(column: Sequence[Any]) -> list[Sequence[bytes]] | None:
    """If all rows have headers of the same names in the same order, which is how a program sets them: no step of
    Python's own for each row. None: the general way encodes or refuses them."""
    columns: list[Sequence[bytes]] = []
    try:
        width = len(column[0])
        if not width or set(map(len, column)) != {width}:
            return None
        before = encode_varint(width)
        for pairs in zip(*column, strict=True):
            names, values = zip(*pairs, strict=True)
            types = set(map(type, values))
            if set(map(type, names)) != _STR or names.count(names[0]) != len(names):
                return None
            if not types <= _NULLABLE_BYTES:
                return None
            before += _name_field(names[0])
            if type(None) in types:
                columns.append(
                    [before + encode_varint(-1 if value is None else len(value)) for value in values]
                )
                values = tuple([value or b"" for value in values])
            else:
                lengths = list(map(len, values))
                heads = {length: before + encode_varint(length) for length in set(lengths)}
                columns.append(list(map(heads.__getitem__, lengths)))
            columns.append(values)
            before = b""
    except (TypeError, ValueError):
        return None  # rows without headers among them, or no pairs
    return columns


def _section(headers: Headers, index: int, names: dict[str, bytes]) -> bytes:
    """Count and fields of one record's headers. ``names``: the names met so far in this batch, encoded."""
    try:
        parts = [encode_varint(len(headers))]
        for name, value in headers:
            field = names.get(name)
            if field is None:
                field = names[name] = _name_field(name)
            parts.append(field)
            if value is None:
                parts.append(b"\x01")
            elif isinstance(value, bytes):
                parts.append(encode_varint(len(value)))
                parts.append(value)
            else:
                raise TypeError(f"the value of header {name!r} is {type(value).__name__}, not bytes or None")
        return b"".join(parts)
    except (TypeError, ValueError) as error:
        raise RecordTypeError(
            f"the headers of row {index} are not pairs of (str, bytes or None): {error}",
            hint='give headers as [("name", b"value")]',
        ) from error


def _name_field(name: Any) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"the header name {name!r} is {type(name).__name__}, not str")
    encoded = name.encode("utf-8")
    return encode_varint(len(encoded)) + encoded
