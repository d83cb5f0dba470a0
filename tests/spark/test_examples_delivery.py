"""The examples about what becomes of each record: copied once, passed on, or kept with the reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logstore import Record
from spark_connector.examples import backfill, dead_letters, exactly_once_copy
from spark_connector.examples.scene import Scene
from tests.house import ROOT
from tests.spark.example_logs import flights, partitions, values

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]


@pytest.mark.timeout(600)  # Spark sessions one after the other
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.long)])
def test_exactly_once_copy(spark: SparkSession, tmp_path: Path, kills: int) -> None:
    """Also in order: keys go to the same partition of the copy."""
    scene = Scene(spark, tmp_path, flights(2_000))
    found = exactly_once_copy.play(scene, kills=kills)
    assert len(found.killed_at) == kills
    assert found.killed_at[0] > 0
    assert found.killed_at[-1] < 2_000
    assert found.killed_at == sorted(set(found.killed_at))
    assert (found.source, found.copy, found.missing, found.doubled) == (2_000, 2_000, 0, 0)
    source = values(scene.store, exactly_once_copy.SOURCE)
    assert sum(map(len, source)) == 2_000
    assert values(scene.store, exactly_once_copy.TARGET) == source


def test_backfill(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(spark, tmp_path, flights(2_000))
    found = backfill.play(scene)
    assert (found.copied, found.origins) == (2_000, 2_000)
    assert sum(found.caught_up) >= 1_000
    assert max(found.caught_up) <= 333
    assert sum(found.live) >= 500
    assert sum(found.caught_up + found.live) == 2_000
    sources = partitions(scene.store, backfill.FLIGHTS)
    expected = Counter(json.dumps(flight).encode() for flight in scene.flights)
    assert Counter(record.value for records in sources for record in records) == expected
    for source, copy in zip(sources, partitions(scene.store, backfill.SEEN), strict=True):
        origins = [(b"%d-%d" % (record.partition, record.offset), record.value) for record in source]
        assert [(dict(record.headers)["origin"], record.value) for record in copy] == origins


def cause_of(value: bytes | None) -> str | None:
    assert value is not None
    try:
        delay = json.loads(value.decode("utf-8"))["dep_delay"]
    except UnicodeDecodeError:
        return "not UTF-8"
    except ValueError:
        return "not JSON"
    return "does not fit valueSchema" if isinstance(delay, str) else None


def test_dead_letters_as_a_command(tmp_path: Path) -> None:
    """All that it says and leaves, without a word of its own process."""
    path = tmp_path / "played"
    command = [sys.executable, "-W", "ignore", "-m", "spark_connector.examples.dead_letters"]
    quick = "--conf spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 pyspark-shell"
    done = subprocess.run(
        [*command, "--path", str(path), "--flights", "1500"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": quick},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    store = path / "store"
    came = [record for records in partitions(store, dead_letters.FLIGHTS) for record in records]
    causes = {(record.partition, record.offset): cause_of(record.value) for record in came}
    bad = {place: cause for place, cause in causes.items() if cause is not None}
    counts = Counter(bad.values())
    assert len(came) == 1_500
    assert min(counts[cause] for cause in ("not UTF-8", "not JSON", "does not fit valueSchema")) >= 5
    last = done.stdout.strip().splitlines()[-1]
    assert last == f"-- 1500 came in: {1_500 - len(bad)} went on, {len(bad)} are dead letters"
    for cause, count in counts.items():
        assert re.search(rf"^\|{cause} *\|{count} *\|$", done.stdout, re.MULTILINE)

    letters = [record for records in partitions(store, dead_letters.DEAD) for record in records]
    origins = [origin_of(letter) for letter in letters]
    assert sorted(origins) == sorted(bad)
    by_place = {(record.partition, record.offset): record for record in came}
    for letter, origin in zip(letters, origins, strict=True):
        source, headers = by_place[origin], dict(letter.headers)
        assert (letter.key, letter.value) == (source.key, source.value)
        assert headers["sender"] == dict(source.headers)["sender"]
        assert headers["dead-letter.topic"] == dead_letters.FLIGHTS.encode()
        assert (headers["dead-letter.message"] or b"").startswith(bad[origin].encode() + b":")

    for source_log, good_log in zip(
        partitions(store, dead_letters.FLIGHTS), partitions(store, dead_letters.CLEAN), strict=True
    ):
        expected = [as_read(record) for record in source_log if cause_of(record.value) is None]
        assert [as_read(record) for record in good_log] == expected


def origin_of(letter: Record) -> tuple[int, int]:
    headers = {name: value or b"" for name, value in letter.headers}
    return int(headers["dead-letter.partition"]), int(headers["dead-letter.offset"])


def as_read(record: Record) -> tuple[bytes | None, int, object]:
    return record.key, record.timestamp_ms, json.loads(record.value or b"null")
