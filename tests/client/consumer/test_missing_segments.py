"""A segment that is gone or damaged: every way of reading says so by the same named error, and none waits for ever."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.client.consumer import fetcher
from logstore.errors import CorruptBatchError, LogStoreError, SegmentVanishedError, StorageError
from logstore.types import TopicPartition

RECORDS = 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "PATIENCE_S", 0.2)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose partition a-0 has several closed segments; b-0 has records too."""
    path = tmp_path_factory.mktemp("pristine") / "store"
    with logstore.open(str(path)) as store:
        for name in ("a", "b"):
            store.create_topic(name, 1, {"segment.bytes": "1500", "cleanup.policy": "compact"})
            for number in range(RECORDS):
                store.partition(name, 0).append([(b"k%d" % number, b"x" * 200)])
    return path


def segments(path: Path, topic: str = "a") -> list[Path]:
    return sorted((path / f"{topic}-0").glob("*.log"))


def vanish(path: Path, which: int) -> None:
    os.unlink(segments(path)[which])


def damage(path: Path, which: int) -> None:
    file = segments(path)[which]
    content = bytearray(file.read_bytes())
    content[100] ^= 0xFF
    file.write_bytes(content)


def iterate(store: logstore.LogStore, **settings: Any) -> int:
    with store.consumer("a", **settings) as consumer:
        return sum(1 for _ in consumer)


def batches(store: logstore.LogStore, **settings: Any) -> int:
    with store.consumer("a", **settings) as consumer:
        return sum(len(records) for records in consumer.batches(timeout_s=30))


def poll(store: logstore.LogStore, **settings: Any) -> int:
    count = 0
    with store.consumer("a", **settings) as consumer:
        while count < RECORDS:
            count += len(consumer.poll(timeout_s=30))
    return count


def table(store: logstore.LogStore) -> int:
    with store.topic("a").table() as entries:
        return len(entries)


def records(store: logstore.LogStore) -> int:
    return sum(1 for _ in store.partition("a", 0).records(0))


def backwards(store: logstore.LogStore) -> int:
    return sum(1 for _ in store.partition("a", 0).records(0, reverse=True))


WAYS: dict[str, Callable[[logstore.LogStore], int]] = {
    "for, to the end": lambda store: iterate(store, until_end=True),
    "for, tailing": iterate,
    "for, on_reset": lambda store: iterate(store, on_reset="earliest"),
    "for, in a group": lambda store: iterate(store, group="g") if store.mode == "rw" else iterate(store),
    "batches, to the end": lambda store: batches(store, until_end=True),
    "batches, tailing": batches,
    "poll": poll,
    "poll, on_reset": lambda store: poll(store, on_reset="latest"),
    "table": table,
    "records": records,
    "records backwards": backwards,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", [1, -1], ids=["middle", "last"])
def test_a_vanished_segment_is_told(tmp_path: Path, pristine: Path, way: str, which: int) -> None:
    path = tmp_path / "store"
    shutil.copytree(pristine, path)
    vanish(path, which)
    with logstore.open(str(path), mode="r") as store, pytest.raises(LogStoreError) as caught:
        WAYS[way](store)
    assert isinstance(caught.value, SegmentVanishedError | CorruptBatchError), caught.value
    assert "a-0" in str(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_segment_is_told(tmp_path: Path, pristine: Path, way: str) -> None:
    path = tmp_path / "store"
    shutil.copytree(pristine, path)
    damage(path, 1)
    with logstore.open(str(path), mode="r") as store, pytest.raises(CorruptBatchError, match="a-0"):
        WAYS[way](store)


@pytest.mark.parametrize("way", WAYS)
def test_a_segment_that_vanishes_under_its_owner_is_told(tmp_path: Path, pristine: Path, way: str) -> None:
    path = tmp_path / "store"
    shutil.copytree(pristine, path)
    with logstore.open(str(path)) as store:
        store.partition("a", 0).append([(b"k", b"v")])  # takes the topic
        vanish(path, 1)
        with pytest.raises((SegmentVanishedError, StorageError), match="a-0"):
            WAYS[way](store)


def test_a_busy_partition_does_not_hide_another_ones_error(tmp_path: Path, pristine: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(pristine, path)
    vanish(path, 0)
    with logstore.open(str(path)) as writer, logstore.open(str(path), mode="r") as store:
        log = writer.partition("b", 0)
        with store.consumer([TopicPartition("a", 0), TopicPartition("b", 0)], start="latest") as consumer:
            consumer.seek("a", 0, 0)
            read = 0
            deadline_s = time.monotonic() + 60
            told = None
            while told is None and time.monotonic() < deadline_s:
                log.append([(b"k", b"v")])
                try:
                    read += len(consumer.poll(timeout_s=60))
                except SegmentVanishedError as error:
                    told = error
            assert told is not None
            assert "a-0" in told.message
            assert read > 0  # b had records at each of these polls
