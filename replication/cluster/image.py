"""``ClusterImage``: the cluster's metadata as a value: topics and producers, brokers, and who has which replica.

Its methods return a changed image, and raise the named error of a change that is not allowed. The catalogue in it is
that of ``logstore.directory.catalogue``; its store id is the cluster's id, and its slots mean nothing: each node gives
slots of its own directory (``replicated_catalogue.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from logstore.directory.catalogue import Catalogue
from logstore.errors import UnknownPartitionError
from replication.cluster.placement import Load, Replicas
from replication.errors import UnknownBrokerError
from replication.raft.types import NodeId
from replication.transport import GroupId

TopicId: TypeAlias = str
Place: TypeAlias = tuple[TopicId, int]
"""A partition, by the id of its topic."""

METADATA_VERSION: Final = 1
FEATURE: Final = "metadata.version"
_K = TypeVar("_K")
_V = TypeVar("_V")


class BrokerRegistration(NamedTuple):
    """``epoch``: the revision of the metadata at its newest registration: a process that registered under an older one
    is that broker no more. ``draining``: it gets no replicas, and is to give up those that it has. ``directory_id``,
    ``incarnation``: of its newest registration; 0: its process did not say (an older version)."""

    node_id: NodeId
    host: str
    port: int
    rack: str = ""
    epoch: int = 0
    draining: bool = False
    directory_id: str = ""
    incarnation: int = 0


class PeerAddress(NamedTuple):
    """Where a node listens for its peers. ``removed``: it was removed from the cluster, and is no peer; the address is
    forgotten then."""

    host: str
    port: int
    removed: bool = False


REMOVED: Final = PeerAddress("", 0, True)

AccessKey: TypeAlias = tuple[str, str]
"""(kind, name) of a piece of who may do what: users and rules, which mean something to brokers alone."""


def _none() -> Mapping[_K, _V]:
    return MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterImage:
    """``catalogue``: its revision goes up with every change of anything here. ``replicas``: topic id -> replicas of
    each partition, preferred leader first; ``targets``: what a partition is to have instead, while it moves;
    ``leaving``: nodes of targets that were given up, which its group may have as members until it is seen not to;
    ``vacated``: nodes whose replica of a partition, or of the metadata, was in a directory that was exchanged, until
    its group has counted them out as voters once; ``peers``: where nodes listen for each other, those that were
    added and have not registered yet among them; ``access``: users and rules, as JSON's values."""

    catalogue: Catalogue = field(default_factory=lambda: Catalogue(store_id=""))
    features: Mapping[str, int] = field(default_factory=_none)
    brokers: Mapping[NodeId, BrokerRegistration] = field(default_factory=_none)
    replicas: Mapping[TopicId, Sequence[Replicas]] = field(default_factory=_none)
    targets: Mapping[Place, Replicas] = field(default_factory=_none)
    leaving: Mapping[Place, frozenset[NodeId]] = field(default_factory=_none)
    vacated: Mapping[Place, frozenset[NodeId]] = field(default_factory=_none)
    peers: Mapping[NodeId, PeerAddress] = field(default_factory=_none)
    access: Mapping[AccessKey, Any] = field(default_factory=_none)

    @property
    def cluster_id(self) -> str:
        """Empty before the cluster was begun."""
        return self.catalogue.store_id

    @property
    def revision(self) -> int:
        return self.catalogue.revision

    # --- looking ---

    def replicas_of(self, topic_id: TopicId, partition: int) -> Replicas:
        """Empty where there is no such partition."""
        of = self.replicas.get(topic_id, ())
        return of[partition] if 0 <= partition < len(of) else ()

    def holders_of(self, topic_id: TopicId, partition: int) -> Replicas:
        """Its replicas, those that it is to get, and those that its group is still to give up."""
        place = (topic_id, partition)
        now = self.replicas_of(*place)
        leaving = sorted(self.leaving.get(place, ()))
        return tuple(dict.fromkeys((*now, *self.targets.get(place, ()), *leaving)))

    def places(self) -> Iterator[tuple[Place, Replicas]]:
        for topic_id, partitions in self.replicas.items():
            for number, replicas in enumerate(partitions):
                yield (topic_id, number), replicas

    def places_on(self, node: NodeId) -> list[Place]:
        """Partitions of which the node has a replica, or is to get one."""
        return [place for place, _ in self.places() if node in self.holders_of(*place)]

    def wanted_on(self, node: NodeId) -> dict[GroupId, tuple[str, Replicas]]:
        """The replicas that the node is to have: the topic's name, and who has the partition as far as it is known."""
        names = {entry.topic_id: name for name, entry in self.catalogue.topics.items()}
        return {
            GroupId(*place): (names[place[0]], self.replicas_of(*place))
            for place in self.places_on(node)
            if place[0] in names
        }

    def load(self) -> Load:
        return Load.of(replicas for _, replicas in self.places())

    def name_of(self, topic_id: TopicId) -> str | None:
        """Of a topic that there is."""
        for name, entry in self.catalogue.topics.items():
            if entry.topic_id == topic_id:
                return name
        return None

    def broker(self, node: NodeId) -> BrokerRegistration:
        """UnknownBrokerError."""
        found = self.brokers.get(node)
        if found is None:
            known = ", ".join(map(str, sorted(self.brokers))) or "none"
            raise UnknownBrokerError(
                f"there is no broker {node!r} in the cluster", hint=f"its brokers: {known}"
            )
        return found

    @property
    def removed(self) -> frozenset[NodeId]:
        """Nodes that were removed, and not added again."""
        return frozenset(node for node, address in self.peers.items() if address.removed)

    # --- changing ---

    def with_catalogue(self, catalogue: Catalogue) -> ClusterImage:
        return replace(self, catalogue=catalogue)

    def with_features(self, features: Mapping[str, int]) -> ClusterImage:
        return replace(self, features=MappingProxyType(dict(sorted(features.items()))))

    def with_broker(self, broker: BrokerRegistration) -> ClusterImage:
        return replace(self, brokers=MappingProxyType({**self.brokers, broker.node_id: broker}))

    def without_broker(self, node: NodeId) -> ClusterImage:
        self.broker(node)
        after = replace(self, brokers=_without(self.brokers, node)).with_peer(node, REMOVED)
        for place, nodes in self.vacated.items():
            after = after.with_vacated(place, nodes - {node})
        return after

    def with_peer(self, node: NodeId, address: PeerAddress) -> ClusterImage:
        return replace(self, peers=MappingProxyType({**self.peers, node: address}))

    def with_access(self, changes: Mapping[AccessKey, Any]) -> ClusterImage:
        """None: the piece is gone."""
        kept = {key: value for key, value in {**self.access, **changes}.items() if value is not None}
        return replace(self, access=MappingProxyType(kept))

    def with_vacated(self, place: Place, nodes: frozenset[NodeId]) -> ClusterImage:
        """Empty: none of its replicas is held back."""
        if self.vacated.get(place, frozenset()) == nodes:
            return self
        rest = _without(self.vacated, place)
        return replace(self, vacated=MappingProxyType({**rest, place: nodes}) if nodes else rest)

    def with_topic_replicas(self, topic_id: TopicId, partitions: Sequence[Replicas]) -> ClusterImage:
        """Of all partitions of a topic; none of them moves then."""
        cleared = self.without_topic_replicas(topic_id)
        return replace(cleared, replicas=MappingProxyType({**cleared.replicas, topic_id: tuple(partitions)}))

    def without_topic_replicas(self, topic_id: TopicId) -> ClusterImage:
        return replace(
            self,
            replicas=_without(self.replicas, topic_id),
            targets=_without_topic(self.targets, topic_id),
            leaving=_without_topic(self.leaving, topic_id),
            vacated=_without_topic(self.vacated, topic_id),
        )

    def with_more_replicas(self, topic_id: TopicId, more: Sequence[Replicas]) -> ClusterImage:
        """Of partitions that were added."""
        grown = (*self.replicas.get(topic_id, ()), *more)
        return replace(self, replicas=MappingProxyType({**self.replicas, topic_id: grown}))

    def with_replicas(self, place: Place, replicas: Replicas) -> ClusterImage:
        """Of one partition. UnknownPartitionError."""
        self._check(place)
        topic_id, number = place
        of = list(self.replicas[topic_id])
        of[number] = replicas
        return replace(self, replicas=MappingProxyType({**self.replicas, topic_id: tuple(of)}))

    def with_target(self, place: Place, target: Replicas | None) -> ClusterImage:
        """None: it has what it is to have. What another target has brought in is to leave. UnknownPartitionError."""
        self._check(place)
        wanted = {*self.replicas_of(*place), *(target or ())}
        leaving = frozenset(self.holders_of(*place)) - wanted
        rest = _without(self.targets, place)
        after = replace(self, targets=rest if target is None else MappingProxyType({**rest, place: target}))
        return after.with_leaving(place, leaving)

    def with_leaving(self, place: Place, nodes: frozenset[NodeId]) -> ClusterImage:
        """Empty: its group has none but those that it is to have."""
        if self.leaving.get(place, frozenset()) == nodes:
            return self
        rest = _without(self.leaving, place)
        return replace(self, leaving=MappingProxyType({**rest, place: nodes}) if nodes else rest)

    def _check(self, place: Place) -> None:
        if not self.replicas_of(*place):
            raise UnknownPartitionError(f"the cluster has no partition {place[1]} of topic id {place[0]!r}")


def _without(mapping: Mapping[_K, _V], key: _K) -> Mapping[_K, _V]:
    return MappingProxyType({other: value for other, value in mapping.items() if other != key})


def _without_topic(mapping: Mapping[Place, _V], topic_id: TopicId) -> Mapping[Place, _V]:
    return MappingProxyType({place: value for place, value in mapping.items() if place[0] != topic_id})
