"""Input made into rows for a producer: lines, key<sep>value, JSON lines, CSV. Bounded memory, any length.

A chunk is what a read of the input gave at once, so that what a person types goes out when it is typed, while
a file goes through in large pieces. A bad line stops the input; all before it has been handed on.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from logstore.cli.streams.failures import InputError
from logstore.cli.streams.record_json import LineError, decode_record
from logstore.types import Row

READ_BYTES = 1 << 18
MAX_LINE_BYTES = 64 << 20
MAX_ROWS = 5000

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ByteSource(Protocol):
    """A binary stream: ``read1`` gives what is there, up to a size, and b"" at the end."""

    def read1(self, size: int = ..., /) -> bytes: ...


class RowChunk(NamedTuple):
    """Rows and the number of the line that each came from. ``partitions``: as the lines named them, if
    they were to be kept (else None)."""

    rows: list[Row]
    lines: Sequence[int]
    partitions: list[int | None] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFormat:
    """How to read the input. ``separator``: between key and value (kv) or between fields (csv)."""

    name: str = "lines"  # lines, kv, json or csv
    separator: str | None = None
    key_column: str | None = None
    timestamp_column: str | None = None
    null_key: str | None = None  # this key text is no key
    keep_partitions: bool = False


def read_rows(stream: ByteSource, source: str, row_format: RowFormat) -> Iterator[RowChunk]:
    """Chunks of at most ``MAX_ROWS`` rows. InputError names ``source`` and the line."""
    if row_format.name == "csv":
        yield from _csv_rows(stream, source, row_format)
        return
    number = 1
    for lines in line_chunks(stream, source):
        for start in range(0, len(lines), MAX_ROWS):
            part = lines[start : start + MAX_ROWS]
            if row_format.name == "lines":
                yield RowChunk([(None, line) for line in part], range(number, number + len(part)))
            else:
                yield from _parsed(part, number, source, row_format)
            number += len(part)


def line_chunks(stream: ByteSource, source: str) -> Iterator[list[bytes]]:
    """Lines without their newline, as many at once as a read gave. A last line may lack its newline."""
    parts: list[bytes] = []
    waiting = number = 0
    while data := stream.read1(READ_BYTES):
        if b"\n" not in data:
            parts.append(data)
            waiting += len(data)
            if waiting > MAX_LINE_BYTES:
                raise InputError(source, number + 1, f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
            continue
        parts.append(data)
        lines = b"".join(parts).split(b"\n")
        rest = lines.pop()
        parts, waiting = [rest] if rest else [], len(rest)
        number += len(lines)
        yield lines
    if parts:
        yield [b"".join(parts)]


def _parsed(lines: list[bytes], first: int, source: str, row_format: RowFormat) -> Iterator[RowChunk]:
    """Rows of JSON or kv lines; what came before a bad line is handed on before the error."""
    rows: list[Row] = []
    numbers: list[int] = []
    partitions: list[int | None] | None = [] if row_format.keep_partitions else None
    separator = os.fsencode(row_format.separator or "\t")  # the very bytes that the command line gave
    null_key = os.fsencode(row_format.null_key) if row_format.null_key is not None else None
    bad: InputError | None = None
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            if row_format.name == "json":
                record = decode_record(line)
                rows.append((record.key, record.value, record.headers, record.timestamp_ms))
                if partitions is not None:
                    partitions.append(record.partition)
            else:
                rows.append(_key_and_value(line, separator, null_key))
        except LineError as error:
            bad = InputError(source, number, str(error))
            break
        numbers.append(number)
    if rows:
        yield RowChunk(rows, numbers, partitions)
    if bad is not None:
        raise bad


def _key_and_value(line: bytes, separator: bytes, null_key: bytes | None) -> Row:
    key, found, value = line.partition(separator)
    if not found:
        shown = separator.decode("utf-8", "backslashreplace")
        raise LineError(f"there is no separator {shown!r} between key and value")
    return (None if not key or key == null_key else key), value


class _CsvText:
    """Lines of text for ``csv.reader``. ``left``: lines that are at hand before the next read. ``number``: of the line
    given last; ``first``: of the record's first line, or of the line in it whose quote is open."""

    def __init__(self, stream: ByteSource, source: str) -> None:
        self._chunks = line_chunks(stream, source)
        self._source = source
        self.left = 0
        self.number = 0
        self.first = 1
        self._quoted = False  # the last line ends inside quotes

    def record_ended(self) -> None:
        self.first = self.number + 1
        self._quoted = False

    def __iter__(self) -> Iterator[str]:
        for lines in self._chunks:
            self.left = len(lines)
            for line in lines:
                self.left -= 1
                self.number += 1
                if self.number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if quotes := line.count(b'"'):
                    # A doubled quote is one within the text; what is left closes a field, or opens one.
                    reopens = self._quoted and line.replace(b'""', b"").count(b'"') > 1
                    self._quoted ^= quotes % 2 == 1
                    if self._quoted and (quotes % 2 or reopens):
                        self.first = self.number
                try:
                    yield line.decode("utf-8") + "\n"
                except UnicodeDecodeError as error:
                    raise InputError(self._source, self.number, f"it is not UTF-8: {error.reason}") from None


def _csv_rows(stream: ByteSource, source: str, row_format: RowFormat) -> Iterator[RowChunk]:
    text = _CsvText(stream, source)
    csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader(text, delimiter=row_format.separator or ",", strict=True)
    columns: _Columns | None = None
    rows: list[Row] = []
    numbers: list[int] = []
    bad: Exception | None = None
    try:
        for fields in reader:
            if not fields:
                text.record_ended()
                continue
            if columns is None:
                columns = _Columns(fields, row_format)
                text.record_ended()
                continue
            rows.append(columns.row(fields))
            text.record_ended()
            numbers.append(text.number)
            if len(rows) >= MAX_ROWS or not text.left:
                yield RowChunk(rows, numbers)
                rows, numbers = [], []
    except LineError as error:
        bad = InputError(source, text.number, str(error))
    except csv.Error as error:
        bad = _csv_error(source, text, str(error))
    except InputError as error:
        bad = error
    if rows:
        yield RowChunk(rows, numbers)
    if bad is not None:
        raise bad


def _csv_error(source: str, text: _CsvText, said: str) -> InputError:
    """What the csv module says, in words for who made the file. A quote that is not closed takes in all that follows,
    up to the input's end or the bound of a field: its own line is the one to be mended."""
    if "unexpected end of data" in said:
        return InputError(source, text.first, "a quoted field is not closed before the input ends")
    if "field larger than field limit" in said:
        reason = f"a field is longer than {MAX_LINE_BYTES >> 20} MiB; is a quote not closed?"
        return InputError(source, text.first, reason)
    if "new-line character" in said:
        said = "a carriage return stands in a field without quotes: lines end with \\n or \\r\\n"
    return InputError(source, text.number, said)


class _Columns:
    """A CSV's header: which column is the key, which the time. ``LineError`` for a header that cannot be."""

    def __init__(self, names: list[str], row_format: RowFormat) -> None:
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise LineError(f"the header has the column {sorted(twice)[0]!r} twice")
        self._names = names
        self._key = self._place(row_format.key_column, "--key-column")
        self._timestamp = self._place(row_format.timestamp_column, "--timestamp-column")
        self._null_key = row_format.null_key

    def _place(self, name: str | None, option: str) -> int | None:
        if name is None:
            return None
        if name not in self._names:
            raise LineError(
                f"there is no column {name!r} for {option}; the header has {', '.join(self._names)}"
            )
        return self._names.index(name)

    def row(self, fields: list[str]) -> Row:
        if len(fields) != len(self._names):
            raise LineError(f"{len(fields)} fields where the header has {len(self._names)}")
        value = _ENCODE(dict(zip(self._names, fields, strict=True))).encode("utf-8")
        key = fields[self._key] if self._key is not None else ""
        key_bytes = key.encode("utf-8") if key and key != self._null_key else None
        if self._timestamp is None:
            return key_bytes, value
        return key_bytes, value, (), parse_timestamp(fields[self._timestamp])


def parse_timestamp(text: str) -> int:
    """Milliseconds since 1970 UTC, from that number itself or from ISO 8601 (UTC where no zone is given).

    ``LineError`` says what was expected.
    """
    text = text.strip()
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LineError(
            f"{text[:60]!r} is no time: use milliseconds since 1970 or ISO 8601, as in 2013-01-01T10:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _milliseconds(moment)


def _milliseconds(moment: datetime) -> int:
    since: Any = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return int((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)
