"""A Kafka of three nodes on loopback, each broker and controller, and its own measuring tool. Needs Java and jars."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from types import TracebackType
from typing import NamedTuple

from bench.brokers.kafka_broker import PATIENCE_S, PRODUCER
from rpc.testing.cluster import free_ports

NODES = (1, 2, 3)
SERVER = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_CLUSTER = "5L6g3nShT-eMCtK--X86sw"
_TOLD = re.compile(r"([\d.]+) records/sec.*?([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th", re.DOTALL)


class Produced(NamedTuple):
    """``rate``: records a second."""

    rate: float
    p50_s: float
    p99_s: float


class KafkaCluster:
    """``folder``: its own. ``started_s``: from the processes' begin until all serve."""

    def __init__(self, directory: str, folder: str) -> None:
        self._class_path = f"{directory}/*:{directory}/libs/*"
        ports = free_ports(2 * len(NODES))
        self._ports, controllers = ports[: len(NODES)], ports[len(NODES) :]
        self.address = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(NODES, controllers, strict=True))
        files = []
        for node, port, controller in zip(NODES, self._ports, controllers, strict=True):
            home = os.path.join(folder, f"node-{node}")
            os.mkdir(home)
            files.append(os.path.join(home, "server.properties"))
            with open(files[-1], "w", encoding="utf-8") as out:
                out.write(_properties(home, node, port, controller, voters))
            self._tool("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", files[-1])
        began = time.perf_counter()
        self._processes = [
            subprocess.Popen(
                self._java(SERVER, "kafka.Kafka", file), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for file in files
        ]
        for port in self._ports:
            self._await_serving(port)
        self.started_s = time.perf_counter() - began

    def _java(self, settings: tuple[str, ...], *words: str) -> list[str]:
        return ["java", *settings, "-Dlog4j2.level=off", "-cp", self._class_path, *words]

    def _await_serving(self, port: int) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with socket.socket() as probe:
                probe.settimeout(0.2)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.01)
        self.end()
        raise TimeoutError(f"the brokers did not serve within {PATIENCE_S:g} s")

    def _tool(self, *words: str, within_s: float = PATIENCE_S * 3) -> str:
        done = subprocess.run(
            self._java(("-Xmx512m",), *words),
            stdout=subprocess.PIPE,
            text=True,
            timeout=within_s,
            check=True,
        )
        return done.stdout

    def create_topic(self, name: str, partitions: int, **config: str) -> None:
        given = [
            word for key, value in config.items() for word in ("--config", f"{key.replace('_', '.')}={value}")
        ]
        shape = ("--partitions", str(partitions), "--replication-factor", str(len(NODES)))
        words = ("--create", "--topic", name, *shape, *given)
        self._tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, *words)

    def produce(
        self, topic: str, count: int, size: int, rate: float = -1, *, within_s: float = PATIENCE_S * 3
    ) -> Produced:
        """By Kafka's own measuring tool, acks=all, once it is warm. ``subprocess.TimeoutExpired``."""
        told = self._tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", self.address, "--topic", topic, "--throughput", str(int(rate))),
            *("--num-records", str(count + count // 2), "--warmup-records", str(count // 2)),
            *("--record-size", str(size), "--command-property", "acks=all", *PRODUCER),
            within_s=within_s,
        )
        (last,) = [line for line in told.splitlines() if " 99th" in line][-1:]
        found = _TOLD.search(last)
        if found is None:
            raise RuntimeError(f"Kafka's tool says {last!r}")
        return Produced(float(found[1]), float(found[2]) / 1e3, float(found[4]) / 1e3)

    def end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def _properties(home: str, node: int, port: int, controller: int, voters: str) -> str:
    """Kafka's defaults, for three nodes: nothing but what that needs is set."""
    return f"""
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={home}/data
default.replication.factor=3
min.insync.replicas=2
group.initial.rebalance.delay.ms=0
"""
