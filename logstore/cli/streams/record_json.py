"""A record as one line of JSON, both ways; what `consume --json` prints, `produce --json` takes, exactly.

    {"topic": "flights", "partition": 2, "offset": 17, "timestamp_ms": 1357034400000,
     "key": "N14228", "value": null, "headers": [{"name": "source", "value": "faa"}]}

Bytes that are UTF-8 stand as text under their name; others as base64 under the name with `_base64` behind it
(`key_base64`, `value_base64`, also in a header). null is null, and an empty text is empty.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from logstore.types import Header, Record

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode
_FIELDS = frozenset(
    {"topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers"}
)
_HEADER_FIELDS = frozenset({"name", "value", "value_base64"})
_INT64 = range(-(2**63), 2**63)


class LineError(ValueError):
    """A line that says no record; its text says why and what to do."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a name that stands twice would lose one of its values."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise LineError(f"it has the field {twice!r} twice")
    return fields


_DECODE = json.JSONDecoder(object_pairs_hook=_object).decode


class ParsedRecord(NamedTuple):
    """What a line says. ``partition``, ``timestamp_ms``: None if it does not say."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int | None
    partition: int | None


def encode_records(records: Iterable[Record]) -> bytes:
    """One line for each record, each with its newline."""
    return "".join([_ENCODE(record_fields(record)) + "\n" for record in records]).encode("utf-8")


def record_fields(record: Record) -> dict[str, Any]:
    """The object of one record."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    _put(fields, "key", record.key)
    _put(fields, "value", record.value)
    fields["headers"] = [_header_fields(name, value) for name, value in record.headers]
    return fields


def _header_fields(name: str, value: bytes | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": name}
    _put(fields, "value", value)
    return fields


def _put(fields: dict[str, Any], name: str, value: bytes | None) -> None:
    if value is None:
        fields[name] = None
        return
    try:
        fields[name] = str(value, "utf-8")
    except UnicodeDecodeError:
        fields[name + "_base64"] = base64.b64encode(value).decode("ascii")


def decode_record(line: bytes) -> ParsedRecord:
    """The record of one line. ``LineError``, whose text says what is wrong and what to do."""
    try:
        fields = _DECODE(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise LineError("it is not UTF-8") from None
    except LineError:
        raise
    except json.JSONDecodeError as error:
        raise LineError(f"it is not JSON: {error.msg} at character {error.colno}") from None
    except RecursionError:
        raise LineError("it is not such a record: it is nested too deep") from None
    except ValueError:
        raise LineError("it holds a number of thousands of digits") from None
    if not isinstance(fields, dict):
        raise LineError('it is not a JSON object; values as they are come in with "--format lines"')
    unknown = fields.keys() - _FIELDS
    if unknown:
        known = ", ".join(sorted(_FIELDS))
        raise LineError(
            f"unknown field {sorted(unknown)[0]!r} (known: {known}; JSON to be stored as it is comes in with "
            '"--format lines")'
        )
    if not fields.keys() & {"key", "key_base64", "value", "value_base64"}:
        raise LineError("it has neither key nor value")
    return ParsedRecord(
        key=_take(fields, "key"),
        value=_take(fields, "value"),
        headers=_headers(fields.get("headers")),
        timestamp_ms=_whole(fields, "timestamp_ms"),
        partition=_whole(fields, "partition"),
    )


def _take(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(name + "_base64")
    plain = fields.get(name)
    if encoded is not None:
        if plain is not None:
            raise LineError(f"it has both {name} and {name}_base64")
        if not isinstance(encoded, str):
            raise LineError(f"{name}_base64 is not text")
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise LineError(f"{name}_base64 is not base64: {error}") from None
    if plain is None:
        return None
    if not isinstance(plain, str):
        raise LineError(f"{name} is {_kind(plain)}, not text or null; write JSON inside a text")
    try:
        return plain.encode("utf-8")
    except UnicodeEncodeError:
        raise LineError(f"{name} holds half a surrogate pair, which is no text") from None


def _headers(value: Any) -> tuple[Header, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise LineError('headers is not a list of {"name": .., "value": ..}')
    headers: list[Header] = []
    for entry in value:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise LineError('a header is not {"name": .., "value": ..}')
        if entry.keys() - _HEADER_FIELDS:
            raise LineError(f"a header has the unknown field {sorted(entry.keys() - _HEADER_FIELDS)[0]!r}")
        if any("\ud800" <= character <= "\udfff" for character in entry["name"]):
            raise LineError("a header's name holds half a surrogate pair, which is no text")
        headers.append((entry["name"], _take(entry, "value")))
    return tuple(headers)


def _whole(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (type(value) is not int or value not in _INT64):
        raise LineError(f"{name} is {_kind(value)}, not a whole number of 64 bits")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    names = {int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
