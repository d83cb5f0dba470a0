"""Clients of a simulated cluster: they find leaders, follow moves, retry, and note what they asked and were told."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeVar

from logstore.api.records import FetchRequest, ProduceItem
from logstore.errors import (
    DuplicateSequenceError,
    LogStoreError,
    OutcomeUnknownError,
    RetriableError,
    UnknownTopicError,
)
from logstore.format.batch import decode_batches, encode_batch
from logstore.machine import TransactionalWriter
from logstore.types import Isolation, OffsetAndMetadata, TopicPartition
from replication.cluster_node import ClusterNode
from replication.errors import NotLeaderError, PeerUnavailableError
from tests.history.events import (
    Acked,
    Begun,
    Decided,
    Event,
    Moved,
    OffsetsCommitted,
    Place,
    Polled,
    Reading,
    Refused,
    Send,
)
from tests.sim.cluster.world import World

Answer = TypeVar("Answer")
_AGAIN: Final = (RetriableError, PeerUnavailableError)
_PAUSE_S: Final = 0.1
TRANSACTION_MS: Final = 20_000


class BrokenPromiseError(AssertionError):
    """A client was told what must never be told."""


class Client:
    """``events``: its history; ``topics``: name and number of partitions of those that it uses."""

    def __init__(self, world: World, name: str, topics: dict[str, int]) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.dice = random.Random(f"{world.seed}:{name}")
        self.events: list[Event] = []
        self.idle = False  # nothing of it is under way, and nothing more is begun
        self._values = 0

    def run(self) -> None:
        self.events.append(Begun())
        self.begin()
        while not self.world.quiet:
            self.step()
            self.world.scheduler.let_pass(self.dice.random() * self.world.pace_s)
        self.idle = True

    def begin(self) -> None:
        """Once, before the first step."""

    def step(self) -> None:
        raise NotImplementedError

    def note(self, event: Event) -> None:
        self.events.append(event)
        self.world.note(f"{self.name}: {event}")

    def values(self, count: int) -> tuple[str, ...]:
        self._values += count
        return tuple(f"{self.name}.{self._values - one}" for one in range(count, 0, -1))

    def place(self) -> Place:
        topic = self.dice.choice(sorted(self.topics))
        return topic, self.dice.randrange(self.topics[topic])

    # --- asking whoever it is ---

    def ask(
        self,
        name: str,
        work: Callable[[ClusterNode], Answer],
        hint: int = -1,
        *,
        on_doubt: Callable[[LogStoreError], None] | None = None,
    ) -> Answer:
        """Of one node after the other until one answers. ``on_doubt``: told of errors after which it may be done."""
        numbers = sorted(self.world.machines)
        while True:
            number = hint if hint in self.world.machines else self.dice.choice(numbers)
            hint = -1
            try:
                return self.world.ask(number, name, work)
            except _AGAIN as error:
                self.world.counts[f"asked again: {type(error).__name__}"] += 1
                if isinstance(error, NotLeaderError):
                    hint = error.leader_id
                if on_doubt is not None:
                    on_doubt(error)
            self.world.scheduler.let_pass(_PAUSE_S * (0.5 + self.dice.random()))


class Sequences:
    """Of one producer id and epoch: the next sequence in each partition."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._next: dict[Place, int] = {}

    def encoded(
        self, place: Place, values: tuple[str, ...], now_ms: int, *, transactional: bool = False
    ) -> bytes:
        rows = [
            (value.rpartition(".")[0].encode() if "." in value else None, value.encode()) for value in values
        ]
        return encode_batch(
            rows,
            now_ms=now_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._next.get(place, 0),
            transactional=transactional,
        )

    def advance(self, place: Place, count: int) -> None:
        self._next[place] = self._next.get(place, 0) + count


def produced(place: Place, data: bytes) -> Callable[[ClusterNode], int]:
    """The offset at which the batch was appended."""

    def work(node: ClusterNode) -> int:
        (result,) = node.engine.produce([ProduceItem(*place, data)], "all", 8.0)
        if result.error is not None:
            raise result.error
        return result.base_offset

    return work


class IdempotentProducer(Client):
    """Batches in order, each again and again until it is known how that went."""

    def begin(self) -> None:
        lease = self.ask("init_producer", lambda node: node.engine.init_producer(None))
        self._sequences = Sequences(lease.producer_id, lease.epoch)
        self._hints: dict[Place, int] = {}

    def step(self) -> None:
        place = self.place()
        values = self.values(self.dice.choice((1, 1, 3, 8)))
        self.note(Send(place, values))
        self.send(place, values)

    def send(self, place: Place, values: tuple[str, ...]) -> None:
        data = self._sequences.encoded(place, values, self.world.now_ms())
        try:
            base = self.ask(f"produce {place[0]}-{place[1]}", again_if_doubtful(produced(place, data)))
        except DuplicateSequenceError:
            base = -1
        except UnknownTopicError:
            self.world.counts["sent to a topic that is gone"] += 1
            self.note(Refused(()))
            return
        self._sequences.advance(place, len(values))
        self.world.counts["batches acknowledged"] += 1
        offsets = tuple(base + one if base >= 0 else -1 for one in range(len(values)))
        self.note(Acked(values, offsets))


def again_if_doubtful(work: Callable[[ClusterNode], Answer]) -> Callable[[ClusterNode], Answer]:
    """For what may be done twice: an outcome that is not known is asked for again."""

    def asked(node: ClusterNode) -> Answer:
        try:
            return work(node)
        except OutcomeUnknownError as error:
            raise PeerUnavailableError(error.message) from error

    return asked


class Transactor(Client):
    """Transactions over some partitions, of which a quarter is aborted; offsets of a group go with some."""

    def __init__(self, world: World, name: str, topics: dict[str, int]) -> None:
        super().__init__(world, name, topics)
        self.transactional_id = name
        self.group = f"{name}-group"
        self._number = 0
        self._leases: dict[str, object] = {}

    def begin(self) -> None:
        self._open()

    def _open(self) -> None:
        self._life = None
        lease = self.ask("init_transactions", again_if_doubtful(self._opened))
        self._writer = TransactionalWriter(*lease)
        self._sequences = Sequences(*lease)

    def _opened(self, node: ClusterNode) -> tuple[int, int]:
        lease = node.engine.init_transactions(self.transactional_id, TRANSACTION_MS)
        node_leases(node)[self.transactional_id] = lease
        return lease.producer_id, lease.epoch

    def _with_lease(self, name: str, work: Callable[..., None]) -> TransactionalWriter:
        """At the coordinator of now, which takes the opening up if it has it not; what the next call runs under."""
        writer = self._writer

        def asked(node: ClusterNode) -> TransactionalWriter:
            leases = node_leases(node)
            lease = leases.get(self.transactional_id)
            if lease is None or isinstance(lease.ended_by(), NotLeaderError):
                lease = node.engine.resume_transactions(self.transactional_id, TRANSACTION_MS, *writer)
                leases[self.transactional_id] = lease
            try:
                work(lease, writer)
            except NotLeaderError:
                leases.pop(self.transactional_id, None)
                raise
            return TransactionalWriter(lease.producer_id, lease.epoch)

        return self.ask(name, again_if_doubtful(asked))

    def step(self) -> None:
        self._number += 1
        name = f"{self.name}/{self._number}"
        try:
            self._transact(name)
        except LogStoreError as error:
            self.world.counts[f"transactions ended by {type(error).__name__}"] += 1
            self.world.note(f"{name}: {type(error).__name__}: {error.message}")
            self._open()  # which aborts what is open; of a commit that got no answer it says nothing
            self.events.append(Begun())

    def _transact(self, name: str) -> None:
        self._take(self._with_lease("begin", lambda lease, writer: lease.begin(writer)))
        places = sorted({self.place() for _ in range(self.dice.choice((1, 2, 3)))})
        wanted = [TopicPartition(*place) for place in places]
        self._with_lease("add_partitions", lambda lease, writer: lease.add_partitions(wanted, writer=writer))
        for place in places:
            self._send(place, name)
        commit = self.dice.random() < 0.75
        offset = self._number if self.dice.random() < 0.4 else -1
        if offset >= 0:
            self._send_offsets(offset)
        try:
            self._take(
                self._with_lease(
                    "commit" if commit else "abort",
                    lambda lease, writer: lease.end(commit=commit, writer=writer),
                )
            )
        except LogStoreError:
            if not commit:
                self.note(Decided(name, False))
            raise
        self.world.counts["transactions committed" if commit else "transactions aborted"] += 1
        self.note(Decided(name, commit))
        if offset >= 0 and commit:
            self.note(OffsetsCommitted(self.group, ((self._group_place, offset),)))

    def _take(self, writer: TransactionalWriter) -> None:
        if writer != self._writer:
            self._writer = writer
            self._sequences = Sequences(*writer)

    def _send(self, place: Place, transaction: str) -> None:
        values = self.values(self.dice.choice((1, 2, 5)))
        self.note(Send(place, values, transaction))
        data = self._sequences.encoded(place, values, self.world.now_ms(), transactional=True)
        try:
            base = self.ask(f"produce {place[0]}-{place[1]}", again_if_doubtful(produced(place, data)))
        except DuplicateSequenceError:
            base = -1
        self._sequences.advance(place, len(values))
        self.note(Acked(values, tuple(base + one if base >= 0 else -1 for one in range(len(values)))))

    @property
    def _group_place(self) -> Place:
        return sorted(self.topics)[0], 0

    def _send_offsets(self, offset: int) -> None:
        """Its own numbers: they only ever grow."""
        offsets = {TopicPartition(*self._group_place): OffsetAndMetadata(offset, -1, "")}
        self._with_lease(
            "send_offsets", lambda lease, writer: lease.send_offsets(self.group, offsets, None, writer)
        )


def node_leases(node: ClusterNode) -> dict[str, object]:
    """The openings that a broker holds for its clients."""
    found: dict[str, object] | None = getattr(node, "leases_of_clients", None)
    if found is None:
        found = node.leases_of_clients = {}  # type: ignore[attr-defined]
    return found


class Reader(Client):
    """Reads partitions in order, as a reader of committed records, and commits its offsets in a group."""

    isolation: Isolation = "read_committed"

    def begin(self) -> None:
        self.group = f"{self.name}-group"
        self._positions: dict[Place, int] = {}
        self._hints: dict[Place, int] = {}

    def step(self) -> None:
        place = self.place()
        records, following = self.read(place)
        if records:
            self.note(Polled(tuple((place, offset, value) for offset, value in records)))
            self.world.counts["records read"] += len(records)
        self._positions[place] = following
        if following > 0 and self.dice.random() < 0.3:
            self._commit(place, following)

    def read(self, place: Place) -> tuple[list[tuple[int, str]], int]:
        start = self._positions.get(place, 0)
        work = fetched(place, start, self.isolation)
        data, following, log_start = self.ask(f"fetch {place[0]}-{place[1]}", work)
        if log_start > start:
            self.note(Moved(f"{place[0]}-{place[1]} begins at {log_start}"))
            self.world.counts["readers reset"] += 1
            return [], log_start
        records = decode_batches(data, *place, start_offset=start)
        return [(one.offset, (one.value or b"").decode()) for one in records], following

    def _commit(self, place: Place, offset: int) -> None:
        offsets = {TopicPartition(*place): OffsetAndMetadata(offset, -1, "")}

        def work(node: ClusterNode) -> None:
            node.engine.commit_offsets(self.group, offsets)

        self.ask("commit_offsets", again_if_doubtful(work))
        self.world.counts["offsets committed"] += 1
        self.note(OffsetsCommitted(self.group, ((place, offset),)))


def fetched(
    place: Place, start: int, isolation: Isolation
) -> Callable[[ClusterNode], tuple[bytes, int, int]]:
    """Batches, the offset to go on at, and where the log starts if that is behind ``start`` (else -1)."""

    def work(node: ClusterNode) -> tuple[bytes, int, int]:
        (found,) = node.engine.fetch(
            [FetchRequest(*place, start, -1, 4096)],
            isolation=isolation,
            min_bytes=1,
            max_bytes=4096,
            max_wait_s=0.5,
        )
        if found.error is not None:
            log_start = getattr(found.error, "log_start_offset", -1)
            if log_start > start:
                return b"", log_start, log_start
            raise found.error
        return bytes(found.batches), found.next_offset, -1

    return work


__all__ = ["BrokenPromiseError", "Client", "IdempotentProducer", "Reader", "Reading", "Transactor"]
