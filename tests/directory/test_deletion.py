"""A topic is deleted whole or not at all, whatever step a crash comes at; its name can be used again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from logstore.directory import topic_state
from logstore.errors import StorageError, TopicLockedError, UnknownTopicError
from logstore.format.batch import encode_batch
from logstore.log.append_validation import split_checked
from logstore.partition.topic import Topic
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind, Operation, SimulatedCrash
from logstore.seams.fs import exists, replace_file, write_all
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.transaction_world import World

ROOT = "/store"
NAME = "flights"
PLACE = TopicPartition(NAME, 0)


def opened(fs: MemoryFileSystem, boot: int = 0) -> LogStore:
    return LogStore(ROOT, fs=fs, clock=ManualClock(boot_id=f"boot-{boot}"), threads=False)


def made() -> tuple[LogStore, MemoryFileSystem]:
    fs = MemoryFileSystem()
    store = opened(fs)
    store.create_topic(NAME, partitions=2, config={"segment.bytes": "1024"})
    store.create_topic("other")
    for number in range(8):
        store.partition(NAME, number % 2).append([(b"k", b"%d" % number + b"." * 500)])
    store.partition("other", 0).append([(None, b"stays")])
    store.commit_offsets("g", {PLACE: OffsetAndMetadata(3), TopicPartition("other", 0): OffsetAndMetadata(1)})
    return store, fs


def test_a_call_under_way_hears_that_its_topic_was_deleted() -> None:
    store, _ = made()
    topic = store._registry.get(NAME)
    with topic.using():
        log = topic.log(0)
    batch = split_checked(encode_batch([(b"k", b"v")], now_ms=1), NAME)
    log.append(batch)  # not synced: what nobody can ask for any more is in no doubt either
    store.delete_topic(NAME)
    for call in (lambda: log.append(batch), log.sync):
        with pytest.raises(UnknownTopicError, match=f"topic '{NAME}' was deleted"):
            call()


def leftovers(fs: MemoryFileSystem) -> list[str]:
    names = fs.listdir(ROOT) + fs.listdir(f"{ROOT}/{topic_state.DIRECTORY}")
    # A note that was cut off while it was written says nothing, and is replaced by the next of its topic.
    return [name for name in names if name.startswith(NAME) or name.endswith((".deleting", "-delete"))]


def test_nothing_is_left() -> None:
    store, fs = made()
    store.delete_topic(NAME)
    assert leftovers(fs) == []
    assert store.list_topics() == ["other"]
    for call in (lambda: store.partition(NAME, 0), lambda: store.delete_topic(NAME)):
        with pytest.raises(UnknownTopicError, match=NAME):
            call()
    assert store.committed_offsets("g") == {TopicPartition("other", 0): OffsetAndMetadata(1)}
    store.close()
    again = opened(fs)
    assert again.list_topics() == ["other"]
    assert [record.value for record in again.partition("other", 0).records(0)] == [b"stays"]


def test_a_new_topic_of_the_name_starts_anew() -> None:
    store, fs = made()
    old = store.topic(NAME).topic_id
    store.delete_topic(NAME)
    store.create_topic(NAME)
    assert store.topic(NAME).topic_id != old
    log = store.partition(NAME, 0)
    assert list(log.records(0)) == []
    assert (log.log_end_offset, log.leader_epoch) == (0, -1)
    assert log.append([(None, b"first")]).offset == 0
    assert PLACE not in store.committed_offsets("g")
    store.close()
    assert [record.value for record in opened(fs).partition(NAME, 0).records(0)] == [b"first"]


def test_what_was_handed_out_before_is_the_old_topics() -> None:
    store, _ = made()
    log = store.partition(NAME, 0)
    store.delete_topic(NAME)
    store.create_topic(NAME)
    store.partition(NAME, 0).append([(None, b"new")])
    for call in (
        lambda: log.append([(None, b"into the wrong one")]),
        lambda: log.read(0),
        lambda: log.high_watermark,
        log.flush,
        log.describe,
    ):
        with pytest.raises(UnknownTopicError, match="deleted and made anew"):
            call()
    assert [record.value for record in store.partition(NAME, 0).records(0)] == [b"new"]


def test_internal_topics_stay() -> None:
    store, _ = made()
    with pytest.raises(UnknownTopicError, match="is internal"):
        store.delete_topic("__consumer_offsets")


def test_a_writer_sweeps_what_no_later_write_would_replace() -> None:
    store, fs = made()
    gone_id = store.topic(NAME).topic_id
    store.delete_topic(NAME)
    store.close()
    state = f"{ROOT}/{topic_state.DIRECTORY}"
    long_gone = "x" * 249
    swept = [
        f"{ROOT}/topics.json.tmp",
        f"{state}/{gone_id}.deleting.tmp",
        f"{topic_state.state_path(ROOT, NAME)}.tmp",
        f"{topic_state.state_path(ROOT, long_gone)}.tmp",
    ]
    kept = [
        f"{topic_state.state_path(ROOT, 'other')}.tmp",
        f"{ROOT}/.live.tmp",
    ]  # may be written at this moment
    for path in swept + kept:
        with closing(fs.open(path, "create")) as file:
            write_all(file, [b"half"], 0)
    reading = LogStore(ROOT, mode="r", fs=fs, clock=ManualClock(), threads=False)
    assert reading.list_topics() == ["other"]
    reading.close()
    assert all(exists(fs, path) for path in swept)
    for call in range(1, 40):  # a crash anywhere in the opening
        twin = fs.process_crash()
        twin.faults.at(twin.faults.calls + call, FaultKind.CRASH)
        with suppress(SimulatedCrash):
            opened(twin)
        check_swept(twin.process_crash(), swept, kept)
    check_swept(fs.process_crash(), swept, kept)


def check_swept(fs: MemoryFileSystem, swept: list[str], kept: list[str]) -> None:
    store = opened(fs)
    assert [path for path in swept if exists(fs, path)] == []
    assert all(exists(fs, path) for path in kept)
    assert store.list_topics() == ["other"]
    assert [record.value for record in store.partition("other", 0).records(0)] == [b"stays"]
    store.close()


def test_a_crash_at_every_call_leaves_it_whole_or_gone() -> None:
    store, fs = made()
    start = fs.faults.calls
    store.delete_topic(NAME)
    total = fs.faults.calls - start
    whole = gone = 0
    for call in range(1, total + 1):
        store, fs = made()
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            store.delete_topic(NAME)
        for boot, survivor in enumerate((fs.process_crash(), fs.crash(KeepNothing()), fs.crash(KeepAll()))):
            again = opened(survivor, boot)
            if NAME in again.list_topics():
                whole += 1
                for partition in (0, 1):
                    found = [int(r.value.rstrip(b".")) for r in again.partition(NAME, partition).records(0)]
                    assert found == list(range(partition, 8, 2))
                    again.partition(NAME, partition).append([(None, b"9")])
                assert again.committed_offsets("g")[PLACE].offset == 3
                assert [name for name in leftovers(survivor) if "delet" in name] == []
            else:
                gone += 1
                assert leftovers(survivor) == []
                again.create_topic(NAME)
                assert again.partition(NAME, 0).append([(None, b"first")]).offset == 0
                assert [record.value for record in again.partition(NAME, 0).records(0)] == [b"first"]
                assert PLACE not in again.committed_offsets("g")
            assert [r.value for r in again.partition("other", 0).records(0)] == [b"stays"]
            again.close()
    assert whole > 10
    assert gone > 10


def test_files_that_cannot_be_removed_do_not_bring_it_back(caplog: pytest.LogCaptureFixture) -> None:
    store, fs = made()
    fs.faults.on("remove", FaultKind.EIO, path_ends=f"{0:020d}.log")
    with caplog.at_level(logging.WARNING):
        store.delete_topic(NAME)
    assert "its files are not all gone yet" in caplog.text
    assert store.list_topics() == ["other"]
    assert leftovers(fs)
    store.create_topic(NAME)
    store.partition(NAME, 0).append([(None, b"new")])
    store.close()
    again = opened(fs)
    assert [name for name in leftovers(fs) if "delet" in name] == []
    assert [record.value for record in again.partition(NAME, 0).records(0)] == [b"new"]


def test_a_catalogue_that_cannot_be_written_leaves_the_topic() -> None:
    store, fs = made()
    fs.faults.on("rename", FaultKind.EIO, path_ends="topics.json.tmp")
    with pytest.raises(StorageError, match=r"topics\.json"):
        store.delete_topic(NAME)
    assert store.partition(NAME, 0).append([(None, b"9")]).offset == 4
    store.close()
    again = opened(fs)
    assert again.partition(NAME, 0).log_end_offset == 5
    assert [name for name in leftovers(fs) if "delet" in name] == []


def test_a_note_that_is_none_is_reported_and_does_not_keep_the_store_shut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, fs = made()
    store.close()
    path = f"{ROOT}/{topic_state.DIRECTORY}/AAAA.deleting"
    for content in (b"", b"[]", b'{"topic": "../x", "topic_id": "AAECAwQFRgeICQoLDA0ODw", "partitions": 1}'):
        replace_file(fs, path, content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            opened(fs).close()
        assert "is not a deletion note" in caplog.text
        assert exists(fs, path)


def test_while_another_owns_it_the_error_names_the_owner() -> None:
    from logstore.errors import TopicLockedError
    from logstore.ownership.locks import LockTable, MemoryLocks

    fs, clock, table = MemoryFileSystem(), ManualClock(), LockTable()

    def sleep(seconds: float) -> None:
        clock.advance(max(int(seconds * 1000), 1))

    def view() -> LogStore:
        locks = MemoryLocks(table, clock=clock, sleep=sleep)
        return LogStore(ROOT, fs=fs, clock=clock, locks=locks, threads=False, lock_timeout_s=0.2)

    owner, other = view(), view()
    owner.create_topic(NAME)
    owner.partition(NAME, 0).append([(None, b"a")])
    with pytest.raises(TopicLockedError, match="topic 'flights' is locked by pid"):
        other.delete_topic(NAME)
    owner.release(NAME)
    other.delete_topic(NAME)
    with pytest.raises(UnknownTopicError):
        owner.partition(NAME, 0)


# --- other processes, at the same time ---


def at(world: World, name: str, path_ends: str, act: Callable[[], object]) -> None:
    """``act`` once, right before the call."""

    def observe(operation: Operation) -> None:
        if operation.name == name and operation.path.endswith(path_ends):
            world.fs.faults.observer = None
            act()

    world.fs.faults.observer = observe


def shared() -> tuple[World, LogStore]:
    world = World()
    store = world.process()
    store.create_topic(NAME, partitions=2)
    for partition in range(2):
        store.partition(NAME, partition).append([(None, b"old")])
    return world, store


def anew(store: LogStore, partitions: int = 1) -> None:
    store.create_topic(NAME, partitions=partitions)
    store.partition(NAME, 0).append([(None, b"new")])


def names(world: World) -> list[str]:
    return [name for name in world.fs.listdir(ROOT) if name.startswith(NAME)]


def test_a_store_that_opens_amid_a_deletion_does_not_take_it_for_one_that_was_dropped() -> None:
    """It would remove the note of a topic that the catalogue still has."""
    world, store = shared()
    refused = []

    def open_another() -> None:
        with pytest.raises(TopicLockedError, match=r"topics\.json") as error:
            world.process()
        refused.append(error)

    at(world, "rename", "topics.json.tmp", open_another)
    store.delete_topic(NAME)
    assert len(refused) == 1
    assert names(world) == []


@pytest.mark.parametrize("moment", [("rename", f"{NAME}-0"), ("remove", ".log"), ("remove", ".deleting")])
def test_a_topic_made_anew_amid_a_deletion_keeps_its_files(
    moment: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, store = shared()
    other = world.process()
    if moment[0] == "rename":  # before the deleting process has the catalogue's lock again
        discard = Topic.discard

        def late(topic: Topic) -> None:
            discard(topic)
            anew(other)

        monkeypatch.setattr(Topic, "discard", late)
    else:
        at(world, *moment, lambda: anew(other))
    store.delete_topic(NAME)
    assert names(world) == [f"{NAME}-0"]
    other.abandon()
    store.abandon()
    after = World(world.fs.crash(KeepNothing()), boot="boot-1").process()
    after.partition(NAME, 0).append([(None, b"newer")])
    assert [record.value for record in after.partition(NAME, 0).records(0)] == [b"new", b"newer"]


class Killed(BaseException):
    """The process ends here; what it held is free."""


def die() -> None:
    raise Killed


@pytest.mark.parametrize("moment", [("rename", f"{NAME}-0"), ("rename", f"{NAME}-1"), ("remove", ".log")])
def test_a_process_that_was_open_all_along_makes_the_topic_anew_after_a_killed_deletion(
    moment: tuple[str, str],
) -> None:
    world, store = shared()
    other = world.process()
    at(world, *moment, die)
    with pytest.raises(Killed):
        store.delete_topic(NAME)
    store.abandon()
    anew(other)
    other.admin.add_partitions(NAME, 2)
    other.partition(NAME, 1).append([(None, b"new")])
    for partition in range(2):
        assert [record.value for record in other.partition(NAME, partition).records(0)] == [b"new"]
    world.process()  # removes whatever is left
    assert names(world) == [f"{NAME}-0", f"{NAME}-1"]


def test_two_processes_finish_one_deletion(caplog: pytest.LogCaptureFixture) -> None:
    world, store = shared()
    at(world, "remove", ".log", lambda: world.process().close())
    with caplog.at_level(logging.WARNING):
        store.delete_topic(NAME)
    assert caplog.records == []
    assert names(world) == []
