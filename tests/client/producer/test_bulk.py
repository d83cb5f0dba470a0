"""Checks of whole calls, and cutting rows into batches that are never larger than estimated."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.client.producer.bulk import check_headers, check_rows, check_sizes, cut, row_sizes
from logstore.client.producer.pending import alone_bytes
from logstore.errors import InvalidTimestampError, RecordTooLargeError, RecordTypeError
from logstore.format.batch import encode_batch

NOW_MS = 1_700_000_000_000
content = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=300)
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20)), max_size=3
)
times = st.none() | st.integers(0, 2**62)
row = (
    st.tuples(content, content)
    | st.tuples(content, content, headers)
    | st.tuples(content, content, headers, times)
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(row, min_size=1, max_size=60), st.integers(100, 4000))
def test_chunks_hold_all_rows_in_order_and_never_outgrow_their_size(rows: list[Any], cap: int) -> None:
    limit = 100_000
    checked = check_rows("t", rows)
    sizes = row_sizes(checked, checked.rows)
    chunks = list(cut(checked.rows, sizes, checked.timestamped, cap, limit))
    assert [row for chunk in chunks for row in chunk.rows] == checked.rows
    for chunk in chunks:
        encoded = encode_batch(chunk.rows, now_ms=NOW_MS)
        assert len(encoded) <= chunk.size
        assert chunk.size <= cap or len(chunk.rows) == 1
    # and no chunk could have taken the next one's first row
    for chunk, following in pairwise(chunks):
        more = check_rows("t", [*chunk.rows, following.rows[0]])
        overhead = 32 if checked.timestamped else 23
        assert 61 + sum(row_sizes(checked, more.rows)) + overhead * len(more.rows) > cap


@settings(derandomize=True, deadline=None, max_examples=200)
@given(content, content, headers)
def test_a_record_alone_is_sized_exactly(key: bytes | None, value: bytes | None, given_headers: Any) -> None:
    row = (key, value, given_headers)
    assert alone_bytes(*row) == len(encode_batch([row], now_ms=NOW_MS))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(b"k", b"v"), (b"k", "text")], "row 1 for topic 't': the value is str"),
        ([(1, b"v")], "row 0 for topic 't': the key is int"),
        ([(b"k", b"v"), b"kv"], "row 1 for topic 't' is bytes"),
        ([(b"k", b"v"), (b"k",)], "row 1 for topic 't' has 1 fields"),
        ([(b"k", b"v", None, 1, 2)], "row 0 for topic 't' has 5 fields"),
        ([(b"k", b"v", [("h", "text")])], "row 0 for topic 't': header"),
        ([(b"k", b"v", [(b"h", b"v")])], "row 0 for topic 't': header"),
        ([(b"k", b"v", [("h",)])], "row 0 for topic 't': headers"),
        ([(b"k", b"v", 5)], "row 0 for topic 't': headers"),
        ([(b"k", b"v", None, 1.5)], "row 0 for topic 't': timestamp_ms is float"),
        ([(b"k", bytearray(b"v"))], "the value is bytearray"),
    ],
)
def test_wrong_types_name_the_row(rows: list[Any], said: str) -> None:
    with pytest.raises(RecordTypeError) as caught:
        check_rows("t", rows)
    assert said in str(caught.value)


@pytest.mark.parametrize("timestamp_ms", [-1, 2**63])
def test_timestamps_out_of_range_are_refused(timestamp_ms: int) -> None:
    with pytest.raises(InvalidTimestampError, match="row 0"):
        check_rows("t", [(b"k", b"v", None, timestamp_ms)])


def test_lists_and_named_tuples_are_rows_too() -> None:
    checked = check_rows("t", iter([[b"k", b"v"], (b"l", None)]))
    assert checked.rows == [(b"k", b"v"), (b"l", None)]
    assert checked.pairs
    assert checked.some_keys
    assert not checked.null_keys


def test_headers_are_copied() -> None:
    mutable: list[Any] = [("h", b"v")]
    checked = check_headers(mutable, "a record")
    mutable.clear()
    assert checked == (("h", b"v"),)


def test_the_first_row_that_is_too_large_is_named() -> None:
    rows = [(None, b"v" * 10), (None, b"v" * 1000), (None, b"v" * 2000)]
    checked = check_rows("t", rows)
    sizes = row_sizes(checked, checked.rows)
    with pytest.raises(RecordTooLargeError, match=r"row 1 for topic 't'.* max.message.bytes is 1000"):
        check_sizes("t", checked, 1000, "max.message.bytes", sizes)
    exact = alone_bytes(None, b"v" * 2000, None)
    check_sizes("t", checked, exact, "max.message.bytes", sizes)
    with pytest.raises(RecordTooLargeError, match="row 2"):
        check_sizes("t", checked, exact - 1, "max.message.bytes", sizes)
