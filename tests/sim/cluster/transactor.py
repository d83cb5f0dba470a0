"""A transactional producer of a simulated cluster, whose openings move with their coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.errors import (
    DuplicateSequenceError,
    LogStoreError,
    UnknownTransactionError,
)
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.cluster_node import ClusterNode
from replication.errors import NotLeaderError
from tests.history.events import Acked, Begun, Decided, OffsetsCommitted, Place, Send
from tests.replication.sim.checks import BrokenPropertyError
from tests.sim.cluster.client import Client, Sequences, again_if_doubtful, produced
from tests.sim.cluster.world import World

TRANSACTION_MS: Final = 20_000


class Transactor(Client):
    """Transactions over some partitions, of which a quarter is aborted; offsets of a group go with some."""

    def __init__(self, world: World, name: str, topics: dict[str, int]) -> None:
        super().__init__(world, name, topics)
        self.transactional_id = name
        self.group = f"{name}-group"
        self._number = 0
        self._lease_id = ""
        self._lease_ids = 0

    def begin(self) -> None:
        self._open()

    def _open(self) -> None:
        lease = self.ask("init_transactions", again_if_doubtful(self._opened))
        self._writer = TransactionalWriter(*lease)
        self._sequences = Sequences(*lease)

    def _opened(self, node: ClusterNode) -> tuple[int, int]:
        lease = node.engine.init_transactions(self.transactional_id, TRANSACTION_MS)
        self._keep(node, lease)
        return lease.producer_id, lease.epoch

    def _keep(self, node: ClusterNode, lease: CoordinatedLease) -> None:
        """Under an id that no other broker knows, as brokers give one to every opening that they hold."""
        self._lease_ids += 1
        self._lease_id = f"{self.transactional_id}.{self._lease_ids}"
        node_leases(node)[self._lease_id] = lease

    def _with_lease(self, name: str, work: Callable[..., None]) -> TransactionalWriter:
        """At the coordinator of now, which takes the opening up if it has it not; what the next call runs under."""
        writer = self._writer

        def asked(node: ClusterNode) -> TransactionalWriter:
            leases = node_leases(node)
            lease = leases.get(self._lease_id)
            if lease is None or isinstance(lease.ended_by(), NotLeaderError):
                leases.pop(self._lease_id, None)
                lease = node.engine.resume_transactions(self.transactional_id, TRANSACTION_MS, *writer)
                self._keep(node, lease)
            work(lease, writer)
            return TransactionalWriter(lease.producer_id, lease.epoch)

        return self.ask(name, again_if_doubtful(asked))

    def step(self) -> None:
        self._number += 1
        name = f"{self.name}/{self._number}"
        try:
            self._transact(name)
        except UnknownTransactionError as error:
            raise BrokenPropertyError(
                f"{self.transactional_id} was opened, and is not known: {error}"
            ) from error
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


def node_leases(node: ClusterNode) -> dict[str, CoordinatedLease]:
    """The openings that a broker holds for its clients."""
    found: dict[str, CoordinatedLease] | None = getattr(node, "leases_of_clients", None)
    if found is None:
        found = node.leases_of_clients = {}  # type: ignore[attr-defined]
    return found
