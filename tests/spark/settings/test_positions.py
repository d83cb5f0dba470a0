"""Where a read begins and ends, from the spec and the log's bounds."""

from __future__ import annotations

from typing import Any

import pytest

from logstore import TopicPartition
from logstore.errors import InvalidArgumentError, OffsetOutOfRangeError
from spark_connector.settings.positions import EARLIEST, LATEST, PositionSpec, check_covered, resolve

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LOW, HIGH = {A: 5, B: 0}, {A: 20, B: 9}


def refuse(error: OffsetOutOfRangeError) -> None:
    raise error


def resolved(kind: Any, by_time: dict[TopicPartition, int | None] | None = None, **more: Any) -> list[int]:
    spec = PositionSpec(kind=kind, option="startingOffsets", **more)
    found = resolve(spec, LOW, HIGH, by_time or {}, refuse)
    return [found[A], found[B]]


def test_names_and_numbers() -> None:
    assert resolved("earliest") == [5, 0]
    assert resolved("latest") == [20, 9]
    assert resolved("offsets", table={A: EARLIEST, B: LATEST}) == [5, 9]
    assert resolved("offsets", table={A: 5, B: 9}) == [5, 9]


def test_times() -> None:
    assert resolved("timestamp", {A: 7, B: 3}, timestamp_ms=1) == [7, 3]
    assert resolved("timestamps", {A: 7, B: None}, table={A: 1, B: 2}) == [7, 9]
    with pytest.raises(InvalidArgumentError, match="t-1 has no record as new as 2 ms"):
        resolved("timestamps", {A: 7, B: None}, table={A: 1, B: 2}, otherwise="error")


@pytest.mark.parametrize(
    ("offset", "text", "nearest"), [(4, "4 to 4 of t-0 are gone", 5), (21, "past the end", 20)]
)
def test_offsets_outside_the_log_are_told_and_the_nearest_is_taken(
    offset: int, text: str, nearest: int
) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=text):
        resolved("offsets", table={A: offset, B: 0})
    told: list[OffsetOutOfRangeError] = []
    spec = PositionSpec(kind="offsets", option="startingOffsets", table={A: offset, B: 0})
    assert resolve(spec, LOW, HIGH, {}, told.append)[A] == nearest
    assert (told[0].log_start_offset, told[0].end_offset) == (5, 20)


def test_a_table_names_every_partition_and_no_other() -> None:
    spec = PositionSpec(kind="offsets", option="startingOffsets", table={A: 0, TopicPartition("x", 3): 0})
    with pytest.raises(InvalidArgumentError, match="it lacks t-1 and it names x-3, which is not read"):
        check_covered(spec, [A, B])
