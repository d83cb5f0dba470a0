"""A group's life as its members live it: each acts by the view it saw last, which may be old."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from logstore.api.groups import Assignor, MemberView
from logstore.groups.coordinator import GroupCoordinator
from logstore.machine import Decision
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.groups.kafka_loading import KafkaLoading

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log: a batch's records, those of a transaction, or a marker's outcome."""

    records: tuple[tuple[bytes, bytes | None], ...]
    producer_id: int = -1
    epoch: int = -1
    committed: bool | None = None


class Log:
    """Entries, and the machine that has replayed all of them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.states: list[dict[str, Any]] = []  # after each
        self.machine = GroupCoordinator()
        self.kafka = KafkaLoading()

    def append(self, decision: Decision[Reply]) -> Reply:
        """Make a decision durable; its reply may be given after that."""
        if decision.records:
            writer = decision.producer
            entry = Entry(decision.records) if writer is None else Entry(decision.records, *writer)
            self._add(entry)
        return decision.reply

    def end_transaction(self, producer_id: int, epoch: int, committed: bool) -> None:
        self._add(Entry((), producer_id, epoch, committed))

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        play(self.machine, entry)
        if entry.producer_id < 0:
            for key, value in entry.records:
                self.kafka.replay(key, value)
        self.states.append(state_of(self.machine))

    def rebuilt(self, upto: int | None = None) -> GroupCoordinator:
        """What another process has after reading this far."""
        machine = GroupCoordinator()
        for entry in self.entries[:upto]:
            play(machine, entry)
        return machine

    def compacted(self) -> GroupCoordinator:
        """What is read after a cleaning: of each key the last record, where it stood. Transactions' records come
        to their markers, so that an aborted one is not there at all."""
        settled: list[Entry] = []
        waiting: dict[int, list[Entry]] = {}
        for entry in self.entries:
            if entry.producer_id < 0 or entry.committed is not None:
                settled.append(entry)
            if entry.producer_id >= 0 and entry.committed is None:
                waiting.setdefault(entry.producer_id, []).append(entry)
                settled.append(entry)
            elif entry.committed is False:
                for gone in waiting.pop(entry.producer_id, []):
                    settled.remove(gone)
            elif entry.committed:
                waiting.pop(entry.producer_id, None)
        last = {
            record[0]: (number, at)
            for number, entry in enumerate(settled)
            for at, record in enumerate(entry.records)
            if entry.producer_id < 0
        }
        machine, kafka = GroupCoordinator(), KafkaLoading(compacted=True)
        for number, entry in enumerate(settled):
            if entry.producer_id < 0:
                keep = tuple(
                    record for at, record in enumerate(entry.records) if last[record[0]] == (number, at)
                )
                entry = Entry(keep)
                for key, value in keep:
                    kafka.replay(key, value)
            play(machine, entry)
        return machine


def play(machine: GroupCoordinator, entry: Entry) -> None:
    if entry.committed is not None:
        machine.replay_marker(entry.producer_id, entry.epoch, entry.committed)
        return
    for key, value in entry.records:
        if entry.producer_id >= 0:
            machine.replay_pending(entry.producer_id, entry.epoch, key, value)
        else:
            machine.replay(key, value)


def state_of(machine: GroupCoordinator) -> dict[str, Any]:
    """All that a machine shows."""
    return {
        name: (
            machine.describe(name),
            machine.committed(name),
            machine.commit_times_ms(name),
            machine.pending(name),
            [machine.view(name, member.member_id) for member in machine.describe(name).members],
        )
        for name in machine.groups()
    } | {"": machine.sessions(), "\0": machine.pending_producers()}


@dataclass(slots=True)
class Person:
    """A consumer. ``reading``: what it reads from now, by the newest view it saw."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    pattern: str | None = None
    seen: MemberView | None = None
    reading: set[TopicPartition] = field(default_factory=set)

    def look(self, view: MemberView) -> None:
        self.seen = view
        self.reading = set(view.assigned) | (self.reading & view.revoking)


def join(
    log: Log,
    person: Person,
    partitions: Mapping[str, int],
    *,
    group: str = "g",
    assignor: Assignor = "sticky",
    now_ms: int = 1000,
    liveness: bytes = bytes(4),
) -> MemberView:
    view = log.append(
        log.machine.decide_join(
            group,
            person.member_id,
            instance_id=person.instance_id,
            client=f"{person.member_id}@here",
            topics=person.topics,
            pattern=person.pattern,
            assignor=assignor,
            session_timeout_ms=45_000,
            max_poll_interval_ms=300_000,
            liveness=liveness,
            partitions=partitions,
            now_ms=now_ms,
        )
    )
    person.look(view)
    return view


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset)
