"""``ClusterTransactions``: the transactions of a cluster at one node, by its coordinators and those of other nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from logstore.api.groups import MemberIdentity, checked_offsets
from logstore.api.transactions import HangingTransaction, TransactionSummary
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.coordination.transaction_manager import STATE_CONFIG
from logstore.coordination.transactional_offsets import OFFSETS_TOPIC, PendingCommit
from logstore.embedded.hanging_transactions import HangingTransactions, ProducerOwner, with_name
from logstore.embedded.transaction_services import TransactionServices
from logstore.errors import LogStoreError, UnknownTransactionError
from logstore.machine import TransactionalWriter
from logstore.partition.context import StoreContext
from logstore.partition.topic_registry import TopicRegistry
from logstore.transactions.coordinator import TransactionState, validate_transactional_id
from logstore.transactions.transaction_records import TOPIC as STATE_TOPIC
from logstore.types import CompactedPartition, OffsetAndMetadata, TopicPartition
from replication.coordination.groups import ClusterGroups
from replication.coordination.id_moves import IdMoves
from replication.coordination.parts import ClusterParts, ShardParts
from replication.errors import NotLeaderError
from replication.transport import PeerNetwork

MayForget: TypeAlias = Callable[[TransactionState], bool]
"""See ``TransactionReaper``."""


class RoutedOffsets:
    """``TransactionalOffsets``: at the groups' coordinators, whichever nodes run them. Thread-safe."""

    coordinator = None

    def __init__(self, parts: ClusterParts, groups: ClusterGroups) -> None:
        self._parts = parts
        self._groups = groups

    @property
    def only_place(self) -> TopicPartition | None:
        one = self._parts.coordinators.count(OFFSETS_TOPIC) == 1
        return TopicPartition(OFFSETS_TOPIC, 0) if one else None

    def place(self, group: str) -> TopicPartition:
        return self._groups.place(group)

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        writer: TransactionalWriter,
        member: MemberIdentity | None,
    ) -> None:
        checked = checked_offsets(offsets)
        seen = self._parts.ends.of(checked)  # here, so that no node waits for a third one
        pending = PendingCommit(group, checked, writer, member, seen)
        calls = self._parts.coordinator_calls
        self._parts.routing.ask(
            self.place(group),
            lambda: self._groups.commit_pending(pending),
            lambda node, left_s: calls.commit_pending(node, pending, left_s),
        )


class ClusterTransactions:
    """The same as ``TransactionServices``, of all partitions of the transactions' topic; one such beneath for each.
    Thread-safe. What concerns one id is done here where this node runs its coordinator; else ``NotLeaderError``."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        parts: ClusterParts,
        offsets: RoutedOffsets,
        network: PeerNetwork,
        make: Callable[[ShardParts, MayForget], TransactionServices],
    ) -> None:
        self._parts = parts
        self._coordinators = parts.coordinators
        self._make = make
        self._guard = threading.Lock()
        self._shards: dict[int, TransactionServices] = {}
        self._moves = IdMoves(
            parts.routing,
            network,
            self.shard,
            lambda: self._coordinators.made(STATE_TOPIC, STATE_CONFIG),
        )
        self._moves.serve()
        self.reaper = ClusterReaper(self)
        self._hanging = HangingTransactions(context, registry, parts.shard(0), self.owners, offsets)
        self.admin = self

    # --- which coordinator ---

    def shard(self, number: int) -> TransactionServices:
        with self._guard:
            found = self._shards.get(number)
            if found is None:
                found = self._shards[number] = self._make(self._parts.shard(number), self._moves.may_forget)
            return found

    def shards(self) -> list[TransactionServices]:
        """Those that this node runs now, or has run."""
        for number in range(self._coordinators.count(STATE_TOPIC)):
            if number not in self._shards and self._coordinators.leads(TopicPartition(STATE_TOPIC, number)):
                self.shard(number)
        return self._held()

    def _held(self) -> list[TransactionServices]:
        with self._guard:
            return list(self._shards.values())

    def of(self, transactional_id: str) -> TransactionServices:
        """Of the id's coordinator; the topic is made if it is not there. InvalidTransactionIdError."""
        validate_transactional_id(transactional_id)
        return self.shard(self._coordinators.place(STATE_TOPIC, transactional_id, STATE_CONFIG).partition)

    # --- one id ---

    def open(
        self, transactional_id: str, timeout_ms: int, *, coordinator: str | None, keep_prepared: bool
    ) -> CoordinatedLease:
        """See ``Backend.init_transactions``. A participant is where its coordinator is."""
        validate_transactional_id(transactional_id)
        if coordinator is not None:
            validate_transactional_id(coordinator)
        return self._moves.open(
            transactional_id, timeout_ms, coordinator=coordinator, keep_prepared=keep_prepared
        )

    def resume(
        self, transactional_id: str, timeout_ms: int, writer: TransactionalWriter, coordinator: str | None
    ) -> CoordinatedLease:
        """See ``TransactionManager.resume``."""
        manager = self.of(coordinator or transactional_id).manager
        back = NotLeaderError(
            "this coordinator was another node's in between: the opening goes on under another lease"
        )
        manager.drop(back, before=manager.era)
        return manager.resume(transactional_id, timeout_ms, writer, coordinator=coordinator)

    def abort(self, transactional_id: str) -> TransactionSummary:
        """See ``Backend.abort_transaction``."""
        validate_transactional_id(transactional_id)
        if not self._coordinators.known(STATE_TOPIC):
            raise UnknownTransactionError(f"there is no transactional id {transactional_id!r}")
        return self._moves.abort(transactional_id)

    # --- all ids ---

    def _places(self) -> list[TopicPartition]:
        return [
            TopicPartition(STATE_TOPIC, number) for number in range(self._coordinators.known(STATE_TOPIC))
        ]

    def summaries(self) -> list[TransactionSummary]:
        """Of all coordinators, by id. Errors of ``Routing.ask_each``."""
        found = self._parts.routing.ask_each(
            self._places(),
            lambda place: self.shard(place.partition).admin.summaries(),
            lambda node, places, left_s: self._parts.coordinator_calls.transactions(
                node, [place.partition for place in places], left_s
            ),
        )
        return sorted((one for some in found.values() for one in some), key=lambda one: one.transactional_id)

    def owners(self, producer_ids: Collection[int]) -> dict[int, ProducerOwner]:
        """Whose they are, as all coordinators know. Errors of ``Routing.ask_each``."""
        ids = sorted(producer_ids)
        found = self._parts.routing.ask_each(
            self._places(),
            lambda place: self.shard(place.partition).admin.owners(ids),
            lambda node, places, left_s: self._parts.coordinator_calls.owners(
                node, [place.partition for place in places], ids, left_s
            ),
        )
        return {key: owner for some in found.values() for key, owner in some.items()}

    def with_names(self, row: CompactedPartition) -> CompactedPartition:
        return with_name(row, self.owners)

    def find_hanging(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        return self._hanging.find(topics)

    def end_hanging(self, hanging: HangingTransaction) -> None:
        self._hanging.end(hanging)

    # --- the end ---

    def drop(self, error: LogStoreError) -> None:
        """See ``TransactionManager.drop``."""
        for shard in self._held():
            shard.manager.drop(error)

    def abandon(self) -> None:
        for shard in self._held():
            shard.abandon()

    def close(self) -> None:
        for shard in self._held():
            shard.close()


class ClusterReaper:
    """The same as ``TransactionReaper``, of all coordinators of this node."""

    def __init__(self, transactions: ClusterTransactions) -> None:
        self._transactions = transactions
        self._is_asked = False

    def step(self) -> float | None:
        """The first failure is raised, after all had their turn."""
        asked, self._is_asked = self._is_asked, False
        waits: list[float] = []
        failure: LogStoreError | None = None
        for shard in self._transactions.shards():
            if asked:
                shard.reaper.soon()
            try:
                wait_s = shard.reaper.step()
            except LogStoreError as error:
                failure = failure or error
                continue
            if wait_s is not None:
                waits.append(wait_s)
        if failure is not None:
            raise failure
        return min(waits, default=None)

    def soon(self) -> None:
        """The next step looks, whenever the last one did. Takes no lock."""
        self._is_asked = True

    def holds(self, topic: str) -> bool:
        return any(shard.reaper.holds(topic) for shard in self._transactions.shards())
