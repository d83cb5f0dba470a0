"""Changes of a database, folded to its last state: what connectors for change capture send, with deletes.

The database is the board of flights that have not landed: a flight is inserted when it is planned, updated when it
leaves, deleted when it lands. Each change is a record `{"op", "ts_ms", "before", "after"}` keyed by flight, and
behind a delete comes a tombstone (a record without a value), as such connectors send it. The fold keeps the last
change of each flight and writes the row, or a tombstone, to the compacted topic `board`.

To look at: that the board by Spark and by `store.topic("board").table()` is what is in the database, and how little
is left of it after compaction.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import logstore
from spark_connector.examples.scene import Scene, run

CHANGES = "board.changes"
BOARD = "board"
ROW = "flight STRING, dest STRING, planned STRING, status STRING"
CHANGE = f"op STRING, ts_ms BIGINT, before STRUCT<{ROW}>, after STRUCT<{ROW}>"

Row = dict[str, str]


class Folded(NamedTuple):
    """``database``, ``table`` and ``by_spark``: the board's rows by key. ``written`` and ``kept``: records of the
    topic before compaction and after."""

    changes: int
    written: int
    kept: int
    database: dict[str, Row]
    table: dict[str, Row]
    by_spark: dict[str, Row]


def play(scene: Scene) -> Folded:
    changes, database = capture(scene.flights)
    with logstore.open(scene.store) as store:
        store.create_topic(CHANGES, partitions=2)
        store.create_topic(BOARD, partitions=2, config={"cleanup.policy": "compact"})
        with store.producer() as producer:
            producer.send_many(CHANGES, changes)
    fold(scene)
    written = read_board(scene).count()
    with logstore.open(scene.store) as store:
        store.admin.compact(BOARD, roll=True)
    kept = read_board(scene).count()
    with logstore.open(scene.store, mode="r") as store, store.topic(BOARD).table() as found:
        table = {key.decode(): json.loads(value) for key, value in found.items()}
    # By Spark: the newest record of each key; a tombstone is a row that is gone.
    newest = read_board(scene).groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    rows = newest.where("value IS NOT NULL").select(f.col("key").cast("string"), "value.*")
    scene.say("the board:")
    scene.show(rows.orderBy("planned", "key"), 8)
    by_spark = {row.pop("key"): row for row in (row.asDict() for row in rows.collect())}
    scene.say(f"{len(changes)} changes; {written} rows and tombstones of the board, {kept} after compaction")
    scene.say(f"database, Spark and table() agree on {len(table)} rows: {database == by_spark == table}")
    return Folded(len(changes), written, kept, database, table, by_spark)


def capture(flights: list[Row]) -> tuple[list[Any], dict[str, Row]]:
    """The records of all changes up to the hour of the last flight, in order, and what the database has then."""
    events = sorted((event for flight in flights for event in events_of(flight)), key=lambda event: event[0])
    end = datetime.fromisoformat(flights[-1]["time_hour"])
    database: dict[str, Row] = {}
    records: list[Any] = []
    for at, key, row in events:
        if at > end:
            break
        before = database.pop(key, None)
        if row is None and before is None:
            continue  # the same flight of the day before, so late that this one's row was deleted already
        if row is not None:
            database[key] = row
        op = "d" if row is None else "c" if before is None else "u"
        at_ms = int(at.timestamp() * 1000)
        change = {"op": op, "ts_ms": at_ms, "before": before, "after": row}
        records.append((key.encode(), json.dumps(change).encode(), None, at_ms))
        if op == "d":
            records.append((key.encode(), None, None, at_ms))
    return records, database


def events_of(flight: Row) -> list[tuple[datetime, str, Row | None]]:
    """(when, key, the row as it is from then on, or None). Cancelled flights stay on the board, and so do those
    that never came to where they were going, until the same flight is planned again."""
    planned = datetime.fromisoformat(flight["time_hour"]) + timedelta(minutes=int(flight["minute"]))
    key = f"{flight['carrier']}{flight['flight']}-{flight['origin']}"
    row = {"flight": key, "dest": flight["dest"], "planned": planned.isoformat(), "status": "planned"}
    events: list[tuple[datetime, str, Row | None]] = [(planned - timedelta(hours=2), key, row)]
    if flight["dep_time"] == "NA":
        return [*events, (planned, key, {**row, "status": "cancelled"})]
    left = planned + timedelta(minutes=int(flight["dep_delay"]))
    events.append((left, key, {**row, "status": "in the air"}))
    if flight["air_time"] != "NA":
        events.append((left + timedelta(minutes=int(flight["air_time"])), key, None))
    return events


def fold(scene: Scene) -> None:
    changes = (
        scene.spark.readStream.format("logstore")
        .option("subscribe", CHANGES)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max(1, len(scene.flights) // 2))
        .option("valueFormat", "json")
        .option("valueSchema", CHANGE)
        .load(scene.store)
    )

    def upsert(batch: DataFrame, _: int) -> None:
        # A key is always in one partition, so its offsets are the order of its changes. The tombstones of the feed
        # say nothing that the delete before them did not say. A batch that Spark runs twice writes the same again.
        last = (
            batch.where("value IS NOT NULL").groupBy("key").agg(f.max_by("value", "offset").alias("change"))
        )
        row = f.when(f.col("change.op") != "d", f.to_json("change.after"))  # null otherwise: a tombstone
        board = last.select("key", row.alias("value"))
        board.write.format("logstore").option("topic", BOARD).mode("append").save(scene.store)

    query = (
        changes.writeStream.foreachBatch(upsert)
        .option("checkpointLocation", scene.checkpoint("board"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def read_board(scene: Scene) -> DataFrame:
    return (
        scene.spark.read.format("logstore")
        .option("subscribe", BOARD)
        .option("valueFormat", "json")
        .option("valueSchema", ROW)
        .load(scene.store)
    )


if __name__ == "__main__":
    run(play)
