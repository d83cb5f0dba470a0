"""``ReplicationNode``: all replicas of one node, what drives them, and their way to those of other nodes.

Three kinds of threads: one gives ticks, a few make votes and logs durable (where many wait, all of them together:
``replica_round.py``), and the network's own threads deliver messages. With ``threads=False`` there are none: the node's
owner calls ``tick`` and ``sync_waiting``, and a run is a function of its seed.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from logstore.errors import LogStoreError
from logstore.seams.clock import Clock
from logstore.seams.step_thread import StepThread
from replication.deliveries import Deliveries
from replication.disk_watch import DiskWatch
from replication.raft.messages import NodeBeat
from replication.raft.types import NO_NODE, NodeId
from replication.recovery_budget import RecoveryBudget
from replication.replicas.pending import Awaited
from replication.replicas.replica import Replica
from replication.replicas.replica_round import sync_replicas
from replication.resting import Resting
from replication.transport import NO_GROUP, GroupId, GroupMessage, PeerNetwork

logger = logging.getLogger(__name__)

TOGETHER_FROM: Final = 6
_SYNC_THREADS: Final = 8
_SYNCED_AT_ONCE: Final = 512
_ROUNDS: Final = 2
"""Syncs under way at a time where many logs want some."""
_BEAT_TICKS: Final = 5
_LOOK_TICKS: Final = 20
_LATE_TICKS: Final = 2
"""A tick that comes later than that after the one before: this node did not run meanwhile, or not as it should."""
_PATIENCE: Final = 5
"""For so many times ``silent_s`` a node that this one is behind with does not count as silent."""


class Sessions(Protocol):
    """``BrokerSessions``, as the node tells it."""

    def beat(self, node: NodeId, incarnation: int) -> None: ...

    def excuse(self, for_s: float) -> None: ...


class ReplicationNode:
    """Thread-safe. ``tick_s``: the time between ticks; ``silent_s``: after how long without a word of a node it counts
    as gone, for what rests on it (``resting.py``); ``recovery_bytes_s``: how much peers that are not in sync
    are sent, 0: as much as goes; ``on_change``: told, with a replica's lock held, when the
    replica has another role or leader: must not wait. ``disk``: set before the replicas come; None: nothing is known of
    it. ``sessions``: told which processes are heard of, set before the start. ``together_from``: from how many logs on
    that wait for a sync all of them are synced together."""

    def __init__(
        self,
        node_id: NodeId,
        network: PeerNetwork,
        clock: Clock,
        randomness: random.Random,
        *,
        tick_s: float = 0.05,
        silent_s: float = 1.0,
        threads: bool = True,
        on_change: Callable[[Replica], None] | None = None,
        recovery_bytes_s: float = 0.0,
        together_from: int = TOGETHER_FROM,
    ) -> None:
        self.node_id = node_id
        self.network = network
        self.randomness = randomness
        self._clock = clock
        self.disk: DiskWatch | None = None
        self._refusing: set[NodeId] = set()  # other nodes whose disks refuse writes
        self.recovery = RecoveryBudget(recovery_bytes_s, clock) if recovery_bytes_s > 0 else None
        self._together_from = together_from
        self._tick_s = tick_s
        self._threads = threads
        self._on_change = on_change
        self._lock = threading.Lock()
        self._replicas: dict[GroupId, Replica] = {}
        self._heard_s: dict[NodeId, float] = {}
        self._awake: dict[
            Replica, None
        ] = {}  # in the order in which they came: a run is a function of its seed
        self._resting = Resting(silent_s)
        self._deliveries = Deliveries(int(_PATIENCE * silent_s / tick_s))
        self.incarnation = randomness.getrandbits(62) | 1  # 0 is none
        self.sessions: Sessions | None = None
        self._ticks = 0
        self._ticked_s = float("inf")
        self._members: list[NodeId] = []
        self._to_sync: deque[Replica] = deque()
        self._queued: set[Replica] = set()
        self._syncing: set[Replica] = set()
        self._sync_again: set[Replica] = set()
        self._rounds = 0  # syncs under way
        self._sync_wanted = threading.Condition(self._lock)
        self._closing = False
        self._ticker = StepThread("logstore-raft-ticks", self._tick_step, enabled=threads)
        self._syncers: list[threading.Thread] = []
        self._next_tick_s = 0.0
        self.help: Callable[[Awaited], None] | None = None  # in place of threads: see ``help_on``

    # --- replicas ---

    def add(self, replica: Replica) -> None:
        with self._lock:
            self._replicas[replica.group] = replica
            self._awake[replica] = None

    def remove(self, group: GroupId) -> Replica | None:
        """The replica, closed; None: there is none."""
        with self._lock:
            replica = self._replicas.pop(group, None)
            if replica is not None:
                self._awake.pop(replica, None)
        if replica is not None:
            replica.close()
            self._resting.discard(replica)
        return replica

    def replica(self, group: GroupId) -> Replica | None:
        return self._replicas.get(group)

    def replicas(self) -> list[Replica]:
        with self._lock:
            return list(self._replicas.values())

    def last_heard_s(self, node: NodeId) -> float:
        """When a message of that node came, of the monotonic clock; -inf: never."""
        return self._heard_s.get(node, float("-inf"))

    def node_is_gone(self, node: NodeId) -> None:
        """The node's process has ended, as far as its network can tell: what it led does not wait for an election time
        to be over. Others that still hear of it refuse their votes, so that a mistake costs nothing."""
        for replica in self.replicas():
            if replica.leader_id == node:
                replica.leader_is_gone()

    # --- the host of its replicas ---

    def send(self, to: NodeId, message: GroupMessage) -> None:
        self.network.send(to, message)

    def wants_sync(self, replica: Replica) -> None:
        with self._sync_wanted:
            if replica in self._syncing:
                self._sync_again.add(replica)  # a second thread would only wait for the first
            elif replica not in self._queued:
                self._queue(replica)

    def _queue(self, replica: Replica) -> None:
        self._queued.add(replica)
        self._to_sync.append(replica)
        self._sync_wanted.notify()

    def rests(self, replica: Replica) -> None:
        with self._lock:
            if self._awake.pop(replica, 0) is None:
                self._resting.add(replica)

    def wakes(self, replica: Replica) -> None:
        self._resting.discard(replica)
        with self._lock:
            if self._replicas.get(replica.group) is replica:
                self._awake[replica] = None

    def role_changed(self, replica: Replica) -> None:
        if self._on_change is not None:
            self._on_change(replica)

    def note_refused(self, error: LogStoreError) -> None:
        if self.disk is not None:
            self.disk.note_refused(error)

    def disk_refuses(self, node: NodeId) -> bool:
        if node == self.node_id:
            return self.disk is not None and self.disk.refuses
        return node in self._refusing

    def now_s(self) -> float:
        return self._clock.monotonic_s()

    def help_on(self, append: Awaited) -> None:
        if self.help is not None:
            self.help(append)

    # --- what drives ---

    def start(self) -> None:
        """Deliver, tick and sync from now on. Errors as ``PeerNetwork.start``."""
        self.network.start(self.deliver)
        if self._threads:
            self._syncers = [
                threading.Thread(target=self._sync_on, name=f"logstore-raft-sync-{number}", daemon=True)
                for number in range(_SYNC_THREADS)
            ]
            for thread in self._syncers:
                thread.start()
        self._ticker.start()

    def deliver(self, sender: NodeId, messages: Sequence[GroupMessage]) -> None:
        """See ``Deliver``."""
        now_s = self._heard_s[sender] = self._clock.monotonic_s()
        self._resting.hear(sender, now_s)
        self._deliveries.begin(sender, now_s)
        try:
            for message in messages:
                self._deliver_one(sender, message)
        finally:
            self._deliveries.end(sender, self._clock.monotonic_s())

    def _deliver_one(self, sender: NodeId, message: GroupMessage) -> None:
        if isinstance(message.message, NodeBeat):
            self._resting.beat(sender, message.message.incarnation)
            if self.sessions is not None:
                self.sessions.beat(sender, message.message.incarnation)
            (self._refusing.add if message.message.disk_refuses else self._refusing.discard)(sender)
            return
        replica = self._replicas.get(message.group)
        if replica is not None and message.message.sender == sender:
            replica.receive(message)

    def _tick_step(self) -> float:
        now_s = self._clock.monotonic_s()
        if now_s < self._next_tick_s:
            return self._next_tick_s - now_s
        # A process that was stopped for long gives one tick, not all that it missed: nobody was heard meanwhile.
        self._next_tick_s = max(self._next_tick_s + self._tick_s, now_s)
        self.tick()
        return max(self._next_tick_s - self._clock.monotonic_s(), 0.0)

    def tick(self) -> None:
        with self._lock:
            awake = list(self._awake)
        now_s = self._clock.monotonic_s()
        late_s = now_s - self._ticked_s - _LATE_TICKS * self._tick_s
        self._ticked_s = now_s
        if late_s > 0:
            self._resting.excuse(late_s, now_s)
            if self.sessions is not None:
                self.sessions.excuse(late_s)
        behind = self._deliveries.look(now_s)
        for node in behind:
            self._heard_s[node] = now_s
            self._resting.hear(node, now_s)
        for replica in awake:
            replica.tick(behind)
        if self._ticks % _LOOK_TICKS == 0:
            self._resting.look_at_all()
            self._look_at_members()
        if self._ticks % _BEAT_TICKS == 0:
            self._beat()
        self._ticks += 1
        self._resting.look(self._clock.monotonic_s())

    def _look_at_members(self) -> None:
        """Which nodes have a replica of any group here: a beat goes to each. Memberships are mostly the same."""
        found = {replica.membership for replica in self.replicas()}
        nodes = frozenset().union(*[one.voters | one.learners for one in found])
        self._members = sorted(nodes - {self.node_id})

    def _beat(self) -> None:
        """One word to each node that has a replica of any group here."""
        beat = NodeBeat(self.node_id, self.incarnation, disk_refuses=self.disk_refuses(self.node_id))
        for node in self._members:
            self.network.send(node, GroupMessage(NO_GROUP, beat))

    @property
    def resting(self) -> int:
        """How many replicas rest."""
        return len(self._resting)

    def sync_waiting(self) -> bool:
        """Make votes and logs durable that wait for it: of one replica where few do, else of all of them together;
        False: none does."""
        with self._lock:
            if not self._may_sync():
                return False
            replicas = self._next_to_sync()
            self._queued.difference_update(replicas)
            self._syncing.update(replicas)
            self._rounds += 1
        try:
            sync_replicas(replicas)
        finally:
            with self._sync_wanted:
                self._rounds -= 1
                self._sync_wanted.notify(len(self._to_sync))
                self._syncing.difference_update(replicas)
                for replica in replicas:
                    if replica in self._sync_again:
                        self._sync_again.discard(replica)
                        self._queue(replica)
        return True

    def _may_sync(self) -> bool:
        """With the lock held. What comes while enough syncs of many logs are under way goes with the next one: a disk
        does some hundreds of them a second, of however many logs each."""
        return bool(self._to_sync) and (self._rounds < _ROUNDS or not self._are_many)

    @property
    def _are_many(self) -> bool:
        return len(self._to_sync) + len(self._syncing) >= self._together_from

    def _next_to_sync(self) -> list[Replica]:
        """With the lock held; some wait."""
        count = min(len(self._to_sync), _SYNCED_AT_ONCE) if self._are_many else 1
        return [self._to_sync.popleft() for _ in range(count)]

    def _sync_on(self) -> None:
        while True:
            with self._sync_wanted:
                while not self._closing and not self._may_sync():
                    self._sync_wanted.wait()
                if self._closing:
                    return
            try:
                self.sync_waiting()
            except LogStoreError:
                logger.exception("a log could not be made durable")

    # --- giving up ---

    def look_at_disk(self) -> None:
        """Now and then: whether the disk works again; while it does not, others are to lead what this node leads."""
        if self.disk is not None and self.disk.look():
            self.hand_over()

    def hand_over(self) -> int:
        """Ask in-sync followers to lead what this node leads; of how many."""
        asked = 0
        for replica in self.replicas():
            with replica.lock:
                try:
                    asked += replica.is_leader and replica.give_way() != NO_NODE
                except LogStoreError as error:
                    logger.info("%s: not handed over: %s", replica.where, error)
        return asked

    def close(self) -> None:
        """End the threads and the network, then the replicas. Safe to call again."""
        self._ticker.close()
        with self._sync_wanted:
            self._closing = True
            self._sync_wanted.notify_all()
        for thread in self._syncers:
            thread.join()
        self.network.close()
        for replica in self.replicas():
            self.remove(replica.group)
