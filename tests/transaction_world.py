"""Several processes on one store in memory, with one clock, and a transactional writer that is driven by steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.api.records import ProduceItem
from logstore.api.transactions import PreparedTransaction, TransactionLease
from logstore.format.batch import encode_batch
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.faults import Operation
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition

ROOT = "/store"
SOURCE = TopicPartition("in", 0)


class World:
    """``kill`` leaves what a killed process leaves: the files, and free locks."""

    def __init__(self, fs: MemoryFileSystem | None = None, boot: str = "boot-0") -> None:
        self.fs = MemoryFileSystem() if fs is None else fs
        self.clock = ManualClock(boot_id=boot)
        self._locks = LockTable()
        self._live: dict[int, LiveSlot] = {}

    def process(self, **settings: Any) -> LogStore:
        settings = {"lock_timeout_s": 0, "threads": False, **settings}
        return LogStore(
            ROOT,
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(self._locks, clock=self.clock),
            live=MemoryLive(self._live),
            **settings,
        )

    def made(self, **settings: Any) -> LogStore:
        store = self.process(**settings)
        store.create_topic("in")
        store.create_topic("out", partitions=3)
        store.partition("in", 0).append([(None, b"%d" % number) for number in range(40)])
        return store

    def turn(self, *stores: LogStore, times: int = 1, milliseconds: int = 1_100) -> None:
        """Time goes on, and each housekeeper does what is due."""
        for _ in range(times):
            self.clock.advance(milliseconds)
            for store in stores:
                store.step()


class Writer:
    """Sends one record a call under a lease, durably."""

    def __init__(
        self,
        store: LogStore,
        transactional_id: str = "t",
        timeout_ms: int = 60_000,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> None:
        self.store = store
        self.lease: TransactionLease = store.backend.init_transactions(
            transactional_id, timeout_ms, coordinator=coordinator, keep_prepared=keep_prepared
        )
        self._next: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        self.lease.begin()
        self._next = {}

    def send(self, value: bytes, partition: int = 0, topic: str = "out") -> None:
        place = TopicPartition(topic, partition)
        if place not in self._next:
            self.lease.add_partitions([place])
        self.send_blindly(value, place)

    def send_blindly(self, value: bytes, place: TopicPartition, epoch: int | None = None) -> None:
        sequence = self._next.get(place, 0)
        batch = encode_batch(
            [(None, value)],
            now_ms=1_700_000_000_000,
            producer_id=self.lease.producer_id,
            producer_epoch=self.lease.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=True,
        )
        (result,) = self.store.backend.produce([ProduceItem(*place, batch)], "all", 1.0)
        if result.error is not None:
            raise result.error
        self._next[place] = sequence + 1

    def offset(self, offset: int, group: str = "g") -> None:
        self.lease.send_offsets(group, {SOURCE: OffsetAndMetadata(offset)})

    def prepare(self) -> PreparedTransaction:
        prepared = self.lease.prepare()
        assert prepared is not None
        return prepared

    def commit(self, *prepared: PreparedTransaction) -> None:
        self.lease.end(commit=True, prepared=prepared)

    def abort(self) -> None:
        self.lease.end(commit=False)


def committed(store: LogStore, topic: str = "out") -> list[bytes]:
    """What readers of committed records see, sorted."""
    partitions = store.backend.topic(topic).partitions
    found: list[bytes] = []
    for partition in range(partitions):
        log = store.partition(topic, partition)
        found += [record.value or b"" for record in log.records(0, isolation="read_committed")]
    return sorted(found)


def settled(store: LogStore, topic: str = "out") -> bool:
    """Whether no transaction is open in any partition."""
    partitions = store.backend.topic(topic).partitions
    bounds = [
        store.partition(topic, partition).fetch(0, 1, "read_committed", -1).bounds
        for partition in range(partitions)
    ]
    return all(bound.last_stable_offset == bound.high_watermark for bound in bounds)


def group_offset(store: LogStore, group: str = "g") -> int:
    point = store.committed_offsets(group).get(SOURCE)
    return 0 if point is None else point.offset


def states(store: LogStore) -> dict[str, str]:
    return {summary.transactional_id: summary.state for summary in store.backend.list_transactions()}


def recorded_run(
    script: Callable[[LogStore, Callable[[str], None]], None],
) -> list[tuple[MemoryFileSystem, list[str]]]:
    """A script at a new store, with a copy of the files, and what was heard, before each call that changes some.
    ``script``: gets the store, and what hears of its steps."""
    world = World()
    store = world.made()
    heard: list[str] = []
    moments: list[tuple[MemoryFileSystem, list[str]]] = []

    def observe(operation: Operation) -> None:
        if operation.name not in ("open", "pread", "stat", "listdir", "close"):
            moments.append((world.fs.clone(), list(heard)))

    world.fs.faults.observer = observe
    script(store, heard.append)
    world.fs.faults.observer = None
    moments.append((world.fs.clone(), list(heard)))
    store.abandon()
    return moments
