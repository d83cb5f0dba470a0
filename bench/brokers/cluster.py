"""Three brokers on this machine: every record on a majority's disks before it is answered. Beside a Kafka of three
brokers, if KAFKA_JARS names the directory of its jars."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from bench import child
from bench.brokers import cluster_clients, kafka_broker
from bench.brokers.broker import allow_descriptors, processor_s, resident_mb
from bench.brokers.cluster_brokers import NODES, Brokers, brokers, caught_up
from bench.brokers.cluster_clients import VALUE_BYTES
from bench.brokers.kafka_cluster import KafkaCluster
from bench.harness import Bench, Row, alone, compared

QUESTION = "a cluster of three"
TOPIC = "t"
PARTITIONS = 3
TARGET = 40_000  # records of 1 KiB a second
LOADS = (50, 80)
REPEATS = 3  # of each load: a neighbour's work is in a single one
PERCENTILES = [f"p{share:g}" for share in cluster_clients.PERCENTILES]
ROUNDS = 1  # of minutes each, with Kafka beside it
GROWTH = (1, 100, 1000)
GROWTH_WITHIN_S = 120.0  # of Kafka's tool, for each
KAFKA = "Kafka 4.3.1"

Figures = dict[str, dict[str, list[float]]]


def run(bench: Bench) -> Iterator[Row]:
    allow_descriptors()
    directory = kafka_broker.jars()
    if directory is None:
        print("cluster: no Kafka beside it, as KAFKA_JARS names no directory with its jars", file=sys.stderr)
    figures: Figures = {}
    with bench.scratch() as code:
        with bench.scratch() as folder, brokers(folder, code):
            pass  # compiled from now on
        for _ in range(ROUNDS):
            _ours(bench, code, figures)
            if directory is not None:
                _kafka(bench, directory, figures)
        yield from _rows(figures)
        yield from _catching_up(bench, code)
        rates = dict(_kafka_growth(bench, directory)) if directory is not None else {}
        yield from _growth(bench, code, rates)


def _note(figures: Figures, side: str, name: str, figure: float) -> None:
    figures.setdefault(name, {}).setdefault(side, []).append(figure)


def _ours(bench: Bench, code: str, figures: Figures) -> None:
    count, seconds = bench.size(500_000, 20_000), bench.size(10, 4)
    with bench.scratch() as folder, brokers(folder, code) as cluster:
        _note(figures, "here", "start", cluster.started_s)
        cluster.create_topic(TOPIC, PARTITIONS)
        rate = child.call("cluster_produce", address=cluster.address, topic=TOPIC, count=count)["produce"]
        _note(figures, "here", "produce", rate)
        for load in LOADS * bench.size(REPEATS, 1):
            found = child.call(
                "cluster_paced",
                address=cluster.address,
                topic=TOPIC,
                rate=TARGET * load / 100,
                seconds=seconds,
            )
            for name in (*PERCENTILES, "rate"):
                _note(figures, "here", f"{name} at {load}", found[name])
        cluster.create_topic("failover", 1)
        _note(figures, "here", "failover", _failover(cluster, seconds))


def _failover(cluster: Brokers, seconds: float) -> float:
    """Seconds without an answer when the leader of a partition is killed under a steady load."""
    writing = child.begin(
        "cluster_paced", address=cluster.address, topic="failover", rate=500.0, seconds=seconds
    )
    time.sleep(seconds / 2)
    cluster.end(cluster.leader_of("failover"), signal.SIGKILL)
    return writing.figures()["pause"]


def _kafka(bench: Bench, directory: str, figures: Figures) -> None:
    count, seconds = bench.size(60_000, 20_000), bench.size(10, 4)
    with bench.scratch() as folder, KafkaCluster(directory, folder) as cluster:
        _note(figures, KAFKA, "start", cluster.started_s)
        for topic, config in (("synced", {"flush_messages": "1"}), ("cached", {})):
            cluster.create_topic(topic, PARTITIONS, **config)
        rate = cluster.produce("synced", count, VALUE_BYTES).rate
        _note(figures, KAFKA, "produce", rate)
        _note(figures, KAFKA, "produce cached", cluster.produce("cached", count, VALUE_BYTES).rate)
        for load in LOADS:
            pace = rate * load / 100
            found = cluster.produce("synced", int(pace * seconds), VALUE_BYTES, pace)
            _note(figures, KAFKA, f"Kafka's p50 at {load}", found.p50_s)
            _note(figures, KAFKA, f"Kafka's p99 at {load}", found.p99_s)


def _rows(figures: Figures) -> Iterator[Row]:
    def row(case: str, name: str, unit: str, note: str, scale: float = 1.0, **target: float) -> Row:
        sides = figures[name]
        if KAFKA not in sides:
            return alone(QUESTION, case, sides["here"], unit=unit, scale=scale, note=note, **target)
        return compared(QUESTION, case, sides, ours="here", peer=KAFKA, unit=unit, scale=scale, note=note)

    synced = (
        "3 partitions, 3 replicas, 1 KiB; on a majority's disks; Kafka: flush.messages=1, its own tool, warm"
    )
    yield row("produce, acks=all", "produce", "records/s", synced, at_least=40_000)
    if "produce cached" in figures:
        sides = {"here": figures["produce"]["here"], KAFKA: figures["produce cached"][KAFKA]}
        note = "the same, Kafka without syncs"
        yield compared(
            QUESTION,
            "produce, acks=all, Kafka unsynced",
            sides,
            ours="here",
            peer=KAFKA,
            unit="records/s",
            note=note,
        )
    yield from _latencies(figures)
    note = "longest time without an answer at 500 records/s, one partition, kill -9 of its leader"
    yield row("failover", "failover", "s", note, at_most=2.0)
    yield row("start of three to serving", "start", "s", "new processes on empty directories")


def _latencies(figures: Figures) -> Iterator[Row]:
    """Each side at a load of its own: ours of the target, Kafka's of what it took above."""
    for load in LOADS:
        reached = statistics.median(figures[f"rate at {load}"]["here"])
        for name in PERCENTILES:
            note = f"{TARGET * load // 100:,} records/s wanted, {reached:,.0f} answered; from when a record was due"
            took = figures[f"{name} at {load}"]["here"]
            yield alone(
                QUESTION, f"produce at {load} % of the target, {name}", took, unit="ms", scale=1e3, note=note
            )
            kafka = figures.get(f"Kafka's {name} at {load}")
            if kafka is not None:
                note = f"{load} % of the rate that Kafka reached above, synced, by its own tool"
                yield alone(
                    QUESTION,
                    f"{KAFKA} at {load} % of its own, {name}",
                    kafka[KAFKA],
                    unit="ms",
                    scale=1e3,
                    note=note,
                )


def _catching_up(bench: Bench, code: str) -> Iterator[Row]:
    """A broker that was away while much was written."""
    count = bench.size(300_000, 20_000)
    with bench.scratch() as folder, brokers(folder, code) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        away = next(node for node in NODES if node != cluster.describe().controller)
        cluster.end(away)
        child.call("cluster_produce", address=cluster.address, topic=TOPIC, count=count)
        cluster.start(away)
        took = cluster.await_status(TOPIC, caught_up)
        rate = count * VALUE_BYTES / took / (1 << 20)
        note = f"{count:,} records of 1 KiB it lacked, from when it serves until nothing is lacking"
        yield alone(QUESTION, "catching up", [rate], unit="MiB/s", note=note)


def _kafka_growth(bench: Bench, directory: str) -> Iterator[tuple[int, float]]:
    """(partitions, records a second) of Kafka, each of a cluster of its own, synced; a run that takes longer than
    ``GROWTH_WITHIN_S`` is given up, and has no row."""
    count = bench.size(20_000, 5_000)
    for partitions in GROWTH[: bench.size(3, 2)]:
        with bench.scratch() as folder:
            try:
                with KafkaCluster(directory, folder) as cluster:
                    cluster.create_topic(TOPIC, partitions, flush_messages="1")
                    yield (
                        partitions,
                        cluster.produce(TOPIC, count, VALUE_BYTES, within_s=GROWTH_WITHIN_S).rate,
                    )
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError, TimeoutError) as error:
                print(f"cluster: no rate of Kafka's over {partitions} partitions: {error}", file=sys.stderr)


def _growth(bench: Bench, code: str, kafka: Mapping[int, float]) -> Iterator[Row]:
    count, seconds = bench.size(100_000, 10_000), bench.size(20, 5)
    for partitions in GROWTH[: bench.size(3, 2)]:
        with bench.scratch() as folder, brokers(folder, code) as cluster:
            cluster.create_topic(TOPIC, partitions)
            found = child.call("cluster_produce", address=cluster.address, topic=TOPIC, count=count)
            case = f"produce, {partitions:,} partitions"
            note = f"{partitions:,} partitions x 3 replicas, all in use; no keys"
            if partitions in kafka:
                sides = {"here": [found["produce"]], KAFKA: [kafka[partitions]]}
                note += "; Kafka: flush.messages=1"
                yield compared(QUESTION, case, sides, ours="here", peer=KAFKA, unit="records/s", note=note)
            else:
                yield alone(QUESTION, case, [found["produce"]], unit="records/s", note=note)
            time.sleep(15.0)  # what was written is settled
            pids = [process.pid for process in cluster.processes.values()]
            taken, began = [processor_s(pid) for pid in pids], time.perf_counter()
            time.sleep(seconds)
            passed = time.perf_counter() - began
            shares = [
                100 * (processor_s(pid) - before) / passed for pid, before in zip(pids, taken, strict=True)
            ]
            yield alone(
                QUESTION,
                f"idle, {partitions:,} partitions",
                [sum(shares) / len(shares)],
                unit="% of a core",
                note=f"each broker, over {seconds} s",
            )
            memory = [resident_mb(pid) for pid in pids]
            yield alone(
                QUESTION, f"resident, {partitions:,} partitions", memory, unit="MiB", note="each broker"
            )
