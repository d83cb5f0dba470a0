"""Whole nodes of a cluster in one process, each served by a broker: replication in memory, clients over gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replication.cluster.view import BrokerInfo
from rpc.broker import Broker
from rpc.client.store import RemoteStore, connect
from rpc.settings import BrokerSettings
from rpc.testing.cluster import HeldPort
from tests.replication.cluster_nodes import Cluster
from tests.rpc.served import wait


class ReplicatedBrokers(Cluster):
    """``brokers``: those that run, by number."""

    def __init__(self, root: Path, count: int = 3) -> None:
        super().__init__(root, count)
        self.brokers: dict[int, Broker] = {}
        self._held = {
            number: HeldPort() for number in self.voters
        }  # a broker that is away comes back to its own
        self.ports = {number: held.port for number, held in self._held.items()}

    def start(self, *numbers: int) -> None:
        super().start(*numbers)
        for number in numbers or sorted(self.voters):
            settings = BrokerSettings(
                data=str(self.root / str(number)), node_id=number, listen=f"127.0.0.1:{self.ports[number]}"
            )
            node = self.nodes[number]
            broker = self.brokers[number] = Broker(
                node.engine, settings, cluster_id=node.cluster_id, version="0", brokers=self.infos
            )
            wait(broker.start())

    def infos(self) -> list[BrokerInfo]:
        return [
            BrokerInfo(number, "127.0.0.1", port, "", number in self.brokers)
            for number, port in self.ports.items()
        ]

    def stop(self, number: int) -> None:
        """At once: what it leads is not handed over."""
        broker = self.brokers.pop(number, None)
        if broker is not None:
            wait(broker.stop(0.0))
        super().stop(number)

    def close(self) -> None:
        super().close()
        for held in self._held.values():
            held.close()

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def connect(self, **settings: float) -> RemoteStore:
        return connect(self.address, **settings)


@contextmanager
def replicated_brokers(root: Path, count: int = 3) -> Iterator[ReplicatedBrokers]:
    made = ReplicatedBrokers(root, count)
    try:
        made.start()
        yield made
    finally:
        made.close()
