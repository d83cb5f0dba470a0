"""``ClusterView``: what a node knows of its cluster at this moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from replication.raft.types import NodeId


class BrokerInfo(NamedTuple):
    """``host``, ``port``: where clients reach the broker. ``alive``: it was heard of a moment ago."""

    node_id: NodeId
    host: str
    port: int
    rack: str
    alive: bool


class ClusterView(Protocol):
    """Thread-safe, and never waits. What a node does not know yet is -1, or an empty sequence."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def cluster_id(self) -> str: ...

    def brokers(self) -> Sequence[BrokerInfo]: ...

    def controller(self) -> NodeId:
        """The leader of the metadata group."""
        ...

    def leader_of(self, topic: str, partition: int) -> tuple[NodeId, int]:
        """(node, term) of the newest leader that this node has heard of."""
        ...

    def replicas_of(self, topic: str, partition: int) -> Sequence[NodeId]:
        """Who has the partition, or is to have it; the preferred leader first."""
        ...
