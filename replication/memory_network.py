"""``MemoryNetwork``: the network of nodes in one process, for tests: every node's ``PeerNetwork`` is a line of it.

Messages wait in queues until ``step`` delivers one of each node's, or a thread for each node does (``threads=True``). A
cut between two nodes drops what goes between them, both ways or one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from replication.errors import (
    DuplicateBrokerError,
    PeerUnavailableError,
    StaleBrokerError,
    UnknownPeerError,
)
from replication.raft.types import NodeId
from replication.transport import Address, CallHandler, Deliver, GroupMessage, PeerGate, Presence

_MOST_WAITING: Final = 10_000


class MemoryNetwork:
    """``lines``: by node. Thread-safe."""

    def __init__(self, *, threads: bool = False) -> None:
        self.threads = threads
        self.lines: dict[NodeId, MemoryLine] = {}
        self._cut: set[tuple[NodeId, NodeId]] = set()

    def line(self, node: NodeId) -> MemoryLine:
        made = self.lines[node] = MemoryLine(self, node)
        return made

    def cut(self, one: NodeId, other: NodeId, *, both_ways: bool = True) -> None:
        self._cut.add((one, other))
        if both_ways:
            self._cut.add((other, one))

    def heal(self) -> None:
        self._cut.clear()

    def reaches(self, sender: NodeId, to: NodeId) -> MemoryLine | None:
        """The line that a message arrives at; None: it is lost."""
        line = self.lines.get(to)
        return None if line is None or line.closed or (sender, to) in self._cut else line

    def step(self) -> bool:
        """Deliver a message to each node that one waits for; False: none does."""
        delivered = [line.step() for line in list(self.lines.values())]
        return any(delivered)


class MemoryLine:
    """A ``ClusterNetwork``, but for the cluster's id. ``known``: its peers; None: all nodes are. A node's address has
    its number for a port."""

    def __init__(self, network: MemoryNetwork, node: NodeId) -> None:
        self._network = network
        self._node = node
        self._deliver: Deliver | None = None
        self._handlers: dict[str, CallHandler] = {}
        self._waiting: deque[tuple[NodeId, GroupMessage]] = deque()
        self._more = threading.Condition()
        self._thread: threading.Thread | None = None
        self.known: Mapping[NodeId, Address] | None = None
        self.presence = Presence(node)
        self._gate: PeerGate | None = None
        self.closed = False

    def guard(self, gate: PeerGate) -> None:
        self._gate = gate

    def present(self, presence: Presence) -> None:
        self.presence = presence

    def recheck(self) -> None:
        """Each message is checked."""

    def _admits(self, sender: MemoryLine, *, messages: bool) -> None:
        """StaleBrokerError, DuplicateBrokerError."""
        if self._gate is None:
            return
        try:
            (self._gate.admit_messages if messages else self._gate.admit_call)(sender.presence)
        except (StaleBrokerError, DuplicateBrokerError) as error:
            if sender._gate is not None:
                sender._gate.refused(error)
            raise

    def _left(self, presence: Presence) -> None:
        if self._gate is not None:
            self._gate.left(presence)

    def know_peers(self, addresses: Mapping[NodeId, Address]) -> None:
        self.known = dict(addresses)

    def start(self, deliver: Deliver) -> None:
        self._deliver = deliver
        if self._network.threads:
            self._thread = threading.Thread(target=self._run, name=f"logstore-line-{self._node}", daemon=True)
            self._thread.start()

    def send(self, to: NodeId, message: GroupMessage) -> None:
        line = self._network.reaches(self._node, to)
        if line is not None and self._knows(to) and line._knows(self._node):
            try:
                line._admits(self, messages=True)
            except (StaleBrokerError, DuplicateBrokerError):
                return
            line.take(self._node, message)

    def _knows(self, node: NodeId) -> bool:
        return self.known is None or node in self.known

    def take(self, sender: NodeId, message: GroupMessage) -> None:
        with self._more:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append((sender, message))
                self._more.notify()

    def step(self) -> bool:
        with self._more:
            if not self._waiting or self._deliver is None or self.closed:
                return False
            sender, message = self._waiting.popleft()
        self._deliver(sender, [message])
        return True

    def _run(self) -> None:
        while True:
            with self._more:
                while not self._waiting and not self.closed:
                    self._more.wait()
                if self.closed:
                    return
            self.step()

    def serve(self, operation: str, handler: Callable[[NodeId, bytes], bytes]) -> None:
        self._handlers[operation] = handler

    def call(self, to: NodeId, operation: str, request: bytes, timeout_s: float) -> bytes:
        if not self._knows(to):
            raise PeerUnavailableError(f"node {to} is no peer of node {self._node}")
        return self.ask(to, ("", to), operation, request, timeout_s)

    def ask(self, node: NodeId, address: Address, operation: str, request: bytes, timeout_s: float) -> bytes:
        del timeout_s  # a handler in the same process ends by itself
        to = address[1]
        line = self._network.reaches(self._node, to)
        if line is None or self._network.reaches(to, self._node) is None:
            raise PeerUnavailableError(f"node {to} cannot be reached from node {self._node}")
        if to != node or not line._knows(self._node):
            raise UnknownPeerError(f"node {to} does not speak with node {self._node} as node {node}")
        try:
            line._admits(self, messages=False)
        except StaleBrokerError as error:
            raise PeerUnavailableError(f"node {to} does not listen to this process: {error}") from error
        handler = line._handlers.get(operation)
        if handler is None:
            raise PeerUnavailableError(f"node {to} does not know the call {operation!r}")
        return handler(self._node, request)

    def close(self) -> None:
        with self._more:
            self.closed = True
            self._waiting.clear()
            self._more.notify_all()
        for line in list(self._network.lines.values()):
            if line is not self:
                line._left(self.presence)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
