"""Dead letters: flights that nobody can read go to a topic of their own, with the cause and where they came from.

The flights are JSON, and some are broken on their way: cut off, in another encoding, or with "NA" where a number
belongs. `valueFormat=json` makes such a value null and says why in `valueError`, so that one bad record neither
stops the stream nor gets lost. The others go on to `flights.clean`, exactly once.

To look at: that good ones and letters together are as many as came in, and what a letter says.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

import logstore
from spark_connector.examples.scene import Scene, run

FLIGHTS = "flights"
CLEAN = "flights.clean"
DEAD = "flights.dead"
NO_HEADERS = "CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"
SCHEMA = "carrier STRING, flight INT, origin STRING, dep_delay INT, remark STRING"


class Sorted(NamedTuple):
    """Numbers of records; ``causes``: of letters by the first words of their cause."""

    came: int
    good: int
    letters: int
    causes: dict[str, int]


def play(scene: Scene) -> Sorted:
    fill(scene)
    pass_on_good_ones(scene)
    bury_bad_ones(scene)
    letters = read(scene, DEAD).select("key", "value", texts_of_headers().alias("header"))
    cause = f.col("header")["dead-letter.message"]
    scene.say("letters by cause:")
    causes = letters.groupBy(f.substring_index(cause, ":", 1).alias("cause")).count()
    scene.show(causes.orderBy("cause"))
    scene.say("one of each: where it was, what it holds, who sent it")
    place = f.concat_ws("-", *[f.col("header")[f"dead-letter.{name}"] for name in ("partition", "offset")])
    value = f.expr("substr(try_validate_utf8(CAST(value AS STRING)), 1, 60)")
    shown = letters.select(cause.alias("cause"), place.alias("place"), value.alias("value"), "header.sender")
    scene.show(shown.dropDuplicates(["sender"]).orderBy("place"), 3)
    by_cause = {row.cause: row["count"] for row in causes.collect()}
    result = Sorted(len(scene.flights), read(scene, CLEAN).count(), read(scene, DEAD).count(), by_cause)
    scene.say(f"{result.came} came in: {result.good} went on, {result.letters} are dead letters")
    return result


def fill(scene: Scene) -> None:
    rows = []
    for number, flight in enumerate(scene.flights):
        delay = flight["dep_delay"]
        row = {"carrier": flight["carrier"], "flight": int(flight["flight"]), "origin": flight["origin"]}
        row["dep_delay"] = "NA" if delay == "NA" else int(delay)  # of flights that never left
        row["remark"] = "Verspätung" if number % 50 == 3 else ""
        text = json.dumps(row, ensure_ascii=False)
        value = text.encode("latin-1" if number % 150 == 3 else "utf-8")
        if number % 101 == 7:
            value = value[: len(value) // 2]
        at_ms = int(datetime.fromisoformat(flight["time_hour"]).timestamp() * 1000)
        rows.append((flight["tailnum"].encode(), value, [("sender", flight["origin"].encode())], at_ms))
    with logstore.open(scene.store) as store:
        for topic in (FLIGHTS, CLEAN, DEAD):
            store.create_topic(topic, partitions=2)
        with store.producer() as producer:
            producer.send_many(FLIGHTS, rows)


def stream(scene: Scene) -> DataFrame:
    return (
        scene.spark.readStream.format("logstore")
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max(1, len(scene.flights) // 3))
        .option("valueFormat", "json")
        .option("valueSchema", SCHEMA)
        .load(scene.store)
    )


def read(scene: Scene, topic: str) -> DataFrame:
    frame = scene.spark.read.format("logstore").option("subscribe", topic).option("includeHeaders", "true")
    return frame.load(scene.store)


def read_between(scene: Scene, ends: dict[int, tuple[int, int]]) -> DataFrame:
    """Flights of the first to the last offset by partition, as bytes. Spark pushes no filter down into the log, so that
    options say what is read."""
    frame = scene.spark.read.format("logstore").option("includeHeaders", "true")
    starting = {FLIGHTS: {str(partition): low for partition, (low, _) in ends.items()}}
    ending = {FLIGHTS: {str(partition): high + 1 for partition, (_, high) in ends.items()}}
    frame = frame.option("assign", json.dumps({FLIGHTS: sorted(ends)}))
    frame = frame.option("startingOffsets", json.dumps(starting)).option("endingOffsets", json.dumps(ending))
    return frame.load(scene.store)


def pass_on_good_ones(scene: Scene) -> None:
    good = stream(scene).where("valueError IS NULL")
    query = (
        good.select("key", f.to_json("value").alias("value"), "timestamp")
        .writeStream.format("logstore")
        .option("topic", CLEAN)
        .option("checkpointLocation", scene.checkpoint("good"))
        .trigger(availableNow=True)
        .start(scene.store)
    )
    query.awaitTermination()


def bury_bad_ones(scene: Scene) -> None:
    """Each letter once, unless Spark has to run a batch again: then the same letters come twice, which their headers
    tell."""
    origin = ["topic", "partition", "offset"]

    def bury(batch: DataFrame, _: int) -> None:
        bad = batch.where("valueError IS NOT NULL").select(*origin, "valueError").cache()
        ends = (
            bad.groupBy("partition")
            .agg(f.min("offset").alias("low"), f.max("offset").alias("high"))
            .collect()
        )
        if ends:
            # The value itself is null here. But a log can be read again: as bytes, and only those ranges.
            records = read_between(scene, {row.partition: (row.low, row.high) for row in ends})
            headers = f.coalesce("headers", f.expr(NO_HEADERS))  # null where a record has none
            letters = records.join(bad, origin).select(
                "key", "value", f.concat(headers, cause_and_origin()).alias("headers")
            )
            letters.write.format("logstore").option("topic", DEAD).mode("append").save(scene.store)
        bad.unpersist()

    writer = stream(scene).writeStream.foreachBatch(bury).trigger(availableNow=True)
    writer.option("checkpointLocation", scene.checkpoint("bad")).start().awaitTermination()


def cause_and_origin() -> Column:
    """Headers by the names that a consumer's own dead letters have."""
    texts = {"topic": "topic", "partition": "partition", "offset": "offset", "message": "valueError"}
    headers = [
        f.struct(
            f.lit(f"dead-letter.{name}").alias("key"),
            f.col(column).cast("string").cast("binary").alias("value"),
        )
        for name, column in texts.items()
    ]
    return f.array(*headers)


def texts_of_headers() -> Column:
    return f.expr("map_from_entries(transform(headers, h -> struct(h.key, CAST(h.value AS STRING))))")


if __name__ == "__main__":
    run(play)
