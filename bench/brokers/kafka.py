"""Our broker and our client against Kafka's and its own: asked by name alone, with Kafka's jars in KAFKA_JARS."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import logstore
from bench import child, ours
from bench.brokers import kafka_broker
from bench.brokers.broker import resident_mb, running
from bench.brokers.rpc_clients import VALUE_BYTES
from bench.harness import Bench, Row, compared

QUESTION = "against Kafka"
SIZES = (100, VALUE_BYTES)
KAFKA = "Kafka 4.3.1"

Figures = dict[str, dict[str, list[float]]]


def run(bench: Bench) -> Iterator[Row]:
    directory = kafka_broker.jars()
    if directory is None:
        print("kafka: passed over, as KAFKA_JARS names no directory with its jars", file=sys.stderr)
        return
    figures: Figures = {}
    counts = {size: bench.size(min(1_000_000, 300 * (1 << 20) // size), 50_000) for size in SIZES}
    singles = bench.size(2_000, 300)
    with bench.scratch() as code:
        with bench.scratch() as folder, running(folder, code):
            pass  # compiled from now on
        for number in range(bench.rounds):
            asked = [
                lambda: _ours(bench, code, figures, counts, singles),
                lambda: _kafka(bench, directory, figures, counts, singles),
            ]
            for side in asked if number % 2 else reversed(asked):
                side()
    yield from _rows(figures, counts, singles)


def _note(figures: Figures, side: str, found: dict[str, float]) -> None:
    for name, figure in found.items():
        figures.setdefault(name, {}).setdefault(side, []).append(figure)


def _ours(bench: Bench, code: str, figures: Figures, counts: dict[int, int], singles: int) -> None:
    with bench.scratch() as folder, running(folder, code) as broker:
        found = {"start": broker.started_s, "idle": resident_mb(broker.pid)}
        with logstore.connect(broker.address) as client:
            client.create_topic(ours.TOPIC)
            for size in SIZES:
                client.create_topic(f"of-{size}", config=ours.CACHED)
        for size, count in counts.items():
            rates = child.call(
                "rpc_throughput", address=broker.address, count=count, size=size, topic=f"of-{size}"
            )
            found |= {f"{name} {size}": rate for name, rate in rates.items()}
        found["loaded"] = resident_mb(broker.pid)
        synced = child.call("rpc_singles", address=broker.address, acks="all", count=singles)
        found |= {"synced p50": synced["all p50"], "synced p99": synced["all p99"]}
        cached = child.call("rpc_singles", address=broker.address, acks=1, count=singles)
        found |= {"cached p50": cached["1 p50"], "cached p99": cached["1 p99"]}
        _note(figures, "here", found)


def _kafka(bench: Bench, directory: str, figures: Figures, counts: dict[int, int], singles: int) -> None:
    with bench.scratch() as folder, kafka_broker.serving(directory, folder) as broker:
        found = {"start": broker.started_s, "idle": resident_mb(broker.pid)}
        broker.create_topic("cached")
        broker.create_topic("synced", flush_messages="1")
        for size, count in counts.items():
            broker.create_topic(f"of-{size}")
            found[f"produce {size}"] = broker.produce(f"of-{size}", count, size)
            found[f"consume {size}"] = broker.consume(f"of-{size}", count)
        found["loaded"] = resident_mb(broker.pid)
        for topic in ("synced", "cached"):
            p50, p99 = broker.singles(topic, singles, VALUE_BYTES)
            found |= {f"{topic} p50": p50, f"{topic} p99": p99}
        _note(figures, KAFKA, found)


def _rows(figures: Figures, counts: dict[int, int], singles: int) -> Iterator[Row]:
    def row(case: str, name: str, unit: str, note: str, scale: float = 1.0) -> Row:
        sides = figures[name]
        return compared(QUESTION, case, sides, ours="here", peer=KAFKA, unit=unit, scale=scale, note=note)

    for size, count in counts.items():
        tools = f"{count:,} records, one partition, not synced; Kafka's ProducerPerformance (warm), ConsumerPerformance"
        yield row(f"produce, acks=1, {size} B", f"produce {size}", "records/s", tools)
        yield row(f"consume, {size} B", f"consume {size}", "records/s", tools)
    for percent in ("p50", "p99"):
        note = f"1 KiB, {singles:,} a round, each synced: Kafka with flush.messages=1; its Java client, warm"
        yield row(f"one produce, acks=all, {percent}", f"synced {percent}", "ms", note, 1e3)
    for percent in ("p50", "p99"):
        note = f"1 KiB, {singles:,} a round, no sync: Kafka's acks=all of one replica, and ours acks=1"
        yield row(f"one produce, not synced, {percent}", f"cached {percent}", "ms", note, 1e3)
    yield row(
        "start to serving", "start", "s", "a new process on an empty directory, until it takes connections"
    )
    yield row("resident, idle", "idle", "MiB", "Kafka with the heap of its scripts (1 GiB)")
    yield row("resident, behind the throughput", "loaded", "MiB", "the same")
