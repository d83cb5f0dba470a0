"""Ownership of a topic inside one process: taken, shared by threads, given up, lost to a deletion."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from logstore.directory import topic_state
from logstore.errors import (
    DamagedStoreError,
    LogStoreError,
    OutcomeUnknownError,
    PartitionPoisonedError,
    StoreClosedError,
    TopicLockedError,
    UnknownTopicError,
)
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock, SystemClock
from logstore.seams.faults import FaultKind
from logstore.seams.fs import read_file, write_all
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

ROOT = "/store"
PATIENCE_S = 60.0


class World:
    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.clock = ManualClock()
        self.table = LockTable()
        self.live: dict[int, LiveSlot] = {}

    def store(self, **settings: Any) -> LogStore:
        def sleep(seconds: float) -> None:
            self.clock.advance(max(int(seconds * 1000), 1))

        return LogStore(
            ROOT,
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(self.table, clock=self.clock, sleep=sleep),
            live=MemoryLive(self.live),
            threads=False,
            **({"lock_timeout_s": 0.1} | settings),
        )

    def state(self, topic: str = "t") -> topic_state.TopicState:
        state = topic_state.load(self.fs, ROOT, topic)
        assert state is not None
        return state


def spawn(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_the_lock_is_taken_at_the_first_append_not_at_open() -> None:
    world = World()
    first, second = world.store(), world.store()
    first.create_topic("t")
    assert first.metrics()["logstore_owned_topics"] == 0
    first.partition("t", 0).append([(None, b"a")])
    assert (world.state().clean, world.state().boot_id) == (False, "boot-0")
    with pytest.raises(TopicLockedError, match=r"topic 't' is locked by pid .*waited"):
        second.partition("t", 0).append([(None, b"b")])
    assert [record.value for record in second.partition("t", 0).records(0)] == [b"a"]  # reading needs no lock
    first.release("t")
    assert world.state().clean
    assert second.partition("t", 0).append([(None, b"b")]).offset == 1
    first.close()
    second.close()


def test_a_released_topic_is_caught_up_with_when_it_comes_back() -> None:
    world = World()
    first, second = world.store(), world.store()
    first.create_topic("t", partitions=2)
    for turn in range(6):
        store = (first, second)[turn % 2]
        for partition in (0, 1):
            assert store.partition("t", partition).append([(None, b"%d" % turn)]).offset == turn
        store.release("t")
    assert first.recovery_report == second.recovery_report == ()
    assert first.partition("t", 0).append([(None, b"x")]).offset == 6
    assert first.partition("t", 0).leader_epoch == 0


def test_without_a_change_in_between_logs_are_kept() -> None:
    store = World().store()
    store.create_topic("t")
    store.partition("t", 0).append([(None, b"a")])
    log = store._registry.get("t").open_logs()[0]
    store.release("t")
    store.partition("t", 0).append([(None, b"b")])
    assert store._registry.get("t").open_logs() == [log]


def test_partitions_are_opened_as_they_are_used() -> None:
    world = World()
    store = world.store()
    store.create_topic("t", partitions=50)
    store.partition("t", 7).append([(None, b"a")])
    store.close()
    assert [name for name in world.fs.listdir(ROOT) if name.startswith("t-")] == ["t-7"]
    store = world.store()
    store.partition("t", 3).append([(None, b"b")])
    assert store.metrics()["logstore_open_partitions"] == 1
    assert [r.value for r in store.partition("t", 7).records(0)] == [b"a"]
    assert store.partition("t", 7).append([(None, b"c")]).offset == 1
    assert store.partition("t", 7).leader_epoch == 0
    assert store.recovery_report == ()


def test_an_unclean_topic_is_recovered_whole_when_taken() -> None:
    world = World()
    store = world.store()
    store.create_topic("t", partitions=3)
    for partition in (0, 2):
        store.partition("t", partition).append([(None, b"a")] * (partition + 1), acks=1)
    store.abandon()
    world.fs = world.fs.process_crash()
    store = world.store()
    assert list(store.recovery_report) == []
    store.partition("t", 2).append([(None, b"b")])
    found = [(each.partition, each.end_offset, each.leader_epoch) for each in store.recovery_report]
    assert found == [(0, 1, 1), (2, 3, 1)]


def test_a_state_file_that_is_gone_is_no_reason_to_lose_records() -> None:
    world = World()
    store = world.store()
    store.create_topic("t", config={"segment.bytes": "1024"})
    for number in range(9):
        store.partition("t", 0).append([(None, b"%d" % number + b"." * 300)])
    store.close()
    world.fs.remove(topic_state.state_path(ROOT, "t"))
    store = world.store()
    log = store.partition("t", 0)
    assert [record.offset for record in log.records(0)] == list(range(9))
    assert log.append([(None, b"x")]).offset == 9
    assert log.leader_epoch == 1


def test_a_damaged_partition_keeps_the_topic_shut_and_names_the_place() -> None:
    world = World()
    store = world.store()
    store.create_topic("t", partitions=2)
    for partition in (0, 1):
        store.partition("t", partition).append([(None, b"a" * 100)])
    store.close()
    path = f"{ROOT}/t-1/{0:020d}.log"
    file = world.fs.open(path, "rw")
    write_all(file, [b"\xee"], 90)
    store = world.store()
    for _ in range(2):
        with pytest.raises(
            DamagedStoreError, match=f"{path} at byte 0, below the durable recovery point"
        ) as caught:
            store.partition("t", 1).append([(None, b"b")])
        assert (caught.value.path, caught.value.position) == (path, 0)
    assert store.partition("t", 0).append([(None, b"b")]).offset == 1
    assert world.table.taken  # the topic stays ours; closing gives it up
    store.close()
    assert not world.table.taken


def test_a_failure_while_taking_over_frees_the_lock() -> None:
    world = World()
    store, other = world.store(), world.store()
    store.create_topic("t")
    world.fs.faults.on("create", FaultKind.EIO, path_ends="t.json.tmp")
    with pytest.raises(LogStoreError):
        store.partition("t", 0).append([(None, b"a")])
    assert other.partition("t", 0).append([(None, b"a")]).offset == 0


def test_a_poisoned_partition_is_left_as_after_a_power_loss_and_no_other() -> None:
    world = World()
    store = world.store()
    store.create_topic("t", partitions=2)
    store.partition("t", 1).append([(None, b"fine")])
    log = store.partition("t", 0)
    log.append([(None, b"durable")])
    log.append([(None, b"perhaps")], acks=1)
    world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    with pytest.raises(OutcomeUnknownError):
        log.flush()
    assert store.metrics()["logstore_poisoned_partitions"] == 1
    with pytest.raises(PartitionPoisonedError, match="t-0 accepts nothing more"):
        log.append([(None, b"no")])
    assert [record.value for record in log.records(0)] == [b"durable"]
    assert store.partition("t", 1).append([(None, b"goes on")]).offset == 1
    store.close()
    state = world.state()
    assert [(state.is_clean(number), state.boot_of(number)) for number in (0, 1)] == [
        (False, ""),
        (True, "boot-0"),
    ]
    world.fs = world.fs.crash(KeepNothing())
    store = world.store()
    log = store.partition("t", 0)
    assert log.append([(None, b"again")]).offset in (1, 2)
    assert [one.partition for one in store.recovery_report] == [0]
    assert log.leader_epoch == 1
    assert [r.value for r in store.partition("t", 1).records(0)] == [b"fine", b"goes on"]


def test_releasing_frees_a_poisoned_partition_in_the_same_process() -> None:
    world = World()
    store = world.store()
    store.create_topic("t")
    log = store.partition("t", 0)
    log.append([(None, b"a")], acks=1)
    world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    with pytest.raises(OutcomeUnknownError):
        log.flush()
    store.release("t")
    assert log.append([(None, b"b")]).offset == 1  # the cache still had it, and recovery wrote it again
    assert [record.value for record in log.records(0)] == [b"a", b"b"]
    store.close()
    assert read_file(world.fs.crash(KeepNothing()), f"{ROOT}/t-0/{0:020d}.log").count(b"\x02") >= 2


# --- threads ----------------------------------------------------------------------------------------


def test_a_release_waits_for_those_inside_and_keeps_the_next_out() -> None:
    store = LogStore(":memory:")
    store.create_topic("t")
    topic = store._registry.get("t")
    order: list[str] = []

    def release() -> None:
        store.release("t")
        order.append("released")

    def append() -> None:
        store.partition("t", 0).append([(None, b"x")])
        order.append("late")

    topic.enter()
    releasing = spawn(release)
    while not topic._draining:
        time.sleep(0.001)
    late = spawn(append)
    topic.enter()  # who is inside already is let in again: else two threads could wait for each other
    topic.leave()
    assert order == []
    assert topic.owned
    topic.leave()
    releasing.join(PATIENCE_S)
    late.join(PATIENCE_S)
    assert sorted(order) == ["late", "released"]
    assert topic.owned
    assert topic._users == 0
    store.close()


def test_two_threads_in_two_topics_and_two_releases_come_through() -> None:
    store = LogStore(":memory:")
    for name in ("a", "b"):
        store.create_topic(name)
    a, b = store._registry.get("a"), store._registry.get("b")
    barrier = threading.Barrier(4)

    def both(first: Any, second: Any) -> None:
        with first.using():
            barrier.wait(PATIENCE_S)
            barrier.wait(PATIENCE_S)
            with second.using():
                pass

    def release(topic: Any) -> None:
        barrier.wait(PATIENCE_S)
        waiting = spawn(topic.release)
        while not topic._draining:
            time.sleep(0.001)
        barrier.wait(PATIENCE_S)
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()

    threads = [
        spawn(lambda: both(a, b)),
        spawn(lambda: both(b, a)),
        spawn(lambda: release(a)),
        spawn(lambda: release(b)),
    ]
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    store.close()


def test_threads_append_while_others_release_and_read() -> None:
    """Nothing is lost or doubled, offsets are dense, and the topic can be taken by another store at the end."""
    fs, table, clock = MemoryFileSystem(), LockTable(), SystemClock()

    def opened() -> LogStore:
        return LogStore(
            ROOT, fs=fs, clock=clock, locks=MemoryLocks(table, clock=clock), lock_timeout_s=PATIENCE_S
        )

    store = opened()
    store.create_topic("t", partitions=2, config={"segment.bytes": "2000"})
    placed: list[tuple[int, int, bytes]] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            failures.append(error)

    def write(name: int) -> None:
        for number in range(120):
            value = b"%d-%d" % (name, number)
            partition = number % 2
            acks: Any = ("all", 1)[number % 3 == 0]
            placed.append(
                (partition, store.partition("t", partition).append([(None, value)], acks=acks).offset, value)
            )

    def release() -> None:
        while not done.is_set():
            store.release("t")
            time.sleep(0.001)

    def read() -> None:
        seen = [0, 0]
        while not done.is_set():
            for partition in (0, 1):
                log = store.partition("t", partition)
                found = [record.offset for record in log.records(seen[partition])]
                assert found == list(range(seen[partition], seen[partition] + len(found)))
                seen[partition] += len(found)

    writers = [spawn(lambda name=name: guarded(lambda: write(name))) for name in range(4)]  # type: ignore[misc]
    others = [spawn(lambda: guarded(release)), spawn(lambda: guarded(read)), spawn(lambda: guarded(read))]
    for thread in writers:
        thread.join(4 * PATIENCE_S)
    done.set()
    for thread in others:
        thread.join(PATIENCE_S)
    assert failures == []
    assert len(placed) == 480
    store.close()
    again = opened()
    for partition in (0, 1):
        mine = sorted((offset, value) for number, offset, value in placed if number == partition)
        assert [offset for offset, _ in mine] == list(range(240))
        assert [record.value for record in again.partition("t", partition).records(0)] == [v for _, v in mine]
        assert again.partition("t", partition).leader_epoch == 0
    assert again.recovery_report == ()
    again.close()


class Appender:
    """A thread that appends to one partition until it is refused."""

    def __init__(self, store: LogStore, name: int, partition: int) -> None:
        self.log = store.partition("t", partition)
        self.name = name
        self.acked: list[tuple[int, bytes]] = []
        self.refused: BaseException | None = None
        self.thread = spawn(self.work)

    def work(self) -> None:
        try:
            while True:
                value = b"%d-%d" % (self.name, len(self.acked))
                self.acked.append((self.log.append([(None, value)], acks="all").offset, value))
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            self.refused = error

    def end(self) -> None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


def wait_for(appenders: list[Appender], count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sum(len(appender.acked) for appender in appenders) < count:
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def test_closing_beside_appends_loses_nothing_that_was_acknowledged() -> None:
    for _ in range(8):
        fs = MemoryFileSystem()
        store = LogStore(ROOT, fs=fs)
        store.create_topic("t", config={"segment.bytes": "1500"})
        appenders = [Appender(store, name, 0) for name in range(3)]
        wait_for(appenders, 30)
        store.close()
        for appender in appenders:
            appender.end()
            assert type(appender.refused) is StoreClosedError
        with LogStore(ROOT, fs=fs) as again:
            found = {record.offset: record.value for record in again.partition("t", 0).records(0)}
            for appender in appenders:
                assert [(offset, found[offset]) for offset, _ in appender.acked] == appender.acked
            assert again.partition("t", 0).append([(None, b"x")]).offset == len(found)
            assert again.recovery_report == ()


def test_deleting_beside_appends() -> None:
    fs = MemoryFileSystem()
    with LogStore(ROOT, fs=fs) as store:
        for turn in range(8):
            store.create_topic("t", partitions=3)
            appenders = [Appender(store, 0, partition) for partition in range(3)]
            wait_for(appenders, turn + 1)
            store.delete_topic("t")
            for appender in appenders:
                appender.end()
                assert isinstance(appender.refused, UnknownTopicError)
            assert [name for name in fs.listdir(ROOT) if name.startswith("t-")] == []
            assert [name for name in fs.listdir(f"{ROOT}/.state") if "note" not in name] == []


def test_a_release_that_comes_amid_a_deletion_gives_the_lock_up_once() -> None:
    """The idle release once came between the end of the files and that of the lock: an invariant broke."""
    with World().store(lock_idle_release_s=0.0) as store:
        store.create_topic("t")
        store.partition("t", 0).append([(None, b"v")])
        topic = store._registry.get("t")
        topic.discard()
        assert topic.idle_release(0.0)
        topic.give_up_lock()
        assert not topic.owned
