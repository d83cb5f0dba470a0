"""Input to rows: every format, chunk borders anywhere, bad lines named, memory bounded."""

from __future__ import annotations

import io
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.cli.streams import rows as rows_module
from logstore.cli.streams.failures import InputError
from logstore.cli.streams.record_json import decode_record, encode_records
from logstore.cli.streams.rows import RowChunk, RowFormat, parse_timestamp, read_rows
from logstore.types import Record, Row


class Pieces:
    """A stream that gives its bytes in pieces, as a pipe does."""

    def __init__(self, content: bytes, cuts: list[int]) -> None:
        borders = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
        self._pieces = [content[low:high] for low, high in pairwise(borders)]

    def read1(self, size: int = -1, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def read(content: bytes, row_format: RowFormat, cuts: list[int] | None = None) -> list[tuple[int, Row]]:
    """(line, row) of all rows."""
    chunks = read_rows(Pieces(content, cuts or []), "input", row_format)
    return [pair for chunk in chunks for pair in zip(chunk.lines, chunk.rows, strict=True)]


def bad_line(content: bytes, row_format: RowFormat) -> tuple[list[RowChunk], InputError]:
    """What was handed on, and the error that ended it."""
    chunks: list[RowChunk] = []
    with pytest.raises(InputError) as caught:
        chunks.extend(read_rows(Pieces(content, []), "input", row_format))
    return chunks, caught.value


CUTS = st.lists(st.integers(0, 1000), max_size=20)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b"")), max_size=30), CUTS)
def test_lines_are_values_as_they_are(lines: list[bytes], cuts: list[int]) -> None:
    content = b"".join(line + b"\n" for line in lines)
    found = read(content, RowFormat(name="lines"), cuts)
    assert found == [(number, (None, line)) for number, line in enumerate(lines, 1)]
    if lines and lines[-1]:
        assert read(content[:-1], RowFormat(name="lines"), cuts) == found


def test_key_and_value_lines() -> None:
    kv = RowFormat(name="kv", separator="=>", null_key="none")
    found = read(b"a=>1\n\n=>2\nnone=>3\nb=>c=>d\ne=>\n", kv)
    assert found == [
        (1, (b"a", b"1")),
        (3, (None, b"2")),
        (4, (None, b"3")),
        (5, (b"b", b"c=>d")),
        (6, (b"e", b"")),
    ]
    assert read(b"k\tv\n", RowFormat(name="kv")) == [(1, (b"k", b"v"))]
    chunks, error = bad_line(b"a=>1\nnothing\nb=>2\n", kv)
    assert chunks[0].rows == [(b"a", b"1")]
    assert error.message == "input, line 2: there is no separator '=>' between key and value"


bytes_or_none = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode())
records = st.builds(
    Record,
    topic=st.just("t"),
    partition=st.integers(0, 5),
    offset=st.integers(0, 2**62),
    timestamp_ms=st.integers(0, 2**62),
    key=bytes_or_none,
    value=bytes_or_none,
    headers=st.lists(st.tuples(st.text(max_size=5), bytes_or_none), max_size=3).map(tuple),
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(records, max_size=10), CUTS)
def test_json_lines_come_back_exactly(given_records: list[Record], cuts: list[int]) -> None:
    """null is no empty text, bytes that are no text come through, headers keep order and repetition."""
    found = read(encode_records(given_records), RowFormat(name="json"), cuts)
    assert [row for _, row in found] == [
        (record.key, record.value, record.headers, record.timestamp_ms) for record in given_records
    ]
    kept = list(
        read_rows(
            Pieces(encode_records(given_records), cuts), "i", RowFormat(name="json", keep_partitions=True)
        )
    )
    partitions = [number for chunk in kept for number in chunk.partitions or []]
    assert partitions == [record.partition for record in given_records]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "it is not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"user": 1}', "unknown field 'user'"),
        (b'{"partition": 1}', "neither key nor value"),
        (b'{"value": 7}', "value is a number, not text"),
        (b'{"value": {"a": 1}}', "value is an object, not text"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "@"}', "not base64"),
        (b'{"value_base64": 3}', "not text"),
        (b'{"value": "\\ud800"}', "half a surrogate pair"),
        (b'{"value": "a", "timestamp_ms": 1.5}', "timestamp_ms is a number, not a whole"),
        (b'{"value": "a", "timestamp_ms": true}', "timestamp_ms is true or false"),
        (b'{"value": "a", "timestamp_ms": 9223372036854775808}', "64 bits"),
        (b'{"value": "a", "headers": {}}', "headers is not a list"),
        (b'{"value": "a", "headers": [{"value": "x"}]}', "a header is not"),
        (b'{"value": "a", "headers": [{"name": "n", "v": 1}]}', "unknown field 'v'"),
        (b'{"value": "\xff"}', "not UTF-8"),
        (b"[" * 200_000, "nested too deep"),
    ],
)
def test_bad_json_lines_say_what_is_wrong(line: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        decode_record(line)
    chunks, error = bad_line(b'{"value": "good"}\n' + line + b"\n", RowFormat(name="json"))
    assert chunks[0].rows == [(None, b"good", (), None)]
    assert error.fields["line"] == 2


def test_csv_rows_are_json_with_a_key_and_a_time() -> None:
    content = b'\xef\xbb\xbfid,name,at\r\n1,"a ""b"", c",1700000000000\r\n\r\n,"two\nlines",2013-01-01T10:00:00Z\r\n'
    csv_format = RowFormat(name="csv", key_column="id", timestamp_column="at")
    found = read(content, csv_format)
    assert found == [
        (2, (b"1", b'{"id":"1","name":"a \\"b\\", c","at":"1700000000000"}', (), 1700000000000)),
        (5, (None, b'{"id":"","name":"two\\nlines","at":"2013-01-01T10:00:00Z"}', (), 1357034400000)),
    ]
    assert read(b"a;b\n1;2\n", RowFormat(name="csv", separator=";", key_column="b")) == [
        (2, (b"2", b'{"a":"1","b":"2"}'))
    ]
    assert read(b"k,v\nNA,1\n", RowFormat(name="csv", key_column="k", null_key="NA"))[0][1][0] is None
    assert read("k\nä\n".encode(), RowFormat(name="csv")) == [(2, (None, '{"k":"ä"}'.encode()))]
    assert read(b"", RowFormat(name="csv")) == []


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(*[st.text(alphabet='ab,"\n é', max_size=6)] * 2), min_size=1, max_size=20), CUTS)
def test_csv_survives_any_chunk_border(pairs: list[tuple[str, str]], cuts: list[int]) -> None:
    import csv
    import json

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *pairs])
    found = read(text.getvalue().encode(), RowFormat(name="csv"), cuts)
    assert [tuple(json.loads(row[1] or b"").values()) for _, row in found] == pairs


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"a,b\n1,2\n1\n", 3, "1 fields where the header has 2"),
        (b"a,b\n1,2\n1,2,3\n", 3, "3 fields where the header has 2"),
        (b"a,b\n1,2\n\xff,2\n", 3, "it is not UTF-8"),
        (b'a,b\n1,2\n"1,2\n', 3, "a quoted field is not closed"),
        (b'a,b\n1,2\n"1,2\n3,4\n5,6\n', 3, "a quoted field is not closed"),
        (b'a,b\n1,2\n"x\ny","\n4,5\n', 4, "a quoted field is not closed"),
        (b'a,b\n1,2\n"say ""hi""\nx","z\n1\n2', 4, "a quoted field is not closed"),
    ],
)
def test_bad_csv_lines_are_named(content: bytes, line: int, message: str) -> None:
    chunks, error = bad_line(content, RowFormat(name="csv"))
    assert [row for chunk in chunks for row in chunk.rows] == [(None, b'{"a":"1","b":"2"}')]
    assert error.fields["line"] == line
    assert message in error.message


@pytest.mark.parametrize(
    ("header", "row_format", "message"),
    [
        (b"a,b,a\n", RowFormat(name="csv"), "the column 'a' twice"),
        (
            b"a,b\n",
            RowFormat(name="csv", key_column="c"),
            "no column 'c' for --key-column; the header has a, b",
        ),
        (b"a,b\n", RowFormat(name="csv", timestamp_column="c"), "no column 'c' for --timestamp-column"),
    ],
)
def test_bad_csv_headers_are_named(header: bytes, row_format: RowFormat, message: str) -> None:
    _, error = bad_line(header + b"1,2,3\n", row_format)
    assert error.fields["line"] == 1
    assert message in error.message


def test_times() -> None:
    assert parse_timestamp("0") == 0
    assert parse_timestamp(" 1700000000123 ") == 1700000000123
    assert parse_timestamp("2013-01-01T10:00:00Z") == 1357034400000
    assert parse_timestamp("2013-01-01 10:00") == 1357034400000
    assert parse_timestamp("2013-01-01T12:00:00.5+02:00") == 1357034400500
    for text in ("", "yesterday", "2013-13-01", "1.5"):
        with pytest.raises(ValueError, match="is no time"):
            parse_timestamp(text)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 1 << 20)

    class Endless:
        given = 0

        def read1(self, size: int = -1, /) -> bytes:
            self.given += size
            assert self.given < 3 << 20
            return b"x" * size

    with pytest.raises(InputError, match="line 1: it is longer than 1 MiB"):
        list(read_rows(Endless(), "input", RowFormat(name="lines")))


def test_what_is_there_is_handed_on_without_waiting_for_more() -> None:
    """A person who types lines must not wait for a chunk to fill."""
    for row_format, header in ((RowFormat(name="lines"), b""), (RowFormat(name="csv"), b"a\n")):
        stream = Pieces(header + b"one\ntwo\nthree\n", [len(header) + 4, len(header) + 8])
        sizes = [len(chunk.rows) for chunk in read_rows(stream, "input", row_format)]
        assert sizes == [1, 1, 1]


def test_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_ROWS", 10)
    for name in ("lines", "kv", "json", "csv"):
        line = {"lines": b"x", "kv": b"a\tb", "json": b'{"value": "x"}', "csv": b"x"}[name]
        chunks = list(read_rows(io.BytesIO((line + b"\n") * 35), "input", RowFormat(name=name)))
        assert max(len(chunk.rows) for chunk in chunks) == 10


def test_what_stands_in_quotes_survives() -> None:
    """Carriage returns, NULs, separators and quotes, wherever a line or a chunk ends."""
    content = b'\xef\xbb\xbf"k",v\r\n1,"a\rb"\r\n2,"c\r\nd"\r\n3,"\r"\r\n4,"\x00,""\x00"\r\n'
    for cut in range(len(content)):
        found = read(content, RowFormat(name="csv", key_column="k"), [cut])
        assert [json.loads(row[1] or b"")["v"] for _, row in found] == ["a\rb", "c\r\nd", "\r", '\x00,"\x00']


def test_a_quote_that_takes_in_the_rest_of_a_large_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 1 << 20)
    content = b'a,b\n1,2\n"3,4\n' + b"5,6\n" * 400_000
    _, error = bad_line(content, RowFormat(name="csv"))
    assert error.message == "input, line 3: a field is longer than 1 MiB; is a quote not closed?"
