"""A full disk: what deletes works, what writes says why it cannot, and all goes on once there is room."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import logstore
from logstore.directory.reserve import FILE_NAME, SIZE_BYTES, Reserve
from logstore.errors import DiskFullError, LogStoreError, StorageError
from logstore.ownership.live import MemoryLive
from logstore.ownership.locks import MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.fs import exists
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

CAPACITY = 400_000
SMALL = {"segment.bytes": "20000"}


class Disk:
    """A small disk, and stores on it that keep a reserve."""

    def __init__(self) -> None:
        self.fs, self.clock = MemoryFileSystem(capacity_bytes=CAPACITY), ManualClock()
        self.live = MemoryLive()

    def open(self, **settings: Any) -> LogStore:
        return LogStore(
            "/s",
            fs=self.fs,
            clock=self.clock,
            live=self.live,
            locks=MemoryLocks(clock=self.clock),
            threads=False,
            **({"reserve_bytes": SIZE_BYTES} | settings),
        )

    def fill(self, store: LogStore, topic: str) -> int:
        """Append until there is no room for a byte; the number of records."""
        log, size = store.partition(topic, 0), 8192
        while size:
            try:
                log.append([(None, b"x" * size)])
            except DiskFullError:
                size //= 2
        file = self.fs.open("/filler", "create")
        size = 1 << 16
        position = 0
        while size:
            try:
                position += file.pwritev([b"f" * size], position)
            except OSError:
                size //= 2
        file.close()
        return log.log_end_offset

    def free_bytes(self) -> int:
        return self.fs._room()


def trim(store: LogStore) -> None:
    store.delete_records("a", {0: store.partition("a", 0).high_watermark})


def lower(store: LogStore) -> None:
    store.admin.alter_topic("a", {"retention.bytes": "20000"})


def delete(store: LogStore) -> None:
    store.delete_topic("a")


@pytest.mark.parametrize("delay_ms", ["0", "60000"])
@pytest.mark.parametrize("free", [trim, lower, delete])
@pytest.mark.parametrize("opened", ["as it was", "anew"])
def test_what_deletes_frees_room(opened: str, free: Callable[[LogStore], None], delay_ms: str) -> None:
    disk = Disk()
    store = disk.open()
    for name in ("a", "b"):
        store.create_topic(name, 1, SMALL | {"file.delete.delay.ms": delay_ms})
    store.partition("b", 0).append([(None, b"first")])
    assert disk.fill(store, "a") > 10
    assert disk.free_bytes() == 0
    with pytest.raises(DiskFullError):
        store.partition("b", 0).append([(None, b"v" * 100)])
    if opened == "anew":
        store.abandon()
        store = disk.open()
    free(store)
    store.close()
    assert disk.free_bytes() > 50_000
    with disk.open() as store:
        assert store.partition("b", 0).append([(None, b"v" * 100)]).offset == 1
        assert [record.value for record in store.partition("b", 0).records(0)] == [b"first", b"v" * 100]
        assert exists(disk.fs, f"/s/{FILE_NAME}"), "there is room for it again"


def test_without_a_reserve_nothing_can_be_deleted_on_such_a_disk() -> None:
    disk = Disk()
    store = disk.open(reserve_bytes=0)
    store.create_topic("a", 1, SMALL)
    disk.fill(store, "a")
    with pytest.raises(DiskFullError):
        delete(store)
    store.abandon()


def test_files_that_wait_for_their_delay_go_at_once_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    with disk.open() as store, caplog.at_level(logging.WARNING):
        store.create_topic("a", 1, SMALL | {"retention.bytes": "300000"})
        disk.fill(store, "a")
        trim(store)
        store.step()
        assert [name for name in disk.fs.listdir("/s/a-0") if name.endswith(".deleted")] == []
        assert "removed before their file.delete.delay.ms is over" in caplog.text


def test_a_reserve_is_made_whole_again_and_is_no_more_than_room() -> None:
    fs = MemoryFileSystem(capacity_bytes=CAPACITY)
    fs.mkdir("/s")
    reserve = Reserve(fs, "/s", 1000)
    reserve.keep()
    with reserve.opened():
        with reserve.opened():
            assert not exists(fs, f"/s/{FILE_NAME}")
        assert not exists(fs, f"/s/{FILE_NAME}"), "the outer one still needs it"
    assert fs.stat(f"/s/{FILE_NAME}").size == 1000
    other = Reserve(fs, "/s", 2000)
    other.keep()
    assert fs.stat(f"/s/{FILE_NAME}").size == 2000, "of another size: made anew"
    fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends=FILE_NAME)
    with other.opened():
        pass
    assert other.is_lost
    assert not exists(fs, f"/s/{FILE_NAME}"), "no half of one"
    fs.faults.on("create", FaultKind.EIO, path_ends=FILE_NAME)
    with pytest.raises(StorageError):
        other.keep()


def test_a_producer_waits_for_room_as_long_as_it_is_told_to(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    with disk.open() as store:
        store.create_topic("a", 1, SMALL)
        disk.fill(store, "a")
        with store.producer(disk_full_timeout_ms=1500) as producer, caplog.at_level(logging.WARNING):
            delivery = producer.send("a", b"v" * 100)
            with pytest.raises(DiskFullError):
                delivery.result(timeout_s=30)
        assert "wait for room on a full disk" in caplog.text
        trim(store)
        store.step()
        with store.producer() as producer:
            assert (
                producer.send("a", b"v" * 100, timestamp_ms=disk.clock.wall_ms()).result(timeout_s=30).offset
                > 0
            )
        with pytest.raises(LogStoreError, match="disk_full_timeout_ms"):
            store.producer(disk_full_timeout_ms=-1)


def test_a_store_on_a_disk_keeps_one_and_a_store_in_memory_none(tmp_path: Any) -> None:
    with logstore.open(tmp_path / "s") as store:
        assert (tmp_path / "s" / FILE_NAME).stat().st_size == SIZE_BYTES
        assert store.root
    with logstore.open(tmp_path / "none", reserve_bytes=0):
        assert not (tmp_path / "none" / FILE_NAME).exists()
    with logstore.open(":memory:") as store:
        assert not exists(store.fs, f"{store.root}/{FILE_NAME}")
