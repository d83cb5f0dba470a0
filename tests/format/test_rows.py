"""Checks of whole calls, and cutting rows into batches that are never larger than estimated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.errors import InvalidTimestampError, LogStoreError, RecordTooLargeError, RecordTypeError
from logstore.format import rows as in_use
from logstore.format.batch import encode_batch
from logstore.format.rows import (
    alone_bytes,
    check_headers,
    check_rows,
    check_sizes,
    cut,
    measured_headers,
    plain_rows,
    row_sizes,
)
from tests.native.twins import python_twin

NOW_MS = 1_700_000_000_000
content = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=300)
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20)), max_size=3
)
times = st.none() | st.integers(-(2**62), 2**62 - 1)
row = (
    st.tuples(content, content)
    | st.tuples(content, content, headers)
    | st.tuples(content, content, headers, times)
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(row, min_size=1, max_size=60), st.integers(100, 4000))
def test_chunks_hold_all_rows_in_order_and_never_outgrow_their_size(rows: list[Any], cap: int) -> None:
    limit = 100_000
    checked = check_rows("topic 't'", rows)
    sizes = row_sizes(checked, checked.rows)
    chunks = list(cut(checked.rows, sizes, checked.timestamped, cap, limit))
    assert [row for chunk in chunks for row in chunk.rows] == checked.rows
    for chunk in chunks:
        encoded = encode_batch(chunk.rows, now_ms=NOW_MS)
        assert len(encoded) <= chunk.size
        assert chunk.size <= cap or len(chunk.rows) == 1
    # and no chunk could have taken the next one's first row
    for chunk, following in pairwise(chunks):
        more = check_rows("topic 't'", [*chunk.rows, following.rows[0]])
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
        check_rows("topic 't'", rows)
    assert said in str(caught.value)


@pytest.mark.parametrize("timestamp_ms", [-(2**62) - 1, 2**62, 2**63])
def test_timestamps_out_of_range_are_refused(timestamp_ms: int) -> None:
    with pytest.raises(InvalidTimestampError, match="row 0"):
        check_rows("topic 't'", [(b"k", b"v", None, timestamp_ms)])


def test_lists_and_named_tuples_are_rows_too() -> None:
    checked = check_rows("topic 't'", iter([[b"k", b"v"], (b"l", None)]))
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
    checked = check_rows("topic 't'", rows)
    sizes = row_sizes(checked, checked.rows)
    with pytest.raises(RecordTooLargeError, match=r"row 1 for topic 't'.* max.message.bytes is 1000"):
        check_sizes("topic 't'", checked, 1000, "max.message.bytes", sizes)
    exact = alone_bytes(None, b"v" * 2000, None)
    check_sizes("topic 't'", checked, exact, "max.message.bytes", sizes)
    with pytest.raises(RecordTooLargeError, match="row 2"):
        check_sizes("topic 't'", checked, exact - 1, "max.message.bytes", sizes)


def test_an_iterator_of_headers_is_read_once() -> None:
    assert measured_headers(([name, b"v"] for name in ("a", "b")), "t")[0] == (("a", b"v"), ("b", b"v"))


def test_a_row_count_bounds_a_chunk() -> None:
    rows: list[Any] = [(None, b"")] * 25
    checked = check_rows("t-0", rows)
    chunks = list(cut(rows, row_sizes(checked, rows), False, 1 << 30, 1 << 30, 10))
    assert [len(chunk.rows) for chunk in chunks] == [10, 10, 5]


# --- one rule at every door -------------------------------------------------------------------------


class Text(bytes):
    """A subclass, such as numpy's."""


ODD_ROWS: list[Any] = [
    (b"k", b"v", None, -14_182_940_000),
    (b"k", b"v", None, -1),
    (b"k", b"v", None, -(2**62)),
    (b"k", b"v", None, -(2**62) - 1),
    (b"k", b"v", None, 2**62),
    (b"k", b"v", None, 2**63),
    (b"k", b"v", None, True),
    (b"k", b"v", None, 1.0),
    (b"k", b"v", None, "1"),
    (Text(b"k"), Text(b"v"), [("h", Text(b"v"))]),
    ("k", b"v"),
    (b"k", bytearray(b"v")),
    (b"k", memoryview(b"v")),
    (b"k", 7),
    (None, None),
    (b"", b""),
    (b"k", b"v", [("h", None)]),
    (b"k", b"v", [("", b"")]),
    (b"k", b"v", [["h", b"v"]]),
    (b"k", b"v", {"h": b"v"}.items()),
    (b"k", b"v", {"h": b"v"}),
    (b"k", b"v", [("h", "v")]),
    (b"k", b"v", [(b"h", b"v")]),
    (b"k", b"v", [("\ud800", b"v")]),
    (b"k", b"v", [("h",)]),
    (b"k", b"v", 5),
    (b"k", b"x" * 2000),
    (b"k", b"x" * 950),  # what the sizes of a batch's fields decide
    (b"k", b"x" * 951),
    (b"k", b"x" * 952),
    (b"k", b"x" * 953),
    (b"k", b"x" * 954),
    (b"k", b"x" * 955),
]


def sent(store: logstore.LogStore, rows: list[Any]) -> None:
    key, value, headers, timestamp_ms = (*rows[0], None, None)[:4]
    with store.producer() as producer:
        producer.send("t", value, key=key, headers=headers, timestamp_ms=timestamp_ms).result(60)


def sent_many(store: logstore.LogStore, rows: list[Any]) -> None:
    with store.producer() as producer:
        producer.send_many("t", rows).result(60)


def in_transaction(store: logstore.LogStore, rows: list[Any]) -> None:
    with store.producer(transactional_id="x") as producer, producer.transaction() as tx:
        tx.send_many("t", rows)


DOORS: dict[str, Callable[[logstore.LogStore, list[Any]], object]] = {
    "append": lambda store, rows: store.partition("t", 0).append(rows),
    "append of several": lambda store, rows: store.partition("t", 0).append([*rows, (b"k", b"v")]),
    "send": sent,
    "send_many": sent_many,
    "send_many of several": lambda store, rows: sent_many(store, [*rows, (b"k", b"v")]),
    "transaction": in_transaction,
}


@pytest.mark.parametrize("row", ODD_ROWS, ids=range(len(ODD_ROWS)))
def test_every_door_takes_or_refuses_a_record_alike(row: Any) -> None:
    """The same record, or an error of the same name with the same advice, whichever way it comes in."""
    outcomes = {}
    for door, call in DOORS.items():
        with logstore.open(":memory:") as store:
            store.create_topic("t", config={"segment.bytes": "1024"})
            try:
                call(store, [row])
            except LogStoreError as error:
                outcomes[door] = (type(error).__name__, error.advice)
                assert store.partition("t", 0).high_watermark in (0, 1)  # 1: an aborted transaction's marker
            else:
                record = next(store.partition("t", 0).records(0))
                time_ms = record.timestamp_ms if len(row) > 3 else None
                outcomes[door] = (record.key, record.value, record.headers, time_ms)
    assert len(set(outcomes.values())) == 1, outcomes


def test_a_record_that_is_too_large_is_told_the_setting_in_force() -> None:
    for config, setting in (
        ({"segment.bytes": "1024"}, "segment.bytes is 1024"),
        ({"max.message.bytes": "1000"}, "max.message.bytes is 1000"),
    ):
        for call in DOORS.values():
            with logstore.open(":memory:") as store:
                store.create_topic("t", config=config)
                with pytest.raises(
                    RecordTooLargeError, match=f"makes a batch of 20[0-9][0-9] bytes, {setting}"
                ):
                    call(store, [(b"k", b"x" * 2000)])
                with pytest.raises(RecordTooLargeError, match=setting):
                    store.partition("t", 0).append_batch(encode_batch([(None, b"x" * 2000)], now_ms=NOW_MS))


def test_times_before_1970_are_found_again() -> None:
    moon = -14_182_940_000
    with logstore.open(":memory:") as store:
        store.create_topic("t")
        log = store.partition("t", 0)
        log.append(
            [(None, b"landing", None, moon), (None, b"return", None, moon + 1000), (None, b"-1", None, -1)]
        )
        assert log.offset_for_timestamp(moon + 1) == 1
        assert log.offset_for_timestamp(-10) == 2
        assert log.offset_for_timestamp(0) is None
        newest = log.record_of_max_timestamp()
        assert newest is not None
        assert newest.value == b"-1"
        with store.consumer("t", start=datetime(1969, 7, 20, tzinfo=UTC), until_end=True) as consumer:
            assert [record.timestamp_ms for record in consumer] == [moon, moon + 1000, -1]
        log.append([(None, b"now")])
        assert log.offset_for_timestamp(0) == 3


class OfBytes(bytes):
    """Taken where bytes are, and measured by its own ``len``."""

    def __len__(self) -> int:
        return 3


HOSTILE = st.sampled_from(
    [
        bytearray(b"b"),
        "text",
        7,
        (),
        [],
        Ellipsis,
        OfBytes(b"abc"),
        [("h", b"v")],
        (("h", None), ("\u00e9", b"")),
    ]
)
hostile_name = st.sampled_from(["h", "\ud800", b"h", None])
hostile_header = st.tuples(hostile_name, content | HOSTILE) | st.tuples(content, content, content) | HOSTILE
hostile_headers = headers | HOSTILE | st.lists(hostile_header, max_size=2) | st.tuples(hostile_header)
field = content | HOSTILE
hostile_row = (
    row
    | HOSTILE
    | st.lists(field, max_size=5)
    | st.tuples(field, field)
    | st.tuples(content, content, hostile_headers)
    | st.tuples(content, content, hostile_headers, st.none() | st.integers(-(2**70), 2**70) | HOSTILE)
)


def said(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives, or the error with its words."""
    try:
        return function(*arguments)
    except (LogStoreError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


@settings(derandomize=True, deadline=None, max_examples=600)
@given(
    st.lists(row, max_size=20)
    | st.lists(st.tuples(content, content), max_size=20)
    | st.lists(hostile_row, max_size=4),
    st.integers(62, 2000),
    st.integers(1, 9),
)
def test_both_twins_check_measure_and_cut_the_same(given_rows: list[Any], cap: int, most: int) -> None:
    python = python_twin("logstore.format.rows")
    checked = said(check_rows, "topic 't'", given_rows)
    assert checked == said(python.check_rows, "topic 't'", given_rows)
    if isinstance(checked, str):
        return
    sizes = row_sizes(checked, checked.rows)
    assert sizes == python.row_sizes(checked, checked.rows)
    limits = ("topic 't'", checked, cap, "max.message.bytes", sizes)
    assert said(check_sizes, *limits) == said(python.check_sizes, *limits)
    limit = max(cap, 3000)
    cutting = (checked.rows, sizes, checked.timestamped, cap, limit, most)
    assert list(cut(*cutting)) == list(python.cut(*cutting))


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    st.lists(row, max_size=20)
    | st.lists(st.tuples(content, content), max_size=20)
    | st.lists(hostile_row, max_size=4)
    | HOSTILE
)
def test_both_twins_look_at_plain_rows_the_same(given_rows: Any) -> None:
    python = python_twin("logstore.format.rows")
    found, wanted = plain_rows(given_rows), python.plain_rows(given_rows)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    assert found[:4] == wanted[:4]
    checked = check_rows("topic 't'", given_rows)
    sizes = row_sizes(checked, checked.rows)
    assert wanted[:4] == (checked.null_keys, checked.some_keys, sum(sizes), max(sizes))
    assert found.sizes in (None, sizes)
    assert wanted.sizes == sizes


@settings(derandomize=True, deadline=None, max_examples=400)
@given(hostile_headers, st.booleans())
def test_both_twins_measure_headers_the_same(given_headers: Any, iterated: bool) -> None:
    python = python_twin("logstore.format.rows")
    once = iterated and isinstance(given_headers, list | tuple)
    found = said(measured_headers, iter(given_headers) if once else given_headers, "t")
    assert found == said(python.measured_headers, iter(given_headers) if once else given_headers, "t")


@pytest.mark.parametrize("late", [(), (b"k",)])
def test_rows_that_are_changed_under_the_checks_are_refused(late: Any) -> None:
    """By headers of a class of the caller's, or by another thread once the shape of the rows was looked at."""
    given_rows: list[Any] = []

    class Headers(list[Any]):
        def __iter__(self) -> Any:
            given_rows[1] = late
            return super().__iter__()

    for twin in (in_use, python_twin("logstore.format.rows")):
        given_rows[:] = [(b"k", b"v", Headers([("h", b"1")])), (b"k", b"v", [])]
        with pytest.raises(IndexError, match="tuple index out of range"):
            twin.check_rows("topic 't'", given_rows)
        for first in ((b"k", b"v"), (b"k", b"v", [("h", b"1")])):
            checked = twin.check_rows("topic 't'", [first])
            with pytest.raises((IndexError, ValueError)):
                twin.row_sizes(checked, [late])
