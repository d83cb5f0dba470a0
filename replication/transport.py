"""``PeerNetwork``: how the brokers of a cluster speak to each other.

Raft's messages go one way and may be lost, doubled or late: Raft is made for that. Calls are answered.
``rpc/peers`` has the one over gRPC, ``memory_network.py`` the one of simulators and tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from logstore.errors import LogStoreError
from replication.raft.messages import Message
from replication.raft.types import NodeId


class GroupId(NamedTuple):
    """Which Raft group: the replicas of one partition. ``topic_id`` as the catalogue has it."""

    topic_id: str
    partition: int


METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_GROUP: Final = GroupId("AAAAAAAAAAAAAAAAAAAAAQ", 0)
"""Of the cluster's metadata; Kafka gives its own the same id."""


NO_GROUP: Final = GroupId("AAAAAAAAAAAAAAAAAAAAAA", 0)
"""Of messages between nodes themselves."""


class GroupMessage(NamedTuple):
    """A message to the same group's replica on another node. ``log_start``: where the sending leader's log starts, of
    an ``AppendRequest``; else 0."""

    group: GroupId
    message: Message
    log_start: int = 0


class Presence(NamedTuple):
    """Which process speaks as a node. ``incarnation``: another one for each start, 0: it does not say (an older
    version); ``epoch``: of its registration, -1: it has none yet."""

    node: NodeId
    incarnation: int = 0
    epoch: int = -1


class PeerGate(Protocol):
    """Of one node: which processes it listens to. Thread-safe, never waits."""

    def admit_messages(self, presence: Presence) -> None:
        """StaleBrokerError; DuplicateBrokerError: another process is that node."""
        ...

    def admit_call(self, presence: Presence) -> None:
        """StaleBrokerError. A process that has not registered yet may call: that is how it registers."""
        ...

    def left(self, presence: Presence) -> None:
        """The process has ended, or its connection has."""
        ...

    def refused(self, error: LogStoreError) -> None:
        """A peer's gate does not admit this process."""
        ...


Deliver: TypeAlias = Callable[[NodeId, Sequence[GroupMessage]], None]
"""Takes what came from a node, in the order in which it was sent; from any thread. Must not raise."""
CallHandler: TypeAlias = Callable[[NodeId, bytes], bytes]
"""Answers a call of a node; may wait, and may raise errors of the tree in ``logstore.errors``."""


class PeerNetwork(Protocol):
    """Of one node. Thread-safe."""

    def start(self, deliver: Deliver) -> None:
        """From now on messages are delivered, and calls answered. BrokerConfigError."""
        ...

    def send(self, to: NodeId, message: GroupMessage) -> None:
        """Never waits and never raises: what cannot be sent now is dropped."""
        ...

    def serve(self, operation: str, handler: CallHandler) -> None:
        """Before ``start``: who answers calls of that name."""
        ...

    def call(self, to: NodeId, operation: str, request: bytes, timeout_s: float) -> bytes:
        """The answer. Errors of the handler by their names; ``PeerUnavailableError``: whether the peer has acted is
        not known."""
        ...

    def close(self) -> None: ...


Address: TypeAlias = tuple[str, int]
"""Host and port of a node's listener for its peers."""


class ClusterNetwork(PeerNetwork, Protocol):
    """Of one node of a cluster, whose nodes come and go."""

    def guard(self, gate: PeerGate) -> None:
        """Before ``start``: who decides which processes are listened to."""
        ...

    def present(self, presence: Presence) -> None:
        """From now on this process says that of itself."""
        ...

    def recheck(self) -> None:
        """The gate may decide differently from now on."""
        ...

    def take_cluster_id(self, cluster_id: str) -> None:
        """The cluster has got its id: peers of others are refused from now on."""
        ...

    def know_peers(self, addresses: Mapping[NodeId, Address]) -> None:
        """From now on these are the cluster's nodes, this one among them: others are cut off and refused."""
        ...

    def ask(self, node: NodeId, address: Address, operation: str, request: bytes, timeout_s: float) -> bytes:
        """As ``call``, of a node that is no peer yet. Errors also those by which it refuses this one: UnknownPeerError,
        ClusterMismatchError."""
        ...
