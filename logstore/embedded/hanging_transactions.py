"""``HangingTransactions``: transactions that a partition's log holds open and no coordinator knows of.

Their records came from outside, or the coordinator's log was lost: nothing will ever end them, and readers of committed
records wait before them for ever. An administrator finds and ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from logstore.api.transactions import HangingTransaction
from logstore.coordination.transactional_offsets import OFFSETS_PLACE, TransactionalOffsets
from logstore.embedded.coordination_parts import CoordinationParts
from logstore.errors import RetriableError, TransactionStateError
from logstore.log.producers.producer_state import Marker
from logstore.partition.context import StoreContext
from logstore.partition.open_transactions import OpenTransaction
from logstore.partition.partition import result_of
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import CompactedPartition, TopicPartition


class ProducerOwner(NamedTuple):
    """The transactional id that a producer id belongs to, and the places of its transaction under way."""

    transactional_id: str
    places: frozenset[TopicPartition]


Owners: TypeAlias = Callable[[Collection[int]], Mapping[int, ProducerOwner]]
"""What coordinators know of these producer ids; those that none knows are left out."""


class HangingTransactions:
    """Thread-safe. ``offsets``: where groups commit in transactions."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        parts: CoordinationParts,
        owners: Owners,
        offsets: TransactionalOffsets,
    ) -> None:
        self._context = context
        self._registry = registry
        self._parts = parts
        self._owners = owners
        self._offsets = offsets

    def find(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        """The first of each partition: once it has ended, the next one shows."""
        catalogue = self._registry.catalogue
        names = sorted(catalogue.topics) if topics is None else [*topics]
        places = []
        for name in names:
            broker = self._context.broker
            count = catalogue.topic(name).partitions
            numbers = range(count) if broker is None else broker.partitions(name)
            places += [TopicPartition(name, number) for number in numbers]
        return self._look_at(places)

    def _look_at(self, places: Collection[TopicPartition]) -> list[HangingTransaction]:
        """The logs, the coordinators, the logs: one that began or ended in between is not taken for one that hangs."""
        found: dict[TopicPartition, OpenTransaction] = {}
        for place in places:
            first = self._parts.open_transaction(place)
            if first is not None:
                found[place] = first
        owners = self._owners({one.producer_id for one in found.values()}) if found else {}
        hanging = []
        for place, one in found.items():
            owner = owners.get(one.producer_id)
            if owner is not None and place in owner.places:
                continue
            if self._parts.open_transaction(place) == one:
                name = None if owner is None else owner.transactional_id
                hanging.append(HangingTransaction(*place, one.producer_id, one.epoch, one.start_offset, name))
        return hanging

    def end(self, hanging: HangingTransaction) -> None:
        """See ``Backend.end_hanging``. Takes the topic: ``TopicLockedError``."""
        self._context.check_writable()
        place = TopicPartition(hanging.topic, hanging.partition)
        if self._look_at([place]) != [hanging]:
            raise TransactionStateError(
                f"no transaction of producer {hanging.producer_id} hangs in {place.topic}-{place.partition} at offset "
                f"{hanging.start_offset}",
                hint="look again: logstore transaction find-hanging",
            )
        coordinator = self._offsets.coordinator
        if coordinator is not None and place == OFFSETS_PLACE:
            offsets = coordinator()
            if offsets is not None:
                offsets.end_hanging(hanging.producer_id, hanging.epoch, hanging.start_offset)
            return
        held = self._parts.writer(*place)
        entry = held.producer_entries([hanging.producer_id]).get(hanging.producer_id)
        coordinator_epoch = 0 if entry is None else max(entry.coordinator_epoch, 0)
        now_ms = self._context.clock.wall_ms()
        marker = Marker(hanging.producer_id, hanging.epoch, coordinator_epoch, False, now_ms)
        result_of(held.append_marker(marker, open_since=hanging.start_offset))


def with_name(row: CompactedPartition, owners: Owners) -> CompactedPartition:
    """With the transactional id of what held the compaction back, if that is known."""
    if row.held_by is None:
        return row
    producer_id = row.held_by.producer_id
    try:
        owner = owners([producer_id]).get(producer_id)
    except RetriableError as error:
        if not error.passes:
            raise
        return row  # another process runs the coordinator now: it would have to be asked
    name = None if owner is None else owner.transactional_id
    return replace(row, held_by=row.held_by._replace(transactional_id=name))
