"""Filters on time: what is left out cannot match, and an hour out of a long log reads what it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

import logstore
from logstore.log.segments.segment import Segment
from spark_connector.connection import Logs
from spark_connector.planner import Range
from spark_connector.pruning import OldestTimes, Span, narrowed, needed
from spark_connector.reader import PushdownReader
from tests.spark.sources import TOPIC, batch_reader, place, places_of, rows

HOUR_MS = 3_600_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1000)

segments = st.lists(
    st.tuples(st.integers(1, 9), st.none() | st.integers(0, 50), st.integers(0, 60), st.integers(0, 3)),
    max_size=8,
)


def spans_of(rows: list[tuple[int, int | None, int, int]]) -> list[Span]:
    spans, at = [], 0
    for size, low, more, gap in rows:
        spans.append(Span(at + gap, at + gap + size, low, (low or 0) + more))
        at += gap + size
    return spans


@settings(derandomize=True, deadline=None)
@given(segments, st.integers(0, 40), st.integers(0, 60), st.integers(0, 100), st.integers(0, 100))
def test_only_spans_that_cannot_match_are_left_out(
    found: list[Any], start: int, size: int, low: int, high: int
) -> None:
    spans = spans_of(found)
    piece = Range("t", 0, start, start + size)
    parts = needed(piece, spans, low, high)
    left = [offset for part in parts for offset in range(part.start, part.end)]
    useless = {
        offset
        for span in spans
        if span.high < low or (span.low is not None and span.low > high)
        for offset in range(span.start, span.end)
    }
    assert left == [offset for offset in range(piece.start, piece.end) if offset not in useless]
    assert all(one.end < two.start for one, two in pairwise(parts))


def write_hours(
    path: Path, hours: int, each: int = 300, late: dict[int, int] | None = None, size: int = 100
) -> None:
    """A log in order of time, several segments an hour; ``late``: records of an earlier hour among an hour's."""
    with logstore.open(path) as store:
        store.create_topic(TOPIC, config={"segment.bytes": str(160 * size), "index.interval.bytes": "1024"})
        log = store.partition(TOPIC, 0)
        for hour in range(hours):
            times = [BEGIN_MS + hour * HOUR_MS + number * HOUR_MS // each for number in range(each)]
            if late and hour in late:
                times[each // 2] = BEGIN_MS + late[hour] * HOUR_MS + 1
            for first in range(0, each, 10):
                log.append([(None, b"v" * size, None, at) for at in times[first : first + 10]], acks=1)
        log.flush()


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Bytes that were read of segments."""
    read = [0]
    real = Segment.bytes_at

    def bytes_at(self: Segment, position: int, length: int) -> Any:
        found = real(self, position, length)
        read[0] += len(found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "bytes_at", bytes_at)
        yield read


def hours(path: Path, first: int, last: int) -> PushdownReader:
    reader = batch_reader(path)
    asked: list[spark.Filter] = [
        spark.GreaterThanOrEqual(("timestamp",), BEGIN + timedelta(hours=first)),
        spark.LessThan(("timestamp",), BEGIN + timedelta(hours=last)),
    ]
    assert list(reader.pushFilters(asked)) == asked
    return reader


def matching(reader: PushdownReader, first: int, last: int) -> list[tuple[int, int]]:
    """The rows as Spark would have them, which filters what comes."""
    table = rows(reader, reader.partitions())
    times = pc.cast(table["timestamp"], "int64")
    low, high = (BEGIN_MS + hour * HOUR_MS for hour in (first, last))
    return places_of(table.filter(pc.and_(pc.greater_equal(times, low * 1000), pc.less(times, high * 1000))))


def test_an_hour_out_of_a_day_reads_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hours(tmp_path, 24, size=1000)
    total = sum(path.stat().st_size for path in (tmp_path / f"{TOPIC}-0").glob("*.log"))
    with counting(monkeypatch) as unfiltered:
        reader = batch_reader(tmp_path)
        assert rows(reader, reader.partitions()).num_rows == 24 * 300
    assert unfiltered[0] >= total
    hours(tmp_path, 10, 11).partitions()  # the oldest times are found out once
    with counting(monkeypatch) as planned:
        tasks = hours(tmp_path, 10, 11).partitions()
    with counting(monkeypatch) as filtered:
        assert matching(hours(tmp_path, 10, 11), 10, 11) == [(0, n) for n in range(3000, 3300)]
    assert 1 <= len(tasks) <= 2  # the active segment, whose times are not known, may be a part of its own
    # Of each segment the newest batch is looked at; these are small ones, of sixteen batches.
    assert planned[0] < total / 16
    assert filtered[0] < total / 7
    assert sum(task.piece.size for task in tasks) < 24 * 300 / 10  # type: ignore[attr-defined]


def test_late_records_are_found(tmp_path: Path) -> None:
    """Records of hour 2 stand among those of hours 5 and 9: the segments between are left out, theirs are not."""
    write_hours(tmp_path, 12, late={5: 2, 9: 2})
    for _ in range(2):  # without and with what the first planning found out
        reader = hours(tmp_path, 2, 3)
        found = matching(reader, 2, 3)
        assert found == [(0, n) for n in range(600, 900)] + [(0, 5 * 300 + 150), (0, 9 * 300 + 150)]
        planned = sum(task.piece.size for task in reader.partitions())  # type: ignore[attr-defined]
        assert planned < 12 * 300 / 3


def test_nothing_so_new(tmp_path: Path) -> None:
    write_hours(tmp_path, 2)
    assert hours(tmp_path, 5, 6).partitions() == []


def test_what_is_not_known_is_read(tmp_path: Path) -> None:
    """Without a budget to find out oldest times, everything behind the first match is."""
    write_hours(tmp_path, 6)
    logs = Logs(str(tmp_path), "read_committed")
    piece = Range(TOPIC, 0, 300, 1800)
    low, high = BEGIN_MS + HOUR_MS, BEGIN_MS + 2 * HOUR_MS - 1
    topic_id = logs.backend.topic(TOPIC).topic_id
    assert narrowed(logs, piece, topic_id, low, high, budget=0) == ([piece], 0)
    parts, left = narrowed(logs, piece, topic_id, low, high, budget=1 << 20)
    assert sum(part.size for part in parts) < 600
    assert 0 < left < 1 << 20
    assert narrowed(logs, piece, topic_id, low, high, budget=0) == (parts, 0)  # kept in the cache


@pytest.mark.parametrize("spoil", ["", "{", "[]", '{"version":2,"segments":{"0":[1,2,3]}}', '{"version":1}'])
def test_a_cache_that_cannot_be_read_is_made_anew(tmp_path: Path, spoil: str) -> None:
    write_hours(tmp_path, 3)
    hours(tmp_path, 0, 1).partitions()
    (cache,) = (tmp_path / ".cache").iterdir()
    good = cache.read_text("utf-8")
    cache.write_text(spoil, "utf-8")
    hours(tmp_path, 0, 1).partitions()
    assert json.loads(cache.read_text("utf-8")) == json.loads(good)


def test_a_cleaned_segment_is_looked_at_anew(tmp_path: Path) -> None:
    """What is kept counts for the segment of that size and end, and for no other."""
    write_hours(tmp_path, 3)
    logs = Logs(str(tmp_path), "read_committed")
    times = OldestTimes(logs, place(0), logs.backend.topic(TOPIC).topic_id)
    segment = logs.segments(place(0))[3]
    assert times.of(segment) is None
    oldest, read = times.find(segment, 0)
    assert oldest is not None
    assert oldest <= segment.max_timestamp_ms
    assert read == segment.size_bytes
    assert times.of(segment) == oldest
    assert times.of(segment._replace(size_bytes=segment.size_bytes - 1)) is None
    assert times.of(segment._replace(next_offset=segment.next_offset + 1)) is None


def test_where_the_cache_cannot_be_written_nothing_is_kept(tmp_path: Path) -> None:
    write_hours(tmp_path, 3)
    (tmp_path / ".cache").write_text("in the way", "utf-8")
    assert matching(hours(tmp_path, 0, 1), 0, 1) == [(0, n) for n in range(300)]
