"""``Replicas``: a few cores side by side whose messages and writes a test passes on one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from replication.raft.core import RaftCore
from replication.raft.effects import (
    Append,
    Commit,
    Effect,
    InstallSnapshot,
    Send,
    SendSnapshot,
    StoreVote,
    Truncate,
)
from replication.raft.messages import Message, SnapshotRequest
from replication.raft.types import Entry, Membership, NodeId, RaftSettings, Role, VoteState
from tests.replication.sim.disk import SimulatedDisk

ELECTION = 10


class Replica:
    """``effects``: all so far. ``slow``: writes become durable only when the test says ``sync``."""

    def __init__(self, node_id: NodeId, disk: SimulatedDisk, settings: RaftSettings) -> None:
        self.node_id = node_id
        self.disk = disk
        self.slow = False
        self.effects: list[Effect] = []
        self.outbox: list[tuple[NodeId, Message]] = []
        self._votes: list[VoteState] = []
        self._settings = settings
        self.start()

    def start(self) -> None:
        """As after a crash that took what was not synced."""
        disk = self.disk
        disk.log = [entry for entry in disk.log if entry.end_offset <= disk.durable_end]
        self.outbox.clear()
        self._votes.clear()
        self.core = RaftCore(
            self.node_id,
            self._settings,
            disk.trail(),
            disk,
            disk.vote,
            disk.commit,
            random.Random(self.node_id),
        )

    @property
    def role(self) -> Role:
        return self.core.state.role

    @property
    def log(self) -> list[tuple[int, int]]:
        """(term, base offset) of every entry."""
        return [(entry.term, entry.base_offset) for entry in self.disk.log]

    def do(self, effects: Iterable[Effect]) -> None:
        appended = False
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case StoreVote(state):
                    self._votes.append(state)
                case Truncate(offset):
                    self.disk.truncate(offset)
                case Append(entries):
                    self.disk.append(entries)
                    appended = True
                case InstallSnapshot(snapshot):
                    self.disk.install(snapshot)
                case Commit(offset):
                    self.disk.commit = offset
                case SendSnapshot(to, term):
                    self.outbox.append((to, SnapshotRequest(self.node_id, term, self.disk.base)))
                case Send(to, message):
                    self.outbox.append((to, message))
                case _:
                    pass
        if appended:
            self.do(self.core.log_appended())
        if not self.slow:
            self.sync()

    def sync(self) -> None:
        """All that was written is durable now."""
        while self._votes:
            vote = self._votes.pop(0)
            self.disk.vote = vote
            self.do(self.core.vote_stored(vote))
        end = self.disk.end
        if end > self.core.state.durable:
            self.disk.sync(end)
            self.do(self.core.log_durable(end, self.disk.term_before(end)))

    def receive(self, message: Message) -> None:
        self.do(self.core.receive(message))

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.do(self.core.tick())

    def stand(self) -> None:
        """Let time pass until it stands for election; nobody else's does."""
        for _ in range(3 * ELECTION):
            if self.role is not Role.FOLLOWER:
                return
            self.tick()

    def propose(self, count: int = 1, data: Any = None) -> Entry:
        entries, effects = self.core.propose([(count, data)])
        self.do(effects)
        return entries[0]


class Replicas:
    """``logs``: terms of the entries that each replica begins with, one offset each."""

    def __init__(self, count: int = 3, logs: dict[NodeId, list[int]] | None = None, **settings: Any) -> None:
        self.settings = RaftSettings(election_ticks=ELECTION, **settings)
        membership = Membership(frozenset(range(count)))
        self.all: list[Replica] = []
        for node_id in range(count):
            disk = SimulatedDisk(membership)
            for offset, term in enumerate((logs or {}).get(node_id, [])):
                disk.append((Entry(offset, offset + 1, term, data=(term, offset)),))
            disk.sync(disk.end)
            disk.vote = VoteState(max((entry.term for entry in disk.log), default=0))
            self.all.append(Replica(node_id, disk, self.settings))

    def __getitem__(self, node_id: NodeId) -> Replica:
        return self.all[node_id]

    def pass_on(
        self, among: Iterable[NodeId] | None = None, only: Callable[[Message], bool] = lambda message: True
    ) -> None:
        """Deliver until nothing is on its way; what goes to or comes from others than ``among`` is lost."""
        reached = set(range(len(self.all)) if among is None else among)
        while any(replica.outbox for replica in self.all):
            for replica in self.all:
                posted, replica.outbox = replica.outbox, []
                for to, message in posted:
                    if replica.node_id in reached and to in reached and only(message):
                        self[to].receive(message)

    def elect(self, node_id: NodeId, among: Iterable[NodeId] | None = None) -> Replica:
        """Have it elected by those that it reaches."""
        replica = self[node_id]
        for other in self.all:
            other.core.state.leader_id = -1 if other.role is not Role.LEADER else other.core.state.leader_id
        replica.stand()
        self.pass_on(among)
        return replica


def led() -> tuple[Replicas, Replica]:
    """Three of them, and the first one, which leads."""
    group = Replicas(3)
    leader = group[0]
    leader.stand()
    group.pass_on()
    assert leader.role is Role.LEADER
    return group, leader
