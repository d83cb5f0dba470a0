"""Small files that hold one JSON object with a version and a checksum: the catalogue, a topic's state.

    {"crc32c": "89abcdef",          the first line, always this long; CRC-32C of all bytes after it
    "format_version": 1, ...}       the rest, ASCII

The whole file is plain JSON, readable with any tool; a flipped bit or a missing end is told from a change of
meaning by the checksum. Field readers check types strictly: a file that is not exactly what this version
writes is damaged, or of a newer version, never guessed at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from crc32c import crc32c

from logstore.errors import DamagedStoreError, UnsupportedStoreVersionError
from logstore.invariants import invariant

_FIRST_LINE: Final = re.compile(rb'\{"crc32c": "([0-9a-f]{8})",\n')
_VERSION: Final = re.compile(rb'"format_version": (\d{1,9})[,}]')
INT64_MAX: Final = 2**63 - 1


def encode_document(format_version: int, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a document. ``fields``: JSON values, not empty, without the two reserved keys."""
    invariant(fields and not fields.keys() & {"crc32c", "format_version"}, "a document has its own fields")
    text = json.dumps({"format_version": format_version, **fields}, ensure_ascii=True, allow_nan=False)
    rest = text[1:].encode("ascii") + b"\n"
    return b'{"crc32c": "%08x",\n' % crc32c(rest) + rest


def decode_document(
    data: bytes,
    format_version: int,
    keys: frozenset[str],
    path: str,
    *,
    older: Mapping[int, frozenset[str]] | None = None,
) -> dict[str, Any]:
    """The fields of a document: exactly ``keys``; ``older``: versions that had others, and those.

    UnsupportedStoreVersionError for a version above ``format_version``; DamagedStoreError, with ``path``,
    for anything that such a document cannot be.
    """
    first = _FIRST_LINE.match(data)
    if first is None:
        raise damaged(path, "it does not start with its checksum")
    rest = data[first.end() :]
    if crc32c(rest) != int(first[1], 16):
        raise damaged(path, f"its {len(data)} bytes do not match their checksum")
    version = _VERSION.match(rest)
    if version is None:
        raise damaged(path, "its checksum is not followed by a format version")
    if int(version[1]) > format_version:
        raise UnsupportedStoreVersionError(
            f"{path} has format version {int(version[1])}; this logstore reads 1 to {format_version}"
        )
    if int(version[1]) < 1:
        raise damaged(path, "format version 0 never existed")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is not JSON: {error}") from None
    fields.pop("crc32c")
    fields.pop("format_version")
    keys = (older or {}).get(int(version[1]), keys)
    if fields.keys() != keys:
        odd = sorted(fields.keys() ^ keys)
        raise damaged(path, f"fields missing or unknown: {', '.join(odd)}")
    return dict(fields)


def damaged(path: str, why: str) -> DamagedStoreError:
    return DamagedStoreError(f"{path} is damaged: {why}", path=path)


def whole(value: object, name: str, path: str, low: int = 0, high: int = INT64_MAX) -> int:
    """``value`` if it is a whole number in [low, high], else DamagedStoreError."""
    if type(value) is not int or not low <= value <= high:
        raise damaged(path, f"{name} is {value!r}, not a whole number from {low} to {high}")
    return value


def text(value: object, name: str, path: str) -> str:
    if not isinstance(value, str):
        raise damaged(path, f"{name} is {value!r}, not text")
    return value


def truth(value: object, name: str, path: str) -> bool:
    if not isinstance(value, bool):
        raise damaged(path, f"{name} is {value!r}, neither true nor false")
    return value


def table(value: object, name: str, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise damaged(path, f"{name} is not an object")
    return value


def items(value: object, name: str, path: str, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise damaged(path, f"{name} is not a list" + ("" if length is None else f" of {length}"))
    return value
