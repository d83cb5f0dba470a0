"""``ClusterHandler``: who has and who leads every partition, for a caller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from logstore.api.topics import TopicMetadata
from logstore.errors import InvalidArgumentError
from replication.cluster.duties import MoveProgress
from replication.cluster.view import BrokerInfo, ClusterView
from replication.cluster_status import ClusterStatus, PartitionStatus, ReplicaStatus
from replication.raft.types import NodeId
from replication.transport import METADATA_GROUP, METADATA_TOPIC, GroupId
from rpc.errors import UnsupportedFeatureError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import CLUSTER, Authorizer, Caller, Operation, Resource
from rpc.handlers.engine import Engine
from rpc.wire.cluster import ClusterDescription, PartitionMove, TopicPartitionStatus

_MAX_NODE: Final = (1 << 31) - 1

Gather: TypeAlias = Callable[[Collection[NodeId], float], ClusterStatus]
"""Asks brokers what they lead, for at most so many seconds."""


class ClusterAdministration(Protocol):
    """What administrators ask of the cluster; see ``replication.cluster.controller.Controller``. NotLeaderError where
    another broker is the controller."""

    def add(self, node: NodeId, host: str, port: int) -> None: ...
    def drain(self, node: NodeId, draining: bool = True) -> object: ...
    def remove(self, node: NodeId) -> None: ...
    def reassign(self, wanted: Mapping[tuple[str, int], tuple[NodeId, ...] | None]) -> None: ...
    def progress(self) -> list[MoveProgress]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterPlace:
    """A broker's place in its cluster. ``led``: the partitions that it leads."""

    view: ClusterView
    led: Callable[[], Sequence[PartitionStatus]]
    gather: Gather
    administration: ClusterAdministration


class ClusterHandler:
    """``alone``: what is said of a broker without a ``place``, whose store is ``store_id``."""

    def __init__(
        self,
        engine: Engine,
        blocking: Blocking,
        authorizer: Authorizer,
        store_id: str,
        alone: Callable[[], BrokerInfo],
        place: ClusterPlace | None,
        longest_s: float,
    ) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._store_id = store_id
        self._alone = alone
        self._place = place
        self._longest_s = longest_s

    async def describe(self, caller: Caller, timeout_s: float) -> ClusterDescription:
        """Waits for silent brokers no longer than ``timeout_s``."""
        self._authorizer.check(caller, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER)
        return await self._blocking.run(self._describe, min(max(timeout_s, 0.1), self._longest_s))

    def _describe(self, timeout_s: float) -> ClusterDescription:
        topics = self._engine.topics()
        place = self._place
        if place is None:
            return self._of_one_broker(topics.values())
        view = place.view
        brokers = view.brokers()
        status = place.gather([one.node_id for one in brokers], timeout_s)
        wanted = [
            (topic.name, GroupId(topic.topic_id, number))
            for topic in topics.values()
            for number in range(topic.partitions)
        ]
        found = [
            TopicPartitionStatus(name, status.partitions.get(group) or _leaderless(view, name, group))
            for name, group in wanted
        ]
        metadata = status.partitions.get(METADATA_GROUP)
        if metadata is not None:
            found.append(TopicPartitionStatus(METADATA_TOPIC, metadata))
        controller = view.controller() if metadata is None else metadata.leader
        return ClusterDescription(
            view.cluster_id, view.node_id, controller, brokers, status.silent, sorted(found, key=_in_order)
        )

    # --- administration ---

    async def add(self, caller: Caller, node: NodeId, host: str, port: int) -> None:
        """InvalidArgumentError: what it says is no broker's address."""
        administration = self._altered(caller)
        if not 0 <= node <= _MAX_NODE or not host or not 0 < port <= 65_535:
            raise InvalidArgumentError(
                f"broker {node} at {host[:100]}:{port}: a number of 0 to {_MAX_NODE}, a host and a port are needed"
            )
        await self._blocking.run(administration.add, node, host, port)

    async def drain(self, caller: Caller, node: NodeId, draining: bool) -> None:
        await self._blocking.run(self._altered(caller).drain, node, draining)

    async def remove(self, caller: Caller, node: NodeId) -> None:
        await self._blocking.run(self._altered(caller).remove, node)

    async def reassign(
        self, caller: Caller, wanted: Mapping[tuple[str, int], tuple[NodeId, ...] | None]
    ) -> None:
        await self._blocking.run(self._altered(caller).reassign, wanted)

    async def moves(self, caller: Caller) -> list[PartitionMove]:
        """In the order of topics and numbers."""
        self._authorizer.check(caller, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER)
        place = self._place
        return [] if place is None else await self._blocking.run(self._moves, place)

    def _moves(self, place: ClusterPlace) -> list[PartitionMove]:
        names = {topic.topic_id: topic.name for topic in self._engine.topics().values()}
        found = [
            PartitionMove(names[one.place[0]], one.place[1], one.replicas, one.target, one.lags)
            for one in place.administration.progress()
            if one.place[0] in names
        ]
        return sorted(found, key=lambda one: (one.topic, one.partition))

    def _altered(self, caller: Caller) -> ClusterAdministration:
        """UnsupportedFeatureError where there is no cluster."""
        self._authorizer.check(caller, Operation.ALTER, Resource.CLUSTER, CLUSTER)
        if self._place is None:
            raise UnsupportedFeatureError(
                "this broker is alone: there is no cluster to alter", hint="start brokers with --peers"
            )
        return self._place.administration

    def _of_one_broker(self, topics: Collection[TopicMetadata]) -> ClusterDescription:
        broker = self._alone()
        me = broker.node_id
        replicas = (ReplicaStatus(me, -1, 0, True),)
        found = [
            TopicPartitionStatus(
                topic.name, PartitionStatus(GroupId(topic.topic_id, number), me, -1, -1, replicas)
            )
            for topic in topics
            for number in range(topic.partitions)
        ]
        return ClusterDescription(self._store_id, me, me, [broker], (), sorted(found, key=_in_order))


def _leaderless(view: ClusterView, topic: str, group: GroupId) -> PartitionStatus:
    nodes = sorted(view.replicas_of(topic, group.partition))
    return PartitionStatus(group, -1, -1, -1, tuple(ReplicaStatus(node, -1, -1, False) for node in nodes))


def _in_order(one: TopicPartitionStatus) -> tuple[str, int]:
    return one.topic, one.status.group.partition
