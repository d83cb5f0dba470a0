"""A transaction index that is gone or short is found again from the log: aborted records never show."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.log.producers.row_counts import FILE_NAME, note_counts, read_counts
from logstore.log.recovery.salvage import salvage
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from logstore.seams.memory_fs import MemoryFileSystem

FS = OsFileSystem()


def values(store: logstore.LogStore, **how: object) -> list[bytes]:
    return [record.value for record in store.partition("t", 0).records(0, **how)]  # type: ignore[arg-type]


def fill(store: logstore.LogStore, first: int, count: int = 12) -> None:
    """Committed and aborted transactions by turns, and one that begins in a segment before its end's."""
    with (
        store.producer(transactional_id="long", linger_ms=0) as long,
        store.producer(transactional_id="id", linger_ms=0) as producer,
    ):
        long.begin()
        long.send("t", b"aborted at last")
        long.flush()
        for number in range(first, first + count):
            producer.begin()
            producer.send("t", b"%d " % number + b"." * 100)
            producer.flush()
            producer.commit() if number % 2 else producer.abort()
        long.abort()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with logstore.open(root) as store:
        store.create_topic("t", config={"segment.bytes": "1500"})
        fill(store, 0)
        assert values(store) == due(12)
    assert len(list((root / "t-0").glob("*.txnindex"))) > 2
    return root


def due(count: int) -> list[bytes]:
    return [b"%d " % number + b"." * 100 for number in range(count) if number % 2]


def remove(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-34])


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def clear(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES = pytest.mark.parametrize("damage", [remove, shorten, tear, clear])


def harm(root: Path, damage: Callable[[Path], None]) -> None:
    for path in (root / "t-0").glob("*.txnindex"):
        damage(path)


@DAMAGES
@pytest.mark.parametrize("live", [True, False])
def test_readers_never_see_aborted_records(
    root: Path, damage: Callable[[Path], None], live: bool, caplog: pytest.LogCaptureFixture
) -> None:
    harm(root, damage)
    if not live:
        (root / ".live").unlink()
    with logstore.open(root, mode="r") as store:
        assert values(store) == due(12)
        assert values(store, reverse=True) == due(12)[::-1]
        with store.consumer("t", until_end=True) as consumer:
            assert [record.value for record in consumer] == due(12)
    assert any("found again in the log" in record.message for record in caplog.records)


@DAMAGES
def test_the_next_writer_puts_them_back_and_says_so(
    root: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    whole = {path.name: path.read_bytes() for path in (root / "t-0").glob("*.txnindex")}
    harm(root, damage)
    if damage is clear:
        return  # its size says nothing: readers see it, `log verify` names it
    with logstore.open(root) as store, caplog.at_level(logging.WARNING):
        fill(store, 12)
        assert values(store) == due(24)
    assert sum("found again in the log" in record.message for record in caplog.records) >= len(whole)
    for name, content in whole.items():
        assert (root / "t-0" / name).read_bytes().startswith(content[:34])
    assert [
        fault for fault in verify_store(FS, str(root), SystemClock().boot_id(), Totals()) if not fault.warning
    ] == []


@pytest.mark.parametrize("damage", [remove, shorten])
def test_copies_have_them_all(root: Path, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    harm(root, damage)
    with logstore.open(root, mode="r") as store:
        store.backup(tmp_path / "backup")
    salvage(FS, str(root), str(tmp_path / "salvaged"), SystemClock())
    shutil.copytree(root, tmp_path / "cleaned")
    for name in ("backup", "salvaged"):
        faults = list(verify_store(FS, str(tmp_path / name), SystemClock().boot_id(), Totals()))
        assert faults == []
        harm(tmp_path / name, damage)
        with logstore.open(tmp_path / name, mode="r") as copy:
            assert values(copy) == due(12)


def test_a_cleaning_does_not_take_aborted_records_for_committed_ones(root: Path) -> None:
    with logstore.open(root, threads=False) as store:
        store.create_topic(
            "t2",
            config={"segment.bytes": "1500", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
        )
        with store.producer(transactional_id="id", linger_ms=0) as producer:
            for number in range(20):
                producer.begin()
                producer.send("t2", b"%d " % number + b"." * 100, key=b"%d" % (number % 4))
                producer.flush()
                producer.commit() if number % 4 < 2 else producer.abort()
        for path in (root / "t2-0").glob("*.txnindex"):
            path.unlink()
        store.admin.compact("t2")
        kept = [record.value for record in store.partition("t2", 0).records(0)]
        assert all(int(value.split()[0]) % 4 < 2 for value in kept)
        assert kept


def test_a_count_that_cannot_be_read_is_no_count(root: Path) -> None:
    (root / "t-0" / FILE_NAME).write_bytes(b"\xff nonsense")
    with logstore.open(root) as store:
        assert values(store) == due(12)
        fill(store, 12)
    assert sum(read_counts(FS, str(root / "t-0")).values()) == 14


def test_counts_change_one_by_one() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    assert read_counts(fs, "/d") == {}
    note_counts(fs, "/d", {0: 3, 7: 0})
    note_counts(fs, "/d", {9: 1})
    assert read_counts(fs, "/d") == {0: 3, 9: 1}
    calls = fs.faults.calls
    note_counts(fs, "/d", {9: 1}, gone=[5])
    assert fs.faults.calls - calls < 6
    note_counts(fs, "/d", {4: 2}, gone=[0, 9])
    assert read_counts(fs, "/d") == {4: 2}
