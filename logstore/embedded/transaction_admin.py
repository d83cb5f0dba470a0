"""What administrators ask about transactions: which there are, to abort one, and those that nothing will ever end.

A transaction hangs if a partition's log holds it open and the coordinator knows nothing of it: its records came
from outside, or the coordinator's log was lost. Readers of committed records wait before it for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

from logstore.api.transactions import HangingTransaction, TransactionSummary
from logstore.coordination.coordinator import Coordinator
from logstore.coordination.transaction_manager import TransactionManager
from logstore.coordination.transaction_markers import OFFSETS_PLACE
from logstore.embedded.coordination_parts import CoordinationParts
from logstore.errors import (
    RetriableError,
    TransactionAbortedError,
    TransactionStateError,
    UnknownTransactionError,
)
from logstore.groups.coordinator import GroupCoordinator
from logstore.kafka_directory.broker_machine import BrokerMachine
from logstore.log.producers.producer_state import Marker
from logstore.partition.context import StoreContext
from logstore.partition.log_access import LogAccess
from logstore.partition.partition import result_of
from logstore.partition.partition_log import PartitionLog
from logstore.partition.topic_registry import TopicRegistry
from logstore.transactions.coordinator import (
    TransactionCoordinator,
    TransactionState,
    validate_transactional_id,
)
from logstore.transactions.transaction_records import TOPIC
from logstore.types import CompactedPartition, TopicPartition

Reply = TypeVar("Reply")


class TransactionAdmin:
    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        manager: TransactionManager,
        offsets: Callable[[bool], Coordinator[GroupCoordinator] | None],
        parts: CoordinationParts,
    ) -> None:
        self._parts = parts
        self._context = context
        self._registry = registry
        self._manager = manager
        self._offsets = offsets
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
        return [self._summary(state) for state in known]

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
        if row.held_by is None:
            return row
        try:
            state = self._state_of_producer(row.held_by.producer_id)
        except RetriableError as error:
            if not error.passes:
                raise
            return row  # another process runs the coordinator now: it would have to be asked
        name = None if state is None else state.transactional_id
        return replace(row, held_by=row.held_by._replace(transactional_id=name))

    # --- those that hang ---

    def find_hanging(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        """The first of each partition: once it has ended, the next one shows."""
        catalogue = self._registry.catalogue
        names = sorted(catalogue.topics) if topics is None else [*topics]
        found = []
        for name in names:
            broker = self._context.broker
            count = catalogue.topic(name).partitions
            for partition in range(count) if broker is None else broker.partitions(name):
                hanging = self._look_at(TopicPartition(name, partition))
                if hanging is not None:
                    found.append(hanging)
        return found

    def _look_at(self, place: TopicPartition) -> HangingTransaction | None:
        """The log, the coordinator, the log: one that began or ended in between is not taken for one that hangs."""
        found = self._parts.open_transaction(place)
        if found is None:
            return None
        start, producer_id, epoch = found
        state = self._state_of_producer(producer_id)
        if state is not None and place in state.places:
            return None
        if self._parts.open_transaction(place) != found:
            return None
        transactional_id = None if state is None else state.transactional_id
        return HangingTransaction(*place, producer_id, epoch, start, transactional_id)

    def _state_of_producer(self, producer_id: int) -> TransactionState | None:

        def find(machine: TransactionCoordinator) -> TransactionState | None:
            name = machine.owner_of(producer_id)
            return None if name is None else machine.find(name)

        return self._look(find, None)

    def end_hanging(self, hanging: HangingTransaction) -> None:
        """See ``Backend.end_hanging``. Takes the topic: ``TopicLockedError``."""
        self._context.check_writable()
        place = TopicPartition(hanging.topic, hanging.partition)
        if self._look_at(place) != hanging:
            raise TransactionStateError(
                f"no transaction of producer {hanging.producer_id} hangs in {place.topic}-{place.partition} at offset "
                f"{hanging.start_offset}",
                hint="look again: logstore transaction find-hanging",
            )
        if place == OFFSETS_PLACE:
            offsets = self._offsets(False)
            if offsets is not None:
                offsets.end_hanging(hanging.producer_id, hanging.epoch, hanging.start_offset)
            return
        held = self._parts.writer(*place)
        entry = held.producer_entries([hanging.producer_id]).get(hanging.producer_id)
        coordinator_epoch = 0 if entry is None else max(entry.coordinator_epoch, 0)
        now_ms = self._context.clock.wall_ms()
        marker = Marker(hanging.producer_id, hanging.epoch, coordinator_epoch, False, now_ms)
        result_of(held.append_marker(marker, open_since=hanging.start_offset))
