"""``PeerWorld``: networks of several nodes in this process, over real sockets, with a proxy in front of each node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from replication.raft.messages import AppendReply
from replication.transport import METADATA_GROUP, CallHandler, GroupId, GroupMessage
from rpc.peers.network import GrpcPeerNetwork
from rpc.peers.settings import PeerSettings
from rpc.testing.proxy import Proxy

PATIENCE_S = 60.0


def until(met: Callable[[], bool], what: str) -> None:
    """Poll until ``met``; AssertionError says ``what`` was not met."""
    deadline = time.monotonic() + PATIENCE_S
    moment = threading.Event()
    while not met():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        moment.wait(0.005)


def note(sender: int, number: int) -> GroupMessage:
    """A small message that is told from others by its number."""
    return GroupMessage(METADATA_GROUP, AppendReply(sender, 1, True, number))


class Received:
    """What a node's ``deliver`` was told. ``blocked``: cleared to have it wait."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, list[GroupMessage]]] = []
        self.blocked = threading.Event()
        self.blocked.set()

    def __call__(self, sender: int, messages: Sequence[GroupMessage]) -> None:
        self.blocked.wait(PATIENCE_S)
        self.frames.append((sender, list(messages)))

    def numbers(self, sender: int) -> list[int]:
        """Of the notes, in the order of their arrival."""
        return [
            message.message.end_offset
            for node, frame in self.frames
            if node == sender
            for message in frame
            if isinstance(message.message, AppendReply)
        ]

    def groups(self) -> set[GroupId]:
        return {message.group for _, frame in self.frames for message in frame}


class PeerWorld:
    """Nodes 1 to ``count``, not started yet. ``settings``: of all."""

    def __init__(self, count: int = 2, **settings: Any) -> None:
        self.settings = {"peer_timeout_s": 10.0, **settings}
        self.proxies = {node: Proxy(0) for node in range(1, count + 1)}
        self.peers = ",".join(f"{node}=localhost:{proxy.port}" for node, proxy in self.proxies.items())
        self.received: dict[int, Received] = {}
        self.networks: dict[int, GrpcPeerNetwork] = {}

    def start(
        self,
        node: int,
        *,
        cluster_id: str = "",
        handlers: dict[str, CallHandler] | None = None,
        prepare: Callable[[GrpcPeerNetwork], None] | None = None,
        **settings: Any,
    ) -> GrpcPeerNetwork:
        """The node, anew if it was stopped. ``prepare``: what is done with the network before it starts."""
        given = {
            "node_id": node,
            "peers": self.peers,
            "peer_listen": "127.0.0.1:0",
            **self.settings,
            **settings,
        }
        network = GrpcPeerNetwork(PeerSettings(**given), cluster_id=cluster_id)
        for operation, handler in (handlers or {}).items():
            network.serve(operation, handler)
        if prepare is not None:
            prepare(network)
        received = self.received.setdefault(node, Received())
        network.start(received)
        self.proxies[node].target = network.port
        self.networks[node] = network
        return network

    def connected(self) -> None:
        """Wait until each started node is connected to all others."""
        pairs = [(a, b) for a in self.networks for b in self.networks if a != b]
        until(lambda: all(self.networks[a].is_connected(b) for a, b in pairs), "every pair is connected")

    def stop(self, node: int) -> None:
        self.networks.pop(node).close()

    def close(self) -> None:
        for received in self.received.values():
            received.blocked.set()
        for proxy in self.proxies.values():
            proxy.thaw()
        for node in list(self.networks):
            self.stop(node)
        for proxy in self.proxies.values():
            proxy.close()
