"""``ClusterParts``: what groups and transactions stand on at a node of a cluster, put together."""

from __future__ import annotations

import threading
from collections.abc import Callable

from logstore.coordination.store_view import StoreView
from logstore.coordination.transactional_offsets import OFFSETS_TOPIC
from logstore.directory.producer_ids import ProducerIds
from logstore.errors import UnknownTopicError
from logstore.partition.open_transactions import OpenTransaction
from logstore.partition.partition import Partition
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import TopicPartition
from replication.coordination.coordinator_calls import CoordinatorCalls
from replication.coordination.coordinators import PartitionCoordinators, ReplicatedCoordinators
from replication.coordination.id_locks import NodeIdLocks
from replication.coordination.led_partition import LedPartition
from replication.coordination.liveness import NodeLiveness
from replication.coordination.offset_ends import LeaderEnds
from replication.coordination.partition_calls import MarkerRequest, PartitionCalls
from replication.coordination.routed_partition import RoutedPartition, Router
from replication.coordination.routing import Routing
from replication.coordination.transaction_runtime import ClusterTransactionRuntime
from replication.raft.types import NodeId
from replication.transport import PeerNetwork


class ClusterParts:
    """Thread-safe. ``led``: a partition of an internal topic; ``leader_of``: of any partition, as this node knows it,
    -1: not; ``rack_of``: a broker's rack, "": not said; ``catch_up``: has this node know what the controller knows
    (``ClusterMetadata``); ``note_opened``: the housekeeper has work; ``partitions``: of coordinators' topics that are
    made here; ``pause``: lets others work for so many seconds at the most. ``mark_offsets`` is set by the backend that
    is made of these parts."""

    mark_offsets: Callable[[MarkerRequest], None]

    def __init__(
        self,
        node_id: NodeId,
        store: StoreView,
        registry: TopicRegistry,
        network: PeerNetwork,
        *,
        led: Callable[[TopicPartition], LedPartition],
        leader_of: Callable[[TopicPartition], NodeId],
        rack_of: Callable[[NodeId], str],
        catch_up: Callable[[], None],
        note_opened: Callable[[], None],
        partitions: int,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._registry = registry
        self.network = network
        self.rack_of = rack_of
        self._clock = store.clock
        self._led = led
        self.note_opened = note_opened
        self._guard = threading.Lock()
        self._shards: dict[int, ShardParts] = {}

        def known() -> None:
            catch_up()
            registry.look_for_changes()

        self._catch_up = known
        self.coordinators = ReplicatedCoordinators(store, registry, led, known, partitions)
        self.routing = Routing(node_id, store, leader_of, pause)
        self.calls = PartitionCalls(
            network,
            lambda: registry.catalogue,
            self._partition,
            registry.is_keyed,
            lambda request: self.mark_offsets(request),
        )
        self.coordinator_calls = CoordinatorCalls(network)
        self.router = Router(self.routing, self.calls)
        self.ends = LeaderEnds(node_id, lambda: registry.catalogue, self.calls, leader_of, known)

    def know_of(self, topic: str) -> None:
        """Before it is said that there is no such topic: know what the controller knows."""
        if topic not in self._registry.catalogue.topics:
            self._catch_up()

    def partition(self, topic: str, partition: int) -> Partition:
        """One that a client names, which this node may not have heard of yet. UnknownTopicError, once this node knows
        what the controller knows; LeaderNotReadyError: that cannot be had."""
        try:
            found = self._registry.get(topic)
            if type(partition) is not int or partition < found.entry.partitions:
                return found.partition(partition)
        except UnknownTopicError:
            pass  # it may have been made meanwhile: looked for again below
        self._catch_up()
        return self._partition(topic, partition)

    def _partition(self, topic: str, partition: int) -> Partition:
        return self._registry.get(topic).partition(partition)

    def shard(self, number: int) -> ShardParts:
        """Of the coordinators on the partition of that number."""
        with self._guard:
            found = self._shards.get(number)
            if found is None:
                found = self._shards[number] = ShardParts(self, number, self._clock_of_members(number))
            return found

    def _clock_of_members(self, number: int) -> NodeLiveness:
        def era() -> int:
            place = TopicPartition(OFFSETS_TOPIC, number)
            return self._led(place).term if self._registry.has_seen(OFFSETS_TOPIC) else -1

        return NodeLiveness(self._clock, era)

    def transaction_runtime(
        self, producer_ids: ProducerIds, id_locks: NodeIdLocks
    ) -> ClusterTransactionRuntime:
        return ClusterTransactionRuntime(
            lambda: self._registry.catalogue,
            self._catch_up,
            self.router,
            id_locks,
            producer_ids.take,
            self.note_opened,
        )

    def writer(self, topic: str, partition: int) -> RoutedPartition:
        entry = self._registry.entry(topic)
        entry.live_slot(partition)
        place = TopicPartition(topic, partition)
        return RoutedPartition(self.router, place, entry.topic_id, self._registry.get(topic).config)

    def open_transaction(self, place: TopicPartition) -> OpenTransaction | None:
        self._registry.entry(place.topic).live_slot(place.partition)
        return self.router.first_open(place)


class ShardParts:
    """``CoordinationParts`` of the coordinators on one partition. Thread-safe."""

    owners_return = True

    def __init__(self, parts: ClusterParts, number: int, liveness: NodeLiveness) -> None:
        self._parts = parts
        self._number = number
        self.coordinators: PartitionCoordinators = parts.coordinators.of(number)
        self.ends = parts.ends
        self.liveness = liveness
        self.id_locks = NodeIdLocks()
        self.writer = parts.writer
        self.open_transaction = parts.open_transaction

    def transaction_runtime(self, producer_ids: ProducerIds) -> ClusterTransactionRuntime:
        return self._parts.transaction_runtime(producer_ids, self.id_locks)

    def try_expiry_lock(self) -> Callable[[], None] | None:
        """The node that runs the coordinator looks alone: there is no lock to give back."""
        place = TopicPartition(OFFSETS_TOPIC, self._number)
        return _nothing if self._parts.coordinators.leads(place) else None

    def holder_of(self, transactional_id: str) -> str | None:
        return "a producer of this broker" if self.id_locks.is_held(transactional_id) else None


def _nothing() -> None: ...
