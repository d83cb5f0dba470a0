"""A store's directory as it was written while a topic had one state file (tests/golden/store.tar.xz).

Topics: ``flights`` (two partitions, several segments, records deleted at the front, closed in order), ``latest``
(compacted, cleaned once), ``paid`` (a committed, an aborted and an open transaction, in use when its process was
killed), ``__consumer_offsets`` and ``__transaction_state``; the named producer ``import`` has written to ``flights``.

``python -m tests.golden_store`` made it with the code of that time: newer code makes another directory.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import logstore
from logstore.types import OffsetAndMetadata, TopicPartition

FOLDER = Path(__file__).parent / "golden"
ARCHIVE, SEEN = FOLDER / "store.tar.xz", FOLDER / "store.json"
PLACES = [("flights", 0), ("flights", 1), ("latest", 0), ("paid", 0)]


def unpack(target: Path) -> str:
    """The directory as it was left, under ``target``."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(target, filter="data")
    return str(target / "store")


def expected() -> dict[str, Any]:
    """What the version that wrote the store read in it: see ``look``."""
    found: dict[str, Any] = json.loads(SEEN.read_text())
    return found


def look(store: logstore.LogStore) -> dict[str, Any]:
    """Everything that users see of the store: records, offsets, groups."""
    places = {}
    for topic, partition in PLACES:
        log = store.partition(topic, partition)
        places[f"{topic}-{partition}"] = {
            "start": log.log_start_offset,
            "end": log.high_watermark,
            "stable": log.last_stable_offset,
            "committed": [_row(one) for one in log.records(log.log_start_offset)],
            "all": [_row(one) for one in log.records(log.log_start_offset, isolation="read_uncommitted")],
        }
    offsets = store.committed_offsets("readers")
    groups = {f"{place.topic}-{place.partition}": list(at) for place, at in offsets.items()}
    return {"places": places, "groups": groups}


def _row(record: logstore.Record) -> list[Any]:
    key = None if record.key is None else record.key.decode()
    value = None if record.value is None else record.value.decode()
    return [record.offset, record.timestamp_ms, key, value]


def _make(path: str) -> dict[str, Any]:
    small = {"segment.bytes": "1024", "index.interval.bytes": "150", "file.delete.delay.ms": "0"}
    with logstore.open(path) as store:
        store.create_topic("flights", partitions=2, config=small)
        store.create_topic("latest", config=small | {"cleanup.policy": "compact"})
        store.create_topic("paid", config=small)
        with store.producer(name="import") as producer:
            for number in range(40):
                value = b"flight %03d " % number * 8
                sent = producer.send("flights", value, key=b"N%d" % number, partition=number % 2)
                if number % 10 == 9:
                    sent.result(timeout_s=60)
        for number in range(30):
            store.partition("latest", 0).append([(b"k%d" % (number % 4), b"value %02d" % number)])
        store.admin.compact("latest")
        store.delete_records("flights", {1: 3})
        for name, end in (("first", True), ("second", False)):
            with store.producer(transactional_id="till") as producer:
                producer.begin()
                producer.send("paid", name.encode()).result(timeout_s=60)
                producer.commit() if end else producer.abort()
        place = TopicPartition("flights", 0)
        store.commit_offsets("readers", {place: OffsetAndMetadata(7, 0, "seen")})
    store = logstore.open(path)
    producer = store.producer(transactional_id="till")
    producer.begin()
    producer.send("paid", b"pending").result(timeout_s=60)
    seen = look(store)
    store.abandon()
    return seen


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        seen = _make(f"{folder}/store")
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            archive.add(f"{folder}/store", "store")
    SEEN.write_text(json.dumps(seen, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
