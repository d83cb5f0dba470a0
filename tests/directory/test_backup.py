"""Backup: consistent beside a writer, opens clean, never shares a file that will still change."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import logstore
from logstore.directory import topic_state
from logstore.directory.backup import BackupReport
from logstore.errors import DamagedStoreError, ForeignDirectoryError, InvalidArgumentError
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from logstore.types import OffsetAndMetadata, TopicPartition

MOST_BESIDE = 3_000  # records that are written beside copies: a disk in memory takes 100,000 meanwhile
SMALL_SEGMENTS = {"segment.bytes": "4096", "index.interval.bytes": "512"}


def run(store: logstore.LogStore, target: Path, *, link: bool = True) -> BackupReport:
    return store.backup(target, link=link)


def faults(root: Path) -> list[object]:
    fs = OsFileSystem()
    return list(verify_store(fs, str(root), SystemClock().boot_id(), Totals()))


def values(root: Path, topic: str = "flights", partition: int = 0) -> list[bytes]:
    with logstore.open(root, mode="r") as store:
        return [record.value for record in store.partition(topic, partition).records(0)]


def fill(store: logstore.LogStore, first: int, count: int, topic: str = "flights") -> None:
    log = store.partition(topic, 0)
    for number in range(first, first + count):
        log.append([(b"key", b"value %d " % number + b"." * 200)], acks="all")


def test_the_copy_is_a_clean_store_with_the_same_records(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights", partitions=2, config=SMALL_SEGMENTS)
        fill(store, 0, 100)
        store.commit_offsets("g", {TopicPartition("flights", 0): OffsetAndMetadata(60)})
        store.release("flights")  # its recovery point is durable up to the end
        report = run(store, tmp_path / "copy")
        assert (report.topics, report.partitions) == (2, 3)
        assert report.linked_bytes > 0
        assert report.skipped_topics == ()
    assert faults(tmp_path / "copy") == []
    assert values(tmp_path / "copy") == values(tmp_path / "store")
    state = topic_state.load(OsFileSystem(), str(tmp_path / "copy"), "flights")
    assert state is not None
    assert state.clean
    with logstore.open(tmp_path / "copy") as copy:
        assert copy.committed_offsets("g") == {TopicPartition("flights", 0): OffsetAndMetadata(60)}
        fill(copy, 100, 50)
        assert copy.recovery_report == ()
    assert faults(tmp_path / "copy") == []


def test_writing_to_either_side_leaves_the_other_alone(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights", config=SMALL_SEGMENTS)
        fill(store, 0, 60)
        store.release("flights")
        run(store, tmp_path / "copy")
        before = values(tmp_path / "copy")
        fill(store, 60, 60)
    assert values(tmp_path / "copy") == before
    with logstore.open(tmp_path / "copy") as copy:
        fill(copy, 1000, 60)
    assert values(tmp_path / "store")[60:] == [
        b"value %d " % number + b"." * 200 for number in range(60, 120)
    ]
    assert faults(tmp_path / "store") == []
    assert faults(tmp_path / "copy") == []


def test_linked_files_are_one_file_and_the_last_is_never_linked(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights", config=SMALL_SEGMENTS)
        fill(store, 0, 100)
        store.release("flights")
        run(store, tmp_path / "copy")
    logs = sorted((tmp_path / "copy" / "flights-0").glob("*.log"))
    assert len(logs) > 3
    links = [log.stat().st_nlink for log in logs]
    assert links[-1] == 1
    assert set(links[:-2]) == {2}


def test_without_links_every_byte_is_copied(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights", config=SMALL_SEGMENTS)
        fill(store, 0, 50)
        report = run(store, tmp_path / "copy", link=False)
        assert report.linked_bytes == 0
    assert {log.stat().st_nlink for log in (tmp_path / "copy").glob("*/*.log")} == {1}
    assert values(tmp_path / "copy") == values(tmp_path / "store")


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.ENOTSUP])
def test_where_links_are_impossible_files_are_copied(tmp_path: Path, number: int) -> None:
    class NoLinks(OsFileSystem):
        def link(self, source: str, target: str) -> None:
            raise OSError(number, os.strerror(number), target)

    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights", config=SMALL_SEGMENTS)
        fill(store, 0, 50)
    with logstore.open(tmp_path / "store", mode="r", fs=NoLinks()) as store:
        assert run(store, tmp_path / "copy").linked_bytes == 0
    assert values(tmp_path / "copy") == values(tmp_path / "store")


def test_copies_taken_beside_a_writer_are_prefixes(tmp_path: Path) -> None:
    """A thread appends and rolls all the while; every copy opens clean and holds a prefix of the log."""
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights", config=SMALL_SEGMENTS)
        stop = threading.Event()

        def write() -> None:
            for number in range(MOST_BESIDE):
                if stop.is_set():
                    return
                fill(store, number, 1)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            sizes = []
            for number in range(5):
                run(store, tmp_path / f"copy-{number}")
                assert faults(tmp_path / f"copy-{number}") == []
                sizes.append(len(values(tmp_path / f"copy-{number}")))
        finally:
            stop.set()
            writer.join()
    written = values(tmp_path / "store")
    assert sizes == sorted(sizes)
    for number, size in enumerate(sizes):
        assert values(tmp_path / f"copy-{number}") == written[:size]


_WRITER = """
import sys, logstore
with logstore.open(sys.argv[1]) as store, store.producer(acks="all") as producer:
    print("ready", flush=True)
    for number in range(int(sys.argv[2])):
        producer.send("flights", b"value %d" % number).result()
        producer.send("other", b"value %d" % number).result()
"""


def test_beside_a_writer_in_another_process(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights", config=SMALL_SEGMENTS)
        store.create_topic("other")
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path / "store"), str(MOST_BESIDE)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with logstore.open(tmp_path / "store", mode="r") as store:
            for number in range(3):
                run(store, tmp_path / f"copy-{number}")
    finally:
        writer.kill()
        writer.communicate()
    for number in range(3):
        assert faults(tmp_path / f"copy-{number}") == []
        for topic in ("flights", "other"):
            found = values(tmp_path / f"copy-{number}", topic)
            assert found == [b"value %d" % place for place in range(len(found))]


def test_an_empty_store_and_empty_topics(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        run(store, tmp_path / "copy-0")
        store.create_topic("flights", partitions=3)
        run(store, tmp_path / "copy-1")
    assert faults(tmp_path / "copy-0") == faults(tmp_path / "copy-1") == []
    with logstore.open(tmp_path / "copy-1") as copy:
        assert copy.list_topics() == ["flights"]
        fill(copy, 0, 3)
    assert len(values(tmp_path / "copy-1")) == 3


def test_the_target_must_be_new_and_elsewhere(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "precious").write_text("x")
        with pytest.raises(ForeignDirectoryError, match="not empty"):
            run(store, tmp_path / "full")
        with pytest.raises(InvalidArgumentError, match="inside the store"):
            run(store, tmp_path / "store" / "copy")
    assert os.listdir(tmp_path / "full") == ["precious"]


def test_a_damaged_batch_stops_the_copy_and_leaves_no_store(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights")
        fill(store, 0, 5)
    log = next((tmp_path / "store" / "flights-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    wrong = r"at byte 0, below offset 5: wrong CRC-32C"
    with logstore.open(tmp_path / "store", mode="r") as store, pytest.raises(DamagedStoreError, match=wrong):
        run(store, tmp_path / "copy")
    assert not (tmp_path / "copy" / "topics.json").exists()


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_deleted_meanwhile_is_left_out(tmp_path: Path, again: bool) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("flights")
        store.create_topic("gone")
        fill(store, 0, 5)
        fill(store, 0, 5, "gone")

        def delete(count: int) -> None:
            if "gone" in store.list_topics():
                store.delete_topic("gone")
                if again:
                    store.create_topic("gone")
                    fill(store, 0, 7, "gone")

        report = store.backup(tmp_path / "copy", progress=delete)
    assert report.skipped_topics == ("gone",)
    assert faults(tmp_path / "copy") == []
    with logstore.open(tmp_path / "copy", mode="r") as copy:
        assert copy.list_topics() == ["flights"]
