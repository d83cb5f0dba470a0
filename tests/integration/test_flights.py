"""Real records through the whole product: three processes on one directory, then the log itself is counted.

`logstore produce` writes the flights keyed by tail number into 8 partitions with zstd, while another process
consumes them in a group and a third writes another topic. Afterwards order per key must hold in the log, the
consumer must have seen every record once, and `logstore log verify` must find nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import logstore
from tests.child import child
from tests.integration.flights import KEY, read_flights, write_csv

_COMMAND = [sys.executable, "-m", "logstore.cli"]

_CONSUME = """
import sys
import logstore
path, expected = sys.argv[1], int(sys.argv[2])
seen = 0
with logstore.open(path) as store, store.consumer("flights", group="board") as consumer:
    while seen < expected:
        records = consumer.poll(max_records=5000, timeout_s=60)
        if not records:
            sys.exit(f"nothing came for 60 s after {seen} records")
        for record in records:
            print(record.partition, record.offset)
        seen += len(records)
        consumer.commit()
"""

_WRITE_OTHER = """
import sys
import logstore
with logstore.open(sys.argv[1]) as store, store.producer() as producer:
    for number in range(int(sys.argv[2])):
        producer.send("other", b"%d" % number)
"""


@pytest.mark.parametrize(
    "count", [20_000, pytest.param(None, marks=[pytest.mark.long, pytest.mark.timeout(900)], id="all")]
)
def test_flights_through_three_processes(tmp_path: Path, count: int | None) -> None:
    rows = read_flights()[:count]
    source, path = tmp_path / "flights.csv", tmp_path / "store"
    write_csv(rows, source)
    with logstore.open(path) as store:
        store.create_topic("flights", 8)
        store.create_topic("other")
    other_records = len(rows) // 2

    consume = [sys.executable, "-c", _CONSUME, str(path), str(len(rows))]
    with (
        (tmp_path / "seen").open("w") as seen,
        child(consume, stdout=seen, stderr=subprocess.PIPE) as consumer,
        child([sys.executable, "-c", _WRITE_OTHER, str(path), str(other_records)]) as other,
    ):
        produce = subprocess.run(
            [*_COMMAND, "--path", str(path), "produce", "flights", "--format", "csv", "--key-column", KEY]
            + ["--compression", "zstd", str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert produce.returncode == 0, produce.stderr
        assert other.wait(300) == 0
        _, errors = consumer.communicate(timeout=600)
        assert consumer.returncode == 0, errors.decode()

    assert _places(tmp_path / "seen") == _check_log(path, rows, other_records)
    verify = subprocess.run(
        [*_COMMAND, "--path", str(path), "log", "verify"], capture_output=True, text=True, check=False
    )
    assert verify.returncode == 0, verify.stdout + verify.stderr


def _places(file: Path) -> list[tuple[int, int]]:
    lines = [line.split() for line in file.read_text().splitlines()]
    return sorted((int(partition), int(offset)) for partition, offset in lines)


def _check_log(path: Path, rows: list[dict[str, str]], other_records: int) -> list[tuple[int, int]]:
    """Order per key as in the input, nothing lost or doubled; every (partition, offset) of the topic."""
    sent: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        sent[row[KEY]].append(row)
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    nulls: list[dict[str, str]] = []
    places: list[tuple[int, int]] = []
    with logstore.open(path, mode="r") as store:
        for partition in range(8):
            for record in store.partition("flights", partition).records(0):
                row = json.loads(record.value)
                places.append((partition, record.offset))
                if record.key is None:
                    nulls.append(row)
                else:
                    found[record.key.decode()].append(row)
        assert [record.value for record in store.partition("other", 0).records(0)] == [
            b"%d" % number for number in range(other_records)
        ]
        lag = store.admin.describe_group("board").lag
    no_key = sent.pop("", [])
    assert found == sent
    assert sorted(map(str, nulls)) == sorted(map(str, no_key)), "no tail number: no order, but every record"
    assert lag == 0
    return sorted(places)
