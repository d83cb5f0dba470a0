"""Nodes whose metadata a Raft group in memory keeps, driven by hand; each has a directory that follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logstore.directory.catalogue import CatalogueFile, TopicEntry, encode_uuid
from logstore.ownership.wait_limit import WaitLimit
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from replication.cluster.follower import MetadataFollower
from replication.cluster.identity import IdentityFile
from replication.cluster.machine import Candidates
from replication.cluster.metadata import ClusterMetadata
from replication.cluster.replicated_catalogue import ReplicatedCatalogue
from replication.partition import ReplicatedPartition
from tests.replication.nodes import Nodes


@dataclass
class NodeView:
    """``StoreView`` of a node in a test."""

    clock: ManualClock
    read_only: bool = False
    lock_timeout_s: float = 20.0
    threads: bool = False
    offsets_retention_s: float = 3600.0

    def __post_init__(self) -> None:
        self.wait_limit = WaitLimit(self.clock)

    def check_usable(self) -> None:
        """Always."""

    def check_writable(self) -> None:
        """Always."""


@dataclass
class Member:
    """One node's part. ``left``: topics that were told to be leaving."""

    metadata: ClusterMetadata
    follower: MetadataFollower
    catalogue: ReplicatedCatalogue
    identity: IdentityFile
    fs: MemoryFileSystem
    left: list[str] = field(default_factory=list)


class Cluster:
    """``count`` nodes, the metadata's voters."""

    def __init__(self, count: int = 3) -> None:
        self.nodes = Nodes(count)
        self.alive: Callable[[], set[int]] = lambda: {node.node_id for node in self.nodes.living}
        self.members = {number: self.member(number) for number in self.nodes.nodes}

    def member(self, number: int, fs: MemoryFileSystem | None = None) -> Member:
        node = self.nodes[number]
        clock = self.nodes.clock_of(node)
        partition = ReplicatedPartition(
            "__cluster_metadata",
            0,
            lambda: self.nodes.config,
            clock,
            lambda: node.replica if node.alive else None,
            lambda: -1,
            check=lambda: None,
            save_state=node.files.save_state,
            follower_reads=True,
        )
        follower = MetadataFollower(partition, clock, threads=False, pause=lambda _: self.nodes.tick())
        metadata = ClusterMetadata(
            number,
            NodeView(clock),
            partition,
            follower,
            self.nodes.network.lines[number],
            candidates=lambda: Candidates(expected=tuple(self.nodes.nodes), alive=self.alive()),
            random_bytes=lambda size: bytes([number] * size),
            pause=lambda _: self.nodes.tick(),
        )
        metadata.serve()
        if fs is None:
            fs = MemoryFileSystem()
            fs.mkdir("/data")
            fs.sync_dir("/")
        identity = IdentityFile(fs, "/data", number)
        left: list[str] = []

        def leaving(entry: TopicEntry) -> None:
            left.append(entry.name)

        catalogue = ReplicatedCatalogue(fs, "/data", CatalogueFile(fs, "/data"), identity, clock, leaving)
        if not fs.listdir("/data"):
            catalogue.create(encode_uuid(bytes([100 + number] * 16)))
        catalogue.metadata = metadata
        return Member(metadata, follower, catalogue, identity, fs, left)

    def __getitem__(self, number: int) -> Member:
        return self.members[number]

    def controller(self) -> Member:
        return self.members[self.nodes.leader().node_id]

    def others(self) -> list[Member]:
        leader = self.nodes.leader().node_id
        return [
            member for number, member in self.members.items() if number != leader and self.nodes[number].alive
        ]

    def settle(self) -> None:
        """Every living node has followed all."""
        self.nodes.agree()
        for number, member in self.members.items():
            if self.nodes[number].alive:
                member.catalogue.load()

    def register_all(self) -> None:
        for number, member in self.members.items():
            _, cluster_id = member.metadata.register(f"host{number}", 9092, "", None, 20.0)
            member.identity.take_up(cluster_id)
            member.catalogue.joined()
