"""A Kafka broker of one node on loopback, and its own measuring tools: the peer of ours. Needs Java and its jars."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 120.0
# The server's own scripts give it this much heap and this collector.
SERVER = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
PRODUCER = ("batch.size=65536", "linger.ms=5", "buffer.memory=33554432")
_CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def jars() -> str | None:
    """The directory that KAFKA_JARS names; its folder ``libs`` counts, too."""
    return os.environ.get("KAFKA_JARS")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _properties(folder: str, port: int, controller: int) -> str:
    """Kafka's defaults, for one node: nothing but what that needs is set."""
    return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


class KafkaBroker:
    """``folder``: its own. ``started_s``: from the process's begin until it serves."""

    def __init__(self, directory: str, folder: str) -> None:
        self._class_path = f"{directory}/*:{directory}/libs/*"
        port = _free_port()
        self.address = f"127.0.0.1:{port}"
        self._log = os.path.join(folder, "broker.log")
        file = os.path.join(folder, "server.properties")
        with open(file, "w", encoding="utf-8") as out:
            out.write(_properties(folder, port, _free_port()))
        self.tool("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", file)
        began = time.perf_counter()
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                self._java(SERVER, "kafka.Kafka", file), stdout=log, stderr=subprocess.DEVNULL
            )
        self._await_serving(port)
        self.started_s = time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self._process.pid

    def _java(self, settings: tuple[str, ...], *words: str) -> list[str]:
        return ["java", *settings, "-Dlog4j2.level=off", "-cp", self._class_path, *words]

    def _await_serving(self, port: int) -> None:
        """Until it takes connections: it listens before it is ready, and takes none before."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with socket.socket() as probe:
                probe.settimeout(0.2)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self._process.poll() is not None:
                raise RuntimeError(f"the broker ended with {self._process.returncode}")
            time.sleep(0.01)
        self.end()
        raise TimeoutError(f"the broker did not serve within {PATIENCE_S:g} s")

    def tool(self, *words: str, settings: tuple[str, ...] = ("-Xmx512m",)) -> str:
        """What a command of Kafka's prints; it must not fail."""
        done = subprocess.run(
            self._java(settings, *words), stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True
        )
        return done.stdout

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        given = [
            word for key, value in config.items() for word in ("--config", f"{key.replace('_', '.')}={value}")
        ]
        words = ("--create", "--topic", name, "--partitions", str(partitions), *given)
        self.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, *words)

    def produce(self, topic: str, count: int, size: int) -> float:
        """Records a second of Kafka's own measuring tool, acks=1, once it is warm."""
        told = self.tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", self.address, "--topic", topic, "--throughput", "-1"),
            *("--num-records", str(2 * count), "--warmup-records", str(count)),
            *("--record-size", str(size), "--command-property", "acks=1", *PRODUCER),
        )
        (last,) = [line for line in told.splitlines() if " 99th" in line][-1:]
        return float(last.split(" records/sec")[0].split(", ")[-1])

    def consume(self, topic: str, count: int) -> float:
        """Records a second of Kafka's own measuring tool, its joining of the group left out."""
        told = self.tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", self.address, "--topic", topic, "--num-records", str(count)),
            "--hide-header",
        )
        (last,) = [line for line in told.splitlines() if line.count(",") >= 9][-1:]
        return float(last.split(",")[9])

    def singles(self, topic: str, count: int, size: int) -> tuple[float, float]:
        """Seconds at p50 and p99 of one produce at a time, acks=all, by Kafka's Java client."""
        source = os.path.join(HERE, "KafkaSingles.java")
        p50, p99 = self.tool(source, self.address, topic, str(count), str(size)).split()
        return float(p50) / 1e3, float(p99) / 1e3

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()


@contextmanager
def serving(directory: str, folder: str) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(directory, folder)
    try:
        yield broker
    finally:
        broker.end()
