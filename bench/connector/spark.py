"""Spark reading a local store, batch and stream, against a Python source that yields ready Arrow batches: the
ceiling of Spark's Python data sources on this machine."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

import logstore
from bench.connector.spark_ready import TASKS, TOPIC, session, triggers
from bench.harness import Bench, Row, Run, Side, alone, compared, in_turn, rates
from logstore.format.batch import encode_batch

QUESTION = "spark"
MILLION = 1e-6
SMALL_TRIGGERS, SMALL_ROWS = 20, 100
SMALL_ROUNDS = 3
LARGE_TRIGGERS = 4


def fill(folder: str, rows: int, size: int, partitions: int = TASKS) -> str:
    """A store with so many records over the partitions, in batches of 64 KiB or so."""
    path = tempfile.mkdtemp(dir=folder)
    each = max(1, 65_536 // (size + 10))
    batch = encode_batch([(None, b"v" * size)] * each, now_ms=1_700_000_000_000)
    with logstore.open(path) as store:
        store.create_topic(TOPIC, partitions, {"flush.ms": "3600000"})
        for partition in range(partitions):
            log = store.partition(TOPIC, partition)
            left = rows // partitions
            for _ in range(left // each):
                log.append_batch(batch, acks=1)
            if left % each:
                log.append_batch(encode_batch([(None, b"v" * size)] * (left % each), now_ms=1), acks=1)
            log.flush()
    return path


def options_of(path: str | None, rows: int, size: int, **more: str) -> tuple[str, dict[str, str]]:
    """Format and options of a side; ``path`` None: the ceiling."""
    if path is None:
        return "ready", {"rows": str(rows), "size": str(size), **more}
    return "logstore", {"path": path, "subscribe": TOPIC, "startingOffsets": "earliest", **more}


def batch_side(spark: SparkSession, path: str | None, rows: int, size: int, **more: str) -> Side:
    kind, options = options_of(path, rows, size, **more)

    @contextmanager
    def side(folder: str) -> Iterator[Run]:  # noqa: ARG001 - a query leaves nothing behind
        def run() -> int:
            frame = spark.read.format(kind).options(**options).load()
            frame.write.format("noop").mode("overwrite").save()
            return rows

        yield run

    return side


def stream_triggers(
    bench: Bench, spark: SparkSession, path: str | None, rows: int, size: int, trigger: int
) -> list[tuple[int, float]]:
    """Rows and ms of each trigger of ``trigger`` rows, read to nowhere."""
    more = {"maxOffsetsPerTrigger" if path else "trigger": str(trigger)}
    kind, options = options_of(path, rows, size, **more)
    return triggers(bench, spark.readStream.format(kind).options(**options).load(), "noop", {})


def batches(bench: Bench, spark: SparkSession) -> Iterator[Row]:
    """Whole queries; the ceiling at the largest size only, where what a query costs once weighs least."""
    sizes = {
        100: [bench.size(500_000, 100_000), bench.size(2_000_000, 400_000), bench.size(5_000_000, 1_000_000)],
        1024: [bench.size(100_000, 20_000), bench.size(300_000, 80_000), bench.size(800_000, 200_000)],
    }
    for size, counts in sizes.items():
        for rows in counts:
            with bench.scratch() as folder:
                path = fill(folder, rows, size)
                sides = {"ours": batch_side(spark, path, rows, size)}
                if rows == counts[-1]:
                    sides["ready"] = batch_side(spark, None, rows, size)
                figures = rates(bench, sides, rounds=2 if bench.quick else 3)
            yield row_of(
                f"batch, {rows:,} rows of {size} B",
                figures,
                f"{TASKS} tasks, the whole query, noop sink; peer: ready Arrow batches",
                at_least=0.9,
            )


def row_of(
    case: str,
    figures: Mapping[str, list[float]],
    note: str,
    question: str = QUESTION,
    at_least: float | None = None,
) -> Row:
    """Rows a second, against ready batches if they were asked: the target, if any, is on that ratio."""
    if "ready" not in figures:
        return alone(question, case, figures["ours"], unit="M/s", scale=MILLION, note=note)
    return compared(
        question,
        case,
        figures,
        ours="ours",
        peer="ready",
        unit="M/s",
        scale=MILLION,
        at_least=at_least,
        note=note,
    )


def rates_of(took: list[tuple[int, float]]) -> list[float]:
    """Rows a second, trigger by trigger."""
    return [rows / (ms / 1000) for rows, ms in took]


def streams(bench: Bench, spark: SparkSession) -> Iterator[Row]:
    """Triggers of one running query each: what a query costs once is no part of them."""
    sizes = {
        100: [bench.size(100_000, 50_000), bench.size(400_000, 100_000), bench.size(1_000_000, 200_000)],
        1024: [bench.size(50_000, 10_000), bench.size(100_000, 20_000), bench.size(200_000, 40_000)],
    }
    for size, counts in sizes.items():
        with bench.scratch() as folder:
            path = fill(folder, counts[-1] * LARGE_TRIGGERS, size)
            for trigger in counts:
                ours = stream_triggers(bench, spark, path, trigger * LARGE_TRIGGERS, size, trigger)
                figures = {"ours": rates_of(ours)[: LARGE_TRIGGERS - 1]}
                if trigger == counts[-1]:
                    peer = stream_triggers(bench, spark, None, trigger * LARGE_TRIGGERS, size, trigger)
                    figures["ready"] = rates_of(peer)
                yield row_of(
                    f"stream, triggers of {trigger:,} rows of {size} B",
                    figures,
                    f"{TASKS} tasks, each trigger as a whole, noop sink; peer: ready Arrow batches",
                )


def scaling(bench: Bench, spark: SparkSession) -> Iterator[Row]:
    """One log over more partitions, and one partition over more tasks."""
    rows = bench.size(2_000_000, 400_000)
    cases = [(partitions, 0) for partitions in (1, 2, 4)] + [(1, splits) for splits in (2, 4, 8)]
    sides: dict[str, Side] = {}
    with bench.scratch() as folder:
        paths = {partitions: fill(folder, rows, 100, partitions) for partitions in (1, 2, 4)}
        for partitions, splits in cases:
            more = {"minPartitions": str(splits)} if splits else {}
            name = f"{partitions} partition{'s' * (partitions > 1)}"
            name += f" in {splits} splits" if splits else ""
            sides[name] = batch_side(spark, paths[partitions], rows, 100, **more)
        figures = rates(bench, sides, rounds=2 if bench.quick else 3)
    for name, found in figures.items():
        yield compared(
            QUESTION,
            f"batch, {rows:,} rows of 100 B: {name}",
            figures | {name: found},
            ours=name,
            peer="1 partition",
            unit="M/s",
            scale=MILLION,
            note=f"{TASKS} cores",
        )


def small_triggers(bench: Bench, spark: SparkSession) -> Row:
    rows = SMALL_TRIGGERS * SMALL_ROWS
    pairs = []
    with bench.scratch() as folder:
        sides = {"ours": fill(folder, rows, 100), "ready": None}
        for number in range(SMALL_ROUNDS):
            took = {
                name: stream_triggers(bench, spark, sides[name], rows, 100, SMALL_ROWS)[2:]
                for name in in_turn(list(sides), number)
            }
            pairs.append([statistics.median(ms for _, ms in took[name]) for name in sides])
    return overhead_row(
        QUESTION, f"a trigger of {SMALL_ROWS} rows: ms more than with a source of ready batches", pairs
    )


def overhead_row(question: str, case: str, pairs: list[list[float]]) -> Row:
    """``pairs``: median ms of a trigger of ours and of the one that does nothing, round by round."""
    ours, idle = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    return alone(
        question,
        case,
        [our - their for our, their in pairs],
        unit="ms",
        at_most=25,
        note=f"ours {ours:.0f} ms, theirs {idle:.0f} ms a trigger",
    )


def run(bench: Bench) -> Iterator[Row]:
    with session(QUESTION) as spark:
        if spark is None:
            return
        yield from batches(bench, spark)
        yield from streams(bench, spark)
        yield from scaling(bench, spark)
        yield small_triggers(bench, spark)
