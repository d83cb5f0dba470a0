"""``NodeSettings``: what can be set of one node of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from replication.cluster.controller import ControllerSettings
from replication.cluster.snapshots import LEAST_BYTES
from replication.node import TOGETHER_FROM
from replication.raft.types import NodeId, RaftSettings
from replication.transport import Address


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSettings:
    """Of one node. Times are seconds."""

    node_id: NodeId
    voters: frozenset[NodeId]
    """Nodes that have the metadata from the cluster's beginning on; of a node that is added: nodes that it asks."""
    peers: Mapping[NodeId, Address] = field(default_factory=dict)
    """Where those listen for each other, as this node reaches them. Empty: its network knows all nodes."""
    host: str = "127.0.0.1"
    """Where clients reach this node."""
    port: int = 0
    rack: str = ""
    tick_s: float = 0.05
    lag_s: float = 10.0
    """Kafka's ``replica.lag.time.max.ms``."""
    recovery_bytes_s: float = 0.0
    together_from: int = TOGETHER_FROM
    """From how many logs on that wait for a sync all of them are synced by one call of the file system."""
    join_timeout_s: float = 60.0
    coordinators: int = 12
    """Partitions of the topics of groups and of transactions, where these are made here."""
    snapshot_bytes: int = LEAST_BYTES
    """Of the metadata's log before a snapshot is taken."""
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    raft: RaftSettings = field(
        default_factory=lambda: RaftSettings(election_ticks=20, heartbeat_ticks=5, silent_on_empty=True)
    )
    """A heartbeat is a message and its answer, of each group that is awake: of a thousand, at ten a second, a core."""
