"""``ClusterParts``: what groups and transactions stand on at a node of a cluster, put together."""

from __future__ import annotations

from collections.abc import Callable

from logstore.coordination.store_view import StoreView
from logstore.directory.producer_ids import ProducerIds
from logstore.embedded.groups import OFFSETS_TOPIC
from logstore.partition.open_transactions import OpenTransaction
from logstore.partition.partition import Partition
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import TopicPartition
from replication.coordination.coordinators import ReplicatedCoordinators
from replication.coordination.id_locks import NodeIdLocks
from replication.coordination.led_partition import LedPartition
from replication.coordination.liveness import NodeLiveness
from replication.coordination.offset_ends import LeaderEnds
from replication.coordination.partition_calls import PartitionCalls
from replication.coordination.routed_partition import RoutedPartition, Router
from replication.coordination.transaction_runtime import ClusterTransactionRuntime
from replication.raft.types import NodeId
from replication.transport import PeerNetwork


class ClusterParts:
    """``CoordinationParts``. Thread-safe. ``led``: an internal topic's only partition; ``leader_of``: of any partition,
    as this node knows it, -1: not; ``rack_of``: a broker's rack, "": not said; ``catch_up``: has this node know what
    the controller knows (``ClusterMetadata``); ``note_opened``: the housekeeper has work; ``pause``: lets others work
    for so many seconds at the most."""

    def __init__(
        self,
        node_id: NodeId,
        store: StoreView,
        registry: TopicRegistry,
        network: PeerNetwork,
        *,
        led: Callable[[str], LedPartition],
        leader_of: Callable[[TopicPartition], NodeId],
        rack_of: Callable[[NodeId], str],
        catch_up: Callable[[], None],
        note_opened: Callable[[], None],
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._registry = registry
        self.rack_of = rack_of
        self._note_opened = note_opened

        def known() -> None:
            catch_up()
            registry.look_for_changes()

        self._catch_up = known
        self.coordinators = ReplicatedCoordinators(store, registry, led, known)
        self.calls = PartitionCalls(network, lambda: registry.catalogue, self._partition, registry.is_keyed)
        self.router = Router(node_id, store, self.calls, leader_of, pause)
        self.ends = LeaderEnds(node_id, lambda: registry.catalogue, self.calls, leader_of, known)
        self.liveness = NodeLiveness(store.clock, lambda: self._era(led))
        self.id_locks = NodeIdLocks()

    def serve(self) -> None:
        """Answer other nodes. Before the network is started."""
        self.calls.serve()

    def _partition(self, topic: str, partition: int) -> Partition:
        return self._registry.get(topic).partition(partition)

    def _era(self, led: Callable[[str], LedPartition]) -> int:
        return led(OFFSETS_TOPIC).term if self._registry.has_seen(OFFSETS_TOPIC) else -1

    def transaction_runtime(self, producer_ids: ProducerIds) -> ClusterTransactionRuntime:
        return ClusterTransactionRuntime(
            lambda: self._registry.catalogue,
            self._catch_up,
            self.router,
            self.id_locks,
            producer_ids.take,
            self._note_opened,
        )

    def writer(self, topic: str, partition: int) -> RoutedPartition:
        entry = self._registry.entry(topic)
        entry.live_slot(partition)
        place = TopicPartition(topic, partition)
        return RoutedPartition(self.router, place, entry.topic_id, self._registry.get(topic).config)

    def open_transaction(self, place: TopicPartition) -> OpenTransaction | None:
        self._registry.entry(place.topic).live_slot(place.partition)
        return self.router.first_open(place)

    def try_expiry_lock(self) -> Callable[[], None] | None:
        return _nothing if self.coordinators.may_look_for_expired() else None

    def holder_of(self, transactional_id: str) -> str | None:
        return "a producer of this broker" if self.id_locks.is_held(transactional_id) else None


def _nothing() -> None:
    """The one that runs the coordinator looks alone: there is no lock to give back."""
