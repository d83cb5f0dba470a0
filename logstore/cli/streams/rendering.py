"""Records as bytes for stdout: the value and a newline, a format string with kcat's tokens, or JSON lines.

    %t topic   %p partition   %o offset   %T time in ms   %k key   %K key's length   %s value   %S its length
    %h headers (name=value, by commas)   %% a percent sign   \\n \\t \\r \\\\ \\0 \\xHH as in C

Lengths are in bytes and -1 for null; a null key or value prints nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from logstore.types import Record

Renderer: TypeAlias = Callable[[Sequence[Record]], bytes]

_PIECE = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|([^%\\]+)", re.DOTALL)
_ESCAPE_OR_TEXT = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)|([^\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}


def _headers(record: Record) -> bytes:
    return b",".join([name.encode("utf-8") + b"=" + (value or b"") for name, value in record.headers])


def _length(value: bytes | None) -> bytes:
    return b"-1" if value is None else b"%d" % len(value)


_TOKENS: dict[str, Callable[[Record], bytes]] = {
    "t": lambda record: record.topic.encode("ascii"),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "K": lambda record: _length(record.key),
    "s": lambda record: record.value or b"",
    "S": lambda record: _length(record.value),
    "h": _headers,
}


def values(records: Sequence[Record]) -> bytes:
    """Each value and a newline."""
    return b"".join([(record.value or b"") + b"\n" for record in records])


def compile_format(text: str) -> Renderer:
    """What prints records by ``text``. ``ValueError`` names a token or escape that does not exist."""
    pieces: list[bytes | Callable[[Record], bytes]] = []
    for token, escape, plain in (match.groups() for match in _PIECE.finditer(text)):
        if plain is not None:
            pieces.append(os.fsencode(plain))  # the very bytes that the command line gave
        elif token is not None:
            pieces.append(b"%" if token == "%" else _token(token))
        else:
            pieces.append(_escape(escape))

    def render(records: Sequence[Record]) -> bytes:
        return b"".join(
            [piece if isinstance(piece, bytes) else piece(record) for record in records for piece in pieces]
        )

    return render


def _token(name: str) -> Callable[[Record], bytes]:
    found = _TOKENS.get(name)
    if found is None:
        known = " ".join(f"%{token}" for token in _TOKENS)
        raise ValueError(f"there is no token %{name}; there are {known} %%")
    return found


def unescaped(text: str) -> str:
    """``text`` with escapes as in C, see above; a lone backslash is itself. ``ValueError`` names another escape."""
    if text == "\\":
        return text
    pieces = []
    for escape, plain in (match.groups() for match in _ESCAPE_OR_TEXT.finditer(text)):
        pieces.append(os.fsdecode(_escape(escape)) if escape is not None else plain)
    return "".join(pieces)


def _escape(name: str) -> bytes:
    if name.startswith("x") and len(name) == 3:
        return bytes([int(name[1:], 16)])
    found = _ESCAPES.get(name)
    if found is None:
        raise ValueError(f"there is no escape \\{name}; there are \\n \\t \\r \\\\ \\0 \\xHH")
    return found
