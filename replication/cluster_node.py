"""``ClusterNode``: a broker's part in its cluster, put together: its store, its replicas, the cluster's metadata.

Opening order: the store first, with the catalogue that its directory has; then the log of the metadata and the network;
then the cluster is joined, and the store follows the cluster's catalogue from there on. Closing goes the other way, so
that a directory that was closed in order opens as a store by itself.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from logstore.config import TopicConfig, parse_topic_config
from logstore.directory.catalogue import CatalogueFile, TopicEntry
from logstore.embedded.upkeep_everywhere import OPERATIONS
from logstore.errors import InvariantError, LogStoreError
from logstore.partition.context import StoreContext
from logstore.partition.partition_log import PartitionLog
from logstore.partition.store_replication import CatalogueSource
from logstore.partition.topic import Topic
from logstore.partition.topic_registry import TopicRegistry
from logstore.seams.clock import Clock, SystemClock
from logstore.seams.fs import FileSystem, OsFileSystem
from logstore.seams.step_thread import StepThread
from logstore.store import LogStore
from logstore.types import TopicPartition
from logstore.upkeep.cleaning_manager import CleaningManager
from replication.cluster.beginning import Beginning
from replication.cluster.controller import Controller
from replication.cluster.follower import MetadataFollower
from replication.cluster.identity import IdentityFile
from replication.cluster.image import AccessKey, PeerAddress
from replication.cluster.leader_calls import LeaderCalls
from replication.cluster.machine import AccessChange, Candidates
from replication.cluster.metadata import ClusterMetadata
from replication.cluster.metadata_replica import MetadataReplica
from replication.cluster.peers import KnownPeers
from replication.cluster.replicated_catalogue import ReplicatedCatalogue
from replication.cluster.snapshots import MetadataSnapshots
from replication.cluster.view import BrokerInfo
from replication.cluster_status import StatusGatherer
from replication.coordination.backend import ClusterBackend
from replication.coordination.parts import ClusterParts
from replication.disk_watch import DiskWatch
from replication.errors import LeaderNotReadyError, MetadataConflictError
from replication.everywhere import Everywhere, wait_until
from replication.node import ReplicationNode
from replication.node_lock import lock_node
from replication.node_settings import NodeSettings
from replication.partition import ReplicatedPartition
from replication.raft.types import NO_NODE, NodeId
from replication.replicas.replica import Replica
from replication.replicas.replica_manager import ReplicaManager
from replication.replicas.standalone_log import StandaloneLog
from replication.sessions import BrokerSessions
from replication.transport import (
    METADATA_GROUP,
    METADATA_TOPIC,
    ClusterNetwork,
    GroupId,
    Presence,
)

logger = logging.getLogger(__name__)

_METADATA_CONFIG: Final = {"segment.bytes": str(2 << 20), "cleanup.policy": "compact"}
_ADJUST_S: Final = 1.0
_STAND_S: Final = 0.05
_GATHER_S: Final = 2.0
_SILENT_S: Final = 3.0
_CATCH_UP_S: Final = 60.0
_LEADERS_S: Final = 5.0
"""How long a new topic's leaders are waited for before its making is answered."""


class ClusterNode:
    """``StoreReplication``, and ``ClusterView`` of its cluster. Thread-safe once ``start`` has returned.

    ``store``: served by ``engine``; both there after ``start``. ``sessions``: tells when another process is this
    broker: this one leads nothing and says nothing from then on, and is to be closed. ``local_access``:
    users and rules of the directory, which the cluster takes over when it joins.
    """

    store: LogStore
    engine: ClusterBackend
    metadata: ClusterMetadata
    gatherer: StatusGatherer
    administration: Controller
    _context: StoreContext
    _registry: TopicRegistry
    _manager: ReplicaManager

    def __init__(
        self,
        data: str,
        settings: NodeSettings,
        network: ClusterNetwork,
        *,
        store_settings: dict[str, Any] | None = None,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        randomness: random.Random | None = None,
        local_access: Callable[[], Mapping[AccessKey, Any]] = dict,
    ) -> None:
        self.settings = settings
        self.node_id = settings.node_id
        self._data = data
        self._network = network
        self._store_settings = store_settings or {}
        self._clock = clock or SystemClock()
        self._given_fs = fs
        self._local_access = local_access
        self._randomness = randomness or random.Random(os.urandom(16))
        self._leaders_moved = 0
        self._joined = False  # the metadata here are not older than this node's registration
        self._moved = threading.Condition()
        self._adjusting = threading.Lock()
        self._adjuster = StepThread("logstore-replicas", self._adjust, enabled=True)
        self._follower: MetadataFollower | None = None
        self._undo: list[Callable[[], object]] = []
        self.node = ReplicationNode(
            settings.node_id,
            network,
            self._clock,
            self._randomness,
            tick_s=settings.tick_s,
            silent_s=settings.raft.election_ticks * settings.tick_s,
            on_change=self._note_change,
            recovery_bytes_s=settings.recovery_bytes_s,
            together_from=settings.together_from,
        )
        self.sessions = self.node.sessions = BrokerSessions(
            Presence(settings.node_id, self.node.incarnation),
            network,
            self._clock,
            silent_s=settings.raft.election_ticks * settings.tick_s,
        )
        self.sessions.when_superseded(lambda _: self._adjuster.wake())

    # --- opening ---

    def start(self) -> None:
        """Open, join, and serve what this node leads. Errors: those of ``logstore.open``; TopicLockedError: another
        process is this node; DuplicateBrokerError: another one is, with another directory or a copy of this one;
        ClusterMismatchError: the directory is another node's, or of another cluster;
        NotLeaderError, LeaderNotReadyError: no majority of the metadata's voters was found in time."""
        try:
            self._open_store()
            self._open_metadata()
            self.gatherer = StatusGatherer(self.node, self._network)
            self._everywhere = Everywhere(self._network, self._others, self._follow)
            for operation in OPERATIONS:
                self._network.serve(operation, partial(self._upkeep, operation))
            self._open_controller()
            self.metadata.serve()
            self._beginning.serve()
            self.node.start()
            self._undo.append(self.node.close)
            self._peers.follow(self.metadata.follower.newest())
            self.sessions.follow(self.metadata.follower.newest())
            self._join()
        except BaseException:
            self.close()
            raise

    def _open_store(self) -> None:
        self.store = LogStore(
            self._data,
            fs=self._given_fs,
            clock=self._clock,
            replication=self,
            random_bytes=self._randomness.randbytes,
            **self._store_settings,
        )
        self.node.disk = DiskWatch(self.store.fs, self.store.root, self._clock)
        self._undo.append(self.store.close)
        self._undo.insert(0, lock_node(self._context))

    def _open_metadata(self) -> None:
        settings, fs, root = self.settings, self.store.fs, self.store.root
        self._identity.draw_directory_id(self._randomness.randbytes)
        config = parse_topic_config(_METADATA_CONFIG)
        self._metadata_replica = MetadataReplica(
            self.node, settings, fs, root, config, self._clock, self._randomness
        )
        files = self._metadata_replica.files
        self._undo.append(files.close)
        self._peers = KnownPeers(
            self.node_id, settings.peers, self._network, lambda: self.node.replica(METADATA_GROUP)
        )
        self._beginning = Beginning(
            self.node_id,
            settings.voters,
            self._identity,
            lambda: self.node.replica(METADATA_GROUP),
            self._network,
            self._clock,
            peers=lambda: self._peers.of_metadata,
            learn=self._peers.learn,
        )
        held = self.metadata_partition(config, files)
        follower = self._follower = MetadataFollower(held, self._clock)
        self._undo.append(follower.close)
        snapshots = MetadataSnapshots(
            follower,
            partial(self.node.replica, METADATA_GROUP),
            files,
            self._clock,
            least_bytes=settings.snapshot_bytes,
        )
        follower.subscribe(snapshots.follow)
        follower.subscribe(self._peers.follow)
        follower.subscribe(self.sessions.follow)
        self.metadata = ClusterMetadata(
            self.node_id,
            self._context,
            held,
            follower,
            self._network,
            candidates=self._candidates,
            random_bytes=self._randomness.randbytes,
            peers=sorted(settings.voters),
            incumbent=self.sessions.incumbent,
        )
        self._catalogue.metadata = self.metadata

    def _open_controller(self) -> None:
        calls = LeaderCalls(self.node_id, self._network, self.node)
        calls.serve()
        self.administration = Controller(
            self.metadata,
            lambda brokers: self.gatherer.gather(brokers, _GATHER_S),
            calls,
            self._candidates,
            self._clock,
            self._beginning.probe,
            settings=self.settings.controller,
        )

    def metadata_partition(self, config: TopicConfig, files: StandaloneLog) -> ReplicatedPartition:
        return ReplicatedPartition(
            METADATA_TOPIC,
            0,
            lambda: config,
            self._clock,
            lambda: self.node.replica(METADATA_GROUP),
            lambda: NO_NODE,
            check=self._context.check_usable,
            save_state=files.save_state,
            follower_reads=True,
        )

    def _join(self) -> None:
        settings, catalogue, follower = self.settings, self._catalogue, self.metadata.follower
        self._beginning.settle(settings.join_timeout_s)
        identity = self._identity.identity
        broker, cluster_id = self.metadata.register(
            settings.host,
            settings.port,
            settings.rack,
            identity.cluster_id or None,
            settings.join_timeout_s,
            directory_id=identity.directory_id,
            held_back=self._beginning.is_held_back,
            peer=PeerAddress(*settings.peers[self.node_id]) if settings.peers else None,
            incarnation=self.node.incarnation,
        )
        self.sessions.registered(broker.epoch)
        self._identity.take_up(cluster_id)
        self._network.take_cluster_id(cluster_id)
        if not identity.joined:
            local = catalogue.local()
            if local.topics or local.producers:
                revision = self.metadata.import_catalogue(local, settings.join_timeout_s)
                follower.wait_for(revision, settings.join_timeout_s)
            if access := self._local_access():
                follower.wait_for(
                    self.metadata.import_access(access, settings.join_timeout_s), settings.join_timeout_s
                )
            catalogue.joined()
        self.metadata.catch_up(settings.join_timeout_s)
        self._joined = True
        self._registry.look_around()
        self.store.pin_all()
        follower.subscribe(lambda _: self._adjuster.wake())
        follower.start()
        self._undo.append(self._adjuster.close)
        self._adjuster.start()
        self._undo.append(self.administration.close)
        self.administration.start()

    # --- as the replication of its store ---

    def partition(self, topic: Topic, number: int) -> ReplicatedPartition:
        return self._manager.partition(topic, number)

    def catalogue(self, local: CatalogueFile) -> CatalogueSource:
        root = os.path.dirname(local.path)
        fs = self._given_fs or OsFileSystem()
        self._identity = IdentityFile(fs, root, self.node_id)
        self._catalogue = ReplicatedCatalogue(fs, root, local, self._identity, self._clock, self._leave)
        return self._catalogue

    def backend(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        partition: Callable[[str, int], PartitionLog],
        cleaning: CleaningManager,
    ) -> ClusterBackend:
        """The store's housekeeper works before the store is open: what it may ask of this node is here first."""
        self._context, self._registry = context, registry
        self._manager = ReplicaManager(
            self.node,
            self.settings.raft,
            context.fs,
            context.root,
            self._clock,
            check=context.check_usable,
            leader_hint=lambda topic, number: self.leader_of(topic, number)[0],
            lag_s=self.settings.lag_s,
        )
        parts = ClusterParts(
            self.node_id,
            context,
            registry,
            self._network,
            led=self._internal,
            leader_of=lambda place: self.leader_of(*place)[0],
            rack_of=lambda node: next((one.rack for one in self.brokers() if one.node_id == node), ""),
            catch_up=self._catch_up,
            note_opened=context.note_owned,
            partitions=self.settings.coordinators,
        )
        self.engine = ClusterBackend(context, registry, partition, cleaning, parts)
        return self.engine

    def _catch_up(self) -> None:
        if self._follower is None:
            raise LeaderNotReadyError("this node has not joined its cluster yet")
        self.metadata.catch_up(self._context.lock_timeout_s)

    def _internal(self, place: TopicPartition) -> ReplicatedPartition:
        """A partition of a coordinators' topic."""
        return self._manager.partition(self._registry.get(place.topic), place.partition)

    def leaders(self, entry: TopicEntry) -> tuple[tuple[NodeId, ...], tuple[int, ...]]:
        """(leader, term) of each partition, for clients."""
        found = [self._leader(GroupId(entry.topic_id, number)) for number in range(entry.partitions)]
        return tuple(leader for leader, _ in found), tuple(term for _, term in found)

    def leaders_moved(self) -> int:
        """Goes up whenever ``leaders`` may answer differently."""
        return self._leaders_moved

    def _leave(self, entry: TopicEntry) -> None:
        """The cluster has deleted the topic."""
        for number in range(entry.partitions):
            self.node.remove(GroupId(entry.topic_id, number))

    # --- replicas ---

    def _adjust(self) -> float:
        """Have the replicas that the metadata say; seconds until the next look."""
        if not self._joined:
            return _ADJUST_S
        if self.sessions.superseded is not None:
            self.node.close()
            return _ADJUST_S
        with self._adjusting:
            try:
                self._registry.look_around()
                image = self.metadata.follower.image
                vacated = {GroupId(*place) for place, nodes in image.vacated.items() if self.node_id in nodes}
                self._manager.adjust(self._registry, image.wanted_on(self.node_id), vacated)
            except LogStoreError as error:
                logger.error("replicas of this node could not be looked at: %s", error)
            self._metadata_replica.look()
        self.node.look_at_disk()
        self._peers.look()
        with self._moved:
            self._moved.notify_all()
        return _STAND_S if self._manager.stand_again() else _ADJUST_S

    def _note_change(self, replica: Replica) -> None:
        if replica.where.startswith("__") and replica.group != METADATA_GROUP:
            self.engine.note_leaders()  # it may be a coordinator's
        self._leaders_moved += 1
        if self._moved.acquire(blocking=False):  # else its waiter looks again soon enough
            self._moved.notify_all()
            self._moved.release()

    def settle(self, topic: str) -> None:
        """See ``Leadership``."""
        self._everywhere.tell(self.metadata.follower.newest().revision)
        deadline_s = self._clock.monotonic_s() + _LEADERS_S
        self._adjuster.wake()
        while True:
            entry = self._registry.catalogue.topics.get(topic)
            if entry is None or NO_NODE not in self.leaders(entry)[0]:
                return
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            with self._moved:
                self._moved.wait(min(left_s, 0.05))

    def _follow(self, revision: int) -> None:
        """Know the metadata up to there, and have made what they say, when this returns."""
        self.metadata.follower.wait_for(revision, _LEADERS_S)
        self._adjust()

    # --- work at all brokers ---

    def _upkeep(self, operation: str, node: NodeId, request: bytes) -> bytes:
        del node
        if self.engine.everywhere is None:
            raise InvariantError("a cluster's node does upkeep for others")
        return self.engine.everywhere.answer(operation, request)

    def leaders_of(self, topic: str) -> Sequence[NodeId]:
        return self.leaders(self._registry.entry(topic))[0]

    def away_from(self, topic: str) -> Sequence[NodeId]:
        entry, image = self._registry.entry(topic), self.metadata.follower.newest()
        holders = {
            node for number in range(entry.partitions) for node in image.holders_of(entry.topic_id, number)
        }
        return sorted(node for node in holders if not self._is_alive(node))

    def ends_of(self, topic: str) -> Mapping[int, int]:
        entry = self._registry.entry(topic)
        status = self.gatherer.gather([one.node_id for one in self.brokers()], _LEADERS_S)
        return {
            group.partition: max(one.end_offset for one in found.replicas)
            for group, found in status.partitions.items()
            if group.topic_id == entry.topic_id
        }

    def await_records(self, topic: str, ends: Mapping[int, int]) -> None:
        entry = self._registry.entry(topic)
        for number, end in ends.items():
            replica = self.node.replica(GroupId(entry.topic_id, number))
            if replica is None:
                continue
            log = replica.log
            if not wait_until(lambda: log.high_watermark >= end, _CATCH_UP_S, self._clock.monotonic_s):  # noqa: B023
                raise LeaderNotReadyError(
                    f"node {self.node_id} has {log.where} up to offset {log.high_watermark}, {end} is due"
                )

    def everywhere(self, operation: str, request: bytes) -> Callable[[], Mapping[NodeId, bytes]]:
        return self._everywhere.ask(operation, request)

    def heard(self, operation: str, request: bytes) -> Mapping[NodeId, bytes]:
        return self._everywhere.hear(operation, request)

    def _others(self) -> list[NodeId]:
        return [one.node_id for one in self.brokers() if one.alive and one.node_id != self.node_id]

    # --- who may do what ---

    def access(self) -> Mapping[AccessKey, Any]:
        """Users and rules of the cluster, as this node has followed them; another object once they are others."""
        return self.metadata.follower.image.access

    def change_access(self, changes: Sequence[AccessChange], timeout_s: float) -> None:
        """In force here when it returns, and at all nodes in a moment. MetadataConflictError: decide anew, with what is
        known here then; errors as ``ClusterMetadata.change_access``."""
        try:
            revision = self.metadata.change_access(changes, timeout_s)
        except MetadataConflictError:
            self.metadata.catch_up(timeout_s)
            raise
        self.metadata.follower.wait_for(revision, timeout_s)

    # --- the view ---

    @property
    def cluster_id(self) -> str:
        return self.metadata.follower.image.cluster_id

    def brokers(self) -> Sequence[BrokerInfo]:
        brokers = self.metadata.follower.image.brokers
        return [
            BrokerInfo(one.node_id, one.host, one.port, one.rack, self._is_alive(one.node_id))
            for one in sorted(brokers.values())
        ]

    def _is_alive(self, node: NodeId) -> bool:
        now_s = self._clock.monotonic_s()
        return node == self.node_id or now_s - self.node.last_heard_s(node) <= _SILENT_S

    def _candidates(self) -> Candidates:
        replica = self.node.replica(METADATA_GROUP)
        voters = self.settings.voters if replica is None else replica.membership.voters
        known = {*voters, *self.metadata.follower.image.brokers}
        alive = [node for node in known if self._is_alive(node) and not self.node.disk_refuses(node)]
        return Candidates(expected=voters, alive=alive)

    def controller(self) -> NodeId:
        return self.metadata.controller

    def leader_of(self, topic: str, partition: int) -> tuple[NodeId, int]:
        entry = self._registry.entry(topic)
        return self._leader(GroupId(entry.topic_id, partition))

    def _leader(self, group: GroupId) -> tuple[NodeId, int]:
        """Of a group without a replica here its preferred leader, who says who it really is."""
        replica = self.node.replica(group)
        if replica is not None and replica.leader_id != NO_NODE:
            return replica.leader_id, replica.term
        if replica is not None:
            return NO_NODE, -1
        replicas = () if self._follower is None else self._follower.image.replicas_of(*group)
        if not replicas or self.node_id in replicas:
            return NO_NODE, -1
        return replicas[0], -1

    def replicas_of(self, topic: str, partition: int) -> Sequence[NodeId]:
        entry = self._registry.entry(topic)
        return self.metadata.follower.image.replicas_of(entry.topic_id, partition)

    # --- the end ---

    def hand_over(self, timeout_s: float = 5.0) -> None:
        """Have others lead what this node leads, as far as they can, before it stops."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        self.engine.step_down()
        while self.node.hand_over() and self._clock.monotonic_s() < deadline_s:
            with self._moved:
                self._moved.wait(0.1)

    def close(self) -> None:
        """End what runs, and close what was opened, in order. Safe to call again. The first failure is raised, after
        everything is closed."""
        failures: list[LogStoreError] = []
        while self._undo:
            undo = self._undo.pop()
            try:
                undo()
            except LogStoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]
