"""Filters that Spark pushes down, as bounds on what is read. Pure.

Filters on ``topic``, ``partition`` and ``offset`` are fulfilled to the letter. Those on ``timestamp`` only keep
out what cannot match: records are not in order of time, so Spark gets them back to look at every row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from logstore import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

INT64_MAX: Final = 2**63 - 1
_NEVER_NULL: Final = {"topic", "partition", "offset", "timestamp", "timestampType"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class LogOffsets:
    """What may match. ``topics``, ``partitions``: None for all; the others are inclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_low: int = 0
    partition_high: int = INT64_MAX
    offset_low: int = 0
    offset_high: int = INT64_MAX
    time_low_ms: int = -INT64_MAX
    time_high_ms: int = INT64_MAX

    def reads(self, place: TopicPartition) -> bool:
        return (
            (self.topics is None or place.topic in self.topics)
            and (self.partitions is None or place.partition in self.partitions)
            and self.partition_low <= place.partition <= self.partition_high
            and self.offset_low <= self.offset_high
            and self.time_low_ms <= self.time_high_ms
        )

    @property
    def by_time(self) -> bool:
        return self.time_low_ms > -INT64_MAX or self.time_high_ms < INT64_MAX

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Narrow by the filters, which all have to hold; those that Spark has to check again."""
        return [one for one in filters if not self._took(one)]

    def _took(self, one: Filter) -> bool:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) != 1:
            return False
        kind, name, value = type(one).__name__, column[0], getattr(one, "value", None)
        if kind == "IsNotNull":
            return name in _NEVER_NULL
        if name == "topic":
            return self._topic(kind, value)
        if name in ("partition", "offset"):
            return self._number(name, kind, value)
        if name == "timestamp":
            self._time(kind, value)
        return False

    def _topic(self, kind: str, value: Any) -> bool:
        named = {value} if kind == "EqualTo" else set(value) if kind == "In" else None
        if named is None or not all(isinstance(name, str) for name in named):
            return False
        self.topics = frozenset(named) if self.topics is None else self.topics & named
        return True

    def _number(self, name: str, kind: str, value: Any) -> bool:
        if kind == "In" and name == "partition" and all(type(number) is int for number in value):
            self.partitions = frozenset(value) if self.partitions is None else self.partitions & set(value)
            return True
        found = _interval(kind, value) if type(value) is int else None
        if found is None:
            return False
        low, high = f"{name}_low", f"{name}_high"
        setattr(self, low, max(getattr(self, low), found[0]))
        setattr(self, high, min(getattr(self, high), found[1]))
        return True

    def _time(self, kind: str, value: Any) -> None:
        if not isinstance(value, datetime) or value.tzinfo is None:
            return
        micros = (value - _EPOCH) // _MICROSECOND
        found = _interval(kind, micros)
        if found is None:
            return
        low, high = found
        if low > -INT64_MAX:
            self.time_low_ms = max(self.time_low_ms, -(-low // 1000))
        if high < INT64_MAX:
            self.time_high_ms = min(self.time_high_ms, high // 1000)


_MICROSECOND: Final = datetime.resolution


def _interval(kind: str, value: int) -> tuple[int, int] | None:
    """The numbers that a comparison lets through, inclusive; None for another kind of filter."""
    return {
        "EqualTo": (value, value),
        "GreaterThan": (value + 1, INT64_MAX),
        "GreaterThanOrEqual": (value, INT64_MAX),
        "LessThan": (-INT64_MAX, value - 1),
        "LessThanOrEqual": (-INT64_MAX, value),
    }.get(kind)
