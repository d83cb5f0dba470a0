"""``Brokers``: the brokers that a client knows, and one connection to each that it uses.

A broker that is alone is reached through ``only``, as if there were no others. Those of a cluster are known by node id;
whatever any of them can answer is asked of ``home``, which moves on when its broker is away.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from ipaddress import IPv4Address
from itertools import cycle
from typing import Final

from logstore.errors import ClientClosedError, LogStoreError
from rpc.client.channel.connection import CallLimits, Connection
from rpc.client.channel.settings import ConnectionSettings, targets
from rpc.errors import BrokerUnavailableError
from rpc.framing import parse
from rpc.pb import cluster_pb2 as pb
from rpc.polling import Polling

NOBODY: Final = -1
"""The node that leads, where none is known."""
KEEPALIVE_S: Final = 6.0
"""A broker that hangs is given up sooner where others can take its place."""
_LOOK_S: Final = 0.2
"""Brokers are asked for again at most this often."""
_ASK_S: Final = 3.0
"""How long one broker may take to say who the others are."""
_AWAY_S: Final = 5.0
"""For how long a broker that does not answer is not asked for what any other can tell."""
_BETWEEN_S: Final = 0.05
"""From one address that does not answer to the next."""


class Brokers:
    """Thread-safe. ``target``: ``"host:port[,host:port...]"``, to begin with. InvalidArgumentError."""

    def __init__(self, target: str, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._limits = CallLimits()
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._looked_s = 0.0
        self._first = Connection(target, settings, self._limits)
        self._seeds = targets(target)
        self.target = self._first.target
        self._addresses: dict[int, str] = {}
        self._connections: dict[str, Connection] = {}
        if len(self._seeds) == 1:
            self._connections[self._seeds[0]] = self._first
        self._alone = True
        self._home = self._seeds[0]
        self._chosen = False
        self._away: dict[str, float] = {}  # until when an address is left alone
        self.closed = False

    @property
    def only(self) -> Connection | None:
        """The connection to the broker that is alone; None: there is a cluster."""
        return self._first if self._alone else None

    def limit(self, timeout_s: float) -> AbstractContextManager[None]:
        """See ``CallLimits.limit``; over all connections."""
        return self._limits.limit(timeout_s)

    def until_s(self, timeout_s: float) -> float:
        """See ``CallLimits.until_s``."""
        return self._limits.until_s(timeout_s)

    # --- who there is ---

    def greet(self, request: pb.GetClusterRequest, timeout_s: float) -> pb.GetClusterResponse:
        """The first call: any of the brokers answers, those that are away are left out. Errors of ``Connection.call``,
        the last one met."""
        if len(self._seeds) > 1:
            answer = self._greet_any(request, timeout_s)
        else:
            answer = self._first.call(
                "ClusterService/GetCluster", request, pb.GetClusterResponse, timeout_s=timeout_s
            )
        self._learn(answer)
        return answer

    def _greet_any(self, request: pb.GetClusterRequest, timeout_s: float) -> pb.GetClusterResponse:
        """One address after the other, until one answers or the time is over."""
        data, polling = request.SerializeToString(), Polling(_BETWEEN_S, timeout_s)
        for address in cycle(self._seeds):
            connection = self._to(address)
            try:
                limit_s = min(max(polling.left_s, 0.001), _ASK_S)
                sent = connection.send("ClusterService/GetCluster", data, limit_s)
            except LogStoreError as error:
                # What was met is said, and not that the last look had no time left.
                if not error.retriable or polling.left_s <= _BETWEEN_S or not polling.again():
                    raise
                continue
            answer = parse(sent, pb.GetClusterResponse)
            if not answer.brokers and not all(map(_is_ipv4, self._seeds)):
                self._first = connection  # gRPC goes from one address to the next only where they are numbers
            return answer
        raise AssertionError("unreachable: there are addresses")

    def _learn(self, answer: pb.GetClusterResponse) -> None:
        if not answer.brokers:
            return  # alone, or a node of a cluster that does not know the others yet
        with self._lock:
            self._addresses = {one.node_id: _address(one) for one in answer.brokers}
            self._alone = False
            if self._home not in self._addresses.values() or not self._chosen:
                # Any: many clients are given the same list.
                alive = [_address(one) for one in answer.brokers if one.alive]
                self._home, self._chosen = random.choice(alive or self._seeds), True

    def look(self) -> None:
        """Ask who there is now, unless that was asked a moment ago. What cannot be asked stays as it is."""
        with self._looking:
            if time.monotonic() - self._looked_s < _LOOK_S:
                return
            self._looked_s = time.monotonic()
            request = pb.GetClusterRequest(client="logstore-python").SerializeToString()
            for _ in range(len(self._addresses) or 1):
                connection = self.home()
                try:
                    self._learn(
                        parse(
                            connection.send("ClusterService/GetCluster", request, _ASK_S),
                            pb.GetClusterResponse,
                        )
                    )
                    return
                except ClientClosedError:
                    raise
                except LogStoreError:
                    self.move_home(connection)

    # --- connections ---

    def to(self, node: int) -> Connection:
        """The connection to a node. BrokerUnavailableError where nobody has heard of it."""
        address = self._addresses.get(node)
        if address is None:
            self.look()
            address = self._addresses.get(node)
        if address is None:
            raise BrokerUnavailableError(f"no broker knows the address of node {node}", unreached=True)
        return self._to(address)

    def _to(self, address: str) -> Connection:
        with self._lock:
            if self.closed:
                raise ClientClosedError(f"the connection to {self.target} is closed")
            found = self._connections.get(address)
            if found is None:
                found = Connection(address, self.settings, self._limits, keepalive_s=KEEPALIVE_S)
                self._connections[address] = found
            return found

    def home(self) -> Connection:
        """A connection to some broker."""
        return self._first if self._alone else self._to(self._home)

    def move_home(self, asked: Connection, *, away: bool = True) -> None:
        """Another broker is home, unless that is so already. ``away``: that one does not answer, and is left alone for
        a while; else it does not know enough."""
        self._leave(asked.target, away=away)

    def note_away(self, node: int) -> None:
        """The node does not answer."""
        address = self._addresses.get(node)
        if address is not None:
            self._leave(address, away=True)

    def _leave(self, address: str, *, away: bool) -> None:
        with self._lock:
            now_s = time.monotonic()
            if away:
                self._away[address] = now_s + _AWAY_S
            if self._alone or self._home != address:
                return
            known = sorted(self._addresses.values())
            others = [one for one in known if self._away.get(one, 0.0) <= now_s and one != address]
            others = others or sorted({*self._seeds, *known})
            self._home = next((one for one in others if one > address), others[0])

    def close(self) -> None:
        """End the calls under way. Safe to call again."""
        with self._lock:
            self.closed = True
            connections: Iterable[Connection] = [self._first, *self._connections.values()]
            self._connections = {}
        for one in connections:
            one.close()


def _address(one: pb.Broker) -> str:
    return f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}"


def _is_ipv4(address: str) -> bool:
    try:
        IPv4Address(address.rpartition(":")[0])
    except ValueError:
        return False
    return True
