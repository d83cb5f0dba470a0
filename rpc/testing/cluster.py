"""``ClusterForTests``: brokers of one cluster on loopback, each a process, and the ways between them, to be cut."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import logstore
from logstore.errors import LogStoreError
from replication.errors import BrokerUnreachableError
from rpc.client.store import RemoteStore
from rpc.errors import BrokerTimeoutError
from rpc.polling import Polling
from rpc.testing.broker import PATIENCE_S, BrokerForTests
from rpc.testing.proxy import Proxy
from rpc.wire.cluster import ClusterDescription

_LOOK_S: Final = 0.05


class HeldPort:
    """A port of loopback that nothing listens on, and that the system gives to nobody who asks for any port until
    ``close``. Who names it can listen on it, again and again (where the system is not Linux it is free instead)."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", 0))  # and no listen(): another that sets SO_REUSEADDR may do that
            self.port: int = self._socket.getsockname()[1]
        except BaseException:
            self._socket.close()
            raise
        if sys.platform != "linux":
            self._socket.close()

    def close(self) -> None:
        self._socket.close()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on at this moment. Others may be given them before they are used."""
    held = [HeldPort() for _ in range(count)]
    for one in held:
        one.close()
    return [one.port for one in held]


class ClusterForTests:
    """``count`` brokers, numbered from 1, that serve when it is made, each in a directory of ``folder``.
    ``settings``: of ``rpc.settings.BrokerSettings``, of all; ``racks``: of each broker.

    Every ordered pair of brokers has a proxy of its own between them: ``cut`` is one way or both.
    """

    def __init__(
        self, folder: str | os.PathLike[str], count: int = 3, racks: Sequence[str] = (), **settings: Any
    ) -> None:
        self.folder = Path(folder)
        self.nodes = range(1, count + 1)
        self._held = [HeldPort() for _ in self.nodes]
        self._listens = {node: held.port for node, held in zip(self.nodes, self._held, strict=True)}
        self._ways = {(a, b): Proxy(self._listens[b]) for a in self.nodes for b in self.nodes if a != b}
        self.brokers: dict[int, BrokerForTests] = {}
        self._clients: list[RemoteStore] = []
        self._racks = dict(zip(self.nodes, racks, strict=False))
        try:
            self._at_once(lambda node: self._make(node, settings), self.nodes)
        except BaseException:
            self.close()
            raise

    def _make(self, node: int, settings: dict[str, Any]) -> None:
        ports = {to: self._ways[node, to].port if to != node else self._listens[node] for to in self.nodes}
        peers = ",".join(f"{to}=127.0.0.1:{port}" for to, port in ports.items())
        self.brokers[node] = BrokerForTests(
            self.folder / f"node-{node}",
            **{
                "node_id": node,
                "peers": peers,
                "peer_timeout_s": 2.0,
                "rack": self._racks.get(node, ""),
                **settings,
            },
        )

    def add_broker(self, **settings: Any) -> int:
        """One broker more, as an administrator adds it while the others run. Its number; there is no proxy on the ways
        to and from it."""
        node = max(self.brokers) + 1
        held = HeldPort()
        self._held.append(held)
        listens = [f"{other}=127.0.0.1:{listen}" for other, listen in self._listens.items()]
        peers = ",".join([*listens, f"{node}=127.0.0.1:{held.port}"])
        given = {"node_id": node, "peers": peers, "peer_timeout_s": 2.0, **settings}
        with ThreadPoolExecutor(1) as threads:
            starting = threads.submit(BrokerForTests, self.folder / f"node-{node}", **given)
            self._add(node, held.port)
            self.brokers[node] = starting.result()
        return node

    def _add(self, node: int, port: int) -> None:
        """Once it listens. BrokerUnreachableError."""
        polling = Polling(_LOOK_S, PATIENCE_S)
        with logstore.connect(self.address, connect_timeout_s=PATIENCE_S) as client:
            while True:
                try:
                    client.cluster_administration.add(node, "127.0.0.1", port)
                    return
                except BrokerUnreachableError:
                    if not polling.again():
                        raise

    @staticmethod
    def _at_once(act: Callable[[int], None], nodes: Sequence[int]) -> None:
        """A broker serves once a majority is there: they start at once."""
        with ThreadPoolExecutor(len(nodes)) as threads:
            list(threads.map(act, nodes))

    @property
    def address(self) -> str:
        """Of all brokers, for ``logstore.connect``."""
        return ",".join(broker.address for broker in self.brokers.values())

    def connect(self, **settings: Any) -> RemoteStore:
        """A client, closed with the cluster."""
        client: RemoteStore = logstore.connect(self.address, **settings)
        self._clients.append(client)
        return client

    # --- what it is doing ---

    def describe(self, timeout_s: float = 1.0) -> ClusterDescription:
        """By the word of the first broker that answers. BrokerUnavailableError: none does."""
        with logstore.connect(self.address, connect_timeout_s=PATIENCE_S) as client:
            found: ClusterDescription = client.describe_cluster(timeout_s)
            return found

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """-1: none, or nobody who can be asked knows."""
        for name, status in self.describe().partitions:
            if name == topic and status.group.partition == partition:
                return status.leader
        return -1

    def await_healthy(self, patience_s: float = PATIENCE_S) -> ClusterDescription:
        """Wait until every partition has a leader and all its replicas are in sync; BrokerTimeoutError."""
        polling = Polling(_LOOK_S, patience_s)
        while True:
            try:
                found = self.describe()
            except LogStoreError as error:
                words = str(error)
            else:
                wrong = [
                    f"{topic}-{status.group.partition}"
                    for topic, status in found.partitions
                    if status.leader < 0 or not all(one.in_sync for one in status.replicas)
                ]
                if not wrong and not found.silent and found.controller >= 0:
                    return found
                words = f"not well: {', '.join(wrong)[:200]}; silent: {found.silent}"
            if not polling.again():
                break
        raise BrokerTimeoutError(f"the cluster is not healthy within {patience_s:g} s: {words}")

    # --- faults ---

    def kill(self, *nodes: int) -> None:
        """kill -9."""
        for node in nodes:
            self.brokers[node].kill()

    def restart(self, *nodes: int) -> None:
        """Start those that were killed or stopped; those that run are killed first."""
        self._at_once(lambda node: self.brokers[node].restart(), nodes)

    def cut(self, one: int, other: int, *, both_ways: bool = True) -> None:
        """Nothing passes from ``one`` to ``other``, and neither is told, until ``heal``."""
        self._ways[one, other].freeze()
        if both_ways:
            self._ways[other, one].freeze()

    def isolate(self, node: int) -> None:
        """From all other brokers; clients still reach it."""
        for other in self.nodes:
            if other != node:
                self.cut(node, other)

    def heal(self) -> None:
        for way in self._ways.values():
            way.thaw()
            way.drop()  # what hung is made anew

    def drop_peer_connections(self) -> int:
        """Cut every connection between brokers; how many."""
        return sum(way.drop() for way in self._ways.values())

    def close(self) -> None:
        """Safe to call again."""
        for way in self._ways.values():
            way.thaw()
        while self._clients:
            self._clients.pop().abandon()
        for broker in self.brokers.values():
            broker.close()
        for way in self._ways.values():
            way.close()
        for held in self._held:
            held.close()

    def __enter__(self) -> ClusterForTests:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
