"""Spark's own Kafka source and sink beside the connector's, in one session: asked by name alone, with Kafka's jars in
KAFKA_JARS and the connector's (spark-sql-kafka and what it needs) in SPARK_KAFKA_JARS."""

from __future__ import annotations

import glob
import os
import statistics
import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession

from bench.brokers import kafka_broker
from bench.connector.spark import MILLION, SMALL_ROUNDS, SMALL_ROWS, SMALL_TRIGGERS, fill, options_of
from bench.connector.spark_ready import TASKS, TOPIC, session, triggers
from bench.connector.spark_sink import target
from bench.harness import Bench, Row, compared, in_turn

QUESTION = "spark_kafka"
CONNECTOR_JARS = "SPARK_KAFKA_JARS"
OUT = "out"
KINDS = ("noop", "exactly_once", "at_least_once")
LARGE_TRIGGERS = 4
COUNTED = LARGE_TRIGGERS - 1  # of each round: the first is left out, and uneven partitions make one more


def connector_jars() -> list[str]:
    """The jars of Spark's Kafka connector; none where the variable names no directory with them."""
    return sorted(glob.glob(os.path.join(os.environ.get(CONNECTOR_JARS) or "/nowhere", "*.jar")))


class Sides:
    """Queries over the same records in a store and in a broker of Kafka's."""

    def __init__(self, bench: Bench, spark: SparkSession, broker: kafka_broker.KafkaBroker) -> None:
        self._bench, self._spark, self._broker = bench, spark, broker

    def kafka(self, rows: int, size: int) -> str:
        """A topic with at least so many records."""
        topic = f"rows-{size}"
        self._broker.create_topic(topic, TASKS)
        self._broker.produce(topic, rows // 2, size)
        return topic

    def kafka_triggers(self, topic: str, most: int, kind: str, size: int) -> list[tuple[int, float]]:
        options = {
            "kafka.bootstrap.servers": self._broker.address,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(size),
        }
        frame = self._spark.readStream.format("kafka").options(**options).load()
        if kind == "noop":
            return triggers(self._bench, frame, "noop", {}, most)
        sink = {"kafka.bootstrap.servers": self._broker.address, "topic": OUT}
        return triggers(self._bench, frame.select("value"), "kafka", sink, most)

    def our_triggers(self, path: str, most: int, kind: str, size: int) -> list[tuple[int, float]]:
        source, options = options_of(path, 0, 0, maxOffsetsPerTrigger=str(size))
        frame = self._spark.readStream.format(source).options(**options).load()
        if kind == "noop":
            return triggers(self._bench, frame, "noop", {}, most)
        with self._bench.scratch() as folder:
            sink = {"path": target(folder), "topic": TOPIC, "delivery": kind}
            return triggers(self._bench, frame.select("value"), "logstore", sink, most)


def peer_of(kind: str) -> str:
    """What Kafka's side writes to: its sink knows at least once alone."""
    return "noop" if kind == "noop" else "kafka"


def note_of(kind: str) -> str:
    written = "a sink that drops" if kind == "noop" else f"a store, {kind}; Kafka's to a topic, at least once"
    return f"{TASKS} tasks, each trigger as a whole, to {written}"


def small_triggers(bench: Bench, sides: Sides, path: str, topic: str) -> Iterator[Row]:
    """Median ms of a trigger, round by round, in an order that rotates."""
    figures: dict[str, list[float]] = {}
    for number in range(1 if bench.quick else SMALL_ROUNDS):
        for name in in_turn(["peer noop", "peer kafka", *KINDS], number):
            peer, _, kind = name.rpartition(" ")
            if peer:
                took = sides.kafka_triggers(topic, SMALL_TRIGGERS, kind, SMALL_ROWS)
            else:
                took = sides.our_triggers(path, SMALL_TRIGGERS, kind, SMALL_ROWS)
            figures.setdefault(name, []).append(statistics.median(ms for _, ms in took[2:]))
    for kind in KINDS:
        yield compared(
            QUESTION,
            f"a trigger of {SMALL_ROWS} rows of 1024 B, {kind}",
            {"ours": figures[kind], "kafka": figures[f"peer {peer_of(kind)}"]},
            ours="ours",
            peer="kafka",
            unit="ms",
            at_most=1.3,
            note=note_of(kind),
        )


def streams(bench: Bench, sides: Sides, path: str, topic: str, trigger: int) -> Iterator[Row]:
    """Rows a second, trigger by trigger."""
    figures: dict[str, list[float]] = {}
    for _ in range(1 if bench.quick else 2):
        for kind in ("noop", "kafka"):
            took = sides.kafka_triggers(topic, LARGE_TRIGGERS, kind, trigger)[:COUNTED]
            figures.setdefault(f"peer {kind}", []).extend(rows / (ms / 1000) for rows, ms in took)
        for kind in KINDS:
            took = sides.our_triggers(path, LARGE_TRIGGERS, kind, trigger)[:COUNTED]
            figures.setdefault(kind, []).extend(rows / (ms / 1000) for rows, ms in took)
    for kind in KINDS:
        yield compared(
            QUESTION,
            f"stream, triggers of {trigger:,} rows of 1024 B, {kind}",
            {"ours": figures[kind], "kafka": figures[f"peer {peer_of(kind)}"]},
            ours="ours",
            peer="kafka",
            unit="M/s",
            scale=MILLION,
            at_least=1.5,
            note=note_of(kind),
        )


def run(bench: Bench) -> Iterator[Row]:
    directory, jars = kafka_broker.jars(), connector_jars()
    if directory is None or not jars:
        print(
            f"{QUESTION}: passed over, as KAFKA_JARS or {CONNECTOR_JARS} names no directory with its jars",
            file=sys.stderr,
        )
        return
    trigger = bench.size(100_000, 20_000)
    rows = trigger * LARGE_TRIGGERS
    with (
        bench.scratch() as folder,
        session(QUESTION, **{"spark.jars": ",".join(jars)}) as spark,
        kafka_broker.serving(directory, folder) as broker,
    ):
        if spark is None:
            return
        sides = Sides(bench, spark, broker)
        broker.create_topic(OUT, TASKS)
        topic, path = sides.kafka(rows, 1024), fill(folder, rows, 1024)
        yield from small_triggers(bench, sides, path, topic)
        yield from streams(bench, sides, path, topic, trigger)
