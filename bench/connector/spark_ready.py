"""What the questions about Spark share: a session, a source of ready Arrow batches, a sink that drops what it gets.

Both are written in Python, as the connector is: what they reach is the ceiling of Spark's Python data sources on this
machine, planning and worker processes included.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bench.harness import Bench
from spark_connector import spark_session
from spark_connector.java import java_version, why_not
from spark_connector.reading.ranges import BATCH_ROWS
from spark_connector.reading.schema import arrow_schema, spark_schema
from spark_connector.settings.options import parse

TOPIC = "t"
TASKS = 2
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


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
        return [InputPartition(self.rows // TASKS) for _ in range(TASKS)]

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
        return [InputPartition((end["at"] - start["at"]) // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return ready(partition.value, self.size, self.columns)


class DroppedRows(DataSource):
    """Takes Arrow batches and forgets them."""

    @classmethod
    def name(cls) -> str:
        return "dropped"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        return DropWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802, ARG002
        return DropStream()


def drop(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()


class DropWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return drop(iterator)


class DropStream(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return drop(iterator)


@contextmanager
def session(question: str, **more: str) -> Iterator[SparkSession | None]:
    """Spark with ``TASKS`` cores, settings ``more`` and the formats ``logstore``, ``ready`` and ``dropped``; None, and
    a line that says why, where there is no Java."""
    reason = why_not(java_version())
    if reason is not None:
        print(f"{question}: not asked: {reason}", file=sys.stderr)
        yield None
        return
    began = time.perf_counter()
    known = [ROOT, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, known))
    conf = {"spark.driver.memory": "2g", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    conf |= more
    spark = spark_session(f"local[{TASKS}]", app="bench", **conf, **{"spark.log.level": "ERROR"})
    try:
        spark.dataSource.register(ReadyBatches)
        spark.dataSource.register(DroppedRows)
        print(f"{question}: session after {time.perf_counter() - began:.0f} s", file=sys.stderr)
        yield spark
    finally:
        spark.stop()


def triggers(
    bench: Bench, frame: DataFrame, kind: str, options: dict[str, str], most: int | None = None
) -> list[tuple[int, float]]:
    """A streaming query to its end, or until ``most`` triggers had rows: rows and ms of each of those but the first."""
    with bench.scratch() as folder:
        writer = frame.writeStream.format(kind).options(**options)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.trigger(availableNow=True).start()
        while (
            query.isActive
        ):  # without a bound ``awaitTermination`` returns None, which is no sign of its end
            query.awaitTermination(1)
            if most and sum(1 for row in query.recentProgress if row.numInputRows) >= most:
                query.stop()
        done = [(row.numInputRows, row.durationMs["triggerExecution"]) for row in query.recentProgress]
    return [(rows, float(ms)) for rows, ms in done if rows][1:]
