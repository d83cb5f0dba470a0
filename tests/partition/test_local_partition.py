"""The embedded partition: one way in for every writer, decided by callback or shared wait; readers wait for free."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import logstore
from logstore.api.records import ProduceItem
from logstore.errors import (
    LogStoreError,
    OutcomeUnknownError,
    ProducerFencedError,
    TopicLockedError,
    UnknownPartitionError,
)
from logstore.format.batch import encode_batch
from logstore.log.append_validation import split_checked
from logstore.log.producers.producer_state import Marker
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.partition.partition import Partition, result_of, wait_all
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import TopicPartition
from tests.house import ROOT
from tests.log.logs import NOW_MS

PATIENCE_S = 60.0


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class World:
    """Processes on one directory in memory; ``process`` opens a store in one more."""

    def __init__(self, *, threads: bool = False, **config: str) -> None:
        self.fs = MemoryFileSystem()
        self.clock = ManualClock(NOW_MS)
        self.live: dict[int, LiveSlot] = {}
        self.table = LockTable()
        self.threads = threads
        self.store = self.process()
        self.store.create_topic("t", partitions=2, config=config)

    def process(self) -> LogStore:
        def sleep(seconds: float) -> None:
            self.clock.advance(max(int(seconds * 1000), 1))

        return LogStore(
            "/store",
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(self.table, clock=self.clock, sleep=sleep),
            live=MemoryLive(self.live),
            threads=self.threads,
            lock_timeout_s=0.1,
        )


def held(store: LogStore, partition: int = 0) -> Partition:
    return store._registry.get("t").partition(partition)


def batches(*values: bytes, **fields: Any) -> Any:
    return split_checked(encode_batch([(None, value) for value in values], now_ms=NOW_MS, **fields), "t-0")


# --- deciding --------------------------------------------------------------------------------------


def test_acks_all_is_decided_by_a_sync_and_acks_1_at_once() -> None:
    store = World().store
    lazy = held(store).append(batches(b"a", b"b"), 1)
    assert (lazy.base_offset, lazy.next_offset, lazy.done) == (0, 2, False)
    result_of(lazy)
    assert store.partition("t", 0).high_watermark == 0
    assert result_of(held(store).append(batches(b"c"))).base_offset == 2
    assert store.partition("t", 0).high_watermark == 3


def test_appends_to_many_partitions_share_one_wait() -> None:
    store = World().store
    pending = [held(store, number % 2).append(batches(b"%d" % number)) for number in range(6)]
    before = store.metrics()["logstore_syncs_total"]
    wait_all(pending)
    assert store.metrics()["logstore_syncs_total"] - before == 2
    assert [(one.done, one.error) for one in pending] == [(True, None)] * 6


@pytest.mark.parametrize("threads", [False, True])
def test_a_callback_is_told_once_when_the_records_are_durable(threads: bool) -> None:
    store = World(threads=threads).store
    told: list[tuple[LogStoreError | None, int]] = []
    append = held(store).append(batches(b"a"))
    append.then(lambda error: told.append((error, store.partition("t", 0).high_watermark)))
    until(lambda: len(told) == 1)
    assert told == [(None, 1)]
    append.then(lambda error: told.append((error, -1)))
    assert told[1:] == [(None, -1)], "decided already: told at once"
    store.close()


def test_a_callback_is_told_of_a_failed_sync() -> None:
    world = World()
    told: list[LogStoreError | None] = []
    append = held(world.store).append(batches(b"a"))
    world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    append.then(told.append)
    assert isinstance(told[0], OutcomeUnknownError)
    assert append.error is told[0]


def test_a_failure_is_that_of_the_appends_it_concerns() -> None:
    world = World()
    good, bad = held(world.store, 0).append(batches(b"a")), held(world.store, 1).append(batches(b"b"))
    world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends="t-1/00000000000000000000.log")
    wait_all([good, bad])
    assert good.error is None
    assert isinstance(bad.error, OutcomeUnknownError)


def test_the_topic_stays_until_the_append_is_decided() -> None:
    world = World()
    append = held(world.store).append(batches(b"a"))
    topic = world.store._registry.get("t")
    world.clock.advance(100_000)
    assert not topic.idle_release(1.0)
    other = world.process()
    with pytest.raises(TopicLockedError):
        held(other).append(batches(b"x"))
    wait_all([append])
    world.clock.advance(100_000)
    assert topic.idle_release(1.0)
    assert result_of(held(other).append(batches(b"x"))).base_offset == 1


def test_a_refused_append_leaves_nothing_in_use() -> None:
    world = World()
    with pytest.raises(UnknownPartitionError):
        held(world.store, 7).append(batches(b"a"))
    result_of(held(world.store).append(batches(b"a")))
    world.clock.advance(100_000)
    assert world.store._registry.get("t").idle_release(1.0)


# --- one rule for every door -----------------------------------------------------------------------


def _by_partition(store: LogStore, number: int) -> None:
    store.partition("t", 0).append([(None, b"%d" % number)], acks=1)


def _by_batch(store: LogStore, number: int) -> None:
    store.partition("t", 0).append_batch(encode_batch([(None, b"%d" % number)], now_ms=NOW_MS), acks=1)


def _by_backend(store: LogStore, number: int) -> None:
    item = ProduceItem("t", 0, encode_batch([(None, b"%d" % number)], now_ms=NOW_MS))
    (result,) = store.backend.produce([item], 1, 1.0)
    assert result.base_offset == number


@pytest.mark.parametrize("door", [_by_partition, _by_batch, _by_backend])
def test_flush_messages_is_one_rule(door: Callable[[LogStore, int], None]) -> None:
    store = World(**{"flush.messages": "3"}).store
    marks = []
    for number in range(7):
        door(store, number)
        marks.append(store.partition("t", 0).high_watermark)
    assert marks == [0, 0, 3, 3, 3, 6, 6]


@pytest.mark.parametrize("door", [_by_partition, _by_batch, _by_backend])
def test_acks_1_promises_no_sync(door: Callable[[LogStore, int], None]) -> None:
    """Not even where flush.messages has one made: the poisoned log tells the next append."""
    world = World(**{"flush.messages": "1"})
    world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    door(world.store, 0)
    assert world.store.metrics()["logstore_poisoned_partitions"] == 1


# --- markers, records to delete --------------------------------------------------------------------


def test_a_marker_is_written_once_and_awaited_by_all() -> None:
    store = World().store
    sent = batches(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    result_of(held(store).append(sent))
    marker = Marker(7, 1, 0, True, NOW_MS)
    first = held(store).append_marker(marker, once=True)
    again = held(store).append_marker(marker, once=True)
    late = held(store).append_marker(marker._replace(epoch=0), once=True)
    with pytest.raises(ProducerFencedError):
        held(store).append_marker(marker._replace(epoch=0))
    assert (first.base_offset, first.next_offset) == (1, 2)
    assert [(one.base_offset, one.next_offset) for one in (again, late)] == [(2, 2), (2, 2)]
    wait_all([first, again, late])
    assert store.partition("t", 0).last_stable_offset == 2


def test_a_marker_that_will_not_wait_is_told_at_once_who_has_the_topic() -> None:
    world = World()
    result_of(held(world.store).append(batches(b"a")))
    before = world.clock.monotonic_s()
    with pytest.raises(TopicLockedError):
        held(world.process()).append_marker(Marker(7, 0, 0, True, NOW_MS), wait=False)
    assert world.clock.monotonic_s() == before


def test_deleted_records_stay_deleted() -> None:
    world = World()
    result_of(held(world.store).append(batches(b"a", b"b", b"c"), 1))
    assert held(world.store).delete_records(2) == 2
    assert held(world.store).delete_records(1) == 2
    world.store.abandon()
    world.fs = world.fs.process_crash()
    world.table, world.live = LockTable(), {}
    assert world.process().partition("t", 0).log_start_offset == 2


# --- waiting for data ------------------------------------------------------------------------------


def test_a_thousand_waiting_readers_cost_no_thread_and_are_each_told_once() -> None:
    with LogStore(":memory:") as store:
        store.create_topic("t", partitions=2)
        for number in range(2):
            store.partition("t", number).append([(None, b"first")])
        threads = set(threading.enumerate())
        told = [0] * 1_000
        cancels = []
        for number in range(1_000):

            def tell(number: int = number) -> None:
                told[number] += 1

            cancels.append(held(store, number % 2).when_more(tell))
        assert set(threading.enumerate()) <= threads
        for cancel in cancels[::4]:  # of partition 0
            assert cancel is not None
            cancel()
        store.partition("t", 0).append([(None, b"more")])
        assert [told[number] for number in range(8)] == [0, 0, 1, 0, 0, 0, 1, 0]
        store.partition("t", 0).append([(None, b"and more")])
        assert sum(told) == 250, "told once"


def test_readers_of_another_processs_partition_are_told_too() -> None:
    world = World()
    reader = world.process()
    result_of(held(world.store).append(batches(b"a")))
    told: list[int] = []
    assert held(reader).when_more(lambda: told.append(0), poll=False) is None
    cancel = held(reader).when_more(lambda: told.append(1))
    held(reader).when_more(lambda: told.append(2))
    assert cancel is not None
    assert reader._context.watch.step() is not None
    cancel()
    assert told == []
    result_of(held(world.store).append(batches(b"b")))
    reader._context.watch.step()
    assert told == [2]
    assert reader._context.watch.step() is None, "nothing is watched any more"


def test_those_that_wait_are_told_when_the_topic_goes() -> None:
    for end in ("release", "delete", "close"):
        world = World(threads=True)
        store = world.store
        result_of(held(store).append(batches(b"a")))
        told = threading.Event()
        held(store).when_more(told.set)
        if end == "release":
            store.release("t")
        elif end == "delete":
            store.delete_topic("t")
        else:
            store.close()
        assert told.wait(PATIENCE_S), end
        store.close()


def names_beside(others: set[threading.Thread]) -> set[str]:
    return {thread.name for thread in set(threading.enumerate()) - others}


def test_a_watch_ends_with_its_store() -> None:
    others = set(threading.enumerate())  # of stores that other tests left to the collector
    world = World(threads=True)
    writer, reader = world.store, world.process()
    result_of(held(writer).append(batches(b"a")))
    told = threading.Event()
    held(reader).when_more(told.set)
    until(lambda: "logstore-live-watch" in names_beside(others))
    reader.close()
    assert told.is_set()
    assert "logstore-live-watch" not in names_beside(others)
    writer.close()


def test_the_public_facade_is_over_the_partition() -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("t")
        log = store.partition("t", 0)
        log.append([(b"k", b"v")], acks=1)
        log.flush()
        assert log.high_watermark == 1
        assert store.delete_records("t", {0: 1}) == {TopicPartition("t", 0): 1}


# --- nobody else writes ----------------------------------------------------------------------------

DOORS = {
    r"\blog\.append\(": {"partition/local_append.py", "partition/held_partition.py"},
    r"\blog\.append_marker\(": {"partition/local_partition.py", "partition/held_partition.py"},
    r"\.flush_messages\b": {"partition/local_append.py"},
    r"\blog\.raise_start\(": {"partition/local_partition.py", "upkeep/retention_task.py"},
}
"""What writes to a log, and where it may stand: the two kinds of partition alone."""


@pytest.mark.parametrize("call", DOORS)
def test_records_come_in_by_the_partition_alone(call: str) -> None:
    product = ROOT / "logstore"
    above = [path for path in product.rglob("*.py") if "log" not in path.relative_to(product).parts[:1]]
    found = {
        path.relative_to(product).as_posix() for path in above if re.search(call, path.read_text("utf-8"))
    }
    assert found == DOORS[call]
