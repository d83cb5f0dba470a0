"""Stores that share one directory in memory, as processes do; time and background work move by hand."""

from __future__ import annotations

from typing import Any

from logstore.client.consumer.consumer import Consumer
from logstore.ownership.heartbeats import Beat, MemoryHeartbeats
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import Record


class GroupWorld:
    """``process()``: another store on the same directory."""

    def __init__(self, partitions: int = 4) -> None:
        self.clock = ManualClock()
        self._fs = MemoryFileSystem()
        self._locks = LockTable()
        self._live: dict[int, LiveSlot] = {}
        self.beats: dict[int, Beat] = {}
        self.processes: list[LogStore] = []
        self._consumers: list[Consumer[bytes, bytes]] = []
        self.first = self.process()
        self.first.create_topic("t", partitions)

    def process(self) -> LogStore:
        store = LogStore(
            "/store",
            fs=self._fs,
            clock=self.clock,
            locks=MemoryLocks(self._locks, clock=self.clock, sleep=self._sleep),
            live=MemoryLive(self._live),
            heartbeats=MemoryHeartbeats(self.beats),
            threads=False,
        )
        self.processes.append(store)
        return store

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(max(1, int(seconds * 1000)))

    def run(self, seconds: float, *stores: LogStore) -> None:
        """Time goes on in steps of 200 ms; only ``stores`` do their background work."""
        for _ in range(int(seconds / 0.2)):
            self.clock.advance(200)
            for store in stores:
                store.step()

    def consumer(self, store: LogStore, **settings: Any) -> Consumer[bytes, bytes]:
        made: Consumer[bytes, bytes] = store.consumer("t", group="g", **settings)
        self._consumers.append(made)
        return made

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        for store in self.processes:
            store.close()


def numbers(consumer: Consumer[bytes, bytes]) -> list[int]:
    """The partitions that are read now."""
    return sorted(where.partition for where in consumer.assignment())


def fill(store: LogStore, count: int = 5, partitions: int = 4) -> None:
    for partition in range(partitions):
        store.partition("t", partition).append(
            [(None, b"%d-%d" % (partition, number)) for number in range(count)]
        )


def drain(consumer: Consumer[bytes, bytes]) -> list[Record]:
    records: list[Record] = []
    while found := consumer.poll(timeout_s=0):
        records += found
    return records
