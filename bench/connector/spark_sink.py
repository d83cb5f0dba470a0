"""Spark writing to a local store, batch and stream, exactly once and at least once, against a Python sink that takes
Arrow batches and drops them: the ceiling of Spark's Python sinks on this machine."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

import logstore
from bench.connector.spark import (
    LARGE_TRIGGERS,
    MILLION,
    SMALL_ROUNDS,
    SMALL_ROWS,
    SMALL_TRIGGERS,
    fill,
    options_of,
    overhead_row,
    rates_of,
)
from bench.connector.spark_ready import TASKS, TOPIC, session, triggers
from bench.harness import Bench, Row, Run, Side, alone, compared, in_turn, rates

QUESTION = "spark_sink"
DELIVERIES = ("exactly_once", "at_least_once")
DROP = "drop"


def target(folder: str) -> str:
    """A store with an empty topic."""
    path = os.path.join(folder, "store")
    with logstore.open(path) as store:
        store.create_topic(TOPIC, TASKS, {"flush.ms": "3600000"})
    return path


def sink_of(delivery: str, folder: str) -> tuple[str, dict[str, str]]:
    """Format and options of a side, its store made."""
    if delivery == DROP:
        return "dropped", {}
    return "logstore", {"path": target(folder), "topic": TOPIC, "delivery": delivery}


def batch_side(spark: SparkSession, delivery: str, rows: int, size: int) -> Side:
    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        kind, options = sink_of(delivery, folder)

        def run() -> int:
            frame = spark.read.format("ready").options(rows=str(rows), size=str(size)).load().select("value")
            frame.write.format(kind).options(**options).mode("append").save()
            return rows

        yield run

    return side


def ready_stream(spark: SparkSession, rows: int, size: int, trigger: int) -> DataFrame:
    options = {"rows": str(rows), "size": str(size), "trigger": str(trigger)}
    return spark.readStream.format("ready").options(**options).load().select("value")


def peer_row(case: str, figures: dict[str, list[float]], delivery: str, note: str) -> Row:
    if DROP not in figures:
        return alone(QUESTION, case, figures[delivery], unit="M/s", scale=MILLION, note=note)
    return compared(QUESTION, case, figures, ours=delivery, peer=DROP, unit="M/s", scale=MILLION, note=note)


def batches(bench: Bench, spark: SparkSession) -> Iterator[Row]:
    sizes = {
        100: [bench.size(100_000, 20_000), bench.size(300_000, 60_000), bench.size(1_000_000, 200_000)],
        1024: [bench.size(30_000, 5_000), bench.size(100_000, 20_000), bench.size(200_000, 40_000)],
    }
    for size, counts in sizes.items():
        for rows in counts:
            names = [*DELIVERIES, DROP] if rows == counts[-1] else DELIVERIES
            figures = rates(bench, {name: batch_side(spark, name, rows, size) for name in names}, rounds=2)
            for delivery in DELIVERIES:
                yield peer_row(
                    f"batch {delivery}, {rows:,} rows of {size} B",
                    figures,
                    delivery,
                    f"{TASKS} tasks, the whole query, from ready batches; peer: batches dropped in Python",
                )


def streams(bench: Bench, spark: SparkSession) -> Iterator[Row]:
    for size, trigger in ((100, bench.size(200_000, 50_000)), (1024, bench.size(50_000, 10_000))):
        figures = {}
        for name in (*DELIVERIES, DROP):
            frame = ready_stream(spark, trigger * LARGE_TRIGGERS, size, trigger)
            with bench.scratch() as folder:
                kind, options = sink_of(name, folder)
                figures[name] = rates_of(triggers(bench, frame, kind, options))
        for delivery in DELIVERIES:
            yield peer_row(
                f"stream {delivery}, triggers of {trigger:,} rows of {size} B",
                figures,
                delivery,
                f"{TASKS} tasks, each trigger as a whole, from ready batches; peer: batches dropped in Python",
            )


def small_triggers(bench: Bench, spark: SparkSession) -> Iterator[Row]:
    """Source and sink of the connector against ones that do nothing, in an order that rotates."""
    rows = SMALL_TRIGGERS * SMALL_ROWS
    rounds: list[dict[str, float]] = []
    with bench.scratch() as folder:
        path = fill(folder, rows, 100)
        for number in range(SMALL_ROUNDS):
            took: dict[str, float] = {}
            for name in in_turn([DROP, *DELIVERIES], number):
                kind, options = options_of(path, rows, 100, maxOffsetsPerTrigger=str(SMALL_ROWS))
                frame = spark.readStream.format(kind).options(**options).load().select("value")
                if name == DROP:
                    frame = ready_stream(spark, rows, 100, SMALL_ROWS)
                took[name] = median_ms(bench, frame, name)
            rounds.append(took)
    for delivery in DELIVERIES:
        yield overhead_row(
            QUESTION,
            f"a trigger of {SMALL_ROWS} rows, source and sink {delivery}: ms more than with a source of ready batches "
            "and a sink that drops them",
            [[took[delivery], took[DROP]] for took in rounds],
        )


def median_ms(bench: Bench, frame: DataFrame, delivery: str) -> float:
    with bench.scratch() as folder:
        kind, options = sink_of(delivery, folder)
        return statistics.median(ms for _, ms in triggers(bench, frame, kind, options)[2:])


def run(bench: Bench) -> Iterator[Row]:
    with session(QUESTION) as spark:
        if spark is None:
            return
        yield from batches(bench, spark)
        yield from streams(bench, spark)
        yield from small_triggers(bench, spark)
