"""The sink in a real Spark session: what only Spark itself can show. Few, since each query takes a second."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import logstore
import spark_connector
from spark_connector import connection
from spark_connector.writing.sink_commit import COUNTER, sink_group
from tests.house import ROOT
from tests.rpc.served import Served
from tests.spark.sources import TOPIC, fill

pytestmark = pytest.mark.xdist_group("spark")
DEADLINE_S = 120
OUT = "copies"


def make(path: Path, topic: str = OUT, partitions: int = 2, **config: str) -> None:
    with logstore.open(path) as store:
        store.create_topic(topic, partitions=partitions, config=config)


def records(path: Path, topic: str = OUT) -> list[Any]:
    with (
        logstore.open(path, mode="r") as store,
        store.consumer(topic, isolation="read_committed", until_end=True) as consumer,
    ):
        return [record for batch in consumer.batches() for record in batch]


def values(path: Path, topic: str = OUT) -> list[bytes]:
    return sorted(record.value for record in records(path, topic))


def staged(path: Path) -> list[Path]:
    return list((path / ".staging").glob("*"))


def copy(spark: SparkSession, source: Path, target: Path, checkpoint: Path, **options: str) -> Any:
    """A streaming copy of ``TOPIC`` to ``OUT``, started."""
    frame = (
        spark.readStream.format("logstore").option("subscribe", TOPIC).option("startingOffsets", "earliest")
    )
    frame = frame.option("maxOffsetsPerTrigger", "6").load(str(source)).select("key", "value")
    writer = frame.writeStream.format("logstore").option("topic", OUT).options(**options)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(target))


def test_batch_append_with_all_columns(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    make(tmp_path, "others", 1)
    rows = spark.sql(
        "SELECT CAST(id AS STRING) AS key, CAST(id AS STRING) AS value, CAST(id % 2 AS INT) AS partition, "
        "IF(id = 9, 'others', 'copies') AS topic, timestamp_millis(1700000000000 + id) AS timestamp, "
        "array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers FROM range(9)"
    )
    rows.write.format("logstore").mode("append").save(str(tmp_path))
    found = records(tmp_path)
    assert sorted(int(record.value) for record in found) == list(range(9))
    for record in found:
        number = int(record.value)
        assert (record.partition, record.key) == (number % 2, b"%d" % number)
        assert (record.timestamp_ms, list(record.headers)) == (1700000000000 + number, [("h", b"x")])
    assert staged(tmp_path) == []


def test_wrong_writes_are_refused_before_a_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    for query, mode, text in (
        ("SELECT id AS value FROM range(1)", "append", "column value is bigint, not string or binary"),
        ("SELECT '1' AS value", "overwrite", "mode overwrite: records are appended"),
    ):
        with pytest.raises(PySparkException, match=text):
            spark.sql(query).write.format("logstore").option("topic", OUT).mode(mode).save(str(tmp_path))
    assert not (tmp_path / ".staging").exists()


def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """One task stages its rows, the other meets a bad one."""
    make(tmp_path)
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(IF(id = 99, 7, 0) AS INT) AS partition"
    )
    with pytest.raises(PySparkException, match="names partition 7 of topic 'copies'"):
        rows.write.format("logstore").option("topic", OUT).mode("append").save(str(tmp_path))
    assert records(tmp_path) == []
    assert staged(tmp_path) == []


@pytest.mark.slow
def test_a_stream_goes_on_with_the_checkpoint_files_of_the_readme(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Begun with Spark's own way of writing them, and gone on with in the way that README names for small triggers."""
    readme = Path(spark_connector.__file__).with_name("README.md").read_text("utf-8")
    setting, manager = re.findall(
        r"^\| `(spark\.sql\.streaming\.\w+)` \| `([\w.]+)` \|$", readme, re.MULTILINE
    )[0]
    source, target, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    fill(source, [6, 4])
    make(target)
    assert copy(spark, source, target, checkpoint).awaitTermination(DEADLINE_S)
    with logstore.open(source) as store, store.producer() as producer:
        producer.send_many(TOPIC, [(None, b"later %d" % number) for number in range(9)])
    spark.conf.set(setting, manager)
    try:
        assert copy(spark, source, target, checkpoint).awaitTermination(DEADLINE_S)
    finally:
        spark.conf.unset(setting)
    assert values(target) == values(source, TOPIC)
    (checkpoint / "commits" / "3").unlink()
    (checkpoint / "commits" / ".3.crc").unlink(missing_ok=True)
    assert copy(spark, source, target, checkpoint).awaitTermination(DEADLINE_S)  # by Spark's own way again
    assert values(target) == values(source, TOPIC)


@pytest.mark.slow
def test_a_stream_is_copied_once_whatever_spark_forgets(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own note of a batch is written after the sink's commit: without it, the batch runs again."""
    source, target, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    fill(source, [6, 4])
    make(target)
    query = copy(spark, source, target, checkpoint)
    assert query.awaitTermination(DEADLINE_S)
    expected = values(source, TOPIC)
    assert values(target) == expected
    with logstore.open(target, mode="r") as store:
        group = sink_group(query.id)
        assert store.committed_offsets(group)[COUNTER].offset == 2
    last = checkpoint / "commits" / "1"
    last.unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    fill(source, [1, 1])
    assert copy(spark, source, target, checkpoint).awaitTermination(DEADLINE_S)
    assert last.exists()
    assert len(expected) == 10
    assert values(target) == values(source, TOPIC)
    assert staged(target) == []


def values_at(served: Served) -> list[bytes]:
    with served.store.consumer(OUT, isolation="read_committed", until_end=True) as consumer:
        return sorted(record.value or b"" for batch in consumer.batches() for record in batch)


def copy_at(spark: SparkSession, served: Served, source: Path, checkpoint: Path) -> Any:
    """A streaming copy of ``TOPIC`` of a directory to ``OUT`` of brokers, to its end."""
    frame = (
        spark.readStream.format("logstore").option("subscribe", TOPIC).option("startingOffsets", "earliest")
    )
    frame = frame.option("maxOffsetsPerTrigger", "6").load(str(source)).select("key", "value")
    writer = frame.writeStream.format("logstore").option("bootstrap.servers", served.address)
    writer = writer.option("topic", OUT).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    return query


@pytest.mark.slow
def test_a_stream_to_brokers_is_in_once_whatever_spark_forgets(spark: SparkSession, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    fill(source, [6, 4])
    with Served(tmp_path / "out") as served:
        served.store.create_topic(OUT, partitions=2)
        query = copy_at(spark, served, source, checkpoint)
        assert values_at(served) == values(source, TOPIC)
        assert served.store.committed_offsets(sink_group(query.id))[COUNTER].offset == 2
        (checkpoint / "commits" / "1").unlink()
        (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
        fill(source, [1, 1])
        copy_at(spark, served, source, checkpoint)
        assert values_at(served) == values(source, TOPIC)
        found = {one.transactional_id: one for one in served.store.admin.list_transactions()}
        assert {one.state for one in found.values()} <= {"EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"}
        assert {one.coordinator for one in found.values()} == {None, f"spark-{query.id}"}
        connection.forget_stores()


def test_a_failed_job_leaves_nothing_at_brokers(spark: SparkSession, tmp_path: Path) -> None:
    """One task has prepared its rows, the other meets a bad one."""
    with Served(tmp_path / "out") as served:
        served.store.create_topic(OUT, partitions=2)
        rows = spark.range(0, 100, 1, 2).selectExpr(
            "CAST(id AS STRING) AS value", "CAST(IF(id = 99, 7, 0) AS INT) AS partition"
        )
        writer = rows.write.format("logstore").option("bootstrap.servers", served.address)
        with pytest.raises(PySparkException, match="names partition 7 of topic 'copies'"):
            writer.option("topic", OUT).mode("append").save()
        assert values_at(served) == []
        states = {one.state for one in served.store.admin.list_transactions()}
        assert states <= {"EMPTY", "COMPLETE_ABORT"}
        connection.forget_stores()


@pytest.mark.slow
def test_another_batch_under_an_old_number_ends_the_query_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The last offsets and commits of the checkpoint are lost, and new records came: Spark plans the number anew."""
    source, target, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    fill(source, [6, 4])
    make(target)
    assert copy(spark, source, target, checkpoint).awaitTermination(DEADLINE_S)
    before = values(target)
    for kind in ("commits", "offsets"):
        (checkpoint / kind / "1").unlink()
        (checkpoint / kind / ".1.crc").unlink(missing_ok=True)
    fill(source, [3, 3])
    query = copy(spark, source, target, checkpoint)
    with pytest.raises(StreamingQueryException, match=r"(?s)BatchChangedError.*batch 1 of query"):
        query.awaitTermination(DEADLINE_S)
    assert values(target) == before
    assert copy(spark, source, target, checkpoint, changedBatch="append").awaitTermination(DEADLINE_S)
    assert set(values(target)) == set(values(source, TOPIC))


@pytest.mark.slow
def test_a_batch_that_fails_is_not_to_be_seen_and_comes_later(spark: SparkSession, tmp_path: Path) -> None:
    source, target, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    fill(source, [3])
    make(target, partitions=1, **{"max.message.bytes": "200"})
    with logstore.open(source) as store:
        store.partition(TOPIC, 0).append([(b"k", b"x" * 300)])
    query = copy(spark, source, target, checkpoint)
    with pytest.raises(StreamingQueryException, match="RecordTooLargeError"):
        query.awaitTermination(DEADLINE_S)
    assert records(target) == []
    with logstore.open(target) as store:
        store.admin.alter_topic(OUT, {"max.message.bytes": "1000"})
    assert copy(spark, source, target, checkpoint).awaitTermination(DEADLINE_S)
    assert len(values(target)) == 4


@pytest.mark.slow
def test_the_tour_of_the_readme(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands there, but for where its directories are."""
    readme = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"^```python spark\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    for name in ("spark-data", "late-checkpoint"):
        block = block.replace(f'"{name}"', f'"{tmp_path / name}"')
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.count("99|") == 10
    assert len(values(tmp_path / "spark-data", "late")) == 10


def test_foreach_batch_and_at_least_once(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    fill(source, [3])
    make(target)
    make(target, "plain", 1)

    def both(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("value", f"'{number}' AS key")
        rows.write.format("logstore").option("topic", OUT).mode("append").save(str(target))
        plain = rows.write.format("logstore").option("topic", "plain").option("delivery", "at_least_once")
        plain.mode("append").save(str(target))

    frame = (
        spark.readStream.format("logstore").option("subscribe", TOPIC).option("startingOffsets", "earliest")
    )
    writer = frame.load(str(source)).writeStream.foreachBatch(both).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(DEADLINE_S)
    assert values(target) == values(target, "plain") == values(source, TOPIC)
    assert copy(spark, source, target, tmp_path / "second", delivery="at_least_once").awaitTermination(
        DEADLINE_S
    )
    assert len(values(target)) == 6
    with logstore.open(target, mode="r") as store:
        assert store.admin.list_groups() == []
