"""What the questions about Spark count and fill, without a session."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from bench import __main__ as entry
from bench.connector import spark, spark_sink
from bench.connector.spark_ready import TASKS, TOPIC, ready
from spark_connector.reading.schema import spark_schema
from spark_connector.settings.options import parse


@pytest.mark.parametrize(("rows", "size", "partitions"), [(2000, 100, 2), (4, 1024, 1), (130_000, 1, 4)])
def test_a_filled_store_has_all_rows(tmp_path: Path, rows: int, size: int, partitions: int) -> None:
    with logstore.open(spark.fill(str(tmp_path), rows, size, partitions), mode="r") as store:
        ends = [store.partition(TOPIC, number).log_end_offset for number in range(partitions)]
    assert ends == [rows // partitions] * partitions


@pytest.mark.parametrize("rows", [1, 20_000, 20_001, 45_000])
def test_ready_batches_have_all_rows(rows: int) -> None:
    schema = spark_schema(parse({"path": "-", "subscribe": TOPIC}, "any"))
    assert not isinstance(schema, str)
    assert sum(batch.num_rows for batch in ready(rows, 10, schema)) == rows


def test_rates_and_what_a_trigger_takes_more() -> None:
    assert spark.rates_of([(1000, 500.0), (10, 1.0)]) == [2000.0, 10_000.0]
    row = spark.overhead_row("q", "c", [[120.0, 100.0], [140.0, 110.0], [100.0, 90.0]])
    assert tuple(row.value) == (20.0, 10.0, 30.0)
    assert row.met
    assert row.note == "ours 120 ms, theirs 100 ms a trigger"


def test_a_sink_writes_to_a_topic_of_its_own(tmp_path: Path) -> None:
    assert spark_sink.sink_of(spark_sink.DROP, str(tmp_path)) == ("dropped", {})
    kind, options = spark_sink.sink_of("exactly_once", str(tmp_path))
    assert kind == "logstore"
    with logstore.open(options["path"], mode="r") as store:
        assert store.backend.topic(TOPIC).partitions == TASKS
    assert {spark.QUESTION, spark_sink.QUESTION} <= set(entry.QUESTIONS)
