"""Departures counted in windows of event time: tumbling, sliding and session, with a watermark and late records.

All three go by the record's time, which is when the flight left. A window is written once, when the watermark (the
newest time seen, less an hour) has passed its end. After the flights come three more records: one 30 minutes behind
the newest, which still counts; one 12 hours behind, which is dropped; and a heartbeat two days ahead, since a
watermark moves with records only, and the last windows would stay open without it.

Look at: the rows dropped by the watermark, and the hour in which the late flight is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, count, session_window, struct, to_json, unix_millis, window

import logstore
from spark_connector.examples.flights import departed_ms
from spark_connector.examples.scene import Scene, run

TOPIC: Final = "departures"
SCHEMA: Final = "origin STRING, tailnum STRING"
RESULT: Final = "begin BIGINT, end BIGINT, departures BIGINT"
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
LATE: Final = ("LATE", "N0LATE", 30 * MINUTE_MS)  # origin, aircraft, how far behind the newest
TOO_LATE: Final = ("TOO LATE", "N0TOOLATE", 12 * HOUR_MS)
HEARTBEAT: Final = ("HEARTBEAT", "N0BEAT", -48 * HOUR_MS)

# By the name of the topic that its windows go to: the window, and what is counted apart.
WINDOWS: Final[dict[str, Callable[[], tuple[Column, Column]]]] = {
    "tumbling": lambda: (window("timestamp", "1 hour"), col("value.origin")),
    "sliding": lambda: (window("timestamp", "3 hours", "1 hour"), col("value.origin")),
    "session": lambda: (session_window("timestamp", "4 hours"), col("value.tailnum")),
}


class Windows(NamedTuple):
    """By kind of window: (key, begin in ms, end in ms) and the departures in it; the rows that came too late."""

    counted: dict[str, dict[tuple[str, int, int], int]]
    dropped: dict[str, int]
    newest_ms: int


def write(store_path: str, departures: Iterable[tuple[int, str, str]]) -> None:
    """(time in ms, origin, aircraft) each."""
    with logstore.open(store_path) as store, store.producer() as producer:
        for at_ms, origin, tailnum in departures:
            value = json.dumps({"origin": origin, "tailnum": tailnum}).encode()
            producer.send(TOPIC, value, key=tailnum.encode(), timestamp_ms=at_ms)
        producer.flush()


def count_new(scene: Scene, kind: str, limit: int) -> int:
    """Count what has come since the last time, in batches of ``limit``; how many rows came too late."""
    stream = (
        scene.spark.readStream.format("logstore")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .option("valueFormat", "json")
        .option("valueSchema", SCHEMA)
        .load(scene.store)
    )
    frame, key = WINDOWS[kind]()
    counted = (
        stream.withWatermark("timestamp", "1 hour")
        .groupBy(frame.alias("frame"), key.alias("key"))
        .agg(count("*").alias("departures"))
    )
    begin, end = unix_millis("frame.start"), unix_millis("frame.end")
    value = to_json(struct(begin.alias("begin"), end.alias("end"), "departures"))
    query = (
        counted.select("key", value.alias("value"), col("frame.end").alias("timestamp"))
        .writeStream.format("logstore")
        .option("topic", kind)
        .option("checkpointLocation", scene.checkpoint(kind))
        .outputMode("append")
        .trigger(availableNow=True)
        .start(scene.store)
    )
    query.awaitTermination()
    return sum(
        state.numRowsDroppedByWatermark
        for progress in query.recentProgress
        for state in progress.stateOperators
    )


def results(scene: Scene, kind: str) -> DataFrame:
    """What the log has of the windows of this kind."""
    frame = (
        scene.spark.read.format("logstore")
        .option("subscribe", kind)
        .option("valueFormat", "json")
        .option("valueSchema", RESULT)
        .load(scene.store)
    )
    return frame.select(col("key").cast("string"), "value.*")


def play(scene: Scene, limit: int = 10_000) -> Windows:
    with logstore.open(scene.store) as store:
        # One partition keeps the order of time. With more, a watermark has to allow for how far the reading of
        # one is behind that of another, as well.
        for topic in (TOPIC, *WINDOWS):
            store.create_topic(topic)
    departed = [(departed_ms(row), row["origin"], row["tailnum"]) for row in scene.flights]
    departures = sorted((at_ms, origin, tail) for at_ms, origin, tail in departed if at_ms is not None)
    newest_ms = departures[-1][0]

    scene.say(f"{len(departures)} departures are counted in windows: {', '.join(WINDOWS)}")
    write(scene.store, departures)
    for kind in WINDOWS:
        count_new(scene, kind, limit)
    scene.say("three more come: 30 minutes late, 12 hours late, and a heartbeat two days ahead")
    late = [(newest_ms - behind, origin, tail) for origin, tail, behind in (LATE, TOO_LATE, HEARTBEAT)]
    write(scene.store, late)
    dropped = {kind: count_new(scene, kind, limit) for kind in WINDOWS}
    scene.say(f"rows dropped by the watermark: {dropped} (in sliding windows, one for each it belongs to)")

    counted = {}
    for kind in WINDOWS:
        found = results(scene, kind)
        scene.say(f"the last {kind} windows:")
        shown = found.selectExpr("key", "timestamp_millis(begin)", "timestamp_millis(end)", "departures")
        scene.show(shown.orderBy(col("end").desc(), "key"), 5)
        counted[kind] = {(row.key, row.begin, row.end): row.departures for row in found.collect()}
    return Windows(counted, dropped, newest_ms)


if __name__ == "__main__":
    run(play)
