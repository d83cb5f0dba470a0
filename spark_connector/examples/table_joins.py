"""Flights joined with two tables: carriers and aircraft, each a compacted topic.

A compacted topic keeps the last record of each key, so it is a table: read as a batch, the newest record per key is
the row, and a null value (a tombstone) means that the row was deleted. A query reads its tables when it begins. Here
each run with availableNow is a query, so a change of a table counts for the flights that come after it. A query that
runs on keeps the tables that it began with; there, join inside foreachBatch with a table that is loaded in it.

Look at: half of the flights come, then a carrier gets a new name and an aircraft is deleted, then the others come.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast, col, max_by, struct, to_json

import logstore
from spark_connector.examples.flights import flight_id, planned_ms, read_aircraft, read_carriers
from spark_connector.examples.scene import Scene, run

FLIGHTS, CARRIERS, AIRCRAFT, ENRICHED = "flights", "carriers", "aircraft", "enriched"
FLIGHT: Final = "flight STRING, carrier STRING, tailnum STRING"
CARRIER: Final = "carrier STRING, name STRING"
PLANE: Final = "tailnum STRING, manufacturer STRING, model STRING"
RESULT: Final = "flight STRING, name STRING, manufacturer STRING, model STRING"
NEW_NAME: Final = "United, under its new name"


class Enriched(NamedTuple):
    """``rows``: by flight, the carrier's name and the manufacturer. ``deleted``: the aircraft that went."""

    rows: dict[str, tuple[str, str | None]]
    deleted: str


def write(
    store_path: str, topic: str, rows: Iterable[tuple[str, Mapping[str, str] | None, int | None]]
) -> None:
    """(key, value, time in ms) each; a value of None deletes the key's row."""
    with logstore.open(store_path) as store, store.producer() as producer:
        for key, value, at_ms in rows:
            content = None if value is None else json.dumps(value).encode()
            producer.send(topic, content, key=key.encode(), timestamp_ms=at_ms)
        producer.flush()


def flight_rows(flights: list[dict[str, str]]) -> Iterable[tuple[str, Mapping[str, str], int]]:
    for row in flights:
        facts = {"flight": flight_id(row), "carrier": row["carrier"], "tailnum": row["tailnum"]}
        yield row["tailnum"], facts, planned_ms(row)


def table(scene: Scene, topic: str, schema: str) -> DataFrame:
    """The newest row of each key that was not deleted. A key's records are all in one partition, so offsets tell."""
    records = (
        scene.spark.read.format("logstore")
        .option("subscribe", topic)
        .option("valueFormat", "json")
        .option("valueSchema", schema)
        .load(scene.store)
    )
    last = records.groupBy("key").agg(max_by(struct("value"), "offset").alias("last"))
    return last.where("last.value IS NOT NULL").select("last.value.*")


def enrich_new(scene: Scene, limit: int) -> None:
    """The flights that have come since the last time, with the tables as they are now."""
    stream = (
        scene.spark.readStream.format("logstore")
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .option("valueFormat", "json")
        .option("valueSchema", FLIGHT)
        .load(scene.store)
    )
    enriched = (
        stream.select("value.*")
        .join(broadcast(table(scene, CARRIERS, CARRIER)), "carrier")
        .join(
            broadcast(table(scene, AIRCRAFT, PLANE)), "tailnum", "left"
        )  # of many aircraft nothing is known
    )
    value = to_json(struct("flight", "name", "manufacturer", "model")).alias("value")
    query = (
        enriched.select(col("flight").alias("key"), value)
        .writeStream.format("logstore")
        .option("topic", ENRICHED)
        .option("checkpointLocation", scene.checkpoint("enriched"))
        .trigger(availableNow=True)
        .start(scene.store)
    )
    query.awaitTermination()


def busiest_aircraft(flights: list[dict[str, str]], known: set[str]) -> str:
    """The known aircraft with the most flights."""
    tails = [row["tailnum"] for row in flights if row["tailnum"] in known]
    return max(sorted(set(tails)), key=tails.count)


def play(scene: Scene, limit: int = 10_000) -> Enriched:
    compacted = {"cleanup.policy": "compact"}
    with logstore.open(scene.store) as store:
        store.create_topic(FLIGHTS, partitions=3)
        store.create_topic(CARRIERS, config=compacted)
        store.create_topic(AIRCRAFT, partitions=3, config=compacted)
        store.create_topic(ENRICHED, partitions=3)
    aircraft = {row["tailnum"]: row for row in read_aircraft()}
    write(scene.store, CARRIERS, [(row["carrier"], row, None) for row in read_carriers()])
    write(scene.store, AIRCRAFT, [(tail, row, None) for tail, row in aircraft.items()])
    half = len(scene.flights) // 2
    write(scene.store, FLIGHTS, flight_rows(scene.flights[:half]))
    scene.say(f"{half} flights come, and are joined with {len(aircraft)} aircraft and their carriers")
    enrich_new(scene, limit)

    deleted = busiest_aircraft(scene.flights[half:], set(aircraft))
    scene.say(f"the carrier UA gets a new name, the aircraft {deleted} is deleted; the other flights come")
    write(scene.store, CARRIERS, [("UA", {"carrier": "UA", "name": NEW_NAME}, None)])
    write(scene.store, AIRCRAFT, [(deleted, None, None)])
    write(scene.store, FLIGHTS, flight_rows(scene.flights[half:]))
    enrich_new(scene, limit)

    records = (
        scene.spark.read.format("logstore")
        .option("subscribe", ENRICHED)
        .option("valueFormat", "json")
        .option("valueSchema", RESULT)
        .load(scene.store)
    )
    result = records.select("value.*").cache()
    united = result.where("name LIKE 'United%'").groupBy("name").count()
    scene.say("flights of UA, under both names:")
    scene.show(united.orderBy("name"))
    scene.say("flights by manufacturer (null: the aircraft is not in the table)")
    scene.show(result.groupBy("manufacturer").count().orderBy(col("count").desc()), 5)
    rows = {row.flight: (row["name"], row.manufacturer) for row in result.collect()}
    result.unpersist()
    return Enriched(rows, deleted)


if __name__ == "__main__":
    run(play)
