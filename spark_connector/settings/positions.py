"""Where a read begins and ends: what the options say, and what that resolves to in a log's offsets. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from logstore import TopicPartition
from logstore.errors import InvalidArgumentError, OffsetOutOfRangeError

Table: TypeAlias = Mapping[TopicPartition, int]
OnLoss: TypeAlias = Callable[[OffsetOutOfRangeError], None]
LATEST: Final = -1
EARLIEST: Final = -2
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)


class Place(NamedTuple):
    """A position in a partition, and the newest leader epoch the log had when it was taken (-1: unknown)."""

    offset: int
    epoch: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionSpec:
    """``table``: offsets (-1 latest, -2 earliest) or timestamps in ms by partition; ``timestamp_ms``: for all.

    ``option``: which one said so, for errors. ``otherwise``: what becomes of a partition that has no record so
    new.
    """

    kind: Literal["earliest", "latest", "offsets", "timestamps", "timestamp"]
    option: str
    table: Table = field(default_factory=dict)
    timestamp_ms: int = 0
    otherwise: Literal["error", "latest"] = "latest"

    def timestamps(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """By partition; empty for a spec that is none of times."""
        if self.kind == "timestamp":
            return dict.fromkeys(places, self.timestamp_ms)
        return {place: self.table[place] for place in places} if self.kind == "timestamps" else {}


def partition_table(text: str, option: str, *, lowest: int) -> dict[TopicPartition, int]:
    """``{"topic":{"0":23}}`` as Spark's Kafka source takes it. ``InvalidArgumentError`` names the option."""
    wrong = InvalidArgumentError(f"{option}={text}", hint='write JSON such as {"topicA":{"0":23,"1":-1}}')
    try:
        found = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(found, dict) or not all(isinstance(rows, dict) for rows in found.values()):
        raise wrong
    table = {}
    for topic, rows in found.items():
        for partition, number in rows.items():
            if not partition.isdecimal() or type(number) is not int or not lowest <= number <= INT64_MAX:
                raise wrong
            table[TopicPartition(topic, int(partition))] = number
    return table


def partition_list(text: str, option: str) -> tuple[TopicPartition, ...]:
    """``{"topic":[0,1]}``."""
    wrong = InvalidArgumentError(f"{option}={text}", hint='write JSON such as {"topicA":[0,1],"topicB":[2]}')
    try:
        found = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(found, dict) or not found:
        raise wrong
    places = set()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not numbers:
            raise wrong
        for number in numbers:
            if type(number) is not int or number < 0:
                raise wrong
            places.add(TopicPartition(topic, number))
    return tuple(sorted(places))


def check_covered(spec: PositionSpec, places: Collection[TopicPartition]) -> None:
    """A table names every partition that is read, and no other (as Spark's Kafka source demands)."""
    if spec.kind not in ("offsets", "timestamps") or set(spec.table) == set(places):
        return
    missing, extra = sorted(set(places) - set(spec.table)), sorted(set(spec.table) - set(places))
    told = [f"it lacks {_shown(missing)}"] if missing else []
    told += [f"it names {_shown(extra)}, which is not read"] if extra else []
    raise InvalidArgumentError(
        f"{spec.option}: {' and '.join(told)}", hint="name every partition; -2 is earliest and -1 latest"
    )


def resolve(
    spec: PositionSpec,
    earliest: Table,
    latest: Table,
    by_time: Mapping[TopicPartition, int | None],
    on_loss: OnLoss,
) -> dict[TopicPartition, int]:
    """Offsets by partition, all within [earliest, latest].

    ``by_time``: the first offset at least as new as ``spec.timestamps`` asks, None where there is none.
    ``on_loss`` gets an error for each offset outside the log; when it returns, the nearest one is taken.
    """
    check_covered(spec, latest)
    offsets = {}
    for place in sorted(latest):
        low, high = earliest[place], latest[place]
        if spec.kind == "earliest":
            offset = low
        elif spec.kind == "latest":
            offset = high
        elif spec.kind == "offsets":
            offset = {LATEST: high, EARLIEST: low}.get(spec.table[place], spec.table[place])
        else:
            offset = _at_time(spec, place, by_time[place], high)
        if not low <= offset <= high:
            on_loss(_outside(spec, place, offset, low, high))
        offsets[place] = min(max(offset, low), high)
    return offsets


def check_order(starts: Table, ends: Table) -> None:
    """``InvalidArgumentError`` for a partition that would end before it begins, as with Spark's Kafka source."""
    for place in sorted(starts):
        if starts[place] > ends[place]:
            raise InvalidArgumentError(
                f"{place.topic}-{place.partition} would begin at {starts[place]} and end at {ends[place]}",
                hint="choose an end that is not before the start",
            )


def _at_time(spec: PositionSpec, place: TopicPartition, found: int | None, latest: int) -> int:
    if found is not None:
        return min(found, latest)
    if spec.otherwise == "latest":
        return latest
    asked = spec.timestamps([place])[place]
    raise InvalidArgumentError(
        f"{spec.option}: {place.topic}-{place.partition} has no record as new as {asked} ms",
        hint="take an earlier time, or set startingOffsetsByTimestampStrategy=latest",
    )


def _outside(
    spec: PositionSpec, place: TopicPartition, offset: int, low: int, high: int
) -> OffsetOutOfRangeError:
    where = f"{place.topic}-{place.partition}"
    if offset < low:
        text = f"{spec.option}: offsets {offset} to {low - 1} of {where} are gone, the log starts at {low}"
    else:
        text = f"{spec.option}: offset {offset} of {where} is past the end of the log at {high}"
    return OffsetOutOfRangeError(
        text,
        hint="choose offsets that are there, or set failOnDataLoss=false to take the nearest",
        log_start_offset=low,
        end_offset=high,
    )


def _shown(places: list[TopicPartition]) -> str:
    names = [f"{place.topic}-{place.partition}" for place in places[:5]]
    return ", ".join(names) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
