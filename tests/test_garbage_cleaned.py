"""Garbage in a store that has been cleaned: swaps, snapshots, transaction indexes, retired files, named producers.

As ``test_garbage.py``, whose tools are used: what is read was written, at its offset, and what is missing is told.
Here a record may also be gone because a newer one of its key is there.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import LogStoreError
from logstore.format.batch import encode_batch
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.test_garbage import LONGEST_CASE_S, NEW, Case, RebootedClock, Seen, _late, spoil

CASES = 120
KEYS = [b"k%d" % number for number in range(5)]
CONFIG = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "1024",
    "index.interval.bytes": "64",
    "min.cleanable.dirty.ratio": "1",
    "file.delete.delay.ms": "86400000",
}
Last = dict[tuple[str, int], dict[bytes, int]]


class Killed(BaseException):
    """The process ends here."""


class KilledAtSwap(OsFileSystem):
    """Gone, with all that it would have done, at the rename of a new log over the old one."""

    armed = gone = False

    def rename(self, source: str, target: str) -> None:
        if self.armed and source.endswith(".log.cleaned"):
            self.gone = True
        if self.gone:
            raise Killed
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if self.gone:
            raise Killed
        super().remove(path)


# --- the store to be spoilt -------------------------------------------------------------------------


def append_all(store: logstore.LogStore) -> tuple[Seen, Last]:
    """Keys over and over, a transaction that was aborted amid them, and an import by name."""
    written: Seen = {}
    last: Last = {}
    for topic, partition in (("plain", 0), ("plain", 1), ("packed", 0)):
        log = store.partition(topic, partition)
        rows, newest = written.setdefault((topic, partition), {}), last.setdefault((topic, partition), {})

        def note(offset: int, key: bytes, value: bytes, rows: Any = rows, newest: Any = newest) -> None:
            rows[offset] = value
            newest[key] = offset

        for number in range(14):
            pairs = [(key, b"%s/%d/%s" % (topic.encode(), number, key) * 4) for key in KEYS]
            base = log.append(pairs).offset
            for at, (key, value) in enumerate(pairs):
                note(base + at, key, value)
            if number in (3, 9):
                producer = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}
                log.append_batch(encode_batch([(b"k0", b"void")], now_ms=1, transactional=True, **producer))  # type: ignore[arg-type]
                log.end_transaction(number, 0, commit=False)
        with store.producer(name="import") as by_name:
            landed = by_name.send(topic, b"named", key=b"n", partition=partition).result(timeout_s=60)
        note(landed.offset, b"n", b"named")
    return written, last


def build_cleaned(root: Path, *, killed: bool) -> tuple[Seen, Last]:
    fs = KilledAtSwap()
    store = logstore.LogStore(root)
    store.create_topic("plain", partitions=2, config=CONFIG)
    store.create_topic("packed", config=CONFIG | {"compression.type": "gzip"})
    written, last = append_all(store)
    store.delete_records("plain", {1: 7})
    written["plain", 1] = {offset: value for offset, value in written["plain", 1].items() if offset >= 7}
    store.commit_offsets("readers", {TopicPartition("plain", 0): OffsetAndMetadata(7)})
    store.admin.compact("packed")
    store.admin.compact("plain", 1)
    if not killed:
        store.admin.compact("plain", 0)
        store.close()
        return written, last
    store._context.pool._fs = fs  # what the cleaning works with
    fs.armed = True
    with pytest.raises(Killed):
        store.admin.compact("plain", 0)
    copy = root.with_name(root.name + "-killed")
    shutil.copytree(root, copy)
    store.abandon()
    shutil.rmtree(root)
    copy.rename(root)
    assert list(root.glob("plain-0/*.swap"))
    return written, last


# --- what a user does with it -----------------------------------------------------------------------


class CleanedCase(Case):
    """``last``: where each key was written last. Nothing else has to be there."""

    def __init__(self, root: Path, stores: tuple[Seen, Last], *, closed: bool, rebooted: bool) -> None:
        super().__init__(root, stores[0], closed=closed, rebooted=rebooted)
        self.last = stores[1]
        self.faults: list[str] = []

    def read(
        self,
        store: logstore.LogStore,
        where: tuple[str, int],
        rows: dict[int, bytes | None],
        when: str,
        appended: int | None,
    ) -> None:
        log = store.partition(*where)
        known = (
            rows if appended is None else rows | {appended: NEW}
        )  # of an unclosed store the end may be gone
        got: dict[int, bytes | None] = {}
        for record in log.records(log.log_start_offset):
            assert record.offset not in got, f"{when}: {where} offset {record.offset} twice"
            got[record.offset] = record.value
        if not self.hides_aborted():
            got = {offset: value for offset, value in got.items() if value != b"void"}
        wrong = [offset for offset, value in got.items() if known.get(offset, NEW) != value]
        assert not wrong, f"{when}: {where}: wrong records at {wrong}: {got[wrong[0]]!r}"
        expected = set(self.last[where].values()) | ({appended} if appended is not None else set())
        if expected - got.keys() and not self.told(store, where):
            raise AssertionError(f"{when}: {where}: {sorted(expected - got.keys())} are gone without a word")
        back = [
            record.offset
            for record in log.records(log.log_start_offset, reverse=True)
            if record.value != b"void" or self.hides_aborted()
        ]
        assert back == sorted(got, reverse=True), f"{when}: {where}: backwards it is another log"

    def verify(self) -> None:
        with self.step("verify"):
            found = verify_store(OsFileSystem(), str(self.root), self.clock.boot_id(), Totals())
            self.faults = [fault.kind for fault in found]

    def hides_aborted(self) -> bool:
        """A transaction index that is gone, or another's, tells no reader: but it does `log verify`."""
        return ".txnindex" not in self.what or "transactions" not in self.faults

    def append(self, store: logstore.LogStore) -> dict[tuple[str, int], int]:
        appended = {}
        for where in self.written:
            with self.step(f"append {where}"):
                appended[where] = store.partition(*where).append([(b"new", NEW)]).offset
        with self.step("producers"):
            store.admin.list_producers()
        for topic in ("plain", "packed"):
            with self.step(f"compact {topic}"):
                store.admin.compact(topic, roll=True)
        with self.step("erase"):
            store.admin.erase_keys("packed", [b"absent"])
        with self.step("by name"), store.producer(name="other") as producer:
            producer.send("packed", NEW, key=b"other").result(timeout_s=60)
        return appended

    def compare_saved(
        self,
        store: logstore.LogStore,
        where: tuple[str, int],
        rows: dict[int, bytes | None],
        lost: set[tuple[str, int]],
        notes: list[str],
    ) -> None:
        try:
            log = store.partition(*where)
        except LogStoreError:
            assert notes, f"salvage left out {where} without a word"
            return
        got = {record.offset: record.value for record in log.records(log.log_start_offset)}
        wrong = [offset for offset, value in got.items() if rows.get(offset) != value]
        assert not wrong, f"salvage: {where}: wrong records at {wrong}: {got[wrong[0]]!r}"
        missing = set(self.last[where].values()) - got.keys()
        if where not in lost and missing:
            assert notes, f"salvage: {where}: {sorted(missing)} lost without a word"


def run_case(seed: int, stores: dict[bool, tuple[Path, tuple[Seen, Last]]], place: Path) -> CleanedCase:
    chance = random.Random(seed)
    closed = chance.random() < 0.5
    source, built = stores[closed]
    folder = place / f"case-{seed}"
    root = folder / "store"
    shutil.copytree(source, root)
    case = CleanedCase(root, built, closed=closed, rebooted=chance.random() < 0.4)
    what = case.what = spoil(root, chance)
    before = signal.signal(signal.SIGALRM, _late)
    signal.alarm(LONGEST_CASE_S)
    try:
        case.run()
    except BaseException as error:
        error.add_note(
            f"seed {seed}: {what} ({'closed' if closed else 'killed'}, {type(case.clock).__name__})"
        )
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    shutil.rmtree(folder)
    return case


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="garbage-", dir=shared) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def stores(place: Path) -> dict[bool, tuple[Path, tuple[Seen, Last]]]:
    built = {}
    for closed in (True, False):
        root = place / f"closed-{closed}"
        built[closed] = (root, build_cleaned(root, killed=not closed))
    return built


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("clock", [SystemClock, RebootedClock])
def test_unspoilt_nothing_is_wrong(
    stores: dict[bool, tuple[Path, tuple[Seen, Last]]], place: Path, closed: bool, clock: type[SystemClock]
) -> None:
    source, built = stores[closed]
    root = place / "whole" / "store"
    shutil.copytree(source, root)
    case = CleanedCase(root, built, closed=True, rebooted=clock is RebootedClock)
    case.run()
    shutil.rmtree(place / "whole")
    assert case.errors == []


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 4))])
def test_garbage_anywhere(part: int, stores: dict[bool, tuple[Path, tuple[Seen, Last]]], place: Path) -> None:
    for seed in range(part, CASES, 4):
        run_case(seed, stores, place)
