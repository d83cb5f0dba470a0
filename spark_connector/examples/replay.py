"""Flights replayed as a stream: weeks of departures go by in seconds, and a query counts along.

A writer puts each flight into the topic when its time has come, on a clock that runs two days a second. The key is
the aircraft, so the flights of one stay in order; the record's time is the flight's, not that of the replay.

Look at: the batches (none is larger than maxOffsetsPerTrigger, however far the writer is ahead), the counts when the
last flight is in, and one day that is read out of the log by its time.
"""

from __future__ import annotations

import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from pyspark.sql.functions import col

import logstore
from spark_connector.examples.flights import KEY, planned_ms
from spark_connector.examples.scene import Scene, run

TOPIC: Final = "flights"
SCHEMA: Final = "carrier STRING, flight STRING, origin STRING, dest STRING, tailnum STRING"
DAY_MS: Final = 86_400_000
SPEED: Final = 2 * 86_400  # seconds of the flights in a second of ours


class Replayed(NamedTuple):
    """``counts``: flights by carrier. ``batches``: rows of each. ``first_day``: flights within 24 h of the first."""

    counts: dict[str, int]
    batches: list[int]
    first_day: int


def replay(store_path: str, flights: list[dict[str, str]]) -> None:
    """Write each hour's flights when its time has come."""
    first_ms, start = planned_ms(flights[0]), time.monotonic()
    with logstore.open(store_path) as store, store.producer(linger_ms=20) as producer:
        for _, hour in itertools.groupby(flights, key=lambda row: row["time_hour"]):
            rows = list(hour)
            due = start + (planned_ms(rows[0]) - first_ms) / 1000 / SPEED
            time.sleep(max(0.0, due - time.monotonic()))
            for row in rows:
                producer.send(
                    TOPIC, json.dumps(row).encode(), key=row[KEY].encode(), timestamp_ms=planned_ms(row)
                )
        producer.flush()


def play(scene: Scene, limit: int = 4000) -> Replayed:
    spark = scene.spark
    flights = sorted(scene.flights, key=planned_ms)
    with logstore.open(scene.store) as store:
        store.create_topic(TOPIC, partitions=3)

    stream = (
        spark.readStream.format("logstore")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .option("valueFormat", "json")
        .option("valueSchema", SCHEMA)
        .load(scene.store)
    )
    query = (
        stream.groupBy("value.carrier")
        .count()
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("flights_by_carrier")
        .option("checkpointLocation", scene.checkpoint("replay"))
        .trigger(processingTime="1 second")
        .start()
    )
    scene.say(f"{len(flights)} flights are replayed, two days a second, while a query counts them")
    with ThreadPoolExecutor(max_workers=1) as writer:
        writer.submit(replay, scene.store, flights).result()
    query.processAllAvailable()
    query.stop()

    batches = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    scene.say(f"rows of each batch, {limit} at most: {batches}")
    counted = spark.table("flights_by_carrier").orderBy(col("count").desc())
    scene.show(counted)

    begin_ms = planned_ms(flights[0])
    first_day = (
        spark.read.format("logstore")
        .option("subscribe", TOPIC)
        .option("startingTimestamp", begin_ms)
        .option("endingTimestamp", begin_ms + DAY_MS)
        .load(scene.store)
    )
    found = first_day.count()
    scene.say(f"of them within 24 hours of the first one, found in the log by their time: {found}")
    return Replayed({row["carrier"]: row["count"] for row in counted.collect()}, batches, found)


if __name__ == "__main__":
    run(play)
