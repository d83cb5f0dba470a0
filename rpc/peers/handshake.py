"""What two brokers tell each other of themselves at each stream and call, and what is refused on its account."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import grpc

from logstore.errors import LogStoreError
from replication.errors import ClusterMismatchError, UnknownPeerError
from replication.raft.types import NodeId
from replication.transport import PeerGate, Presence
from rpc.errors import ContractMismatchError, MalformedRequestError
from rpc.framing import parse
from rpc.pb import common_pb2
from rpc.wire.errors import TRAILER, from_wire, status_of, to_wire

PROTOCOL: Final = 1
_PROTOCOL: Final = "logstore-peer-protocol"
_NODE: Final = "logstore-peer-node"
_TARGET: Final = "logstore-peer-target"
_CLUSTER: Final = "logstore-peer-cluster"
_INCARNATION: Final = "logstore-peer-incarnation"
_EPOCH: Final = "logstore-peer-epoch"
_MAX_TEXT: Final = 100

Metadata = Sequence[tuple[str, str | bytes]]


class Hello(NamedTuple):
    """``node`` speaks, to whom it takes for ``target``. ``cluster_id``: "" while it has none. ``incarnation``,
    ``epoch``: as of ``Presence``; older versions say neither."""

    protocol: int
    node: NodeId
    target: NodeId
    cluster_id: str
    incarnation: int = 0
    epoch: int = -1

    @property
    def presence(self) -> Presence:
        return Presence(self.node, self.incarnation, self.epoch)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (
            (_PROTOCOL, str(self.protocol)),
            (_NODE, str(self.node)),
            (_TARGET, str(self.target)),
            (_CLUSTER, self.cluster_id),
            (_INCARNATION, str(self.incarnation)),
            (_EPOCH, str(self.epoch)),
        )


def hello_of(metadata: Metadata) -> Hello:
    """MalformedRequestError."""
    given = {key: str(value)[:_MAX_TEXT] for key, value in metadata if key.startswith("logstore-peer-")}
    try:
        return Hello(
            int(given[_PROTOCOL]),
            int(given[_NODE]),
            int(given[_TARGET]),
            given[_CLUSTER],
            int(given.get(_INCARNATION, 0)),
            int(given.get(_EPOCH, -1)),
        )
    except (KeyError, ValueError) as error:
        raise MalformedRequestError(
            "the other side does not say which broker it is: it is no broker of a cluster"
        ) from error


class Identity:
    """Who this broker is among its peers, and which of them it listens to. Thread-safe. ``presence``: what this process
    says of itself; ``gate``: None: all are listened to. ``cluster_id`` comes late at a broker that starts a cluster or
    joins one: until then every cluster will do, as it will for a peer that has none."""

    def __init__(self, node_id: NodeId, cluster_id: str) -> None:
        self.node_id = node_id
        self._lock = threading.Lock()
        self._cluster_id = cluster_id
        self._peers: frozenset[NodeId] = frozenset()
        self.presence = Presence(node_id)
        self.gate: PeerGate | None = None

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    def take_cluster_id(self, cluster_id: str) -> bool:
        """Whether it is news. ClusterMismatchError where this broker belongs to another cluster."""
        with self._lock:
            if self._cluster_id not in ("", cluster_id):
                raise ClusterMismatchError(
                    f"node {self.node_id} belongs to cluster {self._cluster_id}, not to {cluster_id}"
                )
            known, self._cluster_id = self._cluster_id, cluster_id
            return known != cluster_id

    def know(self, peers: frozenset[NodeId]) -> None:
        """From now on these are the peers."""
        self._peers = peers

    def hello_to(self, target: NodeId) -> Hello:
        _, incarnation, epoch = self.presence
        return Hello(PROTOCOL, self.node_id, target, self._cluster_id, incarnation, epoch)

    def check(self, hello: Hello, *, messages: bool = True) -> None:
        """ContractMismatchError, UnknownPeerError, ClusterMismatchError, StaleBrokerError; DuplicateBrokerError where
        it is of ``messages``, else of a call."""
        if hello.protocol != PROTOCOL:
            raise ContractMismatchError(
                f"node {hello.node} speaks version {hello.protocol} of the protocol between brokers, node "
                f"{self.node_id} version {PROTOCOL}"
            )
        if hello.target != self.node_id:
            raise UnknownPeerError(
                f"node {hello.node} wants node {hello.target}, and this is node {self.node_id}"
            )
        if hello.node == self.node_id:
            raise UnknownPeerError(f"two brokers have the number {self.node_id}")
        if hello.node not in self._peers:
            raise UnknownPeerError(f"node {hello.node} is no peer of node {self.node_id}")
        mine = self._cluster_id
        if mine and hello.cluster_id and mine != hello.cluster_id:
            raise ClusterMismatchError(
                f"node {hello.node} belongs to cluster {hello.cluster_id}, node {self.node_id} to {mine}"
            )
        if self.gate is not None:
            (self.gate.admit_messages if messages else self.gate.admit_call)(hello.presence)

    def refused(self, error: LogStoreError) -> None:
        """A peer has refused this process by that error."""
        if self.gate is not None:
            self.gate.refused(error)

    def left(self, hello: Hello) -> None:
        """The peer's stream is over."""
        if self.gate is not None:
            self.gate.left(hello.presence)


def refuse(context: Any, error: LogStoreError) -> None:
    """End the call of a gRPC servicer with the error, by its name: raises."""
    context.set_trailing_metadata(((TRAILER, to_wire(error).SerializeToString()),))
    context.abort(status_of(error), error.message[:1000])


def refusal_of(error: grpc.RpcError) -> LogStoreError | None:
    """The error by whose name the other side ended the call; None: it ended some other way."""
    trailing: Metadata = getattr(error, "trailing_metadata", tuple)() or ()
    for key, value in trailing:
        if key == TRAILER and isinstance(value, bytes):
            return from_wire(parse(value, common_pb2.Error))
    return None
