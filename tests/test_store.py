"""The store as its users open it: catalogue, modes, permissions, a full disk, closing, descriptors."""

from __future__ import annotations

import gc
import os
import re
import stat
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.groups import JoinRequest
from logstore.errors import (
    DamagedStoreError,
    DiskFullError,
    ForeignDirectoryError,
    InvalidArgumentError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    LogStoreError,
    OutcomeUnknownError,
    ReadOnlyStoreError,
    StorageError,
    StoreClosedError,
    StoreNotFoundError,
    TopicExistsError,
    TopicLockedError,
    UnknownTopicError,
)
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.open_files import open_below

ROOT = "/store"


def memory(fs: MemoryFileSystem | None = None, **settings: Any) -> tuple[LogStore, MemoryFileSystem]:
    fs = MemoryFileSystem() if fs is None else fs
    return LogStore(ROOT, fs=fs, clock=ManualClock(), threads=False, **settings), fs


def values(store: LogStore, topic: str = "t", partition: int = 0) -> list[bytes]:
    return [record.value for record in store.partition(topic, partition).records(0)]


def descriptors(root: Path) -> int:
    """How many files below ``root`` are open here. Other tests' threads open and close theirs meanwhile."""
    gc.collect()
    return len(open_below(root))


# --- catalogue --------------------------------------------------------------------------------------


def test_topics_are_there_after_reopening() -> None:
    store, fs = memory()
    handle = store.create_topic("b", partitions=3, config={"segment.bytes": "4096"})
    store.create_topic("a")
    topic_id = handle.topic_id
    assert store.list_topics() == ["a", "b"]
    assert (handle.name, handle.partitions, dict(handle.config)) == ("b", 3, {"segment.bytes": "4096"})
    store.close()
    again, _ = memory(fs)
    assert again.list_topics() == ["a", "b"]
    assert again.topic("b").topic_id == topic_id
    assert again.topic("b").config == {"segment.bytes": "4096"}
    assert repr(again.topic("b")) == "TopicHandle('b')"


def test_what_cannot_be_created() -> None:
    store, _ = memory()
    store.create_topic("t")
    with pytest.raises(TopicExistsError, match="topic 't' exists already"):
        store.create_topic("t")
    for name in ("", ".", "..", "a b", "a/b", "x" * 250, "__mine"):
        with pytest.raises(InvalidTopicError):
            store.create_topic(name)
    for partitions in (0, -1, 100_001, True):
        with pytest.raises(InvalidPartitionsError):
            store.create_topic("u", partitions=partitions)
    with pytest.raises(
        InvalidConfigError, match=r"unknown topic setting 'segment.byte'.*did you mean segment\.bytes"
    ):
        store.create_topic("u", config={"segment.byte": "4096"})
    assert store.list_topics() == ["t"]
    with pytest.raises(UnknownTopicError, match=r"there is no topic 'u'.*store.create_topic"):
        store.partition("u", 0)


def test_internal_topics_are_listed_on_request() -> None:
    store, _ = memory()
    store.create_topic("t")
    store.partition("t", 0).append([(None, b"a")])
    store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
    assert store.list_topics() == ["t"]
    assert store.list_topics(internal=True) == ["__consumer_offsets", "t"]


def test_partitions_are_added_keyed_ones_on_request() -> None:
    store, _ = memory()
    store.create_topic("t")
    store.admin.add_partitions("t", 2)
    store.partition("t", 1).append([(None, b"a")])
    store.admin.add_partitions("t", 3)
    store.partition("t", 2).append([(b"key", b"a")])
    with pytest.raises(InvalidPartitionsError, match=r"holds records with keys.*allow_keyed=True"):
        store.admin.add_partitions("t", 4)
    with pytest.raises(InvalidPartitionsError, match="3 would not be more"):
        store.admin.add_partitions("t", 3, allow_keyed=True)
    store.admin.add_partitions("t", 4, allow_keyed=True)
    assert store.partition("t", 3).append([(None, b"x")]).offset == 0
    assert [values(store, partition=number) for number in range(4)] == [[], [b"a"], [b"a"], [b"x"]]


def test_changed_settings_are_obeyed_from_the_next_append_on() -> None:
    store, fs = memory()
    store.create_topic("t")
    log = store.partition("t", 0)
    log.append([(None, b"a" * 500)])
    store.admin.alter_topic(
        "t", {"segment.bytes": "1024", "max.message.bytes": "800", "visible.after": "append"}
    )
    log.append([(None, b"b" * 650)], acks=1)
    assert log.describe().segments == 2
    assert log.high_watermark == 2
    with pytest.raises(LogStoreError, match="800"):
        log.append([(None, b"c" * 860)])
    store.admin.alter_topic("t", {"max.message.bytes": None})
    log.append([(None, b"c" * 860)])
    store.close()
    again, _ = memory(fs)
    assert again.topic("t").config == {"segment.bytes": "1024", "visible.after": "append"}


def test_describe() -> None:
    store, _ = memory()
    store.create_topic("t", partitions=2)
    store.partition("t", 1).append([(None, b"a")] * 3)
    described = store.describe_topic("t")
    assert (described.name, described.internal, described.config) == ("t", False, {})
    assert [part.log_end_offset for part in described.partitions] == [0, 3]
    assert described.owner is not None
    assert f"pid {os.getpid()}" in described.owner
    store.release("t")
    assert store.describe_topic("t").owner is None


# --- opening ----------------------------------------------------------------------------------------


def test_open_makes_a_store_and_finds_it_again(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where"
    with logstore.open(path) as store:
        store.create_topic("t")
        store.partition("t", 0).append([(None, b"a")])
        assert repr(store) == f"LogStore({str(path)!r}, rw)"
    assert repr(store) == f"LogStore({str(path)!r}, closed)"
    with logstore.open(str(path), "r") as store:
        assert values(store) == [b"a"]
    assert {"topics.json", ".state", ".live", ".locks", ".reserve", "t-0"} == set(os.listdir(path))


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    with pytest.raises(StoreNotFoundError, match="does not exist"):
        LogStore(tmp_path / "none", "r")
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreNotFoundError, match="is empty"):
        LogStore(tmp_path / "empty", "r")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("x")
    for mode in ("r", "rw"):
        for name in ("foreign", "file"):
            with pytest.raises(ForeignDirectoryError, match=name):
                LogStore(tmp_path / name, mode)
    with pytest.raises(InvalidArgumentError, match="mode='w'"):
        LogStore(tmp_path, "w")  # type: ignore[arg-type]
    assert descriptors(tmp_path) == before


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"format_version": 99}'])
def test_a_damaged_catalogue_is_named_and_leaves_no_descriptor_behind(tmp_path: Path, content: bytes) -> None:
    root = tmp_path / "store"
    with LogStore(root) as store:
        store.create_topic("t")
        store.partition("t", 0).append([(None, b"a")])
    (root / "topics.json").write_bytes(content)
    before = descriptors(tmp_path)
    for mode in ("r", "rw"):
        with pytest.raises(LogStoreError, match=r"topics\.json"):
            LogStore(root, mode)
    assert descriptors(tmp_path) == before
    os.unlink(root / "topics.json")
    with pytest.raises(DamagedStoreError, match=r"topics\.json is gone"):
        LogStore(root)
    assert descriptors(tmp_path) == before


def test_a_link_to_the_store_is_followed_links_inside_are_refused(tmp_path: Path) -> None:
    with LogStore(tmp_path / "real") as store:
        store.create_topic("t", partitions=2)
        store.partition("t", 0).append([(None, b"a")])
    os.symlink(tmp_path / "real", tmp_path / "link")
    with LogStore(tmp_path / "link") as store:
        assert store.root == str(tmp_path / "real")
        assert values(store) == [b"a"]
    os.rename(tmp_path / "real" / "t-0", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", tmp_path / "real" / "t-0")
    with LogStore(tmp_path / "real") as store:
        with pytest.raises(LogStoreError, match="t-0"):
            store.partition("t", 0).append([(None, b"b")])
        with pytest.raises(LogStoreError, match="t-0"):
            values(store)
    os.unlink(tmp_path / "real" / "t-0")
    os.rename(tmp_path / "elsewhere", tmp_path / "real" / "t-0")
    log = f"{0:020d}.log"
    os.rename(tmp_path / "real" / "t-0" / log, tmp_path / log)
    os.symlink(tmp_path / log, tmp_path / "real" / "t-0" / log)
    with LogStore(tmp_path / "real") as store, pytest.raises(LogStoreError, match="t-0"):
        store.partition("t", 0).append([(None, b"b")])


def test_files_are_the_users_own_unless_told_otherwise(tmp_path: Path) -> None:
    for bits, directory_bits in ((0o600, 0o700), (0o660, 0o770)):
        root = tmp_path / f"{bits:o}"
        before = os.umask(0o077)
        try:
            with LogStore(root, mode_bits=bits) as store:
                store.create_topic("t", config={"segment.bytes": "1024"})
                for number in range(3):
                    store.partition("t", 0).append([(None, b"%d" % number * 600)])
                with store.consumer("t", group="g", until_end=True) as consumer:
                    consumer.poll()
                    consumer.commit()
        finally:
            os.umask(before)
        for folder, folders, files in os.walk(root):
            for name in files:
                mode = stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode)
                assert mode == bits, os.path.join(folder, name)
            for name in folders:
                mode = stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode)
                assert mode == directory_bits, os.path.join(folder, name)


OPEN_AS_ANOTHER = """
import os, sys
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
from logstore.errors import PermissionDeniedError
from logstore.store import LogStore
for mode in ("rw", "r"):
    try:
        LogStore(sys.argv[1], mode)
    except PermissionDeniedError as error:
        print(mode, error)
try:
    LogStore(sys.argv[2])
except PermissionDeniedError as error:
    print("new", error)
try:
    store = LogStore(sys.argv[3], "r")
    print("readable", [record.value for record in store.partition("t", 0).records(0)])
    LogStore(sys.argv[3], "rw")
except PermissionDeniedError as error:
    print("write", error)
"""


@pytest.fixture
def shared_path() -> Iterator[Path]:
    """A folder that other users may enter. Not below pytest's own: each session that starts shuts that to others."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_without_permission_the_error_says_so(shared_path: Path) -> None:
    """In another process, and as another user if this one may do everything."""
    for name in ("closed", "shared"):
        with LogStore(shared_path / name, mode_bits=0o644 if name == "shared" else 0o600) as store:
            store.create_topic("t", config={"segment.bytes": "1024"})
            for number in range(3):
                store.partition("t", 0).append([(None, b"%d" % number * 500)])
    os.chmod(shared_path / "closed", 0o000)
    for folder, _, files in os.walk(shared_path / "shared"):
        os.chmod(folder, 0o555)
        for name in files:
            os.chmod(os.path.join(folder, name), 0o444)
    for above in (shared_path, *shared_path.parents):
        if above.stat().st_uid == os.geteuid() and str(above) not in ("/", "/tmp"):
            os.chmod(above, 0o755)
    (shared_path / "shut").mkdir(mode=0o555)
    os.chmod(shared_path / "shut", 0o555)
    code = f"import sys; sys.path[:] = {[path for path in sys.path if path]!r}\n{OPEN_AS_ANOTHER}"
    paths = [shared_path / "closed", shared_path / "shut" / "new", shared_path / "shared"]
    try:
        answer = subprocess.run(
            [sys.executable, "-I", "-c", preloaded(code), *map(str, paths)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.chmod(shared_path / "closed", 0o700)
        for folder, _, _ in os.walk(shared_path / "shared"):
            os.chmod(folder, 0o755)
    lines = answer.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["rw", "r", "new", "readable", "write"], answer
    assert all(
        re.search(r"Permission denied \(give this user access", line)
        for line in lines
        if line[0] != "r" or "denied" in line
    )
    assert "b'222" in lines[3]


def preloaded(code: str) -> str:
    """Imports everything before the user changes: the interpreter's own files may be this user's alone."""
    return code.replace(
        "import os, sys\n",
        "import os, sys, logstore, logstore.store, logstore.client.consumer.consumer\n"
        "import encodings.ascii, encodings.idna, socket\n",
        1,
    )


# --- read only --------------------------------------------------------------------------------------


def test_a_read_only_store_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with LogStore(root) as store:
        store.create_topic("t", partitions=2)
        store.partition("t", 0).append([(None, b"a")])
        store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    with LogStore(root, "r") as store:
        assert values(store) == [b"a"]
        assert values(store, partition=1) == []
        assert store.committed_offsets("g") == {TopicPartition("t", 0): OffsetAndMetadata(1)}
        assert store.describe_topic("t").partitions[0].log_end_offset == 1
        assert [group.group for group in store.backend.list_groups()] == ["g"]
        refused: list[Callable[[], object]] = [
            lambda: store.create_topic("u"),
            lambda: store.delete_topic("t"),
            lambda: store.admin.add_partitions("t", 5),
            lambda: store.admin.alter_topic("t", {"flush.ms": "1"}),
            lambda: store.partition("t", 0).append([(None, b"b")]),
            lambda: store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)}),
            lambda: store.pin("t"),
            lambda: store.producer(),
            lambda: store.backend.join_group("g", JoinRequest(topics=frozenset("t"))),
        ]
        for call in refused:
            with pytest.raises(ReadOnlyStoreError, match=r"was opened read-only.*mode='rw'"):
                call()
        store.release("t")
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


# --- a full or failing disk -------------------------------------------------------------------------


def test_a_full_disk() -> None:
    store, fs = memory()
    store.create_topic("t", config={"segment.bytes": "1024"})
    log = store.partition("t", 0)
    log.append([(None, b"a" * 300)])
    fs.capacity_bytes = fs._used + 20
    for acks in ("all", 1, 0):
        with pytest.raises(
            DiskFullError, match=r"cannot append to /store/t-0/0+\.log: No space left"
        ) as caught:
            log.append([(None, b"b" * 300)], acks=acks)
        assert caught.value.retriable
    with pytest.raises(DiskFullError):
        log.append([(None, b"b" * 900)])  # would roll
    with pytest.raises(DiskFullError):
        store.create_topic("u")
    with pytest.raises(DiskFullError):
        store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
    assert values(store) == [b"a" * 300]
    assert store.list_topics() == ["t"]
    fs.capacity_bytes = None
    assert log.append([(None, b"c")]).offset == 1
    store.create_topic("u")
    store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
    store.close()
    again, _ = memory(fs)
    assert values(again) == [b"a" * 300, b"c"]
    assert again.recovery_report == ()


def test_a_failed_sync_is_an_unknown_outcome_until_reopened() -> None:
    store, fs = memory()
    store.create_topic("t")
    log = store.partition("t", 0)
    log.append([(None, b"a")])
    fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    with pytest.raises(OutcomeUnknownError, match=r"cannot sync .*reopen the store and read the end"):
        log.append([(None, b"b")])
    assert values(store) == [b"a"]
    assert store.metrics()["logstore_poisoned_partitions"] == 1
    store.close()
    again, _ = memory(fs.crash(KeepNothing()))
    assert values(again) == [b"a"]
    assert again.partition("t", 0).append([(None, b"c")]).offset == 1
    (report,) = again.recovery_report
    assert (report.topic, report.partition, report.end_offset, report.leader_epoch) == ("t", 0, 1, 1)


def test_closing_reports_what_could_not_be_made_durable() -> None:
    store, fs = memory()
    store.create_topic("t")
    store.create_topic("u")
    store.partition("t", 0).append([(None, b"a")], acks=1)
    store.partition("u", 0).append([(None, b"a")], acks=1)
    fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends="t-0/" + f"{0:020d}.log")
    with pytest.raises(OutcomeUnknownError, match="t-0"):
        store.close()
    store.close()  # all else was closed
    again, _ = memory(fs.crash(KeepNothing()))
    assert values(again, "u") == [b"a"]


def test_a_disk_that_fails_for_good_is_met_with_named_errors_everywhere() -> None:
    store, fs = memory()
    store.create_topic("t")
    store.partition("t", 0).append([(None, b"a")])
    fs.faults.on("", FaultKind.EIO, forever=True)
    calls: list[Callable[[], object]] = [
        lambda: store.create_topic("u"),
        lambda: store.partition("t", 0).append([(None, b"b")]),
        lambda: store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)}),
        lambda: store.committed_offsets("g"),
        lambda: store.delete_topic("t"),
        store.list_topics,
        lambda: store.describe_topic("t"),
        store.close,
    ]
    for call in calls:
        with pytest.raises((StorageError, LogStoreError)):
            call()


# --- flush policies ---------------------------------------------------------------------------------


def test_flush_messages() -> None:
    store, _ = memory()
    store.create_topic("t", config={"flush.messages": "5"})
    log = store.partition("t", 0)
    log.append([(None, b"a")] * 4, acks=1)
    assert log.high_watermark == 0
    log.append([(None, b"a")], acks=0)
    assert log.high_watermark == 5
    log.append([(None, b"a")] * 12, acks=1)
    assert log.high_watermark == 17


def test_acks() -> None:
    store, _ = memory()
    store.create_topic("t")
    log = store.partition("t", 0)
    assert log.append([(None, b"a")], acks=0).offset == -1
    assert log.append([(None, b"b")], acks=1).offset == 1
    assert (log.high_watermark, log.log_end_offset) == (0, 2)
    assert log.append([(None, b"c")]).offset == 2
    assert log.high_watermark == 3
    log.append([(None, b"d")], acks=1)
    log.flush()
    assert log.high_watermark == 4


def test_visible_after_append_shows_a_record_at_once() -> None:
    store, _ = memory()
    store.create_topic("t", config={"visible.after": "append"})
    log = store.partition("t", 0)
    log.append([(None, b"a")], acks=1)
    assert values(store) == [b"a"]
    assert store.metrics()["logstore_unsynced_records"] == 1


# --- closing ----------------------------------------------------------------------------------------


def test_what_was_lent_is_closed_with_the_store(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "store")
    store.create_topic("t")
    log, handle, backend = store.partition("t", 0), store.topic("t"), store.backend
    producer, consumer = store.producer(), store.consumer("t")
    delivery = producer.send("t", b"sent before the close")
    records = log.records(0)
    store.close()
    assert delivery.result(timeout_s=60).offset == 0
    calls: list[Callable[[], object]] = [
        lambda: log.append([(None, b"a")]),
        lambda: log.read(0),
        lambda: list(log.records(0)),
        lambda: log.bounds(),
        lambda: log.high_watermark,
        lambda: log.offset_for_timestamp(0),
        log.record_of_max_timestamp,
        log.flush,
        log.describe,
        lambda: handle.config,
        handle.describe,
        handle.release,
        lambda: backend.topics(),
        lambda: backend.list_groups(),
        lambda: backend.join_group("g", JoinRequest(topics=frozenset("t"))),
        lambda: store.create_topic("u"),
        lambda: store.partition("t", 0),
        lambda: store.topic("t"),
        store.list_topics,
        lambda: store.producer(),
        lambda: store.consumer("t"),
        lambda: store.committed_offsets("g"),
        lambda: store.commit_offsets("g", {}),
        lambda: store.release("t"),
        lambda: store.pin("t"),
        lambda: store.unpin("t"),
        store.step,
        store.__enter__,
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match=r"is closed.*logstore\.open"):
            call()
    assert list(records) == []
    for call in (lambda: producer.send("t", b"x"), lambda: consumer.poll()):
        with pytest.raises(LogStoreError):
            call()
    store.close()
    with LogStore(tmp_path / "store", "r") as again:
        assert values(again) == [b"sent before the close"]


def test_stores_leave_no_descriptor_and_no_thread_behind(tmp_path: Path) -> None:
    root = tmp_path / "store"

    def life(mode: Any) -> None:
        with LogStore(root, mode) as store:
            if mode == "rw":
                if not store.list_topics():
                    store.create_topic("t", partitions=3, config={"segment.bytes": "1024"})
                for number in range(9):
                    store.partition("t", number % 3).append([(None, b"x" * 600)])
                store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
                with store.producer() as producer:
                    producer.send("t", b"y").result(timeout_s=60)
            with store.consumer("t", until_end=True) as consumer:
                assert sum(1 for _ in consumer) >= 9
            assert list(store.partition("t", 1).records(0))

    life("rw")
    before, threads = descriptors(tmp_path), set(threading.enumerate())
    for _ in range(3):
        life("rw")
        life("r")
    assert descriptors(tmp_path) == before
    assert set(threading.enumerate()) <= threads  # those of stores that other tests left may end meanwhile


def test_open_files_stay_within_their_bound(tmp_path: Path) -> None:
    with LogStore(tmp_path / "store", max_open_files=12) as store:
        store.create_topic("t", partitions=8, config={"segment.bytes": "1024", "tail.cache.bytes": "0"})
        before = descriptors(tmp_path)
        for number in range(120):
            store.partition("t", number % 8).append([(None, b"%d" % number * 100)], acks=1)
        for _ in range(2):
            for partition in range(8):
                assert len(values(store, partition=partition)) >= 0
                store.partition("t", partition).flush()
        assert store.metrics()["logstore_open_files"] <= 12
        assert descriptors(tmp_path) <= before + 14
        for partition in range(8):
            found = [int(value[: len(value) // 100]) for value in values(store, partition=partition)]
            assert found == list(range(partition, 120, 8))


def test_memory_does_not_grow_with_what_went_through(tmp_path: Path) -> None:
    with LogStore(tmp_path / "store") as store:
        store.create_topic("t", config={"segment.bytes": "200000", "tail.cache.bytes": "100000"})
        log = store.partition("t", 0)
        row = [(b"key", b"v" * 200)]

        def work(count: int) -> None:
            position = log.log_end_offset
            for number in range(count):
                log.append(row * 5, acks=1)
                if number % 20 == 0:
                    log.flush()
                    position = log.fetch(position, 1 << 20, "read_committed").next_offset

        work(600)
        gc.collect()
        tracemalloc.start()
        try:
            work(200)
            first, _ = tracemalloc.get_traced_memory()
            work(1_000)
            gc.collect()
            second, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert second - first < 200_000


# --- one process, two stores ------------------------------------------------------------------------


def test_a_second_writer_in_the_same_process_is_refused_like_any_other(tmp_path: Path) -> None:
    with LogStore(tmp_path / "store") as first, LogStore(tmp_path / "store", lock_timeout_s=0) as second:
        first.create_topic("t")
        first.partition("t", 0).append([(None, b"a")])
        with pytest.raises(TopicLockedError, match=f"pid {os.getpid()}"):
            second.partition("t", 0).append([(None, b"b")])
        assert values(second) == [b"a"]
        first.release("t")
        assert second.partition("t", 0).append([(None, b"b")]).offset == 1
        assert values(first) == [b"a", b"b"]


def test_metrics_are_numbers_of_the_moment() -> None:
    store, _ = memory()
    assert set(store.metrics().values()) == {0}
    store.create_topic("t", partitions=2)
    store.partition("t", 0).append([(None, b"a" * 50)])
    store.partition("t", 1).append([(None, b"b")], acks=1)
    found = store.metrics()
    assert found["logstore_owned_topics"] == 1
    assert found["logstore_open_partitions"] == 2
    assert found["logstore_unsynced_records"] == 1
    assert found["logstore_syncs_total"] == 1
    assert found["logstore_tail_cache_bytes"] > 100
    assert found["logstore_open_files"] > 0
    assert found["logstore_poisoned_partitions"] == found["logstore_recovered_partitions"] == 0
