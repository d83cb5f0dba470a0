"""``ClusterMachine``: the state machine of ``__cluster_metadata``: decide purely, change only by replay.

Every decision is made as a changed ``ClusterImage``; its records are the difference (``records.py``). The controller,
the leader of the metadata group, decides; every node replays what is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from logstore.config import parse_topic_config
from logstore.directory.catalogue import Catalogue, TopicEntry, is_uuid
from logstore.directory.named_producers import NamedProducer
from logstore.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    TopicExistsError,
    UnknownPartitionError,
)
from logstore.machine import Change, Decision
from replication.cluster import placement
from replication.cluster.changes import CatalogueChange, TopicCreated, applied
from replication.cluster.image import (
    FEATURE,
    METADATA_VERSION,
    AccessKey,
    BrokerRegistration,
    ClusterImage,
    PeerAddress,
    Place,
    TopicId,
)
from replication.cluster.placement import DEFAULT_FACTOR, Replicas, Spot
from replication.cluster.records import CHUNK, Counters, decode_record, records_between
from replication.errors import (
    BrokerExistsError,
    BrokerInUseError,
    ClusterMismatchError,
    DuplicateBrokerError,
    InvalidReplicasError,
    InvalidReplicationFactorError,
    MetadataConflictError,
    RemovedBrokerError,
)
from replication.raft.types import NodeId
from replication.transport import METADATA_GROUP

Reply = TypeVar("Reply")
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Brokers that new replicas may go to, as the controller knows them beside the metadata: ``expected``: those of the
    metadata group, registered or not yet; ``alive``: heard of lately, and with disks that write: they go first."""

    expected: Collection[NodeId] = ()
    alive: Collection[NodeId] = ()


ANYWHERE: Final = Candidates()


class Incumbent(Enum):
    """What is known of the process that is registered as a broker, when another one wants to be it. ``LIVES``: it was
    heard of a moment ago; ``DOUBTFUL``: it may live, as it was heard of lately, or the node that is asked began to
    listen lately."""

    GONE = 0
    DOUBTFUL = 1
    LIVES = 2


def check_incumbent(known: BrokerRegistration, directory_id: str, incumbent: Incumbent) -> None:
    """DuplicateBrokerError. A process that comes with the broker's own directory has mostly been started anew, so that
    a doubt counts for it; the replicas of one that comes with another are given up for it, so that it waits."""
    if known.incarnation == 0 or incumbent is Incumbent.GONE:
        return
    same = directory_id == known.directory_id
    if same and incumbent is Incumbent.DOUBTFUL:
        return
    raise DuplicateBrokerError(
        f"another process is broker {known.node_id}, at {known.host}:{known.port}, "
        + ("with a copy of this directory" if same else "with another directory")
        + (", and it lives" if incumbent is Incumbent.LIVES else ", and it may live")
    )


class AccessChange(NamedTuple):
    """Of one piece of who may do what. None: there is none."""

    key: AccessKey
    before: Any
    after: Any


class ClusterMachine:
    """A ``logstore.machine.StateMachine``. Not thread-safe: its owner serialises calls.

    ``ignored_records``: replayed ones of kinds and versions that this code does not know.
    """

    def __init__(self) -> None:
        self.ignored_records = 0
        self._cluster_id = ""
        self._features: Mapping[str, int] = {}
        self._counters = Counters()
        self._topics: dict[str, TopicEntry] = {}
        self._replicas: dict[TopicId, list[Replicas]] = {}
        self._targets: dict[Place, Replicas] = {}
        self._leaving: dict[Place, frozenset[NodeId]] = {}
        self._vacated: dict[Place, frozenset[NodeId]] = {}
        self._brokers: dict[NodeId, BrokerRegistration] = {}
        self._peers: dict[NodeId, PeerAddress] = {}
        self._access: dict[AccessKey, Any] = {}
        self._frozen_access: Mapping[AccessKey, Any] | None = None
        self._producers: dict[str, NamedProducer] = {}
        self._image: ClusterImage | None = None

    @property
    def image(self) -> ClusterImage:
        """The state now; the same object until it changes."""
        if self._image is None:
            counters = self._counters
            self._image = ClusterImage(
                catalogue=Catalogue(
                    store_id=self._cluster_id,
                    revision=counters.revision,
                    topics=_frozen(self._topics),
                    next_lock_slot=counters.next_lock_slot,
                    next_live_slot=counters.next_live_slot,
                    next_producer_id=counters.next_producer_id,
                    producers=_frozen(self._producers),
                ),
                features=_frozen(self._features),
                brokers=_frozen(self._brokers),
                replicas=MappingProxyType(
                    {topic_id: tuple(partitions) for topic_id, partitions in self._replicas.items()}
                ),
                targets=_frozen(self._targets),
                leaving=_frozen(self._leaving),
                vacated=_frozen(self._vacated),
                peers=_frozen(self._peers),
                access=self._access_now(),
            )
        return self._image

    def _access_now(self) -> Mapping[AccessKey, Any]:
        """The same object until it is another one: brokers make their rules of it."""
        if self._frozen_access is None:
            self._frozen_access = _frozen(self._access)
        return self._frozen_access

    def _decided(self, after: ClusterImage, reply: Reply) -> Decision[Reply]:
        """The records of a change, whatever it is, raise the revision by one."""
        before = self.image
        records = records_between(before, after.with_catalogue(_at(after.catalogue, before.revision)))
        if not records:
            return Decision((), reply)
        changed = after.with_catalogue(_at(after.catalogue, before.revision + 1))
        return Decision(records_between(before, changed), reply)

    # --- the cluster ---

    def decide_begin(self, cluster_id: str) -> Decision[str]:
        """Give the cluster its id, unless it has one; the one that it has then."""
        if self._cluster_id:
            return Decision((), self._cluster_id)
        if not is_uuid(cluster_id):
            raise InvalidArgumentError(f"cluster id {cluster_id!r} is no uuid in base64url")
        image = self.image
        begun = image.with_catalogue(replace(image.catalogue, store_id=cluster_id))
        return self._decided(begun.with_features({FEATURE: METADATA_VERSION}), cluster_id)

    def decide_register_broker(
        self,
        node_id: NodeId,
        host: str,
        port: int,
        rack: str,
        cluster_id: str | None,
        *,
        directory_id: str = "",
        held_back: bool = False,
        peer: PeerAddress | None = None,
        incarnation: int = 0,
        incumbent: Incumbent = Incumbent.GONE,
    ) -> Decision[BrokerRegistration]:
        """A broker that starts; what it is under a new epoch. ``cluster_id``: of its directory, None: it was in no
        cluster yet; ``held_back``: it does not know what it promised in the metadata's group. With another directory
        than before all replicas that it has are vacated. ``peer``: where it listens for its peers. ``incarnation``: of
        its process, 0: it does not say; one that is registered asks again for want of the answer. ``incumbent``: what
        is known of the process that is registered. ClusterMismatchError, RemovedBrokerError, DuplicateBrokerError."""
        if cluster_id is not None and cluster_id != self._cluster_id:
            raise ClusterMismatchError(
                f"broker {node_id} is of cluster {cluster_id}, this is cluster {self._cluster_id}",
                hint="give it an empty directory, or its own cluster's peers",
            )
        if node_id in self.image.removed:
            raise RemovedBrokerError(f"broker {node_id} was removed from cluster {self._cluster_id}")
        known = self._brokers.get(node_id)
        if known is not None and incarnation:
            if known.incarnation == incarnation:
                return Decision((), known)
            check_incumbent(known, directory_id, incumbent)
        # By the revision, so that a number that was removed and given again does not count from the beginning.
        epoch = max(self.image.revision, -1 if known is None else known.epoch) + 1
        draining = known is not None and known.draining
        broker = BrokerRegistration(
            node_id, host, port, rack, epoch, draining, directory_id, incarnation=incarnation
        )
        after = self.image.with_broker(broker)
        if peer is not None:
            after = after.with_peer(node_id, peer)
        places: list[Place] = []
        if known is not None and known.directory_id not in ("", directory_id):
            places = [*after.places_on(node_id), METADATA_GROUP]
        elif held_back:
            places = [METADATA_GROUP]
        for place in places:
            after = after.with_vacated(place, after.vacated.get(place, frozenset()) | {node_id})
        return self._decided(after, broker)

    def decide_add_broker(self, node_id: NodeId, peer: PeerAddress) -> Decision[None]:
        """A broker that is about to register listens there for its peers. BrokerExistsError."""
        self.check_addable(node_id, peer)
        return self._decided(self.image.with_peer(node_id, peer), None)

    def check_addable(self, node_id: NodeId, peer: PeerAddress) -> None:
        """BrokerExistsError."""
        image = self.image
        if node_id in image.brokers:
            raise BrokerExistsError(
                f"the cluster has a broker {node_id}",
                hint="give the new one another number; or remove the other one first",
            )
        for other, address in image.peers.items():
            if other != node_id and address == peer:
                raise BrokerExistsError(f"broker {other} listens for its peers at {peer.host}:{peer.port}")

    def decide_readmitted(self, place: Place, node: NodeId) -> Decision[None]:
        """The controller's own word: the place's group has counted the node out as a voter."""
        image = self.image
        nodes = image.vacated.get(place, frozenset())
        return self._decided(image.with_vacated(place, nodes - {node}), None)

    def decide_unregister_broker(self, node_id: NodeId) -> Decision[None]:
        """Forget a broker that has no replicas. UnknownBrokerError, BrokerInUseError."""
        image = self.image
        image.broker(node_id)
        held = image.places_on(node_id)
        if held:
            raise BrokerInUseError(
                f"broker {node_id} has {len(held)} replicas",
                hint="drain it first, and wait until they have moved",
            )
        return self._decided(image.without_broker(node_id), None)

    def decide_drain(self, node_id: NodeId, draining: bool) -> Decision[BrokerRegistration]:
        """From now on it gets no replicas; or may again. UnknownBrokerError."""
        image = self.image
        broker = image.broker(node_id)._replace(draining=draining)
        return self._decided(image.with_broker(broker), broker)

    # --- who may do what ---

    def decide_access(self, changes: Sequence[AccessChange]) -> Decision[int]:
        """All of them, or none; the revision from which on they count. What is in already is no change.
        MetadataConflictError: a piece is another one by now."""
        image = self.image
        for change in changes:
            now = image.access.get(change.key)
            if now not in (change.before, change.after):
                raise MetadataConflictError(f"{' '.join(change.key)[:200]!r} was changed meanwhile")
        return self._with_access({change.key: change.after for change in changes})

    def decide_import_access(self, access: Mapping[AccessKey, Any]) -> Decision[int]:
        """As ``decide_access``: take over those that the cluster does not have."""
        known = self.image.access
        return self._with_access({key: value for key, value in access.items() if key not in known})

    def _with_access(self, changes: Mapping[AccessKey, Any]) -> Decision[int]:
        image = self.image
        decision = self._decided(image.with_access(changes), image.revision)
        return replace(decision, reply=image.revision + bool(decision.records))

    # --- topics and producers ---

    def decide_changes(
        self,
        changes: Sequence[CatalogueChange],
        replication_factor: int | None = None,
        candidates: Candidates = ANYWHERE,
    ) -> Decision[int]:
        """All of them, or none; the revision from which on they are seen. ``replication_factor``: of topics that are
        made, None: 3, or as many as there are brokers.

        MetadataConflictError, InvalidReplicationFactorError, InvalidConfigError, and errors of the catalogue.
        """
        image = self.image
        for change in changes:
            if isinstance(change, TopicCreated):
                parse_topic_config(change.config)
        catalogue = applied(image.catalogue, changes)
        if catalogue is image.catalogue:
            return Decision((), image.revision)
        after = image.with_catalogue(catalogue)
        for name, entry in image.catalogue.topics.items():
            now = catalogue.topics.get(name)
            if now is None or now.topic_id != entry.topic_id:
                after = after.without_topic_replicas(entry.topic_id)
        for name, entry in catalogue.topics.items():
            if len(after.replicas.get(entry.topic_id, ())) < entry.partitions:
                after = self._placed(after, name, entry, replication_factor, candidates)
        return self._decided(after, image.revision + 1)

    def _placed(
        self,
        image: ClusterImage,
        name: str,
        entry: TopicEntry,
        factor: int | None,
        candidates: Candidates,
    ) -> ClusterImage:
        """With replicas for those partitions of the topic that have none yet."""
        present = image.replicas.get(entry.topic_id, ())
        if present:
            factor = max(len(one) for one in present)  # partitions that are added are as safe as the others
        spots = self.spots(candidates)
        if factor is None:
            factor = min(DEFAULT_FACTOR, max(len(spots), 1))
        if not 1 <= factor <= len(spots):
            raise InvalidReplicationFactorError(
                f"topic {name!r} cannot have {factor} replicas of each partition: {len(spots)} brokers can take some",
                hint=f"use 1 to {len(spots)}, or add brokers" if spots else "start a broker first",
            )
        alive = [spot for spot in spots if spot.node_id in candidates.alive]
        more = placement.place(
            alive if len(alive) >= factor else spots,
            entry.partitions - len(present),
            factor,
            seed=image.revision,
            present=present,
            overall=image.load(),
        )
        return image.with_more_replicas(entry.topic_id, more)

    def spots(self, candidates: Candidates = ANYWHERE) -> list[Spot]:
        """Brokers that may get replicas."""
        spots = {node: Spot(node) for node in candidates.expected}
        spots |= {one.node_id: Spot(one.node_id, one.rack) for one in self._brokers.values()}
        draining = {one.node_id for one in self._brokers.values() if one.draining}
        return [spots[node] for node in sorted(spots) if node not in draining | self.image.removed]

    def decide_import(self, node_id: NodeId, catalogue: Catalogue) -> Decision[int]:
        """Take over the topics and producers of a directory that was in no cluster: that node has their only replica.
        The revision from which on they are seen.

        TopicExistsError: the cluster has another topic of one's name; InvalidArgumentError: both have given producer
        ids away. What is in already is passed over.
        """
        image = self.image
        own = image.catalogue
        topics = [one for one in catalogue.topics.values() if not _is_in(own, one)]
        new_ids = any(name not in own.producers for name in catalogue.producers) or topics
        if new_ids and own.next_producer_id and catalogue.next_producer_id:
            raise InvalidArgumentError(
                f"the directory of node {node_id} and its cluster have both given away producer ids",
                hint="let a directory with topics be the first of its cluster, before anything is written there",
            )
        merged = replace(
            own,
            next_producer_id=max(own.next_producer_id, catalogue.next_producer_id),
            producers=MappingProxyType({**own.producers, **catalogue.producers}),
        )
        after = image
        for entry in sorted(topics, key=lambda one: one.lock_slot):
            merged = merged.with_topic(
                entry.name,
                topic_id=entry.topic_id,
                partitions=entry.partitions,
                config=entry.config,
                created_ms=entry.created_ms,
                internal=entry.internal,
            )
            after = after.with_topic_replicas(entry.topic_id, [(node_id,)] * entry.partitions)
        decision = self._decided(after.with_catalogue(merged), image.revision)
        return replace(decision, reply=image.revision + bool(decision.records))

    # --- replicas that move ---

    def decide_reassign(self, wanted: Mapping[tuple[str, int], Replicas | None]) -> Decision[int]:
        """Let partitions, (topic, partition), move to other replicas; None: no further, so that one which moves goes
        back to those that it had. The revision. UnknownTopicError, UnknownPartitionError, UnknownBrokerError,
        InvalidReplicasError."""
        image = self.image
        after = image
        for (topic, partition), replicas in wanted.items():
            entry = image.catalogue.topic(topic)
            place = (entry.topic_id, partition)
            now = image.replicas_of(*place)
            if not now:
                raise UnknownPartitionError(
                    f"topic {topic!r} has no partition {partition}",
                    hint=f"its partitions are 0 to {entry.partitions - 1}",
                )
            if replicas is not None:
                self._check_replicas(replicas, f"{topic}-{partition}")
            target = now if replicas is None else replicas
            if target != now or place in image.targets:
                after = after.with_target(place, target)
        return self._decided(after, image.revision + 1)

    def _check_replicas(self, replicas: Replicas, where: str) -> None:
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidReplicasError(
                f"{where} cannot have the replicas {list(replicas)}",
                hint="name at least one broker, each once",
            )
        for node in replicas:
            self.image.broker(node)

    def decide_moved(self, place: Place, replicas: Replicas, *, done: bool) -> Decision[int]:
        """The controller's own word on a move: these have the partition now; ``done``: and that was the aim. A place
        that is gone is passed over."""
        image = self.image
        if not image.replicas_of(*place):
            return Decision((), image.revision)
        after = image.with_replicas(place, replicas)
        if done:
            after = after.with_target(place, None).with_leaving(place, frozenset())
        after = after.with_vacated(place, after.vacated.get(place, frozenset()) & {*after.holders_of(*place)})
        return self._decided(after, image.revision + 1)

    # --- replay ---

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """InvalidRecordError, DamagedStoreError: it says what cannot be."""
        record = decode_record(key, value)
        if record is None:
            self.ignored_records += 1
            return
        self._image = None
        kind, key_fields, content = record
        match kind:
            case "cluster":
                self._cluster_id, self._features = ("", {}) if content is None else content
            case "counters":
                self._counters = Counters() if content is None else content
            case "topic":
                _put(self._topics, key_fields[0], content)
            case "replicas":
                self._put_chunk(key_fields[0], key_fields[1], content)
            case "target":
                _put(self._targets, (key_fields[0], key_fields[1]), content)
            case "leaving":
                _put(self._leaving, (key_fields[0], key_fields[1]), content)
            case "vacated":
                _put(self._vacated, (key_fields[0], key_fields[1]), content)
            case "broker":
                _put(self._brokers, key_fields[0], content)
            case "access":
                _put(self._access, (key_fields[0], key_fields[1]), content)
                self._frozen_access = None
            case "peer":
                _put(self._peers, key_fields[0], content)
            case "producer":
                _put(self._producers, key_fields[0], content)

    def _put_chunk(self, topic_id: TopicId, first: int, content: Sequence[Replicas] | None) -> None:
        """Chunks come in any order where the log was compacted: those before it are not known yet then."""
        of = self._replicas.setdefault(topic_id, [])
        chunk = [] if content is None else list(content)
        of += [()] * (first - len(of))
        of[first : first + CHUNK] = chunk
        while of and not of[-1]:
            del of[-1]
        if not of:
            del self._replicas[topic_id]

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        del epoch, key, value
        raise InvalidRecordError(f"metadata of the cluster in a transaction of producer {producer_id}")

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        del epoch, committed
        raise InvalidRecordError(f"a marker of producer {producer_id} among the metadata of the cluster")

    def snapshot(self) -> tuple[Change, ...]:
        """Records that make this state of an empty one."""
        return records_between(ClusterImage(), self.image)


def _at(catalogue: Catalogue, revision: int) -> Catalogue:
    return catalogue if catalogue.revision == revision else replace(catalogue, revision=revision)


def _is_in(catalogue: Catalogue, entry: TopicEntry) -> bool:
    """TopicExistsError: another one has its name."""
    there = catalogue.topics.get(entry.name)
    if there is not None and there.topic_id != entry.topic_id:
        raise TopicExistsError(
            f"the cluster has another topic {entry.name!r} than the directory that joins it",
            hint="copy one of them under another name first",
        )
    return there is not None


def _put(into: dict[_K, Any], key: _K, value: Any) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value


def _frozen(mapping: Mapping[_K, _V]) -> Mapping[_K, _V]:
    return MappingProxyType(dict(mapping))
