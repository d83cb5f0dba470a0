"""``Wakeup``: what ends a consumer's waits before their time: the caller's ``wakeup()``, and news of its group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logstore.api.cancellation import CancelHandle


class Wakeup:
    """One per consumer. ``trigger`` and ``take``: any thread; waits belong to the consumer's.

    ``watch``: given the handle of each wait when it begins, and None when it is over, so that a membership cancels
    it at a change.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._handle: CancelHandle | None = None
        self.watch: Callable[[CancelHandle | None], None] | None = None

    def trigger(self) -> None:
        """End the wait under way, or the next one."""
        with self._lock:
            self._set = True
            handle = self._handle
        if handle is not None:
            handle.cancel()

    def take(self) -> bool:
        """True once after a ``trigger``."""
        if not self._set:
            return False
        with self._lock:
            was, self._set = self._set, False
            return was

    @contextmanager
    def waiting(self) -> Iterator[CancelHandle]:
        """``with wakeup.waiting() as handle:`` around one call that waits."""
        handle = CancelHandle()
        with self._lock:
            self._handle = handle
            if self._set:
                handle.cancel()
        watch = self.watch
        if watch is not None:
            watch(handle)
        try:
            yield handle
        finally:
            with self._lock:
                self._handle = None
            if watch is not None:
                watch(None)
