"""The source in a real Spark session: what only Spark itself can show. Few, since each query takes a second."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

import logstore
from spark_connector import connection
from tests.house import ROOT
from tests.rpc.served import Served
from tests.spark.sources import TOPIC, append, fill

pytestmark = pytest.mark.xdist_group("spark")
DEADLINE_S = 120


def load(spark: SparkSession, path: object, **options: str) -> DataFrame:
    options.setdefault("subscribe", TOPIC)
    return spark.read.format("logstore").options(**options).load(str(path))


def stream(spark: SparkSession, path: object, **options: str) -> DataFrame:
    options = {"startingOffsets": "earliest", **options}
    if "subscribePattern" not in options:
        options["subscribe"] = TOPIC
    return spark.readStream.format("logstore").options(**options).load(str(path))


def start(source: DataFrame, folder: Path, seen: list[Any], **trigger: Any) -> Any:
    """A query that keeps (batch, partition, offset) of what it read."""

    def keep(batch: DataFrame, number: int) -> None:
        seen.extend(
            (number, row.partition, row.offset) for row in batch.select("partition", "offset").collect()
        )

    writer = source.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def test_batch_columns_and_headers(spark: SparkSession, tmp_path: Path) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC, partitions=2)
        for partition in range(2):
            at_ms = [int((begin + timedelta(hours=n)).timestamp() * 1000) for n in range(10)]
            rows = [(b"k", b"%d" % n, [("h", b"1")], at) for n, at in enumerate(at_ms)]
            store.partition(TOPIC, partition).append(rows)
    frame = load(spark, tmp_path, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    row = frame.where("partition = 1 and offset = 3").first()
    assert row is not None
    assert (bytes(row.key), bytes(row.value), row.topic, row.headers[0].key) == (b"k", b"3", TOPIC, "h")
    hour = (col("timestamp") >= lit(begin + timedelta(hours=4))) & (
        col("timestamp") < lit(begin + timedelta(hours=6))
    )
    wanted = frame.where(hour & (col("partition") == 0))
    assert [found.offset for found in wanted.select("offset").collect()] == [4, 5]


def test_options_read_a_part_of_the_log_and_make_no_task_for_the_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What a filter would have pushed down is said by options: the README's table of them."""
    begin_ms, hour_ms = 1_767_225_600_000, 3_600_000
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC, partitions=3)
        for partition in range(3):
            store.partition(TOPIC, partition).append(
                [(None, b"v", None, begin_ms + hour * hour_ms) for hour in range(10)]
            )
    frame = (
        spark.read.format("logstore")
        .option("assign", json.dumps({TOPIC: [1]}))
        .option("startingTimestamp", begin_ms + 4 * hour_ms)
        .option("endingTimestamp", begin_ms + 6 * hour_ms)
        .load(str(tmp_path))
    )
    assert [(row.partition, row.offset) for row in frame.select("partition", "offset").collect()] == [
        (1, 4),
        (1, 5),
    ]
    assert frame._jdf.queryExecution().toRdd().getNumPartitions() == 1


def test_json_values(spark: SparkSession, tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC)
        store.partition(TOPIC, 0).append(
            [(None, b'{"carrier":"UA","delay":1.5,"at":{"x":1}}'), (None, b"bad"), (None, None)]
        )
    schema = "carrier STRING, delay DOUBLE, at STRUCT<x: INT>"
    frame = load(spark, tmp_path, valueFormat="json", valueSchema=schema)
    found = [
        (r.carrier, r.delay, r.x, r.valueError)
        for r in frame.selectExpr("value.*", "value.at.x", "valueError").collect()
    ]
    assert found[0] == ("UA", 1.5, 1, None)
    assert found[1][3].startswith("not JSON")
    assert found[2] == (None, None, None, None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscrib": "x"}, "did you mean subscribe?"),
        ({"kafka.bootstrap.servers": "localhost:9092"}, "both path="),
        ({"startingOffsets": "latest"}, "a batch read cannot begin at latest"),
        ({"subscribe": "nope"}, "UnknownTopicError"),
    ],
    ids=str,
)
def test_errors_reach_the_user(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], text: str
) -> None:
    fill(tmp_path, [1])
    with pytest.raises(PySparkException, match=text.replace("?", r"\?")):
        load(spark, tmp_path, **options).collect()


def test_a_table_of_sparks_catalogue_says_what_to_use_instead(spark: SparkSession, tmp_path: Path) -> None:
    """Spark gives its options, the path among them, to no source in Python. A ``file:`` URI is a path."""
    fill(tmp_path, [2])
    options = f"USING logstore OPTIONS (path '{tmp_path.as_uri()}', subscribe '{TOPIC}')"
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE without_columns {options}")
    spark.sql(f"CREATE TABLE with_columns (value BINARY) {options}")
    try:
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM with_columns").collect()
    finally:
        spark.sql("DROP TABLE with_columns")
    with pytest.raises(PySparkException, match="unionByName"):
        spark.read.format("logstore").option("subscribe", TOPIC).load([str(tmp_path), str(tmp_path)])
    assert load(spark, tmp_path.as_uri()).count() == 2


def test_available_now_restart_and_progress(spark: SparkSession, tmp_path: Path) -> None:
    """Limits, pinned ends, recovery from the checkpoint, and the last batch's commit."""
    fill(tmp_path / "store", [6, 3])
    source = stream(spark, tmp_path / "store", **{"maxOffsetsPerTrigger": "3", "commit.group": "g"})
    seen: list[Any] = []
    query = start(source, tmp_path, seen)
    assert query.awaitTermination(DEADLINE_S)
    assert sorted(row[1:] for row in seen) == [(0, n) for n in range(6)] + [(1, n) for n in range(3)]
    assert {number for number, _, _ in seen} == {0, 1, 2}
    progress = query.recentProgress[-1].sources[0]
    assert progress.latestOffset == progress.endOffset
    with logstore.open(tmp_path / "store", mode="r") as store:
        assert store.admin.describe_group("g").lag == 0
        assert len(store.committed_offsets("g")) == 2
    fill(tmp_path / "store", [1, 1])
    assert start(source, tmp_path, seen).awaitTermination(DEADLINE_S)
    assert sorted(seen[9:]) == [(3, 0, 6), (3, 1, 3)]


@pytest.mark.slow
def test_beside_a_writer_that_rolls_and_deletes(spark: SparkSession, tmp_path: Path) -> None:
    """Each record of a live writer once, and a new topic from its start; then records are lost under it."""
    fill(tmp_path, [0], **{"segment.bytes": "4096"})
    seen: list[Any] = []
    stop = threading.Event()
    written = 0
    with logstore.open(tmp_path) as store:
        query = start(
            stream(spark, tmp_path, subscribePattern="fl.*"), tmp_path, seen, processingTime="0 seconds"
        )
        try:
            while written < 400 or len({number for number, _, _ in seen}) < 3:
                append(store, 0, 20)
                written += 20
                stop.wait(0.02)
            fill_other(store)
            until(lambda: len(seen) == written + 2)
            # Seen is not yet noted: a query stopped in between reads its last batch again.
            query.processAllAvailable()
        finally:
            query.stop()
        offsets = sorted(offset for _, partition, offset in seen if partition == 0)
        assert offsets == sorted([*range(written), 0, 1])
        append(store, 0, 50)
        store.delete_records(TOPIC, {0: written + 10})
        lost = start(stream(spark, tmp_path, subscribePattern="fl.*"), tmp_path, seen)
        with pytest.raises(StreamingQueryException, match=f"offsets {written} to {written + 9} are gone"):
            lost.awaitTermination(DEADLINE_S)
        lenient = stream(spark, tmp_path, subscribePattern="fl.*", failOnDataLoss="false")
        before = len(seen)
        assert start(lenient, tmp_path, seen).awaitTermination(DEADLINE_S)
        assert sorted(offset for _, _, offset in seen[before:]) == list(range(written + 10, written + 50))


def fill_other(store: logstore.LogStore) -> None:
    store.create_topic("flying")
    append(store, 0, 2, "flying")


def test_the_continuous_trigger_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, [1])
    writer = stream(spark, tmp_path).writeStream.format("console").trigger(continuous="1 second")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException, match="logstore does not support continuous processing"):
        writer.start().awaitTermination(DEADLINE_S)


def test_without_java_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    code = "import spark_connector; spark_connector.spark_session()"
    env = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "UnsupportedPlatformError: Spark needs Java and none was found" in last
    assert "openjdk-17" in last


@pytest.mark.slow
def test_batch_and_stream_from_brokers(spark: SparkSession, tmp_path: Path) -> None:
    with Served(tmp_path / "served") as served:
        served.store.create_topic(TOPIC, partitions=2)
        for partition, count in enumerate((30, 12)):
            served.store.partition(TOPIC, partition).append([(b"k", b"%d" % n) for n in range(count)])
        options = {"kafka.bootstrap.servers": served.address, "subscribe": TOPIC}
        read = spark.read.format("logstore").options(**options).option("maxRecordsPerPartition", "10").load()
        assert read.rdd.getNumPartitions() == 5
        assert read.groupBy("partition").count().orderBy("partition").collect() == [(0, 30), (1, 12)]
        source = spark.readStream.format("logstore").options(**options, startingOffsets="earliest").load()
        seen: list[Any] = []
        query = start(source, tmp_path / "query", seen, availableNow=True)
        query.awaitTermination(60)
        assert len(seen) == 42
        served.store.partition(TOPIC, 0).append([(b"k", b"late")])
        query = start(source, tmp_path / "query", seen, availableNow=True)
        query.awaitTermination(60)
        assert len(seen) == 43
        served.store.create_topic("copy", partitions=2)
        to = {"bootstrap.servers": served.address, "topic": "copy"}
        for delivery in ("exactly_once", "at_least_once"):
            anew = spark.read.format("logstore").options(**options).load()  # a frame is planned once
            rows = anew.select("key", "value").write.format("logstore").options(**to, delivery=delivery)
            rows.mode("append").save()
        copied = [record for n in range(2) for record in served.store.partition("copy", n).records(0)]
        assert len(copied) == 86
        states = {one.state for one in served.store.admin.list_transactions()}
        assert states == {"COMPLETE_COMMIT"}
        connection.forget_stores()
