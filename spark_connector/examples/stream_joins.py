"""Departures joined with arrivals: two topics, two streams, and what never arrived.

The board of departures has every planned flight, also cancelled ones; the arrivals have those that came to their
destination. The inner join tells what a pilot made up in the air, as soon as both sides are there. The left outer
join also tells which flights have no arrival, and must wait for that: until the watermark says that none can come any
more. The bound on time (within 12 hours of the departure) is what allows Spark to forget a flight; a heartbeat three
days ahead in both topics moves the watermark past the last ones.

Look at: the minutes made up by carrier, and the cancelled and diverted flights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr, struct, to_json

import logstore
from spark_connector.examples.flights import departed_ms, flight_id, landed_ms, number, planned_ms
from spark_connector.examples.scene import Scene, run

DEPARTURES, ARRIVALS, FLOWN, BOARD = "departures", "arrivals", "flown", "board"
HEARTBEAT_MS: Final = 3 * 24 * 3_600_000
BOUND: Final = "flight = arrived AND landed >= departed AND landed <= departed + INTERVAL 12 HOURS"


Event = tuple[int, str, Mapping[str, str | int | None]]  # time in ms, flight, what there is to say of it


class Joined(NamedTuple):
    """``made_up``: by flight, minutes. ``missing``: by flight without an arrival, cancelled or diverted."""

    made_up: dict[str, int]
    missing: dict[str, str]


def write(store_path: str, topic: str, events: list[Event]) -> None:
    """The events in order of time, and a heartbeat after them."""
    # It finds no partner, so the results do not have it. To filter it out would be wrong: Spark puts a filter before
    # the watermark where it can, which would then not move.
    beat: Event = (max(at_ms for at_ms, _, _ in events) + HEARTBEAT_MS, f"heartbeat of {topic}", {})
    with logstore.open(store_path) as store, store.producer() as producer:
        for at_ms, flight, facts in [*sorted(events, key=lambda event: event[:2]), beat]:
            value = json.dumps({"flight": flight, **facts}).encode()
            producer.send(topic, value, key=flight.encode(), timestamp_ms=at_ms)
        producer.flush()


def read(scene: Scene, topic: str, schema: str, limit: int) -> DataFrame:
    """The topic as a stream: the columns of its values, and ``timestamp``."""
    stream = (
        scene.spark.readStream.format("logstore")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .option("valueFormat", "json")
        .option("valueSchema", schema)
        .load(scene.store)
    )
    return stream.select("value.*", "timestamp").withWatermark("timestamp", "10 minutes")


def join(scene: Scene, how: str, limit: int) -> DataFrame:
    departures = read(scene, DEPARTURES, "flight STRING, carrier STRING, late INT", limit)
    departures = departures.withColumnRenamed("timestamp", "departed")
    arrivals = read(scene, ARRIVALS, "flight STRING, late INT", limit)
    arrivals = arrivals.selectExpr("flight AS arrived", "late AS late_there", "timestamp AS landed")
    return departures.join(arrivals, expr(BOUND), how)


def write_all(scene: Scene, joined: DataFrame, topic: str) -> None:
    """Run the join over what the log has, into a topic."""
    query = (
        joined.writeStream.format("logstore")
        .option("topic", topic)
        .option("checkpointLocation", scene.checkpoint(topic))
        .trigger(availableNow=True)
        .start(scene.store)
    )
    query.awaitTermination()


def result(scene: Scene, topic: str, schema: str) -> DataFrame:
    frame = (
        scene.spark.read.format("logstore")
        .option("subscribe", topic)
        .option("valueFormat", "json")
        .option("valueSchema", schema)
        .load(scene.store)
    )
    return frame.select("value.*")


def play(scene: Scene, limit: int = 10_000) -> Joined:
    with logstore.open(scene.store) as store:
        for topic in (DEPARTURES, ARRIVALS, FLOWN, BOARD):
            store.create_topic(topic)  # one partition: the order of time is kept
    departures: list[Event] = []
    arrivals: list[Event] = []
    for row in scene.flights:
        flight, departed, landed = flight_id(row), departed_ms(row), landed_ms(row)
        facts = {"carrier": row["carrier"], "late": number(row, "dep_delay")}
        departures.append((planned_ms(row) if departed is None else departed, flight, facts))
        if landed is not None:
            arrivals.append((landed, flight, {"late": number(row, "arr_delay")}))
    write(scene.store, DEPARTURES, departures)
    write(scene.store, ARRIVALS, arrivals)
    scene.say(f"{len(departures)} flights on the board of departures, {len(arrivals)} arrivals")

    flown = join(scene, "inner", limit).withColumn("made_up", col("late") - col("late_there"))
    facts_flown = to_json(struct("flight", "carrier", "made_up")).alias("value")
    write_all(scene, flown.select(facts_flown), FLOWN)
    scene.say("inner join: minutes made up in the air, by carrier")
    made_up = result(scene, FLOWN, "flight STRING, carrier STRING, made_up INT")
    by_carrier = made_up.groupBy("carrier").agg(expr("count(*) AS flights"), expr("avg(made_up) AS made_up"))
    scene.show(by_carrier.orderBy(col("made_up").desc()))

    board = join(scene, "leftOuter", limit).where("arrived IS NULL")
    status = expr("IF(late IS NULL, 'cancelled', 'diverted') AS status")
    write_all(scene, board.select(to_json(struct("flight", status)).alias("value")), BOARD)
    scene.say("left outer join: departures that never arrived")
    missing = result(scene, BOARD, "flight STRING, status STRING")
    scene.show(missing.groupBy("status").count().orderBy("status"))
    scene.show(missing.orderBy("flight"), 5)
    return Joined(
        {row.flight: row.made_up for row in made_up.collect()},
        {row.flight: row.status for row in missing.collect()},
    )


if __name__ == "__main__":
    run(play)
