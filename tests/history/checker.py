"""``check``: the anomalies of a history, by name; none where everything that was promised held.

The kinds are those of logs with groups and transactions (see ``KINDS``). Records of a transaction are judged by its
outcome: an answer of a commit that did not come leaves it in doubt, and then all of its records are there or none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.history.events import Event, History, Moved, OffsetsCommitted, Place, Polled
from tests.history.facts import Facts, Written, facts_of


class Anomaly(NamedTuple):
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def check(history: History) -> list[Anomaly]:
    """All of them, in the order of ``KINDS``."""
    facts = facts_of(history)
    return [Anomaly(kind, detail) for kind, find in KINDS.items() for detail in find(facts, history)]


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]} offset {offset}"


# --- records ---


def inconsistent_offsets(facts: Facts, history: History) -> Iterator[str]:
    """Two values at one offset."""
    for place, offsets in facts.seen.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield f"{_at(place, offset)} holds {sorted(values)}"


def duplicates(facts: Facts, history: History) -> Iterator[str]:
    """One value at two offsets."""
    where: dict[str, set[tuple[Place, int]]] = defaultdict(set)
    for place, offsets in facts.seen.items():
        for offset, values in offsets.items():
            for value in values:
                where[value].add((place, offset))
    for value, places in where.items():
        if len(places) > 1:
            yield f"{value!r} is at " + " and ".join(_at(*one) for one in sorted(places))


def lost_writes(facts: Facts, history: History) -> Iterator[str]:
    """Acknowledged, not there in the end, and older than something that was read."""
    for written, read_to in _missing(facts):
        if 0 <= written.offset < read_to:
            yield f"{written.value!r} at {_at(written.place, written.offset)}; read was {read_to}"


def unseen_writes(facts: Facts, history: History) -> Iterator[str]:
    """Acknowledged, and not there in the end."""
    for written, read_to in _missing(facts):
        if not 0 <= written.offset < read_to:
            yield f"{written.value!r} for {written.place[0]}-{written.place[1]}"


def _missing(facts: Facts) -> Iterator[tuple[Written, int]]:
    there = {value for records in facts.final.values() for _, value in records}
    read_to = {
        place: max((offset for offset, values in offsets.items() if values & there), default=-1)
        for place, offsets in facts.seen.items()
    }
    for written in facts.written.values():
        if written.value not in there and facts.outcome(written) == "in":
            yield written, read_to.get(written.place, -1)


def phantom_reads(facts: Facts, history: History) -> Iterator[str]:
    """Read, and never sent, or sent elsewhere."""
    for place, offset, value in _read(facts):
        written = facts.written.get(value)
        if written is None or written.place != place:
            yield f"{value!r} at {_at(place, offset)}"


def aborted_reads(facts: Facts, history: History) -> Iterator[str]:
    """Read, though refused or of a transaction that was aborted."""
    for place, offset, value in _read(facts):
        written = facts.written.get(value)
        if written is not None and facts.outcome(written) == "out":
            yield f"{value!r} at {_at(place, offset)}"


def unstable_reads(facts: Facts, history: History) -> Iterator[str]:
    """Polled by a reader of committed records, and not there in the end."""
    final = {(place, offset, value) for place, records in facts.final.items() for offset, value in records}
    for value, places in facts.polled.items():
        for place, offset in places:
            if place in facts.final and (place, offset, value) not in final:
                yield f"{value!r} at {_at(place, offset)}"


def _read(facts: Facts) -> Iterator[tuple[Place, int, str]]:
    for value, places in facts.polled.items():
        for place, offset in places:
            yield place, offset, value
    for place, records in facts.final.items():
        for offset, value in records:
            if (place, offset) not in facts.polled.get(value, ()):
                yield place, offset, value


# --- transactions ---


def torn_transactions(facts: Facts, history: History) -> Iterator[str]:
    """Of a transaction some records are there in the end, and some are not."""
    there = {value for records in facts.final.values() for _, value in records}
    of: dict[str, list[str]] = defaultdict(list)
    for written in facts.written.values():
        if written.transaction and written.acked:
            of[written.transaction].append(written.value)
    for transaction, values in of.items():
        found = [value for value in values if value in there]
        if 0 < len(found) < len(values):
            yield f"{transaction}: {len(found)} of {len(values)} records"


def writes_before_their_sources(facts: Facts, history: History) -> Iterator[str]:
    """A transaction's record is older than one of a transaction that it was made from, by any number of steps.

    Only what was committed can be read, so what is written from it lies behind all of it in every partition. (Two
    transactions that do not read each other may lie in either order, and in another one in another partition.)
    """
    extent = _extents(facts)
    for writer in sorted(facts.made_from):
        reached: set[str] = set()
        todo = _sources(facts, writer)
        while todo:
            source = todo.pop()
            if source in reached:
                continue
            reached.add(source)
            todo |= _sources(facts, source)
        if writer in reached:
            yield f"{writer} was made from its own writes"
        for source in sorted(reached - {writer}):
            for place, (first, _) in extent.get(writer, {}).items():
                _, last = extent.get(source, {}).get(place, (-1, -1))
                if last > first:
                    yield f"{writer} at {_at(place, first)} was made from {source}, which ends at {last}"


def _sources(facts: Facts, transaction: str) -> set[str]:
    read = (facts.written.get(value) for value in facts.made_from.get(transaction, ()))
    return {written.transaction or written.value for written in read if written is not None}


def _extents(facts: Facts) -> dict[str, dict[Place, tuple[int, int]]]:
    """First and last offset of each transaction, and of each value outside of any, in each partition."""
    extents: dict[str, dict[Place, tuple[int, int]]] = defaultdict(dict)
    for place, records in facts.final.items():
        for offset, value in records:
            written = facts.written.get(value)
            if written is not None:
                name = written.transaction or value
                first, last = extents[name].get(place, (offset, offset))
                extents[name][place] = (min(first, offset), max(last, offset))
    return extents


def sources_taken_twice(facts: Facts, history: History) -> Iterator[str]:
    """Two transactions of one group that both are in the end were made from the same record."""
    taken: dict[tuple[str, str], list[str]] = defaultdict(list)
    for transaction, group, value in _taken(facts):
        taken[group, value].append(transaction)
    for (group, value), transactions in sorted(taken.items()):
        if len(transactions) > 1:
            yield f"{value!r} by {group} in {sorted(transactions)}"


def sources_left(facts: Facts, history: History) -> Iterator[str]:
    """A record of a topic that a group has read to its end, and no transaction of the group was made from it."""
    taken = {(group, value) for _, group, value in _taken(facts)}
    for topic, group in history.end.drained:
        for place, records in facts.final.items():
            if place[0] == topic:
                for offset, value in records:
                    if (group, value) not in taken:
                        yield f"{value!r} at {_at(place, offset)} by {group}"


def _taken(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Transaction, group and value of what the transactions that are in the end were made from."""
    there = {value for records in facts.final.values() for _, value in records}
    shown = {one.transaction for one in facts.written.values() if one.transaction and one.value in there}
    for transaction, values in facts.made_from.items():
        if transaction in shown or facts.decided.get(transaction):
            for value in values:
                yield transaction, facts.groups[transaction], value


# --- order ---


def non_monotonic_sends(facts: Facts, history: History) -> Iterator[str]:
    """Records of one producer and partition that lie in another order than they were sent."""
    highest: dict[tuple[str, Place], Written] = {}
    for written in sorted(_placed(facts), key=lambda one: one.order):
        key = (written.order[0], written.place)
        before = highest.get(key)
        if before is not None and before.offset >= written.offset:
            where = _at(written.place, written.offset)
            yield f"{written.value!r} at {where} behind {before.value!r} at {before.offset}"
        else:
            highest[key] = written


def _placed(facts: Facts) -> list[Written]:
    """What was sent and has a known place: as acknowledged, or as it was found."""
    found = {value: offset for records in facts.final.values() for offset, value in records}
    placed = []
    for written in facts.written.values():
        offset = written.offset if written.offset >= 0 else found.get(written.value, -1)
        if offset >= 0:
            placed.append(
                Written(written.value, written.place, written.transaction, written.order, offset=offset)
            )
    return placed


def non_monotonic_polls(facts: Facts, history: History) -> Iterator[str]:
    """A reader is handed an offset at or before one that it had, and its positions did not move."""
    for process, place, before, offset in _steps(history):
        if offset <= before:
            yield f"{process}: {_at(place, offset)} behind {before}"


def skipped_polls(facts: Facts, history: History) -> Iterator[str]:
    """A reader is handed two records in a row, and one between them was never shown to it."""
    offsets = {place: [offset for offset, _ in records] for place, records in facts.final.items()}
    for process, place, before, offset in _steps(history):
        known = offsets.get(place, [])
        between = known[bisect_right(known, before) : bisect_left(known, offset)]
        if between:
            yield f"{process}: from {before} to {_at(place, offset)} past {between[:5]}"


def _steps(history: History) -> Iterator[tuple[str, Place, int, int]]:
    """Process, place, and two offsets that were handed out one after the other."""
    for process, events in history.processes.items():
        last: dict[Place, int] = {}
        for event in events:
            if isinstance(event, Moved):
                last.clear()
            elif isinstance(event, Polled):
                for place, offset, _ in event.records:
                    if place in last:
                        yield process, place, last[place], offset
                    last[place] = offset


# --- groups ---


def offsets_gone_back(facts: Facts, history: History) -> Iterator[str]:
    """A group's committed offset in the end is before one that was acknowledged."""
    highest: dict[tuple[str, Place], int] = {}
    for events in history.processes.values():
        for event in events:
            for group, place, offset in _committed(event):
                highest[group, place] = max(offset, highest.get((group, place), -1))
    final = {(group, place): offset for group, offsets in history.end.groups for place, offset in offsets}
    for (group, place), offset in sorted(highest.items()):
        if final.get((group, place), -1) < offset:
            yield f"{group}: {offset} was committed of {place[0]}-{place[1]}, {final.get((group, place))} is left"


def _committed(event: Event) -> Iterator[tuple[str, Place, int]]:
    if isinstance(event, OffsetsCommitted):
        for place, offset in event.offsets:
            yield event.group, place, offset


KINDS: Final[dict[str, Callable[[Facts, History], Iterator[str]]]] = {
    "inconsistent offset": inconsistent_offsets,
    "duplicate": duplicates,
    "lost write": lost_writes,
    "unseen write": unseen_writes,
    "phantom read": phantom_reads,
    "aborted read": aborted_reads,
    "unstable read": unstable_reads,
    "torn transaction": torn_transactions,
    "write before its source": writes_before_their_sources,
    "source taken twice": sources_taken_twice,
    "source left": sources_left,
    "non-monotonic send": non_monotonic_sends,
    "non-monotonic poll": non_monotonic_polls,
    "skipped poll": skipped_polls,
    "offset gone back": offsets_gone_back,
}
