"""A table kept current: of each aircraft how much it flew and where it is, in a compacted topic.

Flights come in as a stream. Spark keeps one row of state for each aircraft; after every portion the rows that
changed go to the topic `aircraft`, keyed by tail number. There the last record of a key is the row, and compaction
removes the others, so that topic is the table: for Spark, for `store.topic("aircraft").table()`, and after a restart.

To look at: that far fewer rows than flights are written, that both readers see the same table, and that it is the
same table after compaction.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import logstore
from spark_connector.examples.scene import Scene, run

FLIGHTS = "flights"
AIRCRAFT = "aircraft"
FLIGHT = "dest STRING, carrier STRING, distance INT"
ROW = "flights BIGINT, miles BIGINT, airport STRING, carrier STRING"


class Latest(NamedTuple):
    """``table`` and ``by_spark``: tail number to a row's JSON. ``written``: records of it before compaction,
    ``kept``: after it."""

    written: int
    kept: int
    table: dict[str, str]
    by_spark: dict[str, str]


def play(scene: Scene) -> Latest:
    fill(scene)
    keep_current(scene)
    table = read_table(scene)
    scene.say("the table by Spark, the aircraft that flew most:")
    seen = latest(scene)
    rows = seen.select("key", f.from_json("value", ROW).alias("row")).select("key", "row.*")
    scene.show(rows.orderBy(f.desc("flights"), "key"), 5)
    by_spark = {row.key: row.value for row in seen.collect()}
    written = count_records(scene)
    with logstore.open(scene.store) as store:
        store.admin.compact(AIRCRAFT, roll=True)
    kept = count_records(scene)
    scene.say(f"{len(scene.flights)} flights, {written} rows written, {kept} are left after compaction")
    same = table == by_spark == read_table(scene)
    scene.say(f"table() and Spark agree on {len(table)} aircraft, before compaction and after: {same}")
    return Latest(written, kept, table, by_spark)


def fill(scene: Scene) -> None:
    """Each flight at its hour, keyed by tail number; a few have none."""
    rows = []
    for flight in scene.flights:
        value = {"dest": flight["dest"], "carrier": flight["carrier"], "distance": int(flight["distance"])}
        key = None if flight["tailnum"] == "NA" else flight["tailnum"].encode()
        at_ms = int(datetime.fromisoformat(flight["time_hour"]).timestamp() * 1000)
        rows.append((key, json.dumps(value).encode(), None, at_ms))
    with logstore.open(scene.store) as store:
        store.create_topic(FLIGHTS, partitions=4)
        store.create_topic(AIRCRAFT, partitions=2, config={"cleanup.policy": "compact"})
        with store.producer() as producer:
            producer.send_many(FLIGHTS, rows)


def keep_current(scene: Scene) -> None:
    flights = (
        scene.spark.readStream.format("logstore")
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max(1, len(scene.flights) // 5))
        .option("valueFormat", "json")
        .option("valueSchema", FLIGHT)
        .load(scene.store)
    )
    aircraft = (
        flights.where("key IS NOT NULL AND value IS NOT NULL")
        .groupBy("key")
        .agg(
            f.count("*").alias("flights"),
            f.sum("value.distance").alias("miles"),
            # A key is always in one partition, so its newest record is the one with the highest offset.
            f.max_by("value.dest", "offset").alias("airport"),
            f.max_by("value.carrier", "offset").alias("carrier"),
        )
    )

    def upsert(changed: DataFrame, _: int) -> None:
        # Spark may call this twice for a batch. That does no harm: the same rows are written over themselves.
        rows = changed.select(
            "key", f.to_json(f.struct("flights", "miles", "airport", "carrier")).alias("value")
        )
        rows.write.format("logstore").option("topic", AIRCRAFT).mode("append").save(scene.store)

    query = (
        aircraft.writeStream.outputMode("update")  # only the rows that changed
        .foreachBatch(upsert)
        .option("checkpointLocation", scene.checkpoint("aircraft"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def records(scene: Scene) -> DataFrame:
    return scene.spark.read.format("logstore").option("subscribe", AIRCRAFT).load(scene.store)


def latest(scene: Scene) -> DataFrame:
    """A compacted topic as a table: ``key`` and ``value`` of the newest record of each key, but for removed ones."""
    newest = records(scene).groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    return newest.where("value IS NOT NULL").selectExpr(
        "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
    )


def count_records(scene: Scene) -> int:
    return records(scene).count()


def read_table(scene: Scene) -> dict[str, str]:
    """The same without Spark."""
    with logstore.open(scene.store, mode="r") as store, store.topic(AIRCRAFT).table() as table:
        return {key.decode(): value.decode() for key, value in table.items()}


if __name__ == "__main__":
    run(play)
