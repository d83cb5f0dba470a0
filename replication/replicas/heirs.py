"""``Heirs``: which follower gets the place of a leader that gives it up."""

from __future__ import annotations

from typing import Final, Protocol

from replication.raft.state import RaftState
from replication.raft.types import NO_NODE, NodeId
from replication.replicas.in_sync import InSync

_HEARD_S: Final = 1.0


class Nodes(Protocol):
    """What is known of the other nodes (``ReplicaHost``)."""

    def disk_refuses(self, node: NodeId) -> bool: ...
    def last_heard_s(self, node: NodeId) -> float: ...
    def now_s(self) -> float: ...


class Heirs:
    """Of one replica while it leads. Not thread-safe: its replica's lock is held. ``asked``: who was asked last."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.asked = NO_NODE

    def next(self, state: RaftState, in_sync: InSync) -> NodeId:
        """Of the in-sync followers that are heard of and whose disks write the one that has most of the log, another
        than was asked before if there is one; NO_NODE: there is none."""
        nodes = self._nodes
        since_s = nodes.now_s() - _HEARD_S
        heirs = [
            node
            for node in in_sync.nodes(state)
            if node in state.peers and nodes.last_heard_s(node) >= since_s and not nodes.disk_refuses(node)
        ]
        peers = state.peers
        self.asked = min(
            heirs, key=lambda node: (node == self.asked, -peers[node].match, node), default=NO_NODE
        )
        return self.asked
