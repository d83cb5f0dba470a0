"""Kind (f): what one door prints or writes, the other takes: arbitrary bytes, times and headers, both ways."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from logstore.cli.streams import record_json, rows
from logstore.cli.streams.failures import InputError
from logstore.cli.streams.rows import RowFormat, read_rows
from logstore.format import batch
from logstore.format.batch import decode_batches, encode_batch
from logstore.types import Record, Row
from tests.plants.hunts import seeded
from tests.plants.plant import Patch, plant


def _payload(source: random.Random) -> bytes | None:
    drawn = source.random()
    if drawn < 0.15:
        return None
    if drawn < 0.3:
        return b""
    if drawn < 0.6:
        return source.choice(["plain", 'ä\u2028 "\\', "\x00\x1f", "\r\n", "null", "=\t,"]).encode()
    return source.randbytes(source.randrange(1, 40))


def _drawn(seed: int) -> list[Record]:
    source = random.Random(seed)
    found = []
    for offset in range(source.randrange(1, 9)):
        key, value = _payload(source), _payload(source)
        headers = tuple(
            (source.choice(["a", "ä", "a", ""]), _payload(source)) for _ in range(source.choice((0, 0, 1, 3)))
        )
        at_ms = source.choice(
            (0, -1, -(10**12), 1_700_000_000_000, 10**15, source.randrange(-(10**13), 10**13))
        )
        found.append(Record("t", 0, offset, at_ms, key, value, headers))
    return found


def json_lines(seed: int) -> None:
    """What `consume --json` prints, in whatever pieces it arrives."""
    drawn = _drawn(seed)
    found = _read(record_json.encode_records(drawn), seed, RowFormat(name="json"))
    assert found == [(one.key, one.value, one.headers, one.timestamp_ms) for one in drawn]


def key_and_value_lines(seed: int) -> None:
    source = random.Random(seed)
    pairs = [
        (bytes(_without(source, b"\n\t", 12)) or None, bytes(_without(source, b"\n", 30)))
        for _ in range(source.randrange(1, 9))
    ]
    text = b"".join((key or b"") + b"\t" + value + b"\n" for key, value in pairs)
    wanted = [(key, value) for key, value in pairs if ((key or b"") + b"\t" + value).strip()]
    assert _read(text, seed, RowFormat(name="kv")) == wanted


def _read(text: bytes, seed: int, row_format: RowFormat) -> list[Row]:
    try:
        return [row for chunk in read_rows(_Pieces(text, seed), "stdin", row_format) for row in chunk.rows]
    except InputError as error:
        raise AssertionError(f"{error} of {text!r}") from error


def _without(source: random.Random, left_out: bytes, most: int) -> bytes:
    return bytes(byte for byte in source.randbytes(source.randrange(most)) if byte not in left_out)


class _Pieces:
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, seed: int) -> None:
        self._data = io.BytesIO(data)
        self._source = random.Random(seed)

    def read1(self, size: int = -1, /) -> bytes:
        del size
        return self._data.read(self._source.choice((1, 3, 20, 1000)))


def batches(seed: int) -> None:
    """Records through a batch, plain and compressed."""
    drawn = _drawn(seed)
    data = encode_batch(
        [(one.key, one.value, one.headers, one.timestamp_ms) for one in drawn],
        now_ms=5,
        codec=random.Random(seed).choice(["none", "gzip"]),
    )
    found = decode_batches(data, "t", 0)
    assert [tuple(one) for one in found] == [tuple(one) for one in drawn]


def times(seed: int) -> None:
    """A moment as text, and the same one as a number."""
    at_ms = random.Random(seed).choice((0, -1, -999, -1000, -86_400_001, 1_357_034_400_123))
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    assert rows.parse_timestamp(moment.isoformat()) == at_ms
    assert rows.parse_timestamp(moment.replace(tzinfo=None).isoformat()) == at_ms
    assert rows.parse_timestamp(str(at_ms)) == at_ms


@plant("null printed as empty", "a null key or value is printed as an empty text", seeded(json_lines), 10)
def _(patch: Patch) -> None:
    put = record_json._put
    patch.setattr(record_json, "_put", lambda fields, name, value: put(fields, name, value or b""))


@plant("empty read as null", "an empty key or value is read as null", seeded(json_lines), 10)
def _(patch: Patch) -> None:
    take = record_json._take
    patch.setattr(record_json, "_take", lambda fields, name: take(fields, name) or None)


@plant(
    "bytes replaced", "bytes that are no text are printed with replacement characters", seeded(json_lines), 10
)
def _(patch: Patch) -> None:
    put = record_json._put

    def planted(fields: dict[str, Any], name: str, value: bytes | None) -> None:
        put(fields, name, None if value is None else value.decode("utf-8", "replace").encode())

    patch.setattr(record_json, "_put", planted)


@plant("one header a name", "of headers with the same name only the last is kept", seeded(json_lines), 20)
def _(patch: Patch) -> None:
    headers = record_json._headers
    patch.setattr(record_json, "_headers", lambda value: tuple(dict(headers(value)).items()))


@plant("line ends of all kinds", "input is split at every line end that text knows", seeded(json_lines), 20)
def _(patch: Patch) -> None:
    chunks = rows.line_chunks

    def planted(stream: Any, source: str) -> Any:
        for lines in chunks(stream, source):
            yield [
                part.encode("utf-8", "surrogateescape")
                for line in lines
                for part in line.decode("utf-8", "surrogateescape").splitlines() or [""]
            ]

    patch.setattr(rows, "line_chunks", planted)


@plant("line cut at a read's end", "a line that arrives in two reads is two lines", seeded(json_lines), 5)
def _(patch: Patch) -> None:
    def planted(stream: Any, source: str) -> Any:
        while data := stream.read1():
            yield data.removesuffix(b"\n").split(b"\n")

    patch.setattr(rows, "line_chunks", planted)


@plant("values stripped", "blanks at the ends of a line are cut off", seeded(key_and_value_lines), 20)
def _(patch: Patch) -> None:
    split = rows._key_and_value
    patch.setattr(rows, "_key_and_value", lambda line, *more: split(line.strip(b" \r\0\x0b\x0c"), *more))


@plant(
    "split at the last separator", "a value that holds the separator is cut", seeded(key_and_value_lines), 20
)
def _(patch: Patch) -> None:
    def planted(line: bytes, separator: bytes, null_key: bytes | None) -> Any:
        key, _, value = line.rpartition(separator)
        return (None if not key or key == null_key else key), value

    patch.setattr(rows, "_key_and_value", planted)


@plant("times before 1970 cut to it", "a time before 1970 becomes 1970", seeded(times), 10)
def _(patch: Patch) -> None:
    milliseconds = rows._milliseconds
    patch.setattr(rows, "_milliseconds", lambda moment: max(milliseconds(moment), 0))


@plant("times rounded towards 1970", "milliseconds before 1970 are rounded up", seeded(times), 10)
def _(patch: Patch) -> None:
    def planted(moment: datetime) -> int:
        return (
            int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1000
            + moment.microsecond // 1000
        )

    patch.setattr(rows, "_milliseconds", planted)


@plant("local times", "a time without a zone is taken as that of another zone", seeded(times), 3)
def _(patch: Patch) -> None:
    patch.setattr(rows, "UTC", timezone(timedelta(hours=2)))


@plant("header's null lost", "a header whose value is null is stored as empty", seeded(batches), 20)
def _(patch: Patch) -> None:
    decode = batch.decode_rows

    def planted(*columns: Any) -> list[Record]:
        return [
            one._replace(headers=tuple((name, value or b"") for name, value in one.headers))
            for one in decode(*columns)
        ]

    patch.setattr(batch, "decode_rows", planted)


@plant(
    "time deltas unsigned", "a record older than its batch's first gets the first's time", seeded(batches), 10
)
def _(patch: Patch) -> None:
    decode = batch.decode_rows

    def planted(*columns: Any) -> list[Record]:
        found = decode(*columns)
        return [one._replace(timestamp_ms=max(one.timestamp_ms, found[0].timestamp_ms)) for one in found]

    patch.setattr(batch, "decode_rows", planted)
