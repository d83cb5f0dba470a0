"""``ReplicatedAppend``: an append to a replicated log, decided by its commit index or by the end of its leader."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from logstore.errors import LogStoreError
from logstore.log.log_offsets import Appended
from logstore.partition.partition import PendingAppend, Told


class Awaited(Protocol):
    @property
    def done(self) -> bool: ...


class Decides(Protocol):
    """What decides appends (``Replica``). ``lock``: around ``done`` and ``error``."""

    lock: threading.RLock

    def help_on(self, what: Awaited) -> None:
        """Where nothing runs in the background: go on until it is done."""
        ...


class ReplicatedAppend:
    """A ``PendingAppend``. ``known``: all of its batches have producer ids, so that the same append again, at the next
    leader, is found to be a repetition; ``since_s``: of the monotonic clock."""

    __slots__ = (
        "_by",
        "_event",
        "_told",
        "append_time_ms",
        "base_offset",
        "done",
        "error",
        "known",
        "next_offset",
        "since_s",
    )

    def __init__(
        self, by: Decides, appended: Appended, append_time_ms: int, *, done: bool, known: bool, since_s: float
    ) -> None:
        self._by = by
        self.base_offset, self.next_offset = appended
        self.append_time_ms = append_time_ms
        self.done = done
        self.known = known
        self.since_s = since_s
        self.error: LogStoreError | None = None
        self._told: list[Told] | None = None
        self._event: threading.Event | None = None

    def decide(self, error: LogStoreError | None) -> None:
        """With the lock held; told at once."""
        if self.done:
            return
        self.error, self.done = error, True
        told, self._told = self._told, None
        if self._event is not None:
            self._event.set()
        for tell in told or ():
            tell(error)

    def then(self, tell: Told) -> None:
        with self._by.lock:
            if not self.done:
                if self._told is None:
                    self._told = []
                self._told.append(tell)
                return
        tell(self.error)

    def wait_with(self, others: Sequence[PendingAppend]) -> None:
        del others  # each partition has a commit index of its own
        with self._by.lock:
            if self.done:
                return
            event = self._event = self._event or threading.Event()
        self._by.help_on(self)
        event.wait()
