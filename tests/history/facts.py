"""``Facts``: what a history says about each value, partition and transaction, gathered from all its processes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from tests.history.events import (
    Acked,
    Begun,
    Decided,
    History,
    Place,
    Polled,
    Reading,
    Refused,
    Send,
)

Outcome = Literal["in", "out", "unknown"]


@dataclass
class Written:
    """One value that was sent. ``order``: (producer, number) in the order sent; ``offset``: -1 where none was told."""

    value: str
    place: Place
    transaction: str
    order: tuple[str, int]
    acked: bool = False
    refused: bool = False
    offset: int = -1


@dataclass
class Facts:
    """``seen``: per place and offset the values that anybody was told of; ``final``: per place the records that are
    there in the end; ``polled``: per value where readers met it; ``made_from`` and ``groups``: per transaction the
    values that it read, and the group whose offsets it moved past them."""

    written: dict[str, Written] = field(default_factory=dict)
    decided: dict[str, bool] = field(default_factory=dict)
    made_from: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    seen: dict[Place, dict[int, set[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    final: dict[Place, list[tuple[int, str]]] = field(default_factory=dict)
    polled: dict[str, set[tuple[Place, int]]] = field(default_factory=lambda: defaultdict(set))
    groups: dict[str, str] = field(default_factory=dict)

    def outcome(self, written: Written) -> Outcome:
        """Whether the value has to be there for a reader of committed records."""
        if written.transaction:
            committed = self.decided.get(written.transaction)
            if committed is None:
                return "unknown"
            return "in" if committed else "out"
        if written.acked:
            return "in"
        return "out" if written.refused else "unknown"


def facts_of(history: History) -> Facts:
    """ValueError: a value is sent twice by the workload, or an answer is for what was not asked."""
    facts = Facts()
    for process, events in history.processes.items():
        made, number = 0, 0
        for event in events:
            match event:
                case Begun():
                    made += 1
                case Send(place, values, transaction):
                    for value in values:
                        if value in facts.written:
                            raise ValueError(f"{process} sends {value!r}, which was sent before")
                        order = (f"{process}/{made}", number)
                        facts.written[value] = Written(value, place, transaction, order)
                        number += 1
                case Acked(values, offsets):
                    for value, offset in zip(values, offsets, strict=True):
                        _acknowledge(facts, value, offset)
                case Refused(values):
                    for value in values:
                        facts.written[value].refused = True
                case Reading(transaction, group, read):
                    facts.made_from[transaction].update(read)
                    facts.groups[transaction] = group
                case Decided(transaction, committed):
                    facts.decided[transaction] = committed
                case Polled(records):
                    for place, offset, value in records:
                        facts.seen[place][offset].add(value)
                        facts.polled[value].add((place, offset))
                case _:
                    pass
    for place, there in history.end.records:
        facts.final[place] = list(there)
        for offset, value in there:
            facts.seen[place][offset].add(value)
    return facts


def _acknowledge(facts: Facts, value: str, offset: int) -> None:
    written = facts.written[value]
    written.acked = True
    if offset >= 0:
        written.offset = offset
        facts.seen[written.place][offset].add(value)
