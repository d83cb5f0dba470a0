"""From the beginning in portions, then live beside a writer that goes on: no gap and no double at the seam.

Half of the flights are in the topic already; a writer appends the others, a few at a time, all the while. One query
is started twice on one checkpoint: first with `availableNow`, which catches up in portions and ends, then with
`processingTime`, which stays. How far the first one came is in the checkpoint, and there the second one goes on.

To look at: large portions while it catches up, then what the writer just brought; and at the end, that each record
was copied once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import logstore
from spark_connector.examples.scene import Scene, run

FLIGHTS = "flights"
SEEN = "flights.seen"


class Filled(NamedTuple):
    """``caught_up`` and ``live``: rows of each batch of the first and the second run. ``copied``: records of the
    copy, and ``origins``: of how many different records."""

    caught_up: list[int]
    live: list[int]
    copied: int
    origins: int


def play(scene: Scene) -> Filled:
    half = len(scene.flights) // 2
    with logstore.open(scene.store) as store:
        store.create_topic(FLIGHTS, partitions=2)
        store.create_topic(SEEN, partitions=2)
        with store.producer() as producer:
            producer.send_many(FLIGHTS, rows(scene.flights[:half]))
    is_live = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_on, scene, is_live)
        try:
            first = start(scene, availableNow=True)
            first.awaitTermination()
            caught_up = batches(first)
            scene.say(f"caught up in portions of {caught_up}, beside the writer")
            second = start(scene, processingTime="500 milliseconds")
            second.processAllAvailable()
        finally:
            is_live.set()
        writing.result()
        second.processAllAvailable()
        second.stop()
    live = batches(second)
    scene.say(f"then live: {live}")
    seen = scene.spark.read.format("logstore").option("subscribe", SEEN).option("includeHeaders", "true")
    origin = f.col("headers")[0]["value"].cast("string")
    counts = seen.load(scene.store).agg(
        f.count("*").alias("copied"), f.countDistinct(origin).alias("origins")
    )
    (row,) = counts.collect()
    scene.say(
        f"{len(scene.flights)} flights: {row.copied} records in the copy, of {row.origins} different ones"
    )
    return Filled(caught_up, live, row.copied, row.origins)


def rows(flights: Sequence[dict[str, str]]) -> list[Any]:
    found = []
    for flight in flights:
        at_ms = int(datetime.fromisoformat(flight["time_hour"]).timestamp() * 1000)
        found.append((flight["tailnum"].encode(), json.dumps(flight).encode(), None, at_ms))
    return found


def write_on(scene: Scene, is_live: threading.Event) -> None:
    """The later half of the flights, in 40 steps; the last 20 when the query is live, however long that took."""
    ours = rows(scene.flights[len(scene.flights) // 2 :])
    size = -(-len(ours) // 40)
    with logstore.open(scene.store) as store, store.producer() as producer:
        for step in range(40):
            if step == 20:
                is_live.wait()
            producer.send_many(FLIGHTS, ours[step * size : (step + 1) * size]).result()
            threading.Event().wait(0.15)


def start(scene: Scene, **trigger: Any) -> StreamingQuery:
    flights = (
        scene.spark.readStream.format("logstore")
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max(1, len(scene.flights) // 6))
        .load(scene.store)
    )
    origin = f.concat_ws("-", "partition", "offset").cast("binary")
    header = f.struct(f.lit("origin").alias("key"), origin.alias("value"))
    writer = (
        flights.select("key", "value", "timestamp", f.array(header).alias("headers"))
        .writeStream.format("logstore")
        .option("topic", SEEN)
        .option("checkpointLocation", scene.checkpoint("seen"))
    )
    return writer.trigger(**trigger).start(scene.store)


def batches(query: StreamingQuery) -> list[int]:
    """Rows of each batch that had any."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


if __name__ == "__main__":
    run(play)
