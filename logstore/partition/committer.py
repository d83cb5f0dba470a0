"""Group commit: appends of many threads share one sync.

A thread that is alone syncs by itself, at once: no linger and no change of threads. When others are at it
too, they queue, and one committer thread syncs each log once for all that had queued when it began; what
comes during a sync is the next group. For a while after a group the queue is kept up even for a thread that
looks alone: the members of a group come back one after the other, and the first must not sync just for itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.log.owned_log import OwnedLog
from logstore.native import compiled
from logstore.partition.fan_out import MANY, fan_out
from logstore.seams.clock import Clock

logger = logging.getLogger(__name__)

_CROWD_MEMORY_S = 0.003
_MOST_SYNCS = 16  # at a time, of one call with many partitions

Tell: TypeAlias = Callable[[LogStoreError | None], None]


class _Ticket:
    """One that waits: what it needs durable, and how it is told: by the lock its thread sleeps on, or by a call."""

    __slots__ = ("error", "lock", "tell", "wants")

    def __init__(self, wants: Sequence[tuple[OwnedLog, int]], tell: Tell | None = None) -> None:
        self.wants = wants
        self.error: LogStoreError | None = None
        self.lock = threading.Lock()
        self.lock.acquire()
        self.tell = tell

    def release(self) -> None:
        self.lock.release()
        if self.tell is not None:
            try:
                self.tell(self.error)
            except Exception:
                logger.exception("a callback of an append failed")


@compiled("partition.lone_commits")
class LoneCommits:
    """The commit of one log by a thread that is alone, as most are. ``_mutex`` guards the fields. ``_inside``: threads
    in ``commit``."""

    def __init__(self, clock: Clock, mutex: threading.Lock, threads: bool) -> None:
        self._clock = clock
        self._mutex = mutex
        self._threads = threads
        self._inside = 0
        self._crowded_until_s = 0.0

    if TYPE_CHECKING:

        def commit(self, wants: Sequence[tuple[OwnedLog, int]]) -> None: ...

    def commit_one(self, log: OwnedLog, target: int) -> None:
        """``commit`` of one log."""
        if not self._threads:
            if log.flushed_offset < target:
                log.sync()
            return
        with self._mutex:
            alone = self._inside == 0 and not self._is_crowded()
            self._inside += alone
        if not alone:
            self.commit([(log, target)])
            return
        try:
            if log.flushed_offset < target:
                log.sync()
        finally:
            with self._mutex:
                self._inside -= 1

    def _is_crowded(self) -> bool:
        """Whether a group was there a moment ago. The mutex is held."""
        if self._crowded_until_s == 0.0:
            return False
        if self._clock.monotonic_s() < self._crowded_until_s:
            return True
        self._crowded_until_s = 0.0
        return False


class Committer(LoneCommits):
    """``threads=False``: every commit syncs in its caller's thread, for simulators and single-threaded use. See
    ``LoneCommits`` for ``commit_one``."""

    def __init__(self, clock: Clock, *, threads: bool) -> None:
        super().__init__(clock, threading.Lock(), threads)
        self._wake = threading.Condition(self._mutex)
        self._queue: list[_Ticket] = []
        self._thread: threading.Thread | None = None
        self._closing = False
        self.groups = 0  # groups of two and more that shared a sync

    def commit(self, wants: Sequence[tuple[OwnedLog, int]]) -> None:
        """Return when each log is durable up to its offset. Raises what the sync raised.

        Errors: ``OutcomeUnknownError`` (a sync failed), ``PartitionPoisonedError`` (one had failed before).
        """
        if not self._threads:
            _sync_all(wants, 1)
            return
        with self._mutex:
            alone = self._inside == 0 and not self._is_crowded()
            self._inside += 1
            ticket = None
            if not alone and not self._closing:
                ticket = _Ticket(wants)
                self._queue.append(ticket)
                self._ensure_thread()
                self._wake.notify()
        try:
            if ticket is None:
                _sync_all(wants, _MOST_SYNCS)
            else:
                ticket.lock.acquire()
                if ticket.error is not None:
                    raise ticket.error
        finally:
            with self._mutex:
                self._inside -= 1

    def commit_later(self, wants: Sequence[tuple[OwnedLog, int]], tell: Tell) -> None:
        """As ``commit`` without a wait: ``tell`` is called with its error, or None, by the committer's thread."""
        ticket = _Ticket(wants, tell)
        if self._threads:
            with self._mutex:
                if not self._closing:
                    self._queue.append(ticket)
                    self._ensure_thread()
                    self._wake.notify()
                    return
        _sync_group([ticket])
        ticket.release()

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        with self._mutex:
            self._closing = True
            self._wake.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="logstore-committer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._mutex:
                while not self._queue:
                    if self._closing:
                        return
                    self._wake.wait()
                group, self._queue = self._queue, []
                if len(group) > 1:
                    self.groups += 1
                    self._crowded_until_s = self._clock.monotonic_s() + _CROWD_MEMORY_S
            try:
                _sync_group(group)
            except Exception as error:
                # Nothing but a fault of this program gets here. Those who wait are told, and the thread lives
                # on: whoever queues next must not wait for ever.
                logger.exception("a group commit failed")
                for ticket in group:
                    ticket.error = OutcomeUnknownError(f"the group commit failed: {error!r}")
            finally:
                for ticket in group:
                    ticket.release()


def _sync_all(wants: Sequence[tuple[OwnedLog, int]], threads: int) -> None:
    if len(wants) == 1:
        log, target = wants[0]
        if log.flushed_offset < target:
            log.sync()
        return
    if threads > 1 and len(wants) >= MANY:
        fan_out(_sync_up_to, wants, threads)
        return
    first: LogStoreError | None = None
    for log, target in wants:
        try:
            _sync_up_to((log, target))
        except LogStoreError as error:
            first = first or error
    if first is not None:
        raise first


def _sync_up_to(want: tuple[OwnedLog, int]) -> None:
    log, target = want
    if log.flushed_offset < target:
        log.sync()


def _sync_group(group: Sequence[_Ticket]) -> None:
    """Sync every log once; a log's failure reaches exactly the tickets that wanted it."""
    failed: dict[OwnedLog, LogStoreError] = {}
    for ticket in group:
        for log, target in ticket.wants:
            if log in failed:
                ticket.error = failed[log]
            elif log.flushed_offset < target:
                try:
                    log.sync()
                except LogStoreError as error:
                    failed[log] = ticket.error = error
