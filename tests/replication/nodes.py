"""Nodes of a cluster in one process, on file systems and a network in memory, driven by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from logstore.config import TopicConfig
from logstore.format.batch import decode_batches, encode_batch
from logstore.log.append_validation import own_batch
from logstore.seams.clock import ManualClock
from logstore.seams.memory_crash import Chooser, KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import Acks
from replication.disk_watch import DiskWatch
from replication.errors import PeerUnavailableError
from replication.memory_network import MemoryNetwork
from replication.node import ReplicationNode
from replication.partition import ReplicatedPartition
from replication.raft.types import Membership, RaftSettings
from replication.replicas.pending import Awaited, ReplicatedAppend
from replication.replicas.replica import Replica
from replication.replicas.standalone_log import StandaloneLog
from replication.replicas.vote_store import VoteStore
from replication.transport import GroupId

GROUP = GroupId("BBBBBBBBBBBBBBBBBBBBBB", 0)
SETTINGS = RaftSettings(silent_on_empty=True)
NOW_MS = 1_700_000_000_000
TICK_S = 0.05


class ClusterNode:
    """One node with one replica, which can be stopped, killed and started on the same disk."""

    def __init__(self, nodes: Nodes, node_id: int) -> None:
        self.nodes = nodes
        self.node_id = node_id
        self.fs = MemoryFileSystem()
        self.fs.mkdir("/store")
        self.fs.sync_dir("/")
        self.boot = 0
        self.alive = False
        self.held_back = False  # of a replica that is made now
        self.start()

    def start(self) -> None:
        nodes = self.nodes
        seed = nodes.dice.random()
        clock = nodes.clock_of(self)
        self.node = ReplicationNode(
            self.node_id,
            nodes.network.line(self.node_id),
            clock,
            random.Random(seed),
            threads=False,
            recovery_bytes_s=nodes.recovery_bytes_s,
        )
        self.node.disk = DiskWatch(self.fs, "/store", clock)
        self.node.help = partial(self._help, self.boot)
        self.files = StandaloneLog(
            self.fs,
            "/store",
            "t",
            GROUP.topic_id,
            nodes.config,
            clock,
            nodes.membership,
            held_back=self.held_back,
            keeps_state=nodes.keeps_state,
        )
        self.replica = Replica(
            GROUP,
            self.node_id,
            self.files.log,
            self.files.votes,
            self.files.members,
            nodes.settings,
            self.node,
            random.Random(seed + 1),
            fs=self.fs,
            open_votes=partial(VoteStore.open, self.fs, self.files.directory),
            save_state=self.files.save_state,
            lag_s=2.0,
            states=self.files.states,
            recovery=self.node.recovery,
        )
        self.node.add(self.replica)
        self.node.start()
        self.alive = True
        self.partition = ReplicatedPartition(
            "t",
            0,
            lambda: nodes.config,
            clock,
            lambda: self.replica if self.alive else None,
            lambda: -1,
            check=lambda: None,
            save_state=self.files.save_state,
        )

    def _help(self, boot: int, what: Awaited) -> None:
        """Let time go on until it is done. PeerUnavailableError: the node died before, and what it had waiting."""
        self.nodes.run(lambda: what.done or self.boot != boot)
        if not what.done:
            raise PeerUnavailableError(f"node {self.node_id} died while it was waited for")

    def stop(self) -> None:
        """In order."""
        self.alive = False
        self.node.close()
        self.files.close()

    def kill(self, chooser: Chooser | None = None) -> None:
        """The machine loses its power: of what was not synced ``chooser`` says what is left."""
        self.alive = False
        self.nodes.network.lines[self.node_id].closed = True
        self.fs = self.fs.crash(chooser or KeepNothing())
        self.boot += 1

    # --- what it holds ---

    def values(self, end: int | None = None) -> list[tuple[int, bytes]]:
        """(offset, value) of the records below ``end``, else of those that its readers see."""
        log = self.files.log
        return self.values_between(log.log_start_offset, log.high_watermark if end is None else end)

    def values_between(self, start: int, end: int) -> list[tuple[int, bytes]]:
        log, offset = self.files.log, start
        found: list[tuple[int, bytes]] = []
        while offset < end and (chunk := log.read(offset, 1 << 20, end)) is not None:
            records = decode_batches(bytes(chunk.data), "t", 0, start_offset=start, end_offset=end)
            found += [(record.offset, record.value or b"") for record in records]
            offset = chunk.next_offset
        return found


class _Clock(ManualClock):
    def __init__(self, nodes: Nodes, node: ClusterNode) -> None:
        super().__init__(NOW_MS)
        self._nodes = nodes
        self._boot = f"{node.node_id}.{node.boot}"

    def wall_ms(self) -> int:
        return NOW_MS + int(self._nodes.now_s * 1000)

    def monotonic_s(self) -> float:
        return self._nodes.now_s

    def boot_id(self) -> str:
        return self._boot


class Nodes:
    """``count`` nodes, which are voters all; ``learners``: more of them, which are not."""

    def __init__(
        self,
        count: int = 3,
        *,
        seed: int = 0,
        learners: int = 0,
        settings: RaftSettings = SETTINGS,
        config: TopicConfig | None = None,
        keeps_state: bool = False,
        recovery_bytes_s: float = 0.0,
    ) -> None:
        self.recovery_bytes_s = recovery_bytes_s
        self.keeps_state = keeps_state
        self.dice = random.Random(seed)
        self.settings = settings
        self.config = config or TopicConfig()
        self.now_s = 100.0
        self._ticks = 0
        self.network = self.make_network()
        self.membership = Membership(frozenset(range(1, count + 1)))
        self.nodes = {number: ClusterNode(self, number) for number in range(1, count + learners + 1)}

    def make_network(self) -> MemoryNetwork:
        return MemoryNetwork()

    def clock_of(self, node: ClusterNode) -> ManualClock:
        return _Clock(self, node)

    def __getitem__(self, node_id: int) -> ClusterNode:
        return self.nodes[node_id]

    @property
    def living(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.alive]

    def leaders(self) -> list[ClusterNode]:
        return [node for node in self.living if node.replica.is_leader]

    # --- time ---

    def settle(self) -> None:
        """Deliver and sync until nothing is left to do at this moment."""
        busy = True
        while busy:
            busy = self.network.step()
            for node in self.living:
                busy = node.node.sync_waiting() or busy

    def tick(self) -> None:
        self.now_s += TICK_S
        self._ticks += 1
        for node in self.living:
            node.node.tick()
            if self._ticks % 20 == 0:
                node.node.look_at_disk()
        self.settle()

    def run(self, until: Callable[[], object], most: int = 400) -> None:
        """Let time go on until something is so. AssertionError: it never was."""
        self.settle()
        for _ in range(most):
            if until():
                return
            self.tick()
        raise AssertionError(f"it did not come to it within {most} ticks")

    def leader(self) -> ClusterNode:
        """The one leader, once all that live agree on it."""

        def agreed() -> bool:
            leaders = self.leaders()
            if len(leaders) != 1:
                return False
            members = leaders[0].replica.membership
            return all(
                node.replica.leader_id == leaders[0].node_id
                for node in self.living
                if node.node_id in members and node.replica.failure is None
            )

        self.run(agreed)
        return self.leaders()[0]

    # --- records ---

    def append(self, node: ClusterNode, *values: bytes, acks: Acks = "all") -> ReplicatedAppend:
        data = encode_batch([(None, value) for value in values], now_ms=NOW_MS)
        return node.partition.append([own_batch(data)], acks)

    def committed(self, *values: bytes) -> ReplicatedAppend:
        """Records that are committed when this returns."""
        append = self.append(self.leader(), *values)
        self.run(lambda: append.done)
        assert append.error is None, append.error
        return append

    def agree(self) -> list[tuple[int, bytes]]:
        """What all living nodes show, once all of them show all."""
        leader = self.leader()
        end = leader.files.log.log_end_offset
        self.run(lambda: all(node.files.log.high_watermark == end for node in self.living))
        start = max(node.files.log.log_start_offset for node in self.living)
        shown = [node.values_between(start, end) for node in self.living]
        assert all(one == shown[0] for one in shown), "nodes show different records"
        return shown[0]


def values_of(found: Sequence[tuple[int, bytes]]) -> list[bytes]:
    return [value for _, value in found]
