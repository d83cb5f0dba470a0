"""Marks of batches: the same for the same rows in any order and cut, and within what a counter's metadata holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import ArrowRows
from spark_connector.writing.batch_marks import KEPT, BatchMarks, Content, Mark, content_of, mark_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
texts = st.none() | st.binary(max_size=4)
headers = st.none() | st.lists(st.tuples(st.text(max_size=2), texts), max_size=2)
whole_rows = st.tuples(texts, texts, headers, st.none() | st.integers(0, 9))


def content(rows: list[Any], topic: str = "t", partition: int | None = None) -> Content:
    """Of rows of any width, with as many columns as the widest has."""
    width = max(map(len, rows), default=4)
    whole = [(*row, None, None)[:4] for row in rows]
    pairs = [
        None if headers is None else [{"key": name, "value": value} for name, value in headers]
        for *_, headers, _ in whole
    ]
    columns = {
        "key": pa.array([row[0] for row in whole], pa.binary()),
        "value": pa.array([row[1] for row in whole], pa.binary()),
        "headers": pa.array(pairs, HEADERS),
        "timestamp": pa.array([row[3] for row in whole], pa.int64()),
    }
    batch = pa.record_batch(dict(list(columns.items())[:width]))
    return content_of(topic, partition, ArrowRows(batch))


@settings(derandomize=True, deadline=None)
@given(st.lists(whole_rows, max_size=8), st.randoms(use_true_random=False), st.integers(0, 8))
def test_the_same_rows_in_any_order_and_cut(rows: list[Any], random: Any, cut: int) -> None:
    shuffled = random.sample(rows, len(rows))
    parts = content(shuffled[:cut]).joined(content(shuffled[cut:]))
    assert parts == content(rows)
    # A row without headers and time is the same whether those columns are there or not.
    plain = [row[:2] for row in rows]
    assert content(plain) == content([(*row, None, None) for row in plain])
    assert content(plain) == content([(*row, []) for row in plain])


def test_rows_that_differ_in_one_thing_differ() -> None:
    rows: list[Any] = [(b"k", b"v"), (b"kv", b""), (b"", b"kv"), (None, b"v"), (b"", b"v"), (b"k", None)]
    rows += [(b"k", b"v", [("h", b"1")], None), (b"k", b"v", [("h", None)], None), (b"k", b"v", None, 7)]
    found = [content([row]) for row in rows]
    found += [content([(b"k", b"v")], "other"), content([(b"k", b"v")], partition=0)]
    found += [content([(b"k", b"v")], partition=1), content([(b"k", b"v")] * 2)]
    assert len(set(found)) == len(found)
    pairs = [[(b"1", b"a"), (b"2", b"b")], [(b"1", b"b"), (b"2", b"a")]]
    assert content(pairs[0]) != content(pairs[1])


def mark(number: int, offsets: str = "") -> Mark:
    return Mark(number, f"{number:x}", offsets)


def test_a_batch_is_the_same_by_its_rows_or_by_its_offsets() -> None:
    assert mark(3).is_of(mark(3))
    assert not mark(3).is_of(mark(4))
    assert mark(3, "ab").is_of(mark(4, "ab"))
    assert mark(3, "ab").is_of(mark(3, "cd"))
    assert not mark(3, "ab").is_of(mark(4, "cd"))
    assert not mark(3, "ab").is_of(mark(4))


def test_offsets_come_from_the_checkpoint_without_the_time_of_planning(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    file = tmp_path / "offsets" / "4"
    file.write_text('v1\n{"batchTimestampMs":1}\n{"t":{"0":5}}', "utf-8")
    first = mark_of([Content(1, 1)], str(tmp_path), 4)
    file.write_text('v1\n{"batchTimestampMs":2}\n{"t":{"0":5}}', "utf-8")
    again = mark_of([Content(2, 2)], str(tmp_path), 4)
    file.write_text('v1\n{"batchTimestampMs":2}\n{"t":{"0":6}}', "utf-8")
    other = mark_of([Content(2, 2)], str(tmp_path), 4)
    assert first.offsets == again.offsets != other.offsets
    assert first.is_of(again)
    assert not first.is_of(other)
    assert mark_of([], str(tmp_path), 5).offsets == mark_of([], None, 5).offsets == ""


def test_the_newest_marks_fit_the_metadata_of_an_offset() -> None:
    marks = BatchMarks()
    for number in range(2 * KEPT):
        marks = marks.with_batch(number, Mark(10**9 + number, "f" * 12, "e" * 12))
    assert len(marks.encode().encode()) <= 4096
    assert BatchMarks.decode(marks.encode()) == marks
    assert max(marks.marks) == 2 * KEPT - 1
    assert 90 <= len(marks.marks) <= KEPT
    small = BatchMarks()
    for number in range(2 * KEPT):
        small = small.with_batch(number, mark(1))
    assert sorted(small.marks) == list(range(KEPT, 2 * KEPT))


def test_numbers_with_gaps_and_an_old_one_again() -> None:
    marks = BatchMarks().with_batch(3, mark(1)).with_batch(4, mark(2, "ab")).with_batch(9, mark(3))
    again = BatchMarks.decode(marks.with_batch(4, mark(7)).encode())
    assert dict(again.marks) == {3: mark(1), 4: mark(7), 9: mark(3)}


@pytest.mark.parametrize("metadata", ["", "spark", "1:2", "x:1.a.b"])
def test_what_is_no_mark_is_none(metadata: str) -> None:
    assert BatchMarks.decode(metadata) == BatchMarks()
