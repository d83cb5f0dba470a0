"""Streaming copies in one Spark driver, which can be told to stop at a point of a commit and wait to be killed.

Points, each reached in the commit of a batch: ``open`` (records are appended, nothing is decided), ``decided`` (the
transaction's state says commit, no marker is written), ``unnoted`` (all is done and Spark has no note of it yet). At
brokers, whose processes write the markers, a driver has ``open`` and ``unnoted``. A store is a directory, or
``brokers=HOST:PORT``. The environment variable ``PAUSE`` is ``POINT:BATCH:FILE``: the first batch from that number on
stops there and makes the file. It reaches Spark's Python workers, in one of which a commit runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from logstore.client.producer.transaction import TransactionControl
from logstore.coordination.transaction_manager import TransactionManager
from spark_connector import LogStoreDataSource, spark_session
from spark_connector.writing.prepared_sink import PreparedSink
from spark_connector.writing.sink_commit import SinkCommit

PAUSE: Final = "STREAM_JOB_PAUSE"
POINTS: Final = ("open", "decided", "unnoted")
BROKERS: Final = "brokers="
FORGOTTEN_S: Final = 300  # nobody came to kill: the process ends by itself
TASK_FAILURES: Final = 4
_CROWDED_STARTS: Final = 10
_LOOK_S: Final = 0.05
_armed = False


class Copy(NamedTuple):
    """One query: all of ``source`` to ``target``. ``keep``: into the same partition, else by key."""

    source: str
    target: str
    keep: bool = False

    @classmethod
    def of(cls, text: str) -> Copy:
        source, target, *more = text.split(":")
        return cls(source, target, bool(more))

    def __str__(self) -> str:
        return f"{self.source}:{self.target}" + (":keep" if self.keep else "")

    def checkpoint(self, folder: Path) -> Path:
        return folder / f"{self.source}-{self.target}"


class PausingDataSource(LogStoreDataSource):
    """The connector's own; where it makes a writer it arms the process at the point of ``PAUSE``."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if os.environ.get(PAUSE):
            arm(*os.environ[PAUSE].split(":", 2))
        return super().streamWriter(schema, overwrite)


def arm(point: str, first: str, file: str) -> None:
    """Once a process: Spark's workers are used again."""
    global _armed
    if _armed:
        return
    _armed = True
    current = -1
    deliver, finish = TransactionControl._deliver, TransactionManager.finish

    def pause_at(here: str) -> None:
        if here == point and current >= int(first):
            pause(Path(file), f"{point} {current}")

    def seen(once: Callable[..., bool]) -> Callable[..., bool]:
        def once_seen(self: Any, query: str, batch_id: int, told: Any) -> bool:
            nonlocal current
            current = batch_id
            done = once(self, query, batch_id, told)
            pause_at("unnoted")
            current = -1
            return done

        return once_seen

    def delivered(self: TransactionControl) -> None:
        deliver(self)
        pause_at("open")

    def finished(self: TransactionManager, *given: Any, **named: Any) -> None:
        pause_at("decided")
        finish(self, *given, **named)

    SinkCommit.once = seen(SinkCommit.once)  # type: ignore[method-assign]
    PreparedSink.once = seen(PreparedSink.once)  # type: ignore[method-assign]
    TransactionControl._deliver = delivered  # type: ignore[method-assign]
    TransactionManager.finish = finished  # type: ignore[method-assign]


def pause(file: Path, text: str) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(FORGOTTEN_S)
    file.with_suffix(".made").write_text(text)
    file.with_suffix(".made").rename(file)
    while True:
        signal.pause()


def run_copies(root: Path, folder: Path, most: int, copies: list[Copy]) -> None:
    """Start all queries and wait for the end of each: they stop at the ends their topics have now."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    java = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir={scratch}"  # what the killed leave goes with it
    spark = spark_session(
        f"local[2,{TASK_FAILURES}]",
        app="copies",
        **{
            "spark.driver.memory": "768m",
            "spark.driver.extraJavaOptions": java,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(scratch),
            "spark.log.level": "FATAL",
            "spark.ui.showConsoleProgress": "false",
        },
    )
    spark.dataSource.register(PausingDataSource)
    running = {copy: start(spark, root, folder, most, copy) for copy in copies}
    crowded = 0
    while running:
        for copy, query in list(running.items()):
            if query.isActive:
                continue
            error = query.exception()
            if error is None:
                del running[copy]
                continue
            # Spark waits 10 s for a Python process that it starts: too short where much else runs.
            crowded += "failed to connect back" in str(error)
            if "failed to connect back" not in str(error) or crowded > _CROWDED_STARTS:
                raise error
            running[copy] = start(spark, root, folder, most, copy)
        time.sleep(_LOOK_S)
    spark.stop()


def start(spark: SparkSession, root: Path, folder: Path, most: int, copy: Copy) -> StreamingQuery:
    frame = (
        spark.readStream.format("logstore")
        .option("subscribe", copy.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(most))
        # To brokers each task writes for itself: of a range that is split the pieces keep no order among each other.
        .option("minPartitions", "1" if str(root).startswith(BROKERS) else "3")
        .options(**_place(root))
        .load()
    )
    columns = ["key", "value", "partition"] if copy.keep else ["key", "value"]
    writer = frame.select(*columns).writeStream.format("logstore").option("topic", copy.target)
    writer = writer.option("checkpointLocation", str(copy.checkpoint(folder)))
    return writer.options(**_place(root)).trigger(availableNow=True).start()


def _place(root: Path) -> dict[str, str]:
    """The options that name the store."""
    text = str(root)
    if text.startswith(BROKERS):
        return {"bootstrap.servers": text.removeprefix(BROKERS)}
    return {"path": text}


def command(root: Path, folder: Path, most: int, copies: list[Copy]) -> list[str]:
    """Of a process that is this job. (Not of this module by name: what a main module defines Spark sends by value.)"""
    code = (
        "import sys, pathlib; from tests.integration.stream_job import Copy, run_copies; "
        "run_copies(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), "
        "[Copy.of(text) for text in sys.argv[4:]])"
    )
    return [sys.executable, "-c", code, str(root), str(folder), str(most), *map(str, copies)]
