"""Files made up to do harm: each way in answers with data or a named error, soon, and without taking the memory."""

from __future__ import annotations

import json
import random
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

import logstore
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from logstore.types import OffsetAndMetadata, TopicPartition

LONGEST_S = 60.0  # a loop over a made-up number would take hours
NOTE_ID = "AAAAAAAAQACAAAAAAAAAAA"
PLACE = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crafted") / "store"
    with logstore.open(root) as store:
        store.create_topic("t", config={"segment.bytes": "1500", "index.interval.bytes": "200"})
        with store.producer(transactional_id="x", linger_ms=0) as producer:
            for number in range(8):
                producer.begin()
                producer.send("t", b"value" * 30)
                producer.flush()
                producer.commit() if number % 2 else producer.abort()
        store.commit_offsets("g", {PLACE: OffsetAndMetadata(3)})
    note = {"topic": "gone", "topic_id": NOTE_ID, "partitions": 2}
    (root / ".state" / f"{NOTE_ID}.deleting").write_text(json.dumps(note))
    (root / "t-0" / "cleaner-mark-checkpoint").write_text("0\n1\n0 3\n")
    return root


def crafted(data: bytes, seed: int) -> list[bytes | int]:
    """Contents; a number is the size of a file with nothing but a hole behind what was there."""
    source = random.Random(seed)
    flips = []
    for _ in range(2):
        content = bytearray(data)
        content[source.randrange(len(content))] ^= 1 << source.randrange(8)
        flips.append(bytes(content))
    return [
        b"",
        data[: len(data) // 2],
        bytes(len(data)),
        b"\xff" * len(data),
        *flips,
        b"[" * 200_000,
        b"0\n999999999999\n",
        b"0\n1\n" + b"9" * 6000 + b" 1\n",
        json.dumps({"topic": "gone", "topic_id": NOTE_ID, "partitions": 10**12}).encode(),
        1 << 40,
    ]


def use(root: Path) -> None:
    with logstore.open(root, mode="r") as store:
        list(store.partition("t", 0).records(0))
        store.partition("t", 0).offset_for_timestamp(1)
        store.committed_offsets("g")
        store.backup(root.parent / "backup")
    with logstore.open(root, lock_timeout_s=5) as store:
        store.partition("t", 0).append([(None, b"new")])
        store.commit_offsets("g", {PLACE: OffsetAndMetadata(4)})


@pytest.mark.parametrize(
    "name",
    [
        "topics.json",
        ".live",
        ".state/t.json",
        f".state/{NOTE_ID}.deleting",
        "t-0/cleaner-mark-checkpoint",
        "t-0/leader-epoch-checkpoint",
        "t-0/partition.metadata",
        "t-0/transaction-index-checkpoint",
        "t-0/*.index",
        "t-0/*.timeindex",
        "t-0/*.txnindex",
        "t-0/*.snapshot",
    ],
)
def test_no_made_up_file_does_harm(sound: Path, tmp_path: Path, name: str) -> None:
    found = sorted(sound.glob(name))[-1].relative_to(sound)
    for content in crafted((sound / found).read_bytes(), seed=20261128):
        for place in ("store", "backup"):
            shutil.rmtree(tmp_path / place, ignore_errors=True)
        root = tmp_path / "store"
        shutil.copytree(sound, root)
        if isinstance(content, int):
            with (root / found).open("r+b") as file:
                file.truncate(content)
        else:
            (root / found).write_bytes(content)
        started_s = time.process_time()
        list(verify_store_or_error(root))
        with suppress(logstore.LogStoreError):  # anything else is what this is about
            use(root)
        assert time.process_time() - started_s < LONGEST_S


def verify_store_or_error(root: Path) -> list[object]:
    try:
        return list(verify_store(OsFileSystem(), str(root), SystemClock().boot_id(), Totals()))
    except logstore.LogStoreError as error:
        return [error]
