"""Replay, windows and joins: what comes out is what plain Python makes of the same flights."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import logstore
from spark_connector.examples import replay, stream_joins, table_joins, windows
from spark_connector.examples.flights import (
    departed_ms,
    flight_id,
    landed_ms,
    planned_ms,
    read_aircraft,
    read_carriers,
    read_flights,
)
from spark_connector.examples.scene import Scene, run

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]
HOUR_MS = 3_600_000
Row = dict[str, str]
Counted = dict[tuple[str, int, int], int]


def scene_of(spark: SparkSession, folder: Path, count: int, first: int = 0) -> Scene:
    return Scene(spark, folder, read_flights()[first : first + count])


def test_replay(spark: SparkSession, tmp_path: Path) -> None:
    scene = scene_of(spark, tmp_path, 1500)
    found = replay.play(scene, limit=600)
    assert found.counts == dict(Counter(row["carrier"] for row in scene.flights))
    assert sum(found.batches) == 1500
    assert max(found.batches) <= 600
    begin = min(planned_ms(row) for row in scene.flights)
    assert found.first_day == sum(planned_ms(row) < begin + 24 * HOUR_MS for row in scene.flights) < 1500
    with logstore.open(scene.store, mode="r") as store:
        for partition in range(3):
            log = store.partition(replay.TOPIC, partition)
            times = [record.timestamp_ms for record in log.records(0, log.high_watermark)]
            assert times == sorted(times)
            assert times


def in_windows(events: list[tuple[str, int]], size_ms: int, step_ms: int) -> Counted:
    counted: Counted = Counter()
    for key, at_ms in events:
        begin = at_ms - at_ms % step_ms
        while begin + size_ms > at_ms:
            counted[key, begin, begin + size_ms] += 1
            begin -= step_ms
    return dict(counted)


def in_sessions(events: list[tuple[str, int]], gap_ms: int) -> Counted:
    times: dict[str, list[int]] = defaultdict(list)
    for key, at_ms in sorted(events, key=lambda event: event[1]):
        times[key].append(at_ms)
    counted: Counted = {}
    for key, found in times.items():
        first = 0
        for place in range(1, len(found) + 1):
            if place == len(found) or found[place] > found[place - 1] + gap_ms:
                counted[key, found[first], found[place - 1] + gap_ms] = place - first
                first = place
    return counted


def test_windows(spark: SparkSession, tmp_path: Path) -> None:
    scene = scene_of(spark, tmp_path, 1500)
    found = windows.play(scene)
    events = [(row["origin"], row["tailnum"], at_ms) for row in scene.flights if (at_ms := departed_ms(row))]
    newest_ms = max(at_ms for _, _, at_ms in events)
    assert found.newest_ms == newest_ms
    events.append(("LATE", "N0LATE", newest_ms - HOUR_MS // 2))  # 12 hours late is not in, nor the heartbeat
    by_origin = [(origin, at_ms) for origin, _, at_ms in events]
    by_aircraft = [(tail, at_ms) for _, tail, at_ms in events]
    assert found.counted["tumbling"] == in_windows(by_origin, HOUR_MS, HOUR_MS)
    assert found.counted["sliding"] == in_windows(by_origin, 3 * HOUR_MS, HOUR_MS)
    assert found.counted["session"] == in_sessions(by_aircraft, 4 * HOUR_MS)
    assert found.dropped == {"tumbling": 1, "sliding": 3, "session": 1}


def test_stream_joins(spark: SparkSession, tmp_path: Path) -> None:
    scene = scene_of(spark, tmp_path, 2000)
    found = stream_joins.play(scene, limit=1200)
    arrived = [row for row in scene.flights if landed_ms(row) is not None]
    assert found.made_up == {flight_id(row): int(row["dep_delay"]) - int(row["arr_delay"]) for row in arrived}
    assert found.missing == {
        flight_id(row): "cancelled" if row["dep_time"] == "NA" else "diverted"
        for row in scene.flights
        if row["air_time"] == "NA"
    }
    assert set(found.missing.values()) == {"cancelled", "diverted"}


def test_table_joins(spark: SparkSession, tmp_path: Path) -> None:
    scene = scene_of(spark, tmp_path, 1500)
    found = table_joins.play(scene)
    names = {row["carrier"]: row["name"] for row in read_carriers()}
    makers: dict[str, str | None] = {row["tailnum"]: row["manufacturer"] for row in read_aircraft()}
    wanted: dict[str, tuple[str, str | None]] = {}
    for place, row in enumerate(scene.flights):
        if place == 750:
            names["UA"] = table_joins.NEW_NAME
            assert makers.pop(found.deleted) is not None
        wanted[flight_id(row)] = (names[row["carrier"]], makers.get(row["tailnum"]))
    assert found.rows == wanted
    assert {name for name, _ in wanted.values()} >= {"United Air Lines Inc.", table_joins.NEW_NAME}


def test_in_a_query_that_runs_on_a_table_is_new_if_it_is_loaded_in_foreach_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = scene_of(spark, tmp_path, 40)
    with logstore.open(scene.store) as store:
        for topic in (table_joins.FLIGHTS, table_joins.CARRIERS):
            store.create_topic(topic)

    def names() -> DataFrame:
        return table_joins.table(scene, table_joins.CARRIERS, table_joins.CARRIER)

    def write_names(name: str) -> None:
        rows = [(row["carrier"], {**row, "name": name}, None) for row in read_carriers()]
        table_joins.write(scene.store, table_joins.CARRIERS, rows)

    at_begin = names()
    seen: dict[str, Counter[str]] = {"at begin": Counter(), "each batch": Counter()}

    def join(batch: DataFrame, _: int) -> None:
        for when, table in (("at begin", at_begin), ("each batch", names())):
            seen[when].update(row.name for row in batch.join(table, "carrier").select("name").collect())

    write_names("old")
    stream = spark.readStream.format("logstore").options(subscribe="flights", startingOffsets="earliest")
    stream = stream.options(valueFormat="json", valueSchema=table_joins.FLIGHT)
    flights = stream.load(scene.store).select("value.*")
    query = flights.writeStream.foreachBatch(join).trigger(processingTime="0 seconds").start()
    try:
        table_joins.write(scene.store, table_joins.FLIGHTS, table_joins.flight_rows(scene.flights[:15]))
        query.processAllAvailable()
        write_names("new")
        table_joins.write(scene.store, table_joins.FLIGHTS, table_joins.flight_rows(scene.flights[15:]))
        query.processAllAvailable()
    finally:
        query.stop()
    assert seen == {"at begin": Counter(old=40), "each batch": Counter(old=15, new=25)}


def test_an_example_begins_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").touch()
    monkeypatch.setattr(sys, "argv", ["replay", "--path", str(tmp_path)])
    with pytest.raises(SystemExit):
        run(replay.play)
    assert "is not empty: an example begins with nothing" in capsys.readouterr().err
