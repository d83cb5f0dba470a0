"""`log verify` after a kill or a power loss at each call of a store's life: a warning, where opening finds no fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.log.inspection.verify import Fault, Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.ownership.live import MemoryLive
from logstore.ownership.locks import MemoryLocks
from logstore.seams.clock import ManualClock, SystemClock
from logstore.seams.faults import Operation
from logstore.seams.fs import FileStat, OpenMode, OsFile, OsFileSystem
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import OffsetAndMetadata, TopicPartition

ROOT = "/store"
ROLLS = {"segment.bytes": "1024", "index.interval.bytes": "100"}
COMPACTS = {**ROLLS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def clock() -> ManualClock:
    return ManualClock(wall_ms=SystemClock().wall_ms())  # producers give their records the system's time


def opened(fs: MemoryFileSystem, clock: ManualClock) -> logstore.LogStore:
    return logstore.open(
        ROOT, fs=fs, clock=clock, live=MemoryLive(), locks=MemoryLocks(clock=clock), threads=False
    )


def live(fs: MemoryFileSystem, clock: ManualClock, lives: int = 2) -> None:
    """Topics made, filled, cleaned, trimmed and deleted; transactions and offsets; a second opening."""
    for _ in range(lives):
        store = opened(fs, clock)
        for left in store.list_topics():
            store.delete_topic(left)
        store.create_topic("t", 2, ROLLS)
        store.create_topic("keyed", 1, COMPACTS)
        for number in range(6):
            store.partition("t", 0).append([(b"k", b"%d" % number * 300)])
            store.partition("keyed", 0).append([(b"%d" % (number % 2), b"%d" % number * 300)])
        with store.producer(transactional_id="id", linger_ms=0) as producer:
            for commit in (True, False):
                producer.begin()
                producer.send("t", b"in a transaction", partition=1)
                producer.flush()
                producer.commit() if commit else producer.abort()
        store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
        store.admin.compact("keyed")
        store.delete_records("t", {0: 4})
        store.delete_topic("t")
        store.delete_topic("keyed")
        store.close()


def crashed(seen: Callable[[Operation, MemoryFileSystem], None]) -> None:
    """Show the files as they are before each call of the life, where they have changed."""
    fs, clock_ = MemoryFileSystem(), clock()

    def look(call: Operation) -> None:
        if call.name in ("create", "pwritev", "rename", "remove", "mkdir", "rmdir", "truncate", "link"):
            seen(call, fs)

    fs.faults.observer = look
    live(fs, clock_)


def faults(fs: MemoryFileSystem, boot_id: str) -> list[Fault]:
    try:
        found = list(verify_store(fs, ROOT, boot_id, Totals()))
    except logstore.LogStoreError as error:
        if isinstance(error, logstore.errors.StoreNotFoundError):
            return []
        raise
    return [fault for fault in found if not fault.warning]


def test_after_a_kill() -> None:
    boot_id, wrong = clock().boot_id(), []

    def look(call: Operation, fs: MemoryFileSystem) -> None:
        found = faults(fs, boot_id)
        if found:
            wrong.append((str(call), found))

    crashed(look)
    assert wrong == []


def test_after_a_power_loss() -> None:
    wrong = []

    def look(call: Operation, fs: MemoryFileSystem) -> None:
        if call.number % 4 == 0:
            for after in fs.crash_states(limit=4):
                found = faults(after, "another boot")
                if found:
                    wrong.append((str(call), found))

    crashed(look)
    assert wrong == []


def test_what_is_a_warning_is_mended_by_the_next_life() -> None:
    """A store that was killed and is opened again works, and then not even a warning is left of it."""
    left: list[tuple[str, list[Fault]]] = []

    def look(call: Operation, fs: MemoryFileSystem) -> None:
        if call.number % 25 == 0 and call.number < 700:
            after = fs.clone().process_crash()
            live(after, clock(), lives=1)
            found = list(verify_store(after, ROOT, clock().boot_id(), Totals()))
            if found:
                left.append((str(call), found))

    crashed(look)
    assert left == []


class Meddler(OsFileSystem):
    """Somebody else does something to the store before each n-th listing, look or open of the verifier."""

    def __init__(self, acts: list[Callable[[], object]], every: int) -> None:
        super().__init__()
        self._acts = acts
        self._every = every
        self._calls = 0
        self._busy = False

    def _meddle(self) -> None:
        self._calls += 1
        if not self._busy and self._acts and self._calls % self._every == 0:
            self._busy = True
            self._acts.pop(0)()
            self._busy = False

    def open(self, path: str, mode: OpenMode) -> OsFile:
        self._meddle()
        return super().open(path, mode)

    def listdir(self, path: str) -> list[str]:
        self._meddle()
        return super().listdir(path)

    def stat(self, path: str) -> FileStat:
        self._meddle()
        return super().stat(path)


@pytest.mark.parametrize("every", [3, 7, 11, 23, 41])
def test_beside_an_administrator(tmp_path: Path, every: int) -> None:
    with logstore.open(tmp_path, threads=False) as store:

        def fill(topic: str, count: int = 12) -> None:
            for number in range(count):
                store.partition(topic, 0).append([(b"%d" % (number % 3), b"." * 300)])

        def make(topic: str) -> None:
            store.create_topic(topic, 2, COMPACTS if topic.startswith("keyed") else ROLLS)
            fill(topic)

        for topic in ("a", "b", "keyed", "z"):
            make(topic)
        acts: list[Callable[[], object]] = [
            lambda: store.release("b"),
            lambda: fill("b"),
            lambda: store.delete_records("b", {0: 15}),
            lambda: make("new"),
            lambda: store.admin.compact("keyed"),
            lambda: store.delete_topic("z"),
            lambda: fill("keyed"),
            lambda: make("z"),
            lambda: store.admin.compact("keyed"),
            lambda: store.release("keyed"),
            lambda: store.delete_topic("b"),
            lambda: fill("z"),
            lambda: store.delete_topic("new"),
        ]
        meddler = Meddler(acts, every)
        boot_id = SystemClock().boot_id()
        while acts:
            found = list(verify_store(meddler, str(tmp_path), boot_id, Totals()))
            assert [fault for fault in found if not fault.warning] == []
        log = min((tmp_path / "a-0").glob("*.log"))
        data = bytearray(log.read_bytes())
        data[100] ^= 1
        log.write_bytes(data)
        acts += [lambda: fill("a", 2)] * 5
        found = list(verify_store(meddler, str(tmp_path), boot_id, Totals()))
        assert [(fault.path, fault.kind) for fault in found if not fault.warning] == [(str(log), "crc")]
