"""One simulated machine for tests of internal topics: a disk, a board, locks, and state machines to follow them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.directory.catalogue import TopicEntry
from logstore.machine import StateMachine
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

ROOT = "/store"
Machine = TypeVar("Machine", bound=StateMachine)


class Ledger:
    """Keeps the last value of each key; values of a transaction wait for its marker. What counts
    goes by the order of the records: an older one that is committed later does not come back."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.pending: dict[int, dict[bytes, bytes | None]] = {}
        self._pending_orders: dict[int, dict[bytes, int]] = {}
        self._records = 0

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        assert key is not None
        self._records += 1
        self._set(key, value, self._records)

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        assert key is not None
        assert epoch >= 0
        self._records += 1
        self.pending.setdefault(producer_id, {})[key] = value
        self._pending_orders.setdefault(producer_id, {})[key] = self._records

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        assert epoch >= 0
        waiting = self.pending.pop(producer_id, {})
        orders = self._pending_orders.pop(producer_id, {})
        if committed:
            for key, value in waiting.items():
                self._set(key, value, orders[key])

    def _set(self, key: bytes, value: bytes | None, order: int) -> None:
        for producer_id, orders in self._pending_orders.items():
            if orders.get(key, order) < order:
                del orders[key], self.pending[producer_id][key]
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value


class SharedWorld(Generic[Machine]):
    """``process`` opens a store as one more process, with its topic ``__shared``."""

    def __init__(self, make: Callable[[], Machine], segment_bytes: int = 1024, **settings: Any) -> None:
        self.make = make
        self.segment_bytes = segment_bytes
        self.settings = settings
        self.fs = MemoryFileSystem()
        self.clock = ManualClock()
        self.live: dict[int, LiveSlot] = {}
        self.table = LockTable()
        self.boots = 0

    def process(self, mode: Any = "rw") -> tuple[LogStore, CoordinatorRuntime[Machine]]:
        def sleep(seconds: float) -> None:
            self.clock.advance(max(int(seconds * 1000), 1))

        store = LogStore(
            ROOT,
            mode,
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(self.table, clock=self.clock, sleep=sleep),
            live=MemoryLive(self.live),
            threads=False,
            lock_timeout_s=0.1,
            **self.settings,
        )
        log = store._registry.coordinator_logs.of(self.entry(store))
        return store, CoordinatorRuntime(store._context, log, self.make)

    def entry(self, store: LogStore) -> TopicEntry:
        topics = store._registry.catalogue.topics
        if "__shared" not in topics:
            config = {"segment.bytes": str(self.segment_bytes), "cleanup.policy": "compact"}
            store._registry.create("__shared", 1, config, internal=True)
        return store._registry.entry("__shared")

    def kill(self, *stores: LogStore) -> None:
        for store in stores:
            store.abandon()
        self.fs = self.fs.process_crash()

    def lose_power(self, choose: Any, *stores: LogStore) -> None:
        for store in stores:
            store.abandon()
        self.fs = self.fs.crash(choose)
        self.live = {}
        self.boots += 1
        self.clock.reboot(f"boot-{self.boots}")
