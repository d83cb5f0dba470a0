"""The flights as a compacted topic: it keeps the last state of each aircraft while it is written and read.

The key is the tail number, the value what the aircraft did last. A cancelled flight is a tombstone; a flight
without a tail number goes to a topic of dead letters. Three processes: one loads and cleans in the background,
one follows, and `logstore log compact` cleans by hand between the parts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from logstore.store import LogStore
from tests.child import child
from tests.integration.flight_jobs import DEAD, MISSING, PARTS, TOPIC, state_of
from tests.integration.flights import read_flights
from tests.worker_process import Worker

_JOBS = "tests.integration.flight_jobs"
_DAY_MS = "86400000"
PARTITIONS = 2
Pairs: TypeAlias = Sequence[tuple[bytes | None, bytes | None]]


def _flying(pairs: Pairs) -> dict[bytes, bytes]:
    """The last state of each aircraft whose last flight was not cancelled."""
    last = {key: value for key, value in pairs if key is not None}
    return {key: value for key, value in last.items() if value is not None}


@pytest.fixture(scope="module")
def flights() -> list[dict[str, str]]:
    return read_flights()


def _compact(root: str, pairs: Pairs, *, exact: bool = True) -> tuple[int, int]:
    """Clean by hand, and meanwhile read all of the topic, again and again: it has the wanted state at any time.
    (records that were gone through, how often it was read)

    Not ``exact``: another process cleans beside, and tombstones go at once. A read over both cleanings may have seen a
    record that the first took out, and misses its tombstone, which the second took out: it finds records that were.
    """
    wanted, ever = _flying(pairs), set(pairs)
    command = [sys.executable, "-m", "logstore.cli", "--path", root, "--json", "log", "compact", TOPIC]
    command += ["--roll", "--progress"]
    reads = 0
    with (
        child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        LogStore(root, "r") as store,
    ):
        running = True
        while running:
            running = process.poll() is None
            state: dict[bytes | None, bytes | None] = {}
            for part in range(PARTITIONS):
                state.update((record.key, record.value) for record in store.partition(TOPIC, part).records(0))
            found = {key: value for key, value in state.items() if value is not None}
            assert {key: found[key] for key in (found if exact else wanted)} == wanted
            assert ever >= found.items()
            reads += 1
            time.sleep(0.05)
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    return sum(json.loads(line)["records_before"] for line in out.splitlines()), reads


@pytest.mark.parametrize("retention_ms", ["0", pytest.param(_DAY_MS, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "count", [8_000, pytest.param(None, marks=[pytest.mark.long, pytest.mark.timeout(900)], id="all")]
)
def test_the_last_state_of_each_aircraft(
    tmp_path: Path,
    workers: list[Worker],
    flights: list[dict[str, str]],
    count: int | None,
    retention_ms: str,
) -> None:
    rows = flights[:count]
    pairs = [state_of(row) for row in rows]
    last = {key: value for key, value in pairs if key is not None}
    flying = _flying(pairs)
    assert 0 < len(last) - len(flying) < len(flying)
    root, source, target = str(tmp_path / "store"), tmp_path / "rows", tmp_path / "state"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with LogStore(root) as store:
        config = {"cleanup.policy": "compact", "segment.bytes": "65536", "file.delete.delay.ms": "100"}
        store.create_topic(TOPIC, PARTITIONS, config | {"delete.retention.ms": retention_ms})
        store.create_topic(DEAD)
    workers.append(watcher := Worker("watch", root, target, module=_JOBS))
    watcher.expect("ready")
    workers.append(loader := Worker("load", root, source, module=_JOBS))
    cleanings = reads = 0
    for _ in range(PARTS):
        _, sent, cleanings = map(int, loader.expect("part", patience_s=120).split()[1:])
        cleaned, times = _compact(root, pairs[:sent], exact=retention_ms != "0")
        assert cleaned > 0
        reads += times
        loader.tell("go on")
    loader.expect("closed")
    assert loader.finish() == 0
    assert watcher.process.stdin is not None
    watcher.process.stdin.close()
    seen = int(watcher.expect("saw").split()[1])
    assert watcher.finish() == 0
    watched = {key.encode(): value.encode() for key, value in json.loads(target.read_text()).items()}
    _compact(root, pairs)
    _compact(root, pairs)  # and the tombstones that came of age with the first

    with LogStore(root, "r") as store:
        kept = [record for part in range(PARTITIONS) for record in store.partition(TOPIC, part).records(0)]
        letters = list(store.partition(DEAD, 0).records(0))
    state = {record.key: record.value for record in kept}
    assert len(state) == len(kept), "one record of each aircraft"
    if retention_ms == "0":
        assert state == flying, "tombstones are gone"
        # A reader that far behind has not been shown each delete, and knows no newer state of those.
        assert {key: watched[key] for key in flying} == flying
        assert last.keys() >= watched.keys()
    else:
        assert state == last, "tombstones are there for a day, so that each reader sees them"
        assert watched == flying
    nameless = [row for row in rows if row["tailnum"] == MISSING]
    assert [json.loads(record.value or b"") for record in letters] == nameless
    assert {record.headers for record in letters} == {(("reason", b"no tail number"),)}
    print(
        f"{len(rows)} flights of {len(last)} aircraft, {len(last) - len(flying)} cancelled last, "
        f"{len(nameless)} dead letters; {cleanings} cleanings in the background, "
        f"{reads} reads of all beside those by hand; "
        f"the follower saw {seen} records and {len(watched)} aircraft; {len(kept)} records are kept"
    )
    assert cleanings > 0, "the topic was cleaned in the background, too"
