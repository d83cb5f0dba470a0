"""A partition of simulated replicas: one thread, one list of events, every choice by the seed's dice."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from enum import Enum
from typing import NamedTuple

from logstore.errors import LogStoreError
from replication.raft.core import RaftCore
from replication.raft.effects import (
    Append,
    Commit,
    Effect,
    InstallSnapshot,
    ReadFailed,
    RoleChanged,
    Send,
    SendSnapshot,
    StoreVote,
    Truncate,
)
from replication.raft.messages import Message, SnapshotRequest, VoteReply
from replication.raft.types import Membership, NodeId, RaftSettings, Role, Snapshot, VoteState
from tests.replication.sim.checks import Checks
from tests.replication.sim.disk import SimulatedDisk

_TICK = 10  # of the simulator's time


class Turn(Enum):
    """The end of a node's life, or the beginning of its next one."""

    DIES = "dies"
    LIVES = "lives"


class Written(NamedTuple):
    """The log is on the disk up to ``end``, behind an entry of ``term``."""

    end: int
    term: int


class Delivery(NamedTuple):
    """A message on its way, the end of a write, or a turn, of one life of a node."""

    to: NodeId
    life: int
    what: Message | VoteState | Written | Turn


class SimulatedNode:
    """One replica: its disk outlives its core. ``life`` counts its starts."""

    def __init__(self, node_id: NodeId, cluster: SimulatedPartition, membership: Membership | None) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.disk = SimulatedDisk(membership)
        self.life = self.vote_written = 0
        self.alive = False
        self.start()

    def start(self) -> None:
        self.life += 1
        self.alive = True
        randomness = random.Random(self.cluster.dice.random())
        disk = self.disk
        commit = max(disk.commit, disk.base.end_offset)
        self.core = RaftCore(
            self.node_id,
            self.cluster.settings,
            disk.trail(),
            disk,
            disk.vote,
            min(commit, disk.end),
            randomness,
        )
        self.cluster.checks.restarted(self.node_id, self.core.state.commit)

    def crash(self) -> None:
        self.alive = False
        self.disk.crash(self.cluster.dice)

    def carry_out(self, effects: list[Effect]) -> None:
        cluster = self.cluster
        appended = False
        strikes_at = cluster.struck_within(self, effects)
        for number, effect in enumerate(effects):
            if number == strikes_at:
                cluster.strike_early(self)
                if not self.alive:
                    return
            cluster.checks.see(self, effect)
            match effect:
                case StoreVote(state):
                    self.disk.unsynced_vote = state
                    # One write after the other, as any store of votes does.
                    self.vote_written = max(cluster.now, self.vote_written) + cluster.sync_time()
                    cluster.later(self, state, self.vote_written - cluster.now)
                case Truncate(offset):
                    self.disk.truncate(offset)
                    cluster.counts["truncations"] += 1
                case Append(entries):
                    self.disk.append(entries)
                    appended = True
                    self._sync_later()
                case InstallSnapshot(snapshot):
                    self.disk.install(snapshot)
                    self._sync_later()
                    cluster.counts["snapshots installed"] += 1
                case Commit(offset):
                    if cluster.dice.random() < 0.3:
                        self.disk.commit = offset
                    if self.core.state.role is Role.LEADER:
                        cluster.doom(self)
                case SendSnapshot(to, term):
                    self._send_snapshot(to, term)
                case Send(to, message):
                    cluster.post(self.node_id, to, message)
                    if isinstance(message, VoteReply) and message.granted and not message.pre:
                        cluster.doom(self)
                case RoleChanged(role, _, _) if role is Role.LEADER:
                    cluster.doom(self)
                case ReadFailed(read_id, _):
                    cluster.checks.asked.pop((self.node_id, read_id))
                case _:
                    pass
        if appended:
            self.carry_out(self.core.log_appended())

    def _sync_later(self) -> None:
        end = self.disk.end
        self.cluster.later(self, Written(end, self.disk.term_before(end)), self.cluster.sync_time())

    def _send_snapshot(self, to: NodeId, term: int) -> None:
        if self.core.state.term == term:
            base = self.disk.base
            snapshot = Snapshot(base.end_offset, base.epochs, base.membership)
            self.cluster.post(self.node_id, to, SnapshotRequest(self.node_id, term, snapshot))

    def written(self, what: VoteState | Written) -> None:
        """A write that was asked for is durable."""
        if isinstance(what, VoteState):
            if self.disk.unsynced_vote == what:
                self.disk.unsynced_vote = None
            if what >= self.disk.vote:
                self.disk.vote = what
            self.carry_out(self.core.vote_stored(what))
        else:
            end, term = what
            if end <= self.disk.end and self.disk.term_before(end) == term:
                self.disk.sync(end)
                self.carry_out(self.core.log_durable(end, term))


class SimulatedPartition:
    """``nodes`` replicas, ``voters`` of which vote at first; the others come in as learners later on."""

    def __init__(self, seed: int, voters: int = 3, nodes: int = 0) -> None:
        self.dice = random.Random(seed)
        self.settings = RaftSettings(
            election_ticks=10,
            heartbeat_ticks=3,
            max_entries_bytes=self.dice.choice((100, 300)),
            max_inflight=self.dice.choice((1, 4)),
            promote_lag=20,
        )
        self.checks = Checks()
        self.now = 0
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self._order = itertools.count()
        self._queue: list[tuple[int, int, Delivery]] = []
        self._cut: set[tuple[NodeId, NodeId]] = set()
        self._values = itertools.count()
        self._reads = itertools.count()
        self.loss = 0.0
        self.latest = self.dice.choice((200, 800))  # of a message that is late
        self.early = 0.0  # how often a fault strikes a leader within a step, before its first commit
        self.storm = 0.0  # how often a replica dies that has just voted, won or committed
        first = Membership(frozenset(range(voters)))
        self.nodes = {
            node_id: SimulatedNode(node_id, self, first if node_id < voters else None)
            for node_id in range(max(voters, nodes))
        }

    # --- the network and the disks ---

    def struck_within(self, node: SimulatedNode, effects: list[Effect]) -> int:
        """After how many of a step's effects a fault strikes the node, -1: none does. It strikes leaders that have
        committed nothing in their term: they hold what others left, and have sent some of it or not."""
        state = node.core.state
        if not self.early or not effects or state.role is not Role.LEADER or state.has_committed:
            return -1
        return self.dice.randrange(len(effects)) if self.dice.random() < self.early else -1

    def strike_early(self, node: SimulatedNode) -> None:
        """It dies, or is cut off and goes on; those that were away before are there again."""
        self.counts["leaders struck before their first commit"] += 1
        others = [other for other in self.nodes.values() if other is not node]
        if self.dice.random() < 0.3:
            self.cut(set())
            node.crash()
            self.later(node, Turn.LIVES, self.dice.choice((50, 200, 600)))
        else:
            ways = [(node.node_id, other.node_id) for other in others]
            self.cut({*ways, *((to, sender) for sender, to in ways)})
        for other in others:
            if not other.alive:
                other.start()

    def doom(self, node: SimulatedNode) -> None:
        """Perhaps the node dies within moments, and is there again soon after."""
        if self.dice.random() < self.storm:
            dies = self.dice.choice((1, 3, 10, 20))
            self.later(node, Turn.DIES, dies)
            self.later(node, Turn.LIVES, dies + self.dice.choice((1, 10, 50, 200)))

    def later(self, node: SimulatedNode, what: VoteState | Written | Turn, delay: int) -> None:
        event = (self.now + delay, next(self._order), Delivery(node.node_id, node.life, what))
        heapq.heappush(self._queue, event)

    def sync_time(self) -> int:
        return self.dice.choice((1, 2, 5, 40))

    def post(self, sender: NodeId, to: NodeId, message: Message) -> None:
        if to not in self.nodes or (sender, to) in self._cut or self.dice.random() < self.loss:
            self.counts["messages lost"] += 1
            return
        doubles = 0.2 if self.storm else 0.02 if self.loss else 0.0
        copies = 2 if self.dice.random() < doubles else 1
        for _ in range(copies):
            late = 0.3 if self.storm else 0.05
            delay = (
                self.dice.choice((1, 2, 3, 8))
                if self.dice.random() > late
                else self.dice.randint(20, self.latest)
            )
            event = (self.now + delay, next(self._order), Delivery(to, -1, message))
            heapq.heappush(self._queue, event)

    def cut(self, cut: set[tuple[NodeId, NodeId]]) -> None:
        """From now on nothing passes from the first to the second of each."""
        self._cut = cut

    # --- time ---

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            end = self.now + _TICK
            while self._queue and self._queue[0][0] <= end:
                self.now, _, delivery = heapq.heappop(self._queue)
                self._deliver(delivery)
            self.now = end
            for node in self.nodes.values():
                if node.alive:
                    node.carry_out(node.core.tick())
            self.checks.logs_match(list(self.nodes.values()))

    def _deliver(self, delivery: Delivery) -> None:
        node = self.nodes[delivery.to]
        if isinstance(delivery.what, Turn):
            self._turn(node, delivery)
            return
        if not node.alive or delivery.life not in (-1, node.life):
            return
        what = delivery.what
        self.trace.append(f"{self.now} {delivery.to} {what}")
        if isinstance(what, VoteState | Written):
            node.written(what)
        else:
            node.carry_out(node.core.receive(what))

    def _turn(self, node: SimulatedNode, delivery: Delivery) -> None:
        if delivery.life != node.life:
            return
        if delivery.what is Turn.DIES and node.alive:
            node.crash()
            self.counts["crashes in an election"] += 1
        elif delivery.what is Turn.LIVES and not node.alive:
            node.start()

    # --- what callers and operators do ---

    def leader(self) -> SimulatedNode | None:
        """Of the newest term."""
        leaders = [node for node in self.nodes.values() if node.alive and node.core.state.role is Role.LEADER]
        return max(leaders, key=lambda node: node.core.state.term, default=None)

    def leaders(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.alive and node.core.state.role is Role.LEADER]

    def attempt(self, what: str, act: str) -> bool:
        """One of the callers' acts at some leader; whether it was taken."""
        leaders = self.leaders()
        if not leaders:
            return False
        node = self.dice.choice(leaders)
        try:
            getattr(self, act)(node)
        except LogStoreError:
            self.counts[f"{what} refused"] += 1
            return False
        self.counts[what] += 1
        return True

    def propose(self, node: SimulatedNode) -> None:
        batches = [(self.dice.randint(1, 5), next(self._values)) for _ in range(self.dice.randint(1, 3))]
        _, effects = node.core.propose(batches)
        node.carry_out(effects)

    def read(self, node: SimulatedNode) -> None:
        read_id = next(self._reads)
        self.checks.asks(node.node_id, read_id)
        node.carry_out(node.core.read(read_id))

    def change(self, node: SimulatedNode) -> None:
        node.carry_out(node.core.change_membership(self._next_membership(node))[1])

    def _next_membership(self, node: SimulatedNode) -> Membership:
        now = node.core.state.membership
        voters, learners = set(now.voters), set(now.learners)
        outside = sorted(set(self.nodes) - voters - learners)
        choice = self.dice.random()
        if learners and choice < 0.5:
            chosen = self.dice.choice(sorted(learners))
            learners.discard(chosen)
            voters.add(chosen)
        elif outside and choice < 0.8:
            learners.add(self.dice.choice(outside))
        elif len(voters) > 2:
            voters.discard(self.dice.choice(sorted(voters)))
        return Membership(frozenset(voters), frozenset(learners))

    def transfer(self, node: SimulatedNode) -> None:
        others = sorted(node.core.state.membership.voters - {node.node_id})
        if others:
            node.carry_out(node.core.transfer(self.dice.choice(others)))

    def stand(self, count: int) -> None:
        """So many replicas stand at one moment."""
        idle = [one for one in self.nodes.values() if one.alive and one.core.state.role is not Role.LEADER]
        for node in self.dice.sample(idle, min(count, len(idle))):
            node.carry_out(node.core.stand())
        self.counts["elections that met"] += len(idle) > 1

    def retain(self, node: SimulatedNode) -> None:
        """Retention of some replica: records that it shows go."""
        chosen = self.dice.choice([one for one in self.nodes.values() if one.alive])
        position = chosen.core.state.commit - self.dice.randint(0, 20)
        chosen.disk.drop_prefix(position)
        chosen.carry_out(chosen.core.log_start_raised(chosen.disk.base.end_offset))
