"""Three brokers of a cluster on loopback, each a process of its own: started, measured, killed, ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import logstore
from bench.brokers.broker import BrokerProcess
from logstore.errors import LogStoreError
from rpc.testing.cluster import free_ports
from rpc.wire.cluster import ClusterDescription, TopicPartitionStatus

NODES = (1, 2, 3)
PATIENCE_S = 120.0


class Brokers:
    """``folder``: a directory for each broker is made in it."""

    def __init__(self, folder: str, code: str | None) -> None:
        ports = free_ports(2 * len(NODES))
        self._folder, self._code = folder, code
        self._listens = {node: f"127.0.0.1:{port}" for node, port in zip(NODES, ports, strict=False)}
        own = ports[len(NODES) :]
        self._peers = ",".join(f"{node}=127.0.0.1:{port}" for node, port in zip(NODES, own, strict=True))
        self.processes: dict[int, BrokerProcess] = {}
        began = time.perf_counter()
        with ThreadPoolExecutor(len(NODES)) as threads:
            list(threads.map(self.start, NODES))
        self.started_s = time.perf_counter() - began

    def start(self, node: int) -> None:
        self.processes[node] = BrokerProcess(
            os.path.join(self._folder, f"node-{node}"),
            self._code,
            listen=self._listens[node],
            more=("--node-id", str(node), "--peers", self._peers),
        )

    def end(self, node: int, signal_number: int = signal.SIGTERM) -> None:
        self.processes.pop(node).end(signal_number)

    @property
    def address(self) -> str:
        return ",".join(self._listens.values())

    def describe(self) -> ClusterDescription:
        with logstore.connect(self.address) as client:
            found: ClusterDescription = client.describe_cluster(2.0)
            return found

    def await_status(self, topic: str, holds: Callable[[TopicPartitionStatus], bool]) -> float:
        """Wait until all partitions of the topic are so; seconds since the call. TimeoutError."""
        began = time.perf_counter()
        while time.perf_counter() - began < PATIENCE_S:
            try:
                of = [one for one in self.describe().partitions if one.topic == topic]
            except LogStoreError:
                of = []
            if of and all(map(holds, of)):
                return time.perf_counter() - began
            time.sleep(0.02)
        raise TimeoutError(f"topic {topic!r} is not as it should be within {PATIENCE_S:g} s")

    def create_topic(self, name: str, partitions: int) -> None:
        """Made, led and in sync."""
        with logstore.connect(self.address) as client:
            client.create_topic(name, partitions)
        self.await_status(name, in_sync)

    def leader_of(self, topic: str) -> int:
        (leader, *_) = [one.status.leader for one in self.describe().partitions if one.topic == topic]
        return leader


def in_sync(one: TopicPartitionStatus) -> bool:
    """Led, and all replicas have kept up."""
    return one.status.leader > 0 and all(replica.in_sync for replica in one.status.replicas)


def caught_up(one: TopicPartitionStatus) -> bool:
    """In sync, and nothing is lacking anywhere."""
    return in_sync(one) and all(replica.lag == 0 for replica in one.status.replicas)


@contextmanager
def brokers(folder: str, code: str | None = None) -> Iterator[Brokers]:
    made = Brokers(folder, code)
    try:
        yield made
    finally:
        for node in list(made.processes):
            made.end(node)
