"""A little world in memory for the exactly-once story: partitions with the real ``ProducerStates``, the real
coordinator with its log, and producers and finishers that can stop for ever between any two of their steps.

A ``Job`` is a generator that yields before each step that others can see. Killing a process drops its jobs; a power
loss drops all of them, and what is not synced. The coordinator's decisions are durable one by one: a process may die
before one, or after one whose answer it never sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from logstore.errors import ProducerFencedError, TransactionStateError
from logstore.format.batch import BatchHeader, encode_batch, read_header
from logstore.log.producers.producer_state import Marker, ProducerStates
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.machine import Change, Decision
from logstore.transactions.coordinator import (
    EndedTransaction,
    InitReply,
    TransactionCoordinator,
    TransactionStatus,
)
from logstore.transactions.transaction_records import decode_key
from logstore.types import TopicPartition

Job: TypeAlias = Iterator[None]
PLACES = tuple(TopicPartition("t", number) for number in range(3))
_TEMPLATE = read_header(
    encode_batch(
        [(None, b"")],
        now_ms=0,
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
)


class Entry(NamedTuple):
    """A batch with its values, or a marker."""

    offset: int
    header: BatchHeader | None
    marker: Marker | None
    values: tuple[str, ...]

    @property
    def next_offset(self) -> int:
        return self.offset + max(len(self.values), 1)


class Partition:
    """A log of entries. ``synced``: how many of them a power loss leaves."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries: list[Entry] = []
        self.synced = 0
        self.producers = ProducerStates()
        self.aborted: list[AbortedTransaction] = []
        for entry in entries:
            self._add(entry)
        self.sync()

    @property
    def end(self) -> int:
        return self.entries[-1].next_offset if self.entries else 0

    def sync(self) -> None:
        self.synced = len(self.entries)

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.header is not None:
            self.producers.note(entry.header, entry.offset)
        if entry.marker is not None:
            row = self.producers.aborted_by(entry.marker, entry.offset)
            if row is not None:
                self.aborted.append(row)
            self.producers.note_marker(entry.marker, entry.offset)

    def append(self, producer_id: int, epoch: int, sequence: int, values: tuple[str, ...]) -> None:
        header = _TEMPLATE._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            last_offset_delta=len(values) - 1,
        )
        if not self.producers.repeated([header], "t"):
            self._add(Entry(self.end, header, None, values))

    def mark(self, marker: Marker) -> None:
        """Nothing if the log knows of the marker's epoch already: a second one would end the next transaction."""
        entry = self.producers.entry(marker.producer_id)
        if entry is None or entry.epoch < marker.epoch:
            self.append_marker(marker)

    def append_marker(self, marker: Marker) -> None:
        self.producers.check_marker(marker, "t")
        self._add(Entry(self.end, None, marker, ()))

    def read_committed(self) -> list[str]:
        """What a reader sees: nothing from the first open transaction on, and nothing aborted."""
        unstable = self.producers.first_unstable(self.end)
        stable_end = self.end if unstable is None else unstable
        gone = {
            (row.producer_id, offset)
            for row in self.aborted
            for offset in range(row.first_offset, row.last_offset)
        }
        return [
            value
            for entry in self.entries
            if entry.header is not None
            and entry.offset < stable_end
            and (entry.header.producer_id, entry.offset) not in gone
            for value in entry.values
        ]


@dataclass
class Transaction:
    """What a producer meant to do. ``heard``: the outcome that it was told; ``values``: what it sent."""

    number: int
    producer_id: int
    epoch: int
    heard: bool | None = None
    values: dict[TopicPartition, list[str]] = field(default_factory=dict)


class Plan(NamedTuple):
    """``places`` get ``batches`` batches each, every one sent twice if ``retries``."""

    places: tuple[TopicPartition, ...]
    batches: int
    retries: bool
    commit: bool


class World:
    coordinator_kind: type[TransactionCoordinator] = TransactionCoordinator

    def __init__(self) -> None:
        self.partitions = {place: Partition() for place in PLACES}
        self.log: list[Change] = []
        self.coordinator = self.coordinator_kind()
        self.fresh_id = 0
        self.transactions: list[Transaction] = []
        self.outcomes: dict[tuple[int, int], bool] = {}  # (producer id, epoch) -> what its log decided first

    # --- the coordinator ---

    def decide(self, decision: Decision[object]) -> None:
        for key, value in decision.records:
            name = decode_key(key)
            assert name is not None
            old = self.coordinator.find(name)
            self.log.append((key, value))
            self.coordinator.replay(key, value)
            state = self.coordinator.describe(name)
            if old is not None and old.status == TransactionStatus.ONGOING and state.status.is_decided:
                commit = state.status == TransactionStatus.PREPARE_COMMIT
                self.outcomes.setdefault((old.producer_id, old.epoch), commit)

    def init(self, name: str) -> InitReply:
        self.fresh_id += 1
        decision = self.coordinator.decide_init(name, 1_000, self.fresh_id, 0)
        self.decide(decision)
        return decision.reply

    # --- what producers and those who clean up do, step by step ---

    def producer(self, name: str, plans: Sequence[Plan]) -> Job:
        """Opens the id, and runs one transaction after the other until it is fenced."""
        while True:
            yield
            reply = self.init(name)
            if reply.pending is None:
                break
            yield from self.finish(reply.pending)
        producer_id, epoch = reply.producer_id, reply.epoch
        for plan in plans:
            transaction = Transaction(len(self.transactions), producer_id, epoch)
            self.transactions.append(transaction)
            try:
                yield from self.transact(name, transaction, plan)
            except TransactionStateError:
                state = self.coordinator.describe(name)
                if not state.aborted_from(producer_id, epoch):
                    return  # the one before is not marked everywhere: somebody else has to finish it
                if state.ended is not None:
                    yield from self.finish(state.ended)
            except ProducerFencedError:
                state = self.coordinator.describe(name)
                if not state.aborted_from(producer_id, epoch):
                    return  # a newer self
                if state.ended is not None:
                    yield from self.finish(state.ended)
            epoch += 1

    def transact(self, name: str, transaction: Transaction, plan: Plan) -> Job:
        producer_id, epoch = transaction.producer_id, transaction.epoch
        for batch in range(plan.batches):
            for place in plan.places:
                if batch == 0:
                    yield
                    self.decide(self.coordinator.decide_add_partitions(name, producer_id, epoch, [place], 0))
                value = f"{transaction.number}.{batch}"
                for _ in range(1 + plan.retries):
                    yield
                    self.partitions[place].append(producer_id, epoch, batch, (value,))
                transaction.values.setdefault(place, []).append(value)
        if plan.commit:
            for place in plan.places:
                yield
                self.before_the_decision(self.partitions[place])
        yield
        decision = self.coordinator.decide_end(name, producer_id, epoch, commit=plan.commit, now_ms=0)
        self.decide(decision)
        yield
        transaction.heard = plan.commit
        yield from self.finish(decision.reply)

    def before_the_decision(self, partition: Partition) -> None:
        partition.sync()

    def finish(self, ended: EndedTransaction) -> Job:
        marker = Marker(ended.producer_id, ended.marker_epoch, 0, ended.commit, 0)
        for place in ended.places:
            yield
            self.mark(self.partitions[place], marker)
            yield
            self.partitions[place].sync()
            yield
            self.note_marked(ended, place)

    def mark(self, partition: Partition, marker: Marker) -> None:
        partition.mark(marker)

    def note_marked(self, ended: EndedTransaction, place: TopicPartition) -> None:
        name, producer_id, epoch = ended.transactional_id, ended.producer_id, ended.marker_epoch
        self.decide(self.coordinator.decide_marked(name, producer_id, epoch, [place], 0))

    def resolver(self, name: str, *, fence: bool) -> Job:
        """Aborts what is under way, or goes on with what was decided."""
        if self.coordinator.find(name) is None:
            return
        decision = self.coordinator.decide_resolve(name, 0, fence=fence)
        self.decide(decision)
        yield
        if decision.reply is not None:
            yield from self.finish(decision.reply)

    def power_loss(self) -> None:
        self.partitions = {
            place: Partition(partition.entries[: partition.synced])
            for place, partition in self.partitions.items()
        }
        self.coordinator = self.coordinator_kind()
        for key, value in self.log:
            self.coordinator.replay(key, value)

    def resolve_all(self) -> None:
        for state in self.coordinator.in_doubt():
            for _ in self.resolver(state.transactional_id, fence=False):
                pass

    # --- what must hold ---

    def seen(self, place: TopicPartition) -> dict[int, list[str]]:
        """Transaction -> its values that a reader of ``place`` sees."""
        found: dict[int, list[str]] = {}
        for value in self.partitions[place].read_committed():
            found.setdefault(int(value.split(".")[0]), []).append(value)
        return found

    def check(self) -> None:
        """At any moment: whatever is seen was committed, and is there once, in order, from its first record on. What
        lies behind the beginning of another one that is still open is not seen yet."""
        for place in PLACES:
            for number, values in self.seen(place).items():
                transaction = self.transactions[number]
                assert self.outcome(transaction) is True, f"{values} of an undecided or aborted one"
                sent = transaction.values[place]
                assert values == sent[: len(values)], f"{values} of {sent}"

    def check_resolved(self) -> None:
        """Nothing is in doubt: nothing is open, and each transaction is everywhere or nowhere."""
        assert not self.coordinator.in_doubt()
        for place, partition in self.partitions.items():
            assert partition.producers.open_transactions() == {}, f"left open in {place}"
            assert partition.producers.first_unstable(partition.end) is None
        self.check()
        seen = {place: self.seen(place) for place in PLACES}
        for transaction in self.transactions:
            outcome = self.outcome(transaction)
            if transaction.heard is not None:
                assert outcome is transaction.heard, "the outcome is not the one that was answered"
            if outcome is not True:
                continue
            for place, values in transaction.values.items():
                mine = seen[place].get(transaction.number)
                assert mine == values, f"committed {values}, seen {mine} in {place}"

    def outcome(self, transaction: Transaction) -> bool | None:
        return self.outcomes.get((transaction.producer_id, transaction.epoch))
