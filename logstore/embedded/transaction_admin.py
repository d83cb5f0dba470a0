"""What administrators ask about transactions: which there are, to abort one, and those that nothing will ever end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from logstore.api.transactions import HangingTransaction, TransactionSummary
from logstore.coordination.transaction_manager import TransactionManager
from logstore.coordination.transactional_offsets import TransactionalOffsets
from logstore.embedded.coordination_parts import CoordinationParts
from logstore.embedded.hanging_transactions import HangingTransactions, ProducerOwner, with_name
from logstore.errors import TransactionAbortedError, UnknownTransactionError
from logstore.kafka_directory.broker_machine import BrokerMachine
from logstore.partition.context import StoreContext
from logstore.partition.log_access import LogAccess
from logstore.partition.partition_log import PartitionLog
from logstore.partition.topic_registry import TopicRegistry
from logstore.transactions.coordinator import (
    TransactionCoordinator,
    TransactionState,
    validate_transactional_id,
)
from logstore.transactions.transaction_records import TOPIC
from logstore.types import CompactedPartition

Reply = TypeVar("Reply")


class TransactionAdmin:
    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        manager: TransactionManager,
        offsets: TransactionalOffsets,
        parts: CoordinationParts,
    ) -> None:
        self._parts = parts
        self._context = context
        self._registry = registry
        self._manager = manager
        self._hanging = HangingTransactions(context, registry, parts, self.owners, offsets)
        broker = context.broker
        self._broker = (
            None
            if broker is None
            else BrokerMachine(broker, TOPIC, self._partition_log, TransactionCoordinator)
        )

    def _partition_log(self, topic: str, partition: int) -> PartitionLog:
        return PartitionLog(LogAccess(self._context), self._registry.get(topic).partition(partition))

    def _look(self, look: Callable[[TransactionCoordinator], Reply], none: Reply) -> Reply:
        """What the coordinator's state says now; ``none`` while there never was a transaction."""
        if self._broker is not None:
            self._registry.look_for_changes()  # partitions may have come
            return look(self._broker.newest())
        shared = self._manager.existing()
        if shared is None:
            return none
        shared.confirm()
        return shared.look(look)

    # --- known ones ---

    def summaries(self) -> list[TransactionSummary]:
        """All ids, sorted."""
        known: list[TransactionState] = self._look(lambda machine: machine.transactions(), [])
        return [self._summary(state) for state in known if not state.is_elsewhere]

    def _summary(self, state: TransactionState) -> TransactionSummary:
        return TransactionSummary(
            state.transactional_id,
            "PREPARED" if state.is_prepared else state.status.name,
            state.producer_id,
            state.epoch,
            state.timeout_ms,
            state.start_ms,
            state.places,
            self._parts.holder_of(state.transactional_id),
            state.coordinator,
        )

    def abort(self, transactional_id: str) -> TransactionSummary:
        """See ``Backend.abort_transaction``."""
        self._context.check_writable()
        validate_transactional_id(transactional_id)
        manager = self._manager
        shared = manager.existing()
        if shared is not None:
            shared.confirm()
        with manager.guard(transactional_id):
            if manager.state_of(transactional_id) is None:
                raise UnknownTransactionError(f"there is no transactional id {transactional_id!r}")
            lease = manager.lease(transactional_id)
            if lease is None:
                self._abort_elsewhere(transactional_id)
            else:
                if lease.prepared is not None:
                    ended = manager.decide_resolve(transactional_id)
                    if ended is not None:
                        manager.finish(ended, wait=False)
                elif lease.begun:
                    reason = f"the transaction of {transactional_id!r} was aborted by request"
                    lease.abort_for(TransactionAbortedError(reason))
                lease.finish_unfinished()
            state = manager.state_of(transactional_id)
        if state is None:
            raise UnknownTransactionError(f"there is no transactional id {transactional_id!r} any more")
        return self._summary(state)

    def _abort_elsewhere(self, transactional_id: str) -> None:
        """Another process has it open: that one writes the markers. If nobody has it, this one does."""
        manager = self._manager
        id_lock = manager.runtime.id_lock(transactional_id)
        try:
            if id_lock.try_take():
                manager.resolve(transactional_id)
                return
            manager.decide_resolve(transactional_id)
        finally:
            id_lock.release()

    def with_names(self, row: CompactedPartition) -> CompactedPartition:
        """With the transactional id of what held the compaction back, if that is known."""
        return with_name(row, self.owners)

    # --- those that hang ---

    def find_hanging(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        """See ``HangingTransactions``."""
        return self._hanging.find(topics)

    def end_hanging(self, hanging: HangingTransaction) -> None:
        """See ``HangingTransactions``."""
        self._hanging.end(hanging)

    def owners(self, producer_ids: Collection[int]) -> dict[int, ProducerOwner]:
        """What this coordinator knows of them, by producer id."""
        states = ((key, self._state_of_producer(key)) for key in producer_ids)
        return {
            key: ProducerOwner(state.transactional_id, frozenset(state.places))
            for key, state in states
            if state is not None
        }

    def _state_of_producer(self, producer_id: int) -> TransactionState | None:

        def find(machine: TransactionCoordinator) -> TransactionState | None:
            name = machine.owner_of(producer_id)
            return None if name is None else machine.find(name)

        return self._look(find, None)
