"""Over a broker: producer, consumer and broker are processes apart, and speak over the loopback."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import logstore
from bench import child, ours
from bench.harness import Bench, Row, alone, percentile
from logstore.types import Acks

QUESTION = "over a broker"
VALUE_BYTES = 1024
STARTED_WITHIN_S = 30.0


class BrokerProcess:
    """A broker of its own on ``folder``. ``started_s``: from its begin to its line; ``address``: where it listens."""

    def __init__(self, folder: str) -> None:
        began = time.perf_counter()
        words = ("broker", "start", "--data", folder, "--listen", "127.0.0.1:0")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "logstore.cli", *words], cwd=child.ROOT, stdout=subprocess.PIPE, text=True
        )
        self.address = self._listening()
        self.started_s = time.perf_counter() - began

    def _listening(self) -> str:
        output = self._process.stdout
        assert output is not None  # it was asked for
        if not select.select([output], [], [], STARTED_WITHIN_S)[0]:
            self.end()
            raise TimeoutError(f"the broker did not listen within {STARTED_WITHIN_S:g} s")
        line = output.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the broker said {line!r}, and ended with {self._process.wait()}")
        return line.split()[-1]

    def resident_mb(self) -> float:
        """MiB of memory that it has now (Linux)."""
        with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def running(folder: str) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(folder)
    try:
        yield broker
    finally:
        broker.end()


# --- what the clients' processes do ---


def produce(address: str, count: int) -> float:
    """Records a second of one producer, acks=1."""
    value = bytes(VALUE_BYTES)
    with logstore.connect(address) as client, client.producer(acks=1) as producer:
        producer.send(ours.TOPIC, value).result(timeout_s=30)  # connected
        began = time.perf_counter()
        for _ in range(count):
            producer.send(ours.TOPIC, value)
        producer.flush()
        return count / (time.perf_counter() - began)


def consume(address: str) -> float:
    """Records a second of one consumer, from its first fetch to the last record."""
    with logstore.connect(address) as client, client.consumer(ours.TOPIC, until_end=True) as consumer:
        began, count = time.perf_counter(), 0
        for records in consumer.batches(max_records=500):
            count += len(records)
        return count / (time.perf_counter() - began)


def one_by_one(address: str, acks: Acks, count: int) -> list[float]:
    """Seconds of each of ``count`` produces, one at a time, each waited for."""
    value, clock = bytes(VALUE_BYTES), time.perf_counter
    with logstore.connect(address) as client, client.producer(acks=acks, linger_ms=0) as producer:
        took = []
        for _ in range(count + count // 10):
            began = clock()
            producer.send(ours.TOPIC, value).result(timeout_s=30)
            took.append(clock() - began)
    return took[count // 10 :]  # warm


# --- the question ---


def run(bench: Bench) -> Iterator[Row]:
    records, singles = bench.size(300_000, 20_000), bench.size(2_000, 300)
    figures: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        with bench.scratch() as folder, running(folder) as broker:
            found = {"start": broker.started_s, "resident": broker.resident_mb()}
            with logstore.connect(broker.address) as client:
                client.create_topic(ours.TOPIC, config=ours.CACHED)
            for acks in (1, "all"):
                found |= child.call("rpc_singles", address=broker.address, acks=acks, count=singles)
            found |= child.call("rpc_throughput", address=broker.address, count=records)
        for name, figure in found.items():
            figures.setdefault(name, []).append(figure)
    yield from _rows(figures, records, singles)


def _rows(figures: dict[str, list[float]], records: int, singles: int) -> Iterator[Row]:
    note = f"{records:,} records of 1 KiB, one partition; shown once appended, not synced"
    yield alone(
        QUESTION, "produce, acks=1", figures["produce"], unit="records/s", at_least=150_000, note=note
    )
    yield alone(QUESTION, "consume", figures["consume"], unit="records/s", at_least=300_000, note=note)
    for acks, limits in (("1", {50: 1.5, 99: 5.0}), ("all", {50: None, 99: None})):
        for percent, limit in limits.items():
            yield alone(
                QUESTION,
                f"one produce, acks={acks}, p{percent}",
                figures[f"{acks} p{percent}"],
                unit="ms",
                scale=1e3,
                at_most=limit,
                note=f"send().result(), 1 KiB, {singles:,} a round",
            )
    yield alone(QUESTION, "start to serving", figures["start"], unit="s", at_most=0.5, note="a new process")
    yield alone(QUESTION, "resident, idle", figures["resident"], unit="MiB", at_most=80)


def singles(address: str, acks: Acks, count: int) -> dict[str, float]:
    """p50 and p99 of one produce at a time."""
    took = one_by_one(address, acks, count)
    return {f"{acks} p{percent}": percentile(took, percent) for percent in (50, 99)}
