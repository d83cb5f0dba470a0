"""Who loads the flights into a compacted topic, and who follows it.

python -m tests.integration.flight_jobs load|watch ARGUMENTS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from logstore.errors import LogStoreError
from logstore.store import LogStore
from tests.integration.churn_jobs import look_often
from tests.workers import say, stop_asked

TOPIC, DEAD = "aircraft", "aircraft.dead"
MISSING = "NA"  # as the data writes it
PARTS = 3
_CHUNK = 500
_PATIENCE_S = 60.0


def state_of(row: dict[str, str]) -> tuple[bytes | None, bytes | None]:
    """The record of a flight: its aircraft, and what that did last; None where the flight was cancelled."""
    key = None if row["tailnum"] == MISSING else row["tailnum"].encode()
    if row["dep_time"] == MISSING:
        return key, None
    return key, "{time_hour} {carrier}{flight} {origin} {dest} {dep_time}".format_map(row).encode()


def load(root: str, source: str) -> None:
    """Send the rows (JSON lines) in parts. After each the topic is given up, until a line comes in."""
    rows = [json.loads(line) for line in Path(source).read_text().splitlines()]
    with LogStore(root, cleaner_duty=0.5, lock_timeout_s=60) as store:
        look_often(store)
        per_part = -(-len(rows) // PARTS)
        for begin in range(0, len(rows), per_part):
            with store.producer(name="flights") as producer:
                part = rows[begin : begin + per_part]
                for at in range(0, len(part), _CHUNK):
                    pairs = [state_of(row) for row in part[at : at + _CHUNK]]
                    producer.send_many(TOPIC, [pair for pair in pairs if pair[0] is not None])
                    for row, (key, _) in zip(part[at : at + _CHUNK], pairs, strict=True):
                        if key is None:
                            producer.send(
                                DEAD, json.dumps(row).encode(), headers=[("reason", b"no tail number")]
                            )
            cleanings = _cleanings(store)
            store.release(TOPIC)
            say("part", begin // per_part, begin + len(part), cleanings)
            sys.stdin.readline()
    say("closed")


def _cleanings(store: LogStore) -> int:
    """In the background, once there is one: all that is not in a last segment is dirty at first."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not (found := int(store.metrics()["logstore_cleanings_total"])) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return found


def watch(root: str, target: str) -> None:
    """Follow the topic until told to stop, then to its end; write the state of each aircraft to a file."""
    stop = stop_asked()
    state: dict[str, str] = {}
    seen = 0
    with LogStore(root, "r") as store, store.consumer(TOPIC) as consumer:
        say("ready")
        while True:
            ending = stop.is_set()
            records = consumer.poll(5_000, 0.1)
            for record in records:
                if record.value is None:
                    state.pop(record.key.decode(), None)
                else:
                    state[record.key.decode()] = record.value.decode()
            seen += len(records)
            if ending and not records and not any(consumer.lag().values()):
                break
    Path(target).write_text(json.dumps(state))
    say("saw", seen)


JOBS: dict[str, Callable[..., None]] = {"load": load, "watch": watch}

if __name__ == "__main__":
    try:
        JOBS[sys.argv[1]](*sys.argv[2:])
    except LogStoreError as error:
        say("failed", type(error).__name__, error)
        raise
