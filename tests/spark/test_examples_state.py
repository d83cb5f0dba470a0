"""The examples that fold a stream to a table, against the same computed in plain Python over the same flights."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_connector.examples import change_capture, latest_table
from spark_connector.examples.scene import Scene
from tests.spark.example_logs import flights, partitions

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]
FLIGHTS = 1_500


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path, flights(FLIGHTS))


def folded(store: str, topic: str) -> dict[str, Any]:
    """The last value of each key of a topic, as JSON; tombstones remove."""
    table: dict[str, Any] = {}
    for records in partitions(store, topic):
        for record in records:
            assert record.key is not None
            table[record.key.decode()] = None if record.value is None else json.loads(record.value)
    return {key: row for key, row in table.items() if row is not None}


def test_latest_table(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    found = latest_table.play(scene)
    flown: dict[str, dict[str, Any]] = {}
    for flight in scene.flights:
        if flight["tailnum"] != "NA":
            row = flown.setdefault(flight["tailnum"], {"flights": 0, "miles": 0})
            row["flights"] += 1
            row["miles"] += int(flight["distance"])
            row["airport"], row["carrier"] = flight["dest"], flight["carrier"]
    assert len(flown) < sum(flight["tailnum"] != "NA" for flight in scene.flights) < FLIGHTS
    assert {key: json.loads(value) for key, value in found.table.items()} == flown
    assert found.by_spark == found.table
    assert folded(scene.store, latest_table.AIRCRAFT) == flown
    assert found.kept == len(flown) < found.written < FLIGHTS
    said = capsys.readouterr().out
    assert f"agree on {len(flown)} aircraft, before compaction and after: True" in said


def still_on_the_board(rows: list[dict[str, str]]) -> dict[str, str]:
    """The status of each flight whose last change up to the end is not that it landed."""
    end = max(datetime.fromisoformat(flight["time_hour"]) for flight in rows)
    last: dict[str, tuple[datetime, str]] = {}
    for flight in rows:
        key = f"{flight['carrier']}{flight['flight']}-{flight['origin']}"
        planned = datetime.fromisoformat(flight["time_hour"]) + timedelta(minutes=int(flight["minute"]))
        changes = [(planned - timedelta(minutes=120), "planned")]
        if flight["dep_time"] == "NA":
            changes.append((planned, "cancelled"))
        else:
            left = planned + timedelta(minutes=int(flight["dep_delay"]))
            changes.append((left, "in the air"))
            if flight["air_time"] != "NA":
                changes.append((left + timedelta(minutes=int(flight["air_time"])), "landed"))
        for at, status in changes:
            if at <= end and (key not in last or at >= last[key][0]):
                last[key] = (at, status)
    return {key: status for key, (_, status) in last.items() if status != "landed"}


def test_change_capture(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    found = change_capture.play(scene)
    expected = still_on_the_board(scene.flights)
    assert {"planned", "cancelled", "in the air"} == set(expected.values())
    assert {key: row["status"] for key, row in found.table.items()} == expected
    assert found.by_spark == found.table == found.database
    assert folded(scene.store, change_capture.BOARD) == found.table
    changes = [record for log in partitions(scene.store, change_capture.CHANGES) for record in log]
    operations = [json.loads(record.value)["op"] for record in changes if record.value is not None]
    assert len(changes) == found.changes
    assert min(operations.count(op) for op in "cud") > 100
    assert operations.count("d") == sum(record.value is None for record in changes)
    assert len(found.table) < found.kept < found.written < found.changes  # tombstones stay for a while
    assert f"agree on {len(expected)} rows: True" in capsys.readouterr().out
