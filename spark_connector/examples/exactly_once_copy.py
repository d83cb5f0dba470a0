"""A copy between topics whose driver is killed in the middle, several times, and which is right all the same.

The copy is an ordinary streaming query in a process of its own. This one watches the copy grow and kills that whole
process (SIGKILL: nothing is flushed, nothing closed); then it starts the same query again on the same checkpoint.
The kill comes when a batch has just become visible: mostly Spark did not get to note that it is done, so that it runs
that batch again, and the sink finds that it is in already.

To look at: how far the copy was at each kill, and the comparison at the end, counted from the log as consumers read
it: as many records as went in, each of them once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import SparkSession

import logstore
from spark_connector.examples.scene import Scene, run
from spark_connector.session import spark_session

SOURCE = "flights"
TARGET = "flights.copy"
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # it lives for seconds: start fast
}


class Copied(NamedTuple):
    """``killed_at``: how many records of the copy were committed at each kill. ``missing`` and ``doubled``: records
    that the copy has less often than the source, or more often."""

    killed_at: list[int]
    source: int
    copy: int
    missing: int
    doubled: int


def play(scene: Scene, kills: int = 3) -> Copied:
    fill(scene)
    killed_at = kill_and_resume(scene, kills)
    copy_topic(scene.spark, scene.store, scene.checkpoint("copy"), portion(scene))  # and this one may finish
    source, copy = values(scene, SOURCE), values(scene, TARGET)
    missing, doubled = (source - copy).total(), (copy - source).total()
    result = Copied(killed_at, source.total(), copy.total(), missing, doubled)
    scene.say(f"source {result.source}, copy {result.copy}: {missing} are missing, {doubled} are doubled")
    both = scene.spark.read.format("logstore").option("subscribe", f"{SOURCE},{TARGET}").load(scene.store)
    scene.say("the same by Spark (offsets of a copy have gaps: what ends a transaction takes one, too):")
    counts = both.groupBy("topic", "partition").agg({"*": "count", "offset": "max"})
    scene.show(counts.orderBy("topic", "partition"))
    return result


def fill(scene: Scene) -> None:
    rows = []
    for flight in scene.flights:
        at_ms = int(datetime.fromisoformat(flight["time_hour"]).timestamp() * 1000)
        rows.append((flight["tailnum"].encode(), json.dumps(flight).encode(), None, at_ms))
    with logstore.open(scene.store) as store:
        store.create_topic(SOURCE, partitions=2)
        store.create_topic(TARGET, partitions=2)
        with store.producer() as producer:
            producer.send_many(SOURCE, rows)


def portion(scene: Scene) -> str:
    """What a trigger reads: the whole in about eight."""
    return str(max(1, len(scene.flights) // 8))


def copy_topic(spark: SparkSession, store: str, checkpoint: str, portion: str) -> None:
    """What is killed. Nothing in it knows of that: exactly once is the sink's default."""
    flights = (
        spark.readStream.format("logstore")
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", portion)
        .load(store)
    )
    query = (
        flights.select("key", "value", "timestamp")
        .writeStream.format("logstore")
        .option("topic", TARGET)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(store)
    )
    query.awaitTermination()


def driver(scene: Scene) -> subprocess.Popen[bytes]:
    """The copy in a process of its own. In a session of its own, too (the system's, not Spark's), so that Python,
    the JVM and its workers can be killed together."""
    module = "spark_connector.examples.exactly_once_copy"
    places = [scene.store, scene.checkpoint("copy"), portion(scene)]
    return subprocess.Popen([sys.executable, "-m", module, "--copy", *places], start_new_session=True)


def kill_and_resume(scene: Scene, kills: int) -> list[int]:
    """Start the copy so many times, and each time kill it when a further part of it is committed. Gives how much was
    seen to be at each kill; a copy that was done before it could be killed is left out."""
    killed_at: list[int] = []
    copied = 0
    with logstore.open(scene.store, mode="r") as store, store.consumer(TARGET) as consumer:
        for number in range(1, kills + 1):
            running = driver(scene)
            try:
                while copied < len(scene.flights) * number // (kills + 1):
                    found = consumer.poll(timeout_s=1)
                    copied += len(found)
                    if not found and running.poll() is not None:
                        raise subprocess.CalledProcessError(running.returncode, running.args)
            finally:
                if running.returncode is None:
                    os.killpg(running.pid, signal.SIGKILL)
                running.wait()
            if running.returncode == -signal.SIGKILL:
                killed_at.append(copied)
                scene.say(f"killed when {copied} of {len(scene.flights)} were copied; now again")
    return killed_at


def values(scene: Scene, topic: str) -> Counter[bytes]:
    """How often each value is in the topic, of committed transactions only (the default of consumers)."""
    with (
        logstore.open(scene.store, mode="r") as store,
        store.consumer(topic, isolation="read_committed", until_end=True) as consumer,
    ):
        return Counter(record.value or b"" for record in consumer)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--copy"]:
        copy_topic(spark_session("local[2]", app="copy", **CONF), *sys.argv[2:])
    else:
        run(play)
