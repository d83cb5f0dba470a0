"""Pushed filters: what they bound, and which Spark has to check again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import Filter

from logstore import TopicPartition
from spark_connector.filters import INT64_MAX, LogOffsets

COMPARISONS: dict[type[Any], Any] = {
    spark.EqualTo: lambda a, b: a == b,
    spark.GreaterThan: lambda a, b: a > b,
    spark.GreaterThanOrEqual: lambda a, b: a >= b,
    spark.LessThan: lambda a, b: a < b,
    spark.LessThanOrEqual: lambda a, b: a <= b,
}
comparisons = st.sampled_from(list(COMPARISONS))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(comparisons, st.integers(-5, 15)), max_size=4))
def test_offsets_are_bounded_to_the_letter(asked: list[tuple[Any, int]]) -> None:
    bounds = LogOffsets()
    assert bounds.take([kind(("offset",), value) for kind, value in asked]) == []
    for offset in range(12):
        wanted = all(COMPARISONS[kind](offset, value) for kind, value in asked)
        assert (bounds.offset_low <= offset <= bounds.offset_high) == wanted


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(comparisons, st.integers(-5, 15)), max_size=4))
def test_partitions_are_bounded_to_the_letter(asked: list[tuple[Any, int]]) -> None:
    bounds = LogOffsets()
    assert bounds.take([kind(("partition",), value) for kind, value in asked]) == []
    for partition in range(12):
        wanted = all(COMPARISONS[kind](partition, value) for kind, value in asked)
        assert bounds.reads(TopicPartition("t", partition)) == wanted


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(comparisons, st.integers(-5000, 15000)), max_size=3), st.integers(-6, 16))
def test_times_keep_out_only_what_cannot_match_and_are_checked_again(
    asked: list[tuple[Any, int]], timestamp_ms: int
) -> None:
    bounds = LogOffsets()
    filters = [kind(("timestamp",), EPOCH + timedelta(microseconds=micros)) for kind, micros in asked]
    assert bounds.take(filters) == filters
    wanted = all(COMPARISONS[kind](timestamp_ms * 1000, micros) for kind, micros in asked)
    assert (bounds.time_low_ms <= timestamp_ms <= bounds.time_high_ms) == wanted


def test_a_time_is_a_time_in_any_zone_and_one_without_a_zone_is_left_to_spark() -> None:
    bounds = LogOffsets()
    bounds.take([spark.EqualTo(("timestamp",), datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))])
    assert (bounds.time_low_ms, bounds.time_high_ms) == (0, 0)
    other = LogOffsets()
    other.take([spark.EqualTo(("timestamp",), datetime(1970, 1, 1))])  # noqa: DTZ001 - that is what is tested
    assert not other.by_time


def test_topics_and_lists() -> None:
    bounds = LogOffsets()
    asked: list[Filter] = [
        spark.In(("topic",), ("a", "b")),
        spark.EqualTo(("topic",), "b"),
        spark.In(("partition",), (1, 3)),
        spark.IsNotNull(("offset",)),
    ]
    assert bounds.take(asked) == []
    read = [TopicPartition(topic, number) for topic in "abc" for number in range(5)]
    assert [place for place in read if bounds.reads(place)] == [("b", 1), ("b", 3)]


@pytest.mark.parametrize(
    "left",
    [
        spark.EqualTo(("value",), b"x"),
        spark.IsNull(("offset",)),
        spark.IsNotNull(("value",)),
        spark.Not(spark.EqualTo(("topic",), "a")),
        spark.EqualNullSafe(("topic",), None),
        spark.StringStartsWith(("topic",), "a"),
        spark.EqualTo(("value", "partition"), 1),
        spark.EqualTo(("offset",), 1.5),
        spark.In(("offset",), (1, 2)),
    ],
    ids=repr,
)
def test_what_is_not_understood_is_left_to_spark(left: Filter) -> None:
    bounds = LogOffsets()
    assert bounds.take([left]) == [left]
    assert bounds == LogOffsets()
    assert bounds.offset_high == INT64_MAX


def test_contradictions_read_nothing() -> None:
    bounds = LogOffsets()
    bounds.take([spark.EqualTo(("topic",), "a"), spark.EqualTo(("topic",), "b")])
    assert not bounds.reads(TopicPartition("a", 0))
