"""Garbage in every file of a store: correct records or one named error, never a hang, a crash or a loss.

A small store is built once. Each case copies it, spoils one thing in it by a seeded choice, and then does all
that a user would: reads beside and as an owner, appends, verifies, dumps, salvages. What is read must be what was
written, at its offset; what is missing must be told: by an error, or by the recovery report.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

import logstore
from logstore.errors import (
    CorruptBatchError,
    DamagedStoreError,
    ForeignDirectoryError,
    InvalidArgumentError,
    InvariantError,
    LogStoreError,
    SegmentVanishedError,
    StorageError,
)
from logstore.log.inspection.inspect import (
    BadSpan,
    dump_batches,
    dump_indexes,
    dump_records,
    partition_folders,
    segment_base_offsets,
    segment_path,
)
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.log.recovery.salvage import salvage
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from logstore.types import OffsetAndMetadata, TopicPartition

CASES = 160
LONGEST_CASE_S = 60
NEW = b"appended after the garbage"

Seen = dict[tuple[str, int], dict[int, bytes | None]]


class Hang(BaseException):
    """No ``Exception``: nothing may catch it on the way."""


class RebootedClock(SystemClock):
    """The machine has restarted since the store was written."""

    def boot_id(self) -> str:
        return "another-boot"


# --- the store to be spoilt -------------------------------------------------------------------------


def build_store(root: Path, *, closed: bool) -> Seen:
    """Two topics of several segments, a group, batches with and without a codec. ``closed``: in order."""
    store = logstore.open(root)
    store.create_topic("plain", partitions=2, config={"segment.bytes": "1024", "index.interval.bytes": "64"})
    store.create_topic("packed", config={"segment.bytes": "2048", "compression.type": "gzip"})
    written: Seen = {}
    for topic, partition in (("plain", 0), ("plain", 1), ("packed", 0)):
        rows = written.setdefault((topic, partition), {})
        for number in range(12):
            values = [b"%s/%d/%d/%d" % (topic.encode(), partition, number, part) * 4 for part in range(3)]
            with store.producer() as producer:
                landed = producer.send_many(topic, [(b"k", value) for value in values], partition=partition)
                (where,) = landed.result()
            rows.update(zip(range(where.start, where.end_exclusive), values, strict=True))
    store.commit_offsets("readers", {TopicPartition("plain", 0): OffsetAndMetadata(7)})
    if closed:
        store.close()
    else:
        copy = root.with_name(root.name + "-killed")
        shutil.copytree(root, copy)
        store.close()
        shutil.rmtree(root)
        copy.rename(root)
    return written


# --- what may happen to it --------------------------------------------------------------------------


def _files(root: Path) -> list[Path]:
    found = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    return [path for path in found if ".tmp" not in path.name]


def _noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 7, 61, 64, 300, 5000)))


def _flip(path: Path, chance: random.Random) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        data += b"\0"
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return f"flip a bit of byte {at}"


def _scribble(path: Path, chance: random.Random) -> str:
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data) + 1)
    noise = chance.choice(
        (bytes(8), b"\xff" * 8, chance.randbytes(8), b"\x7f\xff\xff\xff", chance.randbytes(100))
    )
    data[at : at + len(noise)] = noise
    path.write_bytes(data)
    return f"{len(noise)} bytes over byte {at}"


def _truncate(path: Path, chance: random.Random) -> str:
    size = chance.randrange(path.stat().st_size + 1)
    os.truncate(path, size)
    return f"cut to {size} bytes"


def _extend(path: Path, chance: random.Random) -> str:
    more = chance.choice((bytes(100), chance.randbytes(100), path.read_bytes()))
    path.write_bytes(path.read_bytes() + more)
    return f"{len(more)} more bytes"


def _noise_instead(path: Path, chance: random.Random) -> str:
    noise = _noise(chance)
    path.write_bytes(noise)
    return f"{len(noise)} random bytes instead"


def _remove(path: Path, chance: random.Random) -> str:
    del chance
    path.unlink()
    return "removed"


def _other_kind(path: Path, chance: random.Random) -> str:
    """Something in its place that is no file."""
    kind = chance.choice(("directory", "fifo", "link", "dangling", "loop"))
    elsewhere = path.with_name(path.name + "-moved")
    if kind == "link":
        elsewhere = path.parents[1] / f"outside-{path.name}"
        path.rename(elsewhere)
    else:
        path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(path.name if kind == "loop" else elsewhere)
    return f"a {kind} instead"


def _swap(path: Path, chance: random.Random, root: Path) -> str:
    other = chance.choice(_files(root))
    if path.suffix == other.suffix == ".log":
        return "nothing"  # two logs in each other's place: nothing in Kafka's format would tell
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)
    return f"swapped with {other.relative_to(root)}"


def _copy_of_other(path: Path, chance: random.Random, root: Path) -> str:
    other = chance.choice(_files(root))
    if path.suffix == other.suffix == ".log" and path.parent != other.parent:
        return "nothing"  # as above
    path.write_bytes(other.read_bytes())
    return f"a copy of {other.relative_to(root)}"


_ON_FILES: tuple[Callable[[Path, random.Random], str], ...] = (
    *(_flip, _scribble, _truncate, _extend, _noise_instead, _remove, _other_kind),
)
_STRANGE_NAMES = (
    *("x", "-", " ", "é", "a" * 250, ".hidden", "topics.json.tmp", "plain-2", "plain-99999999999999999999"),
    *("nobody-0", "plain-0.log", "00000000000000000005.log", "99999999999999999999.log", "readme.md"),
    *("00000000000000000000.log.cut-1", "00000000000000000001.index", "00000000000000000000.txnindex"),
    *("00000000000000000000.snapshot", "00000000000000000000.swap", "00000000000000000000.log.swap"),
    *("00000000000000000000.log.deleted", "plain-0.AAAAAAAAAAAAAAAAAAAAAA-delete", "x.deleting", "x.json"),
)


def _strange_entry(root: Path, chance: random.Random) -> str:
    folder = chance.choice([root, *sorted(path for path in root.iterdir() if path.is_dir())])
    path = folder / chance.choice(_STRANGE_NAMES)
    kind = chance.choice(("file", "empty", "folder", "fifo", "dangling", "non-empty folder"))
    if path.exists():
        return "nothing"
    if kind in ("file", "empty"):
        path.write_bytes(_noise(chance) if kind == "file" else b"")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    else:
        path.mkdir()
        if kind != "folder":
            (path / "inner").write_bytes(b"x")
    return f"a strange {kind} {path.relative_to(root)}"


def _spoil_folder(root: Path, chance: random.Random) -> str:
    folder = chance.choice(sorted(path for path in root.iterdir() if path.is_dir()))
    name = folder.name
    kind = chance.choice(("removed", "file", "fifo", "link", "emptied", "swapped"))
    if kind == "swapped":
        other = chance.choice(sorted(path for path in root.iterdir() if path.is_dir() and path != folder))
        if folder.name[:-1] == other.name[:-1]:
            return "nothing"  # two partitions of a topic: as with their logs, nothing would tell
        spare = root.with_name(root.name + "-spare")
        folder.rename(spare)
        other.rename(folder)
        spare.rename(root / other.name)
        return f"{name} swapped with {other.name}"
    if kind == "link":
        elsewhere = root.with_name(root.name + "-elsewhere")
        folder.rename(elsewhere)
        folder.symlink_to(elsewhere)
        return f"{name}: a link instead"
    shutil.rmtree(folder)
    if kind == "file":
        folder.write_bytes(b"x")
    elif kind == "fifo":
        os.mkfifo(folder)
    elif kind == "emptied":
        folder.mkdir()
    return f"{name}: {kind}"


def spoil(root: Path, chance: random.Random) -> str:
    """One thing, by chance; says what."""
    choice = chance.random()
    if choice < 0.08:
        return _strange_entry(root, chance)
    if choice < 0.14:
        return _spoil_folder(root, chance)
    # Few files are not segments, and each matters: so by kind first.
    by_kind: dict[str, list[Path]] = {}
    for path in _files(root):
        by_kind.setdefault(path.suffix or path.name, []).append(path)
    path = chance.choice(by_kind[chance.choice(sorted(by_kind))])
    if choice < 0.24:
        how = chance.choice((_swap, _copy_of_other))
        what = how(path, chance, root)
    else:
        what = chance.choice(_ON_FILES)(path, chance)
    return f"{path.relative_to(root)}: {what}"


# --- what a user does with it -----------------------------------------------------------------------


class Case:
    """One spoilt store. ``errors``: the named ones that were met, by what was done."""

    def __init__(self, root: Path, written: Seen, *, closed: bool, rebooted: bool) -> None:
        self.root = root
        self.written = written
        self.clock = RebootedClock() if rebooted else SystemClock()
        self.closed = closed
        self.what = ""
        self.errors: list[tuple[str, LogStoreError]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        try:
            yield
        except InvariantError:
            raise
        except LogStoreError as error:
            text = str(error)
            assert text
            assert "\n" not in text, text
            assert len(text) < 2000, text
            self.errors.append((name, error))

    def run(self) -> None:
        self.verify()
        self.dump()
        with self.step("open r"), logstore.LogStore(self.root, "r", clock=self.clock) as store:
            self.look(store, "r")
        self.salvage()
        appended: dict[tuple[str, int], int] = {}
        with (
            self.step("open rw"),
            logstore.LogStore(self.root, lock_timeout_s=0.5, clock=self.clock) as store,
        ):
            self.look(store, "before")
            appended = self.append(store)
            self.look(store, "after", appended)
        with self.step("open again"), logstore.LogStore(self.root, "r", clock=self.clock) as store:
            self.look(store, "again", appended)

    def look(
        self, store: logstore.LogStore, when: str, appended: dict[tuple[str, int], int] | None = None
    ) -> None:
        with self.step(f"{when}: list"):
            store.list_topics(internal=True)
        for topic in ("plain", "packed"):
            with self.step(f"{when}: describe {topic}"):
                store.describe_topic(topic)
        with self.step(f"{when}: groups"):
            store.admin.list_groups()
            store.committed_offsets("readers")
        for where, rows in self.written.items():
            with self.step(f"{when}: read {where}"):
                self.read(store, where, rows, when, (appended or {}).get(where))

    def read(
        self,
        store: logstore.LogStore,
        where: tuple[str, int],
        rows: dict[int, bytes | None],
        when: str,
        appended: int | None,
    ) -> None:
        log = store.partition(*where)
        expected = dict(rows)
        if appended is not None:
            expected[appended] = NEW
        got: dict[int, bytes | None] = {}
        for record in log.records(log.log_start_offset):
            assert record.offset not in got, f"{when}: {where} offset {record.offset} twice"
            got[record.offset] = record.value
        wrong = [offset for offset, value in got.items() if expected.get(offset, NEW) != value]
        assert not wrong, f"{when}: {where}: wrong records at {wrong}: {got[wrong[0]]!r}"
        missing = expected.keys() - got.keys()
        if missing and not self.told(store, where):
            raise AssertionError(f"{when}: {where}: offsets {sorted(missing)} are gone without a word")

    def told(self, store: logstore.LogStore, where: tuple[str, int]) -> bool:
        """Whether recovery said that it cut this partition. Of an unclosed store's end a reader may not know, and
        `.live` is not durable: spoilt, it may show an earlier moment until the next owner comes."""
        reports = [report for report in store.recovery_report if (report.topic, report.partition) == where]
        return (
            not self.closed
            or self.what.startswith((".live", ".state swapped"))
            or self.what.endswith("with .state")
            or any(report.cut_bytes for report in reports)
        )

    def append(self, store: logstore.LogStore) -> dict[tuple[str, int], int]:
        appended = {}
        for where in self.written:
            with self.step(f"append {where}"):
                appended[where] = store.partition(*where).append([(None, NEW)]).offset
        with self.step("commit"):
            store.commit_offsets("writers", {TopicPartition("packed", 0): OffsetAndMetadata(1)})
        return appended

    def verify(self) -> None:
        with self.step("verify"):
            for fault in verify_store(OsFileSystem(), str(self.root), self.clock.boot_id(), Totals()):
                assert fault.message
                assert "\n" not in fault.message

    def dump(self) -> None:
        fs = OsFileSystem()
        with self.step("dump"):
            for folder in partition_folders(fs, str(self.root)):
                for base in segment_base_offsets(fs, folder.path):
                    path = segment_path(folder.path, base)
                    for show in (
                        lambda path=path, base=base: dump_batches(fs, path, base),
                        lambda folder=folder, base=base: dump_indexes(fs, folder.path, base),
                        lambda folder=folder, path=path, base=base: dump_records(fs, folder, path, base),
                    ):
                        with self.step(f"dump {path}"):
                            for row in show():
                                assert not isinstance(row, BadSpan) or row.message

    def salvage(self) -> None:
        target = self.root.with_name(self.root.name + "-saved")
        with self.step("salvage"):
            report = salvage(OsFileSystem(), str(self.root), str(target), SystemClock())
            lost = {(one.topic, one.partition) for one in report.lost}
            with logstore.open(target, mode="r") as store:
                for where, rows in self.written.items():
                    self.compare_saved(store, where, rows, lost, report.notes)
            faults = list(verify_store(OsFileSystem(), str(target), self.clock.boot_id(), Totals()))
            assert not [fault for fault in faults if not fault.warning], faults
        shutil.rmtree(target, ignore_errors=True)

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
        assert not wrong, f"salvage: {where}: wrong records at {wrong}"
        if where not in lost and rows.keys() - got.keys():
            assert notes, f"salvage: {where}: {sorted(rows.keys() - got.keys())} lost without a word"


def run_case(seed: int, stores: dict[bool, tuple[Path, Seen]], place: Path) -> tuple[str, Case]:
    """Spoil a copy of a store and use it. AssertionError, or whatever came out that is no named error."""
    chance = random.Random(seed)
    closed = chance.random() < 0.6
    source, written = stores[closed]
    folder = place / f"case-{seed}"
    root = folder / "store"
    shutil.copytree(source, root)
    case = Case(root, written, closed=closed, rebooted=chance.random() < 0.4)
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
    return what, case


def _late(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise Hang


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """In memory where that can be: what is synced is not the subject here."""
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="garbage-", dir=shared) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def stores(place: Path) -> dict[bool, tuple[Path, Seen]]:
    built = {}
    for closed in (True, False):
        root = place / f"closed-{closed}"
        built[closed] = (root, build_store(root, closed=closed))
    return built


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 4))])
def test_garbage_anywhere(part: int, stores: dict[bool, tuple[Path, Seen]], place: Path) -> None:
    for seed in range(part, CASES, 4):
        run_case(seed, stores, place)


# --- faults that were found this way, each by itself ------------------------------------------------


@pytest.fixture
def spoilt(stores: dict[bool, tuple[Path, Seen]], place: Path) -> Iterator[Path]:
    """A copy of the closed store, to be spoilt by the test."""
    root = place / "one" / "store"
    shutil.copytree(stores[True][0], root)
    yield root
    shutil.rmtree(place / "one")


def read_all(root: Path, partition: int = 0, mode: Literal["r", "rw"] = "r", **settings: Any) -> list[int]:
    with logstore.LogStore(root, mode, lock_timeout_s=0.5, **settings) as store:
        log = store.partition("plain", partition)
        if mode == "rw":
            log.append([(None, NEW)])
        return [record.offset for record in log.records(log.log_start_offset)]


def last_segment(root: Path) -> Path:
    return sorted((root / "plain-0").glob("*.log"))[-1]


@pytest.mark.parametrize("name", ["topics.json", ".state/plain.json", ".live", ".locks/topics"])
def test_a_pipe_in_place_of_a_file_is_refused_not_waited_for(spoilt: Path, name: str) -> None:
    (spoilt / name).unlink()
    os.mkfifo(spoilt / name)
    with pytest.raises(StorageError, match=r"it is no regular file .*put back what belongs there"):
        read_all(spoilt, mode="rw")


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("clock", [SystemClock, RebootedClock])
def test_a_segment_that_is_gone_is_told(
    spoilt: Path, mode: Literal["r", "rw"], clock: type[SystemClock]
) -> None:
    last_segment(spoilt).unlink()
    with pytest.raises(LogStoreError):
        read_all(spoilt, mode=mode, clock=clock())


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("clock", [SystemClock, RebootedClock])
def test_a_folder_that_is_gone_is_told(
    spoilt: Path, mode: Literal["r", "rw"], clock: type[SystemClock]
) -> None:
    shutil.rmtree(spoilt / "plain-0")
    with pytest.raises(LogStoreError):
        read_all(spoilt, mode=mode, clock=clock())


def test_a_shortened_segment_is_told_and_not_read_for_ever(spoilt: Path) -> None:
    os.truncate(last_segment(spoilt), 10)
    with pytest.raises(CorruptBatchError, match="the file ends here, its records go on"):
        read_all(spoilt)


def test_a_closed_segment_that_became_empty_is_no_silent_hole(spoilt: Path) -> None:
    os.truncate(sorted((spoilt / "plain-0").glob("*.log"))[1], 0)
    with pytest.raises(LogStoreError):
        read_all(spoilt)
    with pytest.raises(CorruptBatchError, match=r"the files hold .* where offset 12 is due"):
        read_all(spoilt, mode="rw")


def test_batches_that_stand_twice_in_a_segment_are_told(spoilt: Path) -> None:
    path = sorted((spoilt / "plain-0").glob("*.log"))[1]
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(CorruptBatchError, match="has offset 12 where 24 was due"):
        read_all(spoilt)


def test_a_damaged_topic_id_does_not_cost_the_partition(spoilt: Path) -> None:
    """Another id once made the folder a leftover of an earlier topic, which is renamed away and swept."""
    metadata = spoilt / "plain-0" / "partition.metadata"
    text = metadata.read_bytes()
    metadata.write_bytes(text[:-1] + (b"A" if text[-1:] != b"A" else b"Q"))
    for mode in ("r", "rw"):
        with pytest.raises(LogStoreError):
            read_all(spoilt, mode=mode)
    assert [path.name for path in spoilt.glob("*-delete")] == []
    metadata.write_bytes(text)
    assert len(read_all(spoilt)) == 36


def test_swapped_folders_show_no_wrong_records(spoilt: Path) -> None:
    (spoilt / "plain-0").rename(spoilt / "spare")
    (spoilt / "packed-0").rename(spoilt / "plain-0")
    (spoilt / "spare").rename(spoilt / "packed-0")
    with pytest.raises(SegmentVanishedError):
        read_all(spoilt)
    with pytest.raises(DamagedStoreError, match="plain-0 holds another topic's records"):
        read_all(spoilt, mode="rw")
    report = salvage(OsFileSystem(), str(spoilt), str(spoilt.parent / "saved"), SystemClock())
    assert {(one.topic, one.partition) for one in report.lost} == {("plain", 0), ("packed", 0)}


def test_a_number_that_is_no_offset_names_no_segment(spoilt: Path) -> None:
    (spoilt / "plain-0" / "99999999999999999999.log").write_bytes(b"x")
    assert len(read_all(spoilt)) == 36
    report = salvage(OsFileSystem(), str(spoilt), str(spoilt.parent / "saved"), SystemClock())
    assert report.lost == []
    faults = list(verify_store(OsFileSystem(), str(spoilt), SystemClock().boot_id(), Totals()))
    assert [(fault.kind, fault.path[-24:]) for fault in faults] == [("name", "99999999999999999999.log")]


def test_salvage_does_not_take_a_second_copy_for_new_records(spoilt: Path) -> None:
    path = last_segment(spoilt)
    path.write_bytes(path.read_bytes() * 2)
    target = spoilt.parent / "saved"
    salvage(OsFileSystem(), str(spoilt), str(target), SystemClock())
    assert len(read_all(target)) == 36


def test_salvage_into_itself_or_of_a_stranger_is_refused(spoilt: Path, tmp_path: Path) -> None:
    fs, clock = OsFileSystem(), SystemClock()
    link = tmp_path / "link"
    link.symlink_to(spoilt)
    for inside in (spoilt / "x", link / "x"):
        with pytest.raises(InvalidArgumentError, match="lies inside the store"):
            salvage(fs, str(spoilt), str(inside), clock)
    stranger = tmp_path / "home"
    (stranger / "project-1").mkdir(parents=True)  # named like a partition, but nothing in it is
    with pytest.raises(ForeignDirectoryError):
        salvage(fs, str(stranger), str(tmp_path / "new"), clock)


def test_salvage_says_when_it_cannot_know_the_end(
    stores: dict[bool, tuple[Path, Seen]], tmp_path: Path
) -> None:
    report = salvage(OsFileSystem(), str(stores[False][0]), str(tmp_path / "saved"), SystemClock())
    assert any("'plain' was not closed in order" in note for note in report.notes)


def test_an_enormous_small_file_takes_no_memory(spoilt: Path) -> None:
    os.truncate(spoilt / ".state" / "plain.json", 1 << 40)
    with pytest.raises(StorageError, match="more than such a file can have"):
        read_all(spoilt, mode="rw")
