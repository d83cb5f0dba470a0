"""Waiting for more of a partition without a thread: callbacks, and the one thread that looks at other processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from logstore.ownership.live import LiveBoard, LiveSlot
from logstore.partition.partition import Cancel
from logstore.seams.step_thread import StepThread

_FIRST_POLL_S: Final = 0.001
_LONGEST_POLL_S: Final = 0.05


class DataWaiters:
    """The callbacks that wait for more of one partition, each told once. A ``Waiter`` of the partition's log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[object, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, tell: Callable[[], None]) -> Cancel:
        key = object()
        with self._lock:
            self._waiting[key] = tell

        def cancel() -> None:
            with self._lock:
                self._waiting.pop(key, None)

        return cancel

    def set(self) -> None:
        """Tell all that wait now. Called under a log's lock, so that the callbacks must be cheap."""
        if not self._waiting:
            return
        with self._lock:
            told, self._waiting = self._waiting, {}
        for tell in told.values():
            tell()


class LiveWatch:
    """Tells ``DataWaiters`` of partitions that other processes write: their slots in `.live` are polled, less and less
    often, by one thread for all of them, which runs while anything is watched. ``enabled=False``: ``step`` is called
    by the owner."""

    def __init__(self, live: Callable[[], LiveBoard], *, enabled: bool) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[DataWaiters, LiveSlot | None]] = {}
        self._pause_s = _FIRST_POLL_S
        self._thread = StepThread("logstore-live-watch", self.step, enabled=enabled)

    def watch(self, slot: int, waiters: DataWaiters) -> None:
        """From now on, until they were told or none of them waits any more."""
        seen = self._live().read(slot)
        with self._lock:
            self._watched.setdefault(slot, (waiters, seen))
            self._pause_s = _FIRST_POLL_S
        self._thread.start()

    def step(self) -> float | None:
        """Look at every slot; seconds until the next look, None while nothing is watched."""
        live = self._live()
        for slot, (waiters, seen) in tuple(self._watched.items()):
            if len(waiters) > 0 and live.read(slot) == seen:
                continue
            with self._lock:
                del self._watched[slot]
            waiters.set()
        with self._lock:
            if not self._watched:
                return None
            pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_POLL_S)
            return pause_s

    def close(self) -> None:
        """End the thread, and tell all that still wait: what they ask next says that the store is closed."""
        self._thread.close()
        with self._lock:
            watched, self._watched = self._watched, {}
        for waiters, _ in watched.values():
            waiters.set()
