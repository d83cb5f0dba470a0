"""One DataFrame in several queries: each query has the rows that it asked for, whatever another one filtered by.

Spark keeps the reader that it planned for a DataFrame. Where ``spark.sql.python.filterPushdown.enabled`` is true it
hands filters to that reader: one that took them would give later queries, and other branches of the same query, too
few rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.sources import TOPIC, fill

pytestmark = pytest.mark.xdist_group("spark")
SETTING = "spark.sql.python.filterPushdown.enabled"
PARTITIONS, EACH = 3, 10


@pytest.fixture(params=["true", "false"], ids=["pushdown on", "pushdown off"])
def frame(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[DataFrame]:
    fill(tmp_path, [EACH] * PARTITIONS)
    before = spark.conf.get(SETTING)
    spark.conf.set(SETTING, request.param)
    yield spark.read.format("logstore").option("subscribe", TOPIC).load(str(tmp_path))
    spark.conf.set(SETTING, str(before))


@pytest.mark.slow
def test_our_session_leaves_sparks_setting_as_it_is(spark: SparkSession) -> None:
    assert spark.conf.get(SETTING) == "false"


@pytest.mark.slow
def test_queries_one_after_another_and_branches_of_one(frame: DataFrame, spark: SparkSession) -> None:
    everything = PARTITIONS * EACH
    assert frame.where("partition = 1").count() == EACH
    assert frame.count() == len(frame.collect()) == everything
    assert frame.where("offset < 5 or partition = 2").count() == 20
    assert frame.where("timestamp < '1970-01-02'").count() == 0
    low, high = frame.where("offset < 3"), frame.where("offset >= 3")
    assert low.union(high).count() == high.union(low).count() == everything
    assert frame.where("partition = 0").union(frame).count() == EACH + everything
    joined = frame.where("partition = 1").alias("x").join(frame.alias("y"), "offset")
    assert joined.count() == everything
    frame.createOrReplaceTempView("reused")
    asked = (
        "SELECT count(*) FROM reused WHERE offset > (SELECT max(offset) - 1 FROM reused WHERE partition = 1)"
    )
    assert [row[0] for row in spark.sql(asked).collect()] == [PARTITIONS]
    assert [row[0] for row in spark.sql("SELECT count(*) FROM reused").collect()] == [everything]
    kept = frame.where("partition = 2").cache()
    try:
        assert (kept.count(), frame.count()) == (EACH, everything)
    finally:
        kept.unpersist()
