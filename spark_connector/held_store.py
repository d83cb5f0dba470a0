"""``held_store``: the store that this process writes, kept open from one commit to the next.

A commit that opens the store, takes the topics, and closes both in order again needs three times the syncs of its own
transaction. Spark keeps a driver's Python workers, so that the next commit of a query mostly comes to the same process.

Nobody is kept out by it. The store's own thread gives a topic up to a process that waits for it, within a twentieth of
a second, and by itself once it is idle; transactional ids and groups are not held between commits. Spark ends its
workers by SIGHUP: what a worker owns then is closed in order first. A worker that is killed leaves its topics as any
process does, and the next owner recovers them. A store whose directory was removed is closed within a second.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Final

import logstore
from logstore import LogStore, LogStoreError
from logstore.seams.step_thread import StepThread
from spark_connector.connection import is_there

logger = logging.getLogger("logstore.spark")

IDLE_RELEASE_S: Final = 2.0

_MOST_STORES: Final = 16
_LOOK_S: Final = 1.0  # between looks whether directories are still there


class HeldStores:
    """The stores of one process. ``ends_with_signal``: SIGHUP closes them in order, where nothing else handles it."""

    def __init__(self, *, ends_with_signal: bool) -> None:
        self._stores: dict[tuple[int, str, float], LogStore] = {}
        self._lock = threading.Lock()
        self._notices_end = not ends_with_signal
        self._look = StepThread("logstore-held-stores", self._close_vanished, enabled=True)

    @contextmanager
    def lent(self, path: str, lock_timeout_s: float) -> Iterator[LogStore]:
        """The store in the directory, open for writing; one borrower at a time. It stays open after the block, unless
        that failed. Errors as ``logstore.open``."""
        with self._lock, ExitStack() as closed_at_error:
            self._notice_end()
            key = os.getpid(), os.path.realpath(path), lock_timeout_s
            store = self._stores.pop(key, None)
            if store is not None and not is_there(store):
                _close_replaced(store)
                store = None
            if store is None:
                self._make_room()
                store = logstore.open(
                    key[1], lock_timeout_s=lock_timeout_s, lock_idle_release_s=IDLE_RELEASE_S
                )
            closed_at_error.push(store)
            yield store
            self._stores[key] = store
            closed_at_error.pop_all()
            self._look.start()

    def close(self) -> None:
        """Close all that are not lent, in order."""
        with self._lock:
            self._close_all()

    def _close_vanished(self) -> float | None:
        """Close stores whose directory was removed: until then they would hold the files' space and look after what
        is gone. Seconds until the next look, None: there is nothing to look at."""
        if not self._lock.acquire(blocking=False):
            return _LOOK_S  # one is lent
        try:
            for key, store in list(self._stores.items()):
                if key[0] == os.getpid() and _is_gone(store):
                    del self._stores[key]
                    _close_replaced(store)
            return _LOOK_S if self._stores else None
        finally:
            self._lock.release()

    def _close_all(self) -> None:
        while self._stores:
            key, store = self._stores.popitem()
            if key[0] == os.getpid():  # else it is the parent's: not ours to close
                store.close()

    def _make_room(self) -> None:
        while len(self._stores) >= _MOST_STORES:
            self._stores.pop(next(iter(self._stores))).close()

    def _notice_end(self) -> None:
        if self._notices_end or threading.current_thread() is not threading.main_thread():
            return
        self._notices_end = True
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            signal.signal(signal.SIGHUP, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler's arguments
        """In a commit it ends the process as a kill would: the thread that it interrupts may hold any lock."""
        signal.signal(number, signal.SIG_DFL)
        try:
            if self._lock.acquire(blocking=False):
                self._close_all()
        finally:
            os.kill(os.getpid(), number)


def _is_gone(store: LogStore) -> bool:
    try:
        return not is_there(store)
    except LogStoreError as error:  # half of it is removed, or another process is at it: looked at again
        logger.debug("whether a held store is still there is not to be seen now: %s", error)
        return False


def _close_replaced(store: LogStore) -> None:
    """Its directory is gone, or another store's: nothing of it can be lost any more."""
    try:
        store.close()
    except LogStoreError as error:
        logger.info("a store whose directory was removed is closed: %s", error)


_held = HeldStores(ends_with_signal=True)


def held_store(path: str, lock_timeout_s: float) -> AbstractContextManager[LogStore]:
    """``HeldStores.lent`` of this process."""
    return _held.lent(path, lock_timeout_s)


def close_held_stores() -> None:
    """Close what this process holds, in order."""
    _held.close()
