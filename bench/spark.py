"""Spark reading a local store, batch and stream, against a Python source that yields ready Arrow batches: the
ceiling of Spark's Python data sources on this machine."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

import logstore
from bench.harness import Bench, Row, Run, Side, alone, compared, rates
from logstore.format.batch import encode_batch
from spark_connector import spark_session
from spark_connector.java import java_version, why_not
from spark_connector.options import parse
from spark_connector.reading import BATCH_ROWS
from spark_connector.schema import arrow_schema, spark_schema

QUESTION = "spark"
TOPIC = "t"
PARTITIONS = 2
MILLION = 1e-6
TRIGGERS = 20
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class ReadyBatches(DataSource):
    """``rows`` rows of ``size`` bytes over ``tasks`` tasks; as a stream all at once, or ``trigger`` rows each."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        found = spark_schema(parse({"path": "-", "subscribe": TOPIC}, "any"))
        if not isinstance(found, StructType):
            raise TypeError(found)
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return ReadyStream(self.options, schema)


def ready(rows: int, size: int, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The same batch again and again: nothing is made but the first."""
    count = min(rows, BATCH_ROWS)
    columns = [
        pa.nulls(count, pa.binary()),
        pa.array([b"v" * size] * count, pa.binary()),
        pa.array([TOPIC] * count),
        pa.array([0] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([0] * count, pa.int64()),
        pa.array([0] * count, pa.int32()),
    ]
    target = arrow_schema(schema)
    columns = [column.cast(field.type) for column, field in zip(columns, target, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=target)
    for left in range(rows, 0, -count):
        yield batch if left >= count else batch.slice(0, left)


class ReadyReader(DataSourceReader):
    def __init__(self, options: Any, schema: StructType) -> None:
        self.rows, self.size = int(options["rows"]), int(options["size"])
        self.columns = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.rows // PARTITIONS) for _ in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return ready(partition.value, self.size, self.columns)


class ReadyStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Any, schema: StructType) -> None:
        self.rows, self.size = int(options["rows"]), int(options["size"])
        self.trigger = int(options.get("trigger", self.rows))
        self.columns = schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names
        return {"at": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802, ARG002
        return {"at": min(self.rows, start["at"] + self.trigger)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((end["at"] - start["at"]) // PARTITIONS) for _ in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return ready(partition.value, self.size, self.columns)


def fill(folder: str, rows: int, size: int) -> str:
    """A store with so many records over the partitions, in batches of 64 KiB or so."""
    path = tempfile.mkdtemp(dir=folder)
    each = max(1, 65_536 // (size + 10))
    batch = encode_batch([(None, b"v" * size)] * each, now_ms=1_700_000_000_000)
    with logstore.open(path) as store:
        store.create_topic(TOPIC, PARTITIONS, {"flush.ms": "3600000"})
        for partition in range(PARTITIONS):
            log = store.partition(TOPIC, partition)
            left = rows // PARTITIONS
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


def batch_side(spark: SparkSession, path: str | None, rows: int, size: int) -> Side:
    kind, options = options_of(path, rows, size)

    @contextmanager
    def side(folder: str) -> Iterator[Run]:  # noqa: ARG001 - a query leaves nothing behind
        def run() -> int:
            frame = spark.read.format(kind).options(**options).load()
            frame.write.format("noop").mode("overwrite").save()
            return rows

        yield run

    return side


def streamed(frame: DataFrame, folder: str) -> Any:
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def stream_side(spark: SparkSession, path: str | None, rows: int, size: int) -> Side:
    kind, options = options_of(path, rows, size)

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        def run() -> int:
            streamed(spark.readStream.format(kind).options(**options).load(), folder)
            return rows

        yield run

    return side


def triggers(bench: Bench, spark: SparkSession, path: str | None, rows: int) -> float:
    """Median ms of a trigger of a few rows, the first ones left out."""
    more = {"maxOffsetsPerTrigger" if path else "trigger": str(rows // TRIGGERS)}
    kind, options = options_of(path, rows, 100, **more)
    with bench.scratch() as folder:
        query = streamed(spark.readStream.format(kind).options(**options).load(), folder)
        took = [row.durationMs["triggerExecution"] for row in query.recentProgress if row.numInputRows]
    return float(statistics.median(took[3:]))


def session() -> SparkSession:
    known = [ROOT, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, known))
    conf = {"spark.driver.memory": "2g", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = spark_session(f"local[{PARTITIONS}]", app="bench", **conf, **{"spark.log.level": "ERROR"})
    spark.dataSource.register(ReadyBatches)
    return spark


def throughput(bench: Bench, spark: SparkSession) -> Iterator[Row]:
    sizes = {
        100: [bench.size(500_000, 100_000), bench.size(2_000_000, 400_000), bench.size(5_000_000, 1_000_000)],
        1024: [bench.size(100_000, 20_000), bench.size(300_000, 80_000), bench.size(800_000, 200_000)],
    }
    makers = {"batch": batch_side, "stream": stream_side}
    for size, counts in sizes.items():
        for rows in counts:
            with bench.scratch() as folder:
                path = fill(folder, rows, size)
                for verb, make in makers.items():
                    figures = rates(
                        bench,
                        {"ours": make(spark, path, rows, size), "ready": make(spark, None, rows, size)},
                        rounds=2 if bench.quick else 3,
                    )
                    yield compared(
                        QUESTION,
                        f"{verb}, {rows:,} rows of {size} B",
                        figures,
                        ours="ours",
                        peer="ready",
                        unit="M/s",
                        scale=MILLION,
                        note=f"{PARTITIONS} tasks, the whole query, noop sink; peer: ready Arrow batches",
                    )


def run(bench: Bench) -> Iterator[Row]:
    reason = why_not(java_version())
    if reason is not None:
        print(f"{QUESTION}: not asked: {reason}", file=sys.stderr)
        return
    began = time.perf_counter()
    spark = session()
    try:
        print(f"{QUESTION}: session after {time.perf_counter() - began:.0f} s", file=sys.stderr)
        yield from throughput(bench, spark)
        rows = TRIGGERS * 100
        with bench.scratch() as folder:
            path = fill(folder, rows, 100)
            pairs = [
                (triggers(bench, spark, path, rows), triggers(bench, spark, None, rows)) for _ in range(3)
            ]
        extra = [ours - idle for ours, idle in pairs]
        yield alone(
            QUESTION,
            f"a trigger of {rows // TRIGGERS} rows: ms more than with a source of ready batches",
            extra,
            unit="ms",
            at_most=25,
            note=f"ours {statistics.median(p[0] for p in pairs):.0f} ms, theirs "
            f"{statistics.median(p[1] for p in pairs):.0f} ms a trigger",
        )
    finally:
        spark.stop()
