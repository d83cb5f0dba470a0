"""``Resting``: groups to which nothing happens cost nothing: no ticks, no heartbeats of their own.

A leader to which nothing happened for a moment, and whose followers all have everything, tells them so and rests; they
rest, too. From then on the leader counts as alive for as long as its node does: nodes beat for all of their groups
together. When a node is silent for an election time, or beats under another incarnation, what rested on it wakes up:
followers of leaders there elect another one, leaders with followers there beat for themselves again. Anything else that
is sent or asked wakes a replica as well. Resting changes when elections happen, never what Raft promises.
"""

from __future__ import annotations

import threading

from replication.raft.types import NO_NODE, NodeId
from replication.replicas.replica import Replica


class Resting:
    """Those of one node. Thread-safe."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._lock = threading.Lock()
        self._replicas: dict[Replica, None] = {}  # in their order: a run is a function of its seed
        self._heard_s: dict[NodeId, float] = {}
        self._incarnations: dict[NodeId, int] = {}
        self._gone: set[NodeId] = set()

    def __contains__(self, replica: Replica) -> bool:
        return replica in self._replicas

    def __len__(self) -> int:
        return len(self._replicas)

    def add(self, replica: Replica) -> None:
        with self._lock:
            self._replicas[replica] = None

    def discard(self, replica: Replica) -> None:
        with self._lock:
            self._replicas.pop(replica, None)

    def replicas(self) -> list[Replica]:
        with self._lock:
            return list(self._replicas)

    def hear(self, node: NodeId, now_s: float) -> None:
        """Any message came from the node."""
        self._heard_s[node] = now_s

    def excuse(self, for_s: float, now_s: float) -> None:
        """For so long until now this node did not run: what was not heard meanwhile tells nothing of the others."""
        for node, heard_s in self._heard_s.items():
            self._heard_s[node] = min(heard_s + for_s, now_s)

    def beat(self, node: NodeId, incarnation: int) -> None:
        """The node's own word. What rests on an earlier incarnation wakes up."""
        known = self._incarnations.get(node)
        self._incarnations[node] = incarnation
        if known is not None and known != incarnation:
            self._wake_on({node})

    def look(self, now_s: float) -> None:
        """Wake what rests on nodes that are silent."""
        if not self._replicas:
            return
        silent = {node for node, heard_s in self._heard_s.items() if now_s - heard_s > self._silent_s}
        fresh, self._gone = silent - self._gone, silent
        if fresh:
            self._wake_on(fresh)
        if silent:
            self._wake_led_by(silent)  # what began to rest after its leader's node had gone silent

    def look_at_all(self) -> None:
        """Now and then, at each that rests: whether it has a leader, and what its log has done by itself."""
        self._wake_led_by({NO_NODE})
        for replica in self.replicas():
            replica.look()

    def _wake_led_by(self, nodes: set[NodeId]) -> None:
        for replica in self.replicas():
            if replica.leader_id in nodes:
                replica.leader_is_gone()

    def _wake_on(self, nodes: set[NodeId]) -> None:
        for replica in self.replicas():
            membership = replica.membership
            if replica.is_leader:
                if nodes & (membership.voters | membership.learners):
                    with replica.lock:
                        replica.wake()
            elif replica.leader_id in nodes:
                replica.leader_is_gone()
