"""``GrpcPeerNetwork``: ``replication.transport.PeerNetwork`` over gRPC, of one broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from logstore.invariants import invariant
from replication.errors import PeerUnavailableError
from replication.raft.types import NodeId
from replication.transport import Address, CallHandler, Deliver, GroupMessage, PeerGate, Presence
from rpc.peers.handshake import Identity
from rpc.peers.link import PeerLink
from rpc.peers.listener import PeerListener, answer_of
from rpc.peers.settings import PeerSettings
from rpc.peers.tls import tls_of


def _pass_over(node: NodeId) -> None:
    """Of a node that is gone, where nobody wants to know."""
    del node


class GrpcPeerNetwork:
    """To the ``peers`` of the settings from ``start`` to ``close``. ``cluster_id``: "" until the cluster has one.

    Each broker connects to all others, and sends on its own connections alone. A queue that is full drops what is
    newest (``Outbox``). ``on_gone``: told of a node that took connections and does so no more, as after a kill: not of
    one that is silent.
    """

    def __init__(self, settings: PeerSettings, *, cluster_id: str = "") -> None:
        self._settings = settings
        self._identity = Identity(settings.node_id, cluster_id)
        self._tls = tls_of(settings)
        self._handlers: dict[str, CallHandler] = {}
        self._lock = threading.Lock()
        self._links: dict[NodeId, PeerLink] = {}
        self._listener: PeerListener | None = None
        self._closed = False
        self.on_gone: Callable[[NodeId], None] = _pass_over

    def start(self, deliver: Deliver) -> None:
        """Listen for peers, and connect to them. BrokerConfigError, SecretFileError, TlsConfigError."""
        invariant(self._listener is None, "a peer network is started once")
        listener = PeerListener(self._settings, self._identity, deliver, self._handlers, self._tls)
        addresses = self._settings.peer_addresses
        self._identity.know(frozenset(addresses))
        listener.start()
        self._listener = listener
        self.know_peers(addresses)

    def know_peers(self, addresses: Mapping[NodeId, Address]) -> None:
        """From now on these are the cluster's brokers, this one among them: others are cut off and refused."""
        with self._lock:
            if self._closed:
                return
            wanted = {node: address for node, address in addresses.items() if node != self._settings.node_id}
            gone = [link for node, link in self._links.items() if wanted.get(node) != link.given]
            kept = {node: link for node, link in self._links.items() if link not in gone}
            made = {
                node: PeerLink(node, address, self._identity, self._settings, self._tls, self._gone)
                for node, address in wanted.items()
                if node not in kept
            }
            self._identity.know(frozenset(addresses))
            self._links = {**kept, **made}
        for link in made.values():
            link.start()
        for link in gone:
            link.close()
        if self._listener is not None:
            self._listener.recheck()

    def guard(self, gate: PeerGate) -> None:
        """See ``ClusterNetwork``."""
        self._identity.gate = gate

    def present(self, presence: Presence) -> None:
        """See ``ClusterNetwork``. Streams that are open have said less."""
        self._identity.presence = presence

    def recheck(self) -> None:
        """See ``ClusterNetwork``."""
        if self._listener is not None:
            self._listener.recheck()

    def _gone(self, node: NodeId) -> None:
        self.on_gone(node)

    def take_cluster_id(self, cluster_id: str) -> None:
        """The cluster has got its id, which is checked at each connection from now on, and of those that are open.
        ClusterMismatchError where it had another one."""
        if not self._identity.take_cluster_id(cluster_id):
            return
        if self._listener is not None:
            self._listener.recheck()
        for link in list(self._links.values()):
            link.reconnect()

    def send(self, to: NodeId, message: GroupMessage) -> None:
        """Never waits and never raises."""
        link = self._links.get(to)
        if link is not None:
            link.send(message)

    def serve(self, operation: str, handler: CallHandler) -> None:
        """Before ``start``."""
        invariant(operation not in self._handlers, f"{operation} is served once")
        self._handlers[operation] = handler

    def call(self, to: NodeId, operation: str, request: bytes, timeout_s: float) -> bytes:
        """The answer of node ``to``, which may be this one. Errors of the handler by their names;
        PeerUnavailableError: it may have been carried out, or not."""
        if to == self._settings.node_id:
            handler = self._handlers.get(operation)
            invariant(handler is not None, f"{operation} is served")
            return answer_of(self._handlers[operation], to, operation, request)
        link = self._links.get(to)
        if link is None:
            raise PeerUnavailableError(f"node {to} is no peer of node {self._settings.node_id}")
        return link.call(operation, request, timeout_s)

    def ask(self, node: NodeId, address: Address, operation: str, request: bytes, timeout_s: float) -> bytes:
        """See ``ClusterNetwork``."""
        link = PeerLink(node, address, self._identity, self._settings, self._tls, _pass_over)
        return link.ask_once(operation, request, timeout_s)

    @property
    def port(self) -> int:
        """Where peers connect."""
        return 0 if self._listener is None else self._listener.port

    def is_connected(self, node: NodeId) -> bool:
        """Whether messages reach the node at this moment, as far as this one knows."""
        link = self._links.get(node)
        return link is not None and link.is_connected

    def close(self) -> None:
        """Safe to call again."""
        with self._lock:
            self._closed = True
            links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()
        if self._listener is not None:
            self._listener.close()
