"""The store's background work, in steps: timed flush, recovery points, retention, compaction, transactions that
nobody ends, release of idle topics.

``step()`` does what is due and says how long nothing will be; a thread of the store only drives it (a
simulator calls it itself). Nothing owned, unsynced, to retain or to clean means no wake-ups at all.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

from logstore.errors import (
    LogStoreError,
    StoreClosedError,
    StoreNotFoundError,
    StoreReplacedError,
    UnknownTopicError,
)
from logstore.log.owned_log import OwnedLog
from logstore.ownership.topic_turn import LOOK_S as TURN_LOOK_S
from logstore.partition.topic import Topic
from logstore.seams.clock import Clock
from logstore.seams.step_thread import Complaints, StepThread
from logstore.upkeep.cleaner import Cleaner
from logstore.upkeep.retention_task import RetentionTask

logger = logging.getLogger(__name__)

CHECKPOINT_S = 5.0
_VANISHED = (StoreNotFoundError, StoreReplacedError)
LOOK_S = 1.0  # how soon settings changed by another process reach an owner


class Chore(Protocol):
    """``step``: what is due; seconds until the next step is, None: nothing will be by itself."""

    def step(self) -> float | None: ...


class TransactionChores(Chore, Protocol):
    """What the housekeeper knows of transactions."""

    def holds(self, topic: str) -> bool:
        """Whether an open transaction is in the topic, so that it is not idle."""
        ...


class Housekeeper:
    """``topics``: the store's open topics; ``retained``: all topics whose settings let segments go, whoever owns
    them; ``look_for_changes``: of the catalogue; ``idle_release_s``: after how long an unused topic is given up;
    ``any_wanted``: whether a process may wait for any topic; ``retention_check_s``: how often retention looks."""

    def __init__(
        self,
        clock: Clock,
        topics: Callable[[], list[Topic]],
        retained: Callable[[], list[Topic]],
        look_for_changes: Callable[[], None],
        retention: Callable[[], RetentionTask],
        cleaner: Callable[[], Cleaner],
        transactions: Callable[[], TransactionChores],
        offsets: Callable[[], Chore],
        any_wanted: Callable[[], bool],
        *,
        threads: bool,
        idle_release_s: float,
        retention_check_s: float,
    ) -> None:
        self._retained = retained
        self._retention_task = retention
        self._cleaner = cleaner
        self._transactions = transactions
        self._offsets = offsets
        self._any_wanted = any_wanted
        self._can_pass_on = False  # whether a topic is owned that may be given up to a process that waits
        self._next_turn_s = 0.0
        self._retention_check_s = retention_check_s
        self._next_retention_s = 0.0
        self._clock = clock
        self._look_for_changes = look_for_changes
        self._last_look_s = 0.0
        self._next_pass_s = 0.0  # when the thread does all that is due again; only the cleaner works before
        self._next_cleaning_s = 0.0  # when the cleaner wants to work next, by its own word
        self._asked = True  # to do so at once
        self._topics = topics
        self._idle_release_s = idle_release_s
        self._dirty: dict[OwnedLog, None] = {}  # in the order in which they became so: a set has none
        self._dirty_lock = threading.Lock()
        self._thread = StepThread("logstore-housekeeper", lambda: self.wake_up(), enabled=threads)
        self._complaints = Complaints(logger, "housekeeping of")
        self._vanished = False  # the directory is gone: there is nothing left to look after

    # --- called by writers ---

    def note_dirty(self, log: OwnedLog) -> None:
        """``log`` has unsynced records; called under its lock, so it must stay cheap."""
        with self._dirty_lock:
            self._dirty[log] = None
        if log.dirty_since_s + log.config.flush_ms / 1000 < self._next_pass_s:
            self._asked = True
            self._thread.wake()

    def longest_dirty(self, count: int) -> list[OwnedLog]:
        """Up to ``count`` logs with unsynced records, those that have had them longest first."""
        with self._dirty_lock:
            return list(islice((log for log in self._dirty if log.dirty and not log.poisoned), count))

    def note_owned(self) -> None:
        """A topic was taken: from now on there is something to look after."""
        self._asked = True
        self._thread.start()

    # --- the work ---

    def wake_up(self) -> float | None:
        """``step`` if it is time for that, else what is due of two things alone: a slice of cleaning, as those come
        hundreds a second, and a look at all the rest would cost the threads that write as much as the slice; and the
        look for processes that wait, which comes twenty times a second also where nothing happens. Seconds as
        ``step``."""
        if self._vanished:
            return None
        now_s = self._clock.monotonic_s()
        left_s = self._next_pass_s - now_s
        if self._asked or left_s <= 0:
            return self.step()
        turn = self._pass_on(now_s)
        cleaning_s = self._next_cleaning_s - now_s
        if turn is not None and cleaning_s > 0:
            return min(turn, cleaning_s, left_s)
        cleaning = self._clean(left_s)
        left_s = self._until_pass(left_s, cleaning)
        self._next_pass_s = now_s + left_s
        return _soonest([cleaning, turn, None if left_s == math.inf else left_s])

    def step(self) -> float | None:
        """Do all that is due; seconds until the next thing is, None if nothing will be by itself."""
        if self._vanished:
            return None
        self._next_pass_s = math.inf  # a log that becomes dirty from here on may not be seen by this step
        self._asked = False
        now_s = self._clock.monotonic_s()
        self._next_turn_s = now_s
        turn = self._pass_on(now_s)
        due = [self._flush_due(now_s), self._look_after_topics(now_s), self._retain(now_s)]
        due += [self._end_transactions(), self._expire_offsets()]
        left_s = _soonest(due)
        cleaning = self._clean(due[0])
        left_s = self._until_pass(math.inf if left_s is None else left_s, cleaning)
        self._next_pass_s = now_s + left_s
        if self._can_pass_on and turn is None:
            turn = TURN_LOOK_S
        return _soonest([cleaning, turn, None if left_s == math.inf else left_s])

    def _pass_on(self, now_s: float) -> float | None:
        """Give topics up that other processes wait for; seconds until the next look, None: none is needed. One
        question for all topics, many times a second: a process that waits has no other way to be heard."""
        if not self._can_pass_on:
            return None
        if now_s < self._next_turn_s:
            return self._next_turn_s - now_s
        self._next_turn_s = now_s + TURN_LOOK_S
        if self._guarded("the locks", self._any_wanted):
            for topic in self._topics():
                if topic.owned:
                    self._guarded(topic.name, topic.pass_on)
        return TURN_LOOK_S

    @staticmethod
    def _until_pass(left_s: float, cleaning: float | None) -> float:
        """Beside a cleaning a pass comes soon: what it does, as retiring files, brings work that nobody asks for."""
        return left_s if cleaning is None or cleaning >= LOOK_S else min(left_s, LOOK_S)

    def _flush_due(self, now_s: float) -> float | None:
        with self._dirty_lock:
            logs = tuple(self._dirty)
        wait: float | None = None
        for log in logs:
            with self._dirty_lock:
                clean = not log.dirty
                if clean or log.poisoned:
                    self._dirty.pop(log, None)
            if log.poisoned:
                continue
            flush_s = log.config.flush_ms / 1000
            left = flush_s if clean else log.dirty_since_s + flush_s - now_s
            # Clean again: somebody appends and syncs. It will be dirty again soon, and must not wake the
            # thread each time, which would cost every durable record a change of threads.
            if left <= 0 and not clean:
                self._guarded(log.where, log.sync)
                left = flush_s  # appended to meanwhile, or it failed: looked at again
            wait = left if wait is None else min(wait, left)
        return wait

    def _look_after_topics(self, now_s: float) -> float | None:
        topics = [topic for topic in self._topics() if topic.owned]
        self._can_pass_on = any(not topic.pinned for topic in topics)
        if not topics:
            return None
        if now_s - self._last_look_s >= LOOK_S:
            self._last_look_s = now_s
            self._guarded("the catalogue", self._look_for_changes)
        wait = LOOK_S
        for topic in topics:
            left = topic.last_checkpoint_s + CHECKPOINT_S - now_s
            if left <= 0:
                self._guarded(topic.name, topic.checkpoint)
                left = CHECKPOINT_S
            if not topic.pinned and topic.cleaning is None and not self._transactions().holds(topic.name):
                idle_left = topic.last_used_s + self._idle_release_s - now_s
                if idle_left <= 0 and self._release_idle(topic):
                    continue
                left = min(left, max(idle_left, 0.01))
            wait = min(wait, left)
        return wait

    def _retain(self, now_s: float) -> float | None:
        """Retention over owned topics, and over retained ones that nobody owns; removal of retired files."""
        retention = self._retention_task()
        owned = [topic for topic in self._topics() if topic.owned]
        retained = self._guarded("topics with retention", self._retained)
        readable = isinstance(retained, list)  # else the catalogue is not: it is looked at again
        others = [topic for topic in retained if not topic.owned] if isinstance(retained, list) else []
        wait: float | None = None
        if owned or others or not readable:
            wait = self._next_retention_s - now_s
            if wait <= 0:
                self._retention_pass(retention, owned, others)
                self._next_retention_s = now_s + self._retention_check_s
                wait = self._retention_check_s
        sweep = self._guarded("retired files", retention.sweep)
        if isinstance(sweep, float):
            wait = max(sweep, 0.01) if wait is None else min(wait, max(sweep, 0.01))
        return wait

    def _retention_pass(self, retention: RetentionTask, owned: list[Topic], others: list[Topic]) -> None:
        by_time = retention.look_at_clock()
        for topic in owned:
            self._guarded(topic.name, lambda topic=topic: retention.pass_over(topic, by_time=by_time))  # type: ignore[misc]
        for topic in others:
            self._guarded(topic.name, lambda topic=topic: retention.look_after(topic, by_time=by_time))  # type: ignore[misc]

    def _end_transactions(self) -> float | None:
        """What nobody else ends."""
        wait = self._guarded("transactions", lambda: self._transactions().step())
        return wait if isinstance(wait, float) else None

    def _expire_offsets(self) -> float | None:
        """Those of groups that have long been without members."""
        wait = self._guarded("expired offsets", lambda: self._offsets().step())
        return wait if isinstance(wait, float) else None

    def _clean(self, flush_in_s: float | None) -> float | None:
        """A slice of compaction, after what is more urgent."""
        wait = self._guarded("compacted topics", lambda: self._cleaner().step(flush_in_s))
        self._next_cleaning_s = self._clock.monotonic_s() + (wait if isinstance(wait, float) else math.inf)
        return wait if isinstance(wait, float) else None

    def _release_idle(self, topic: Topic) -> object:
        return self._guarded(topic.name, lambda: topic.idle_release(self._idle_release_s))

    def _guarded(self, what: str, work: Callable[[], object]) -> object:
        """One failing log or topic must not stop the others. Its writers get the error by themselves (a
        failed sync poisons the log); here it is logged, once for each kind and place. Where the directory was removed
        everything fails: that is said once, and ends it all."""
        if self._vanished:
            return None
        try:
            return work()
        except StoreClosedError:
            return None  # the store is closing: there is nothing left to look after
        except UnknownTopicError as error:
            logger.debug("housekeeping of %s ended: another process deleted the topic: %s", what, error)
            return None
        except LogStoreError as error:
            if not self._notice_vanished(error):
                self._complaints.tell(what, error)
            return None

    def _notice_vanished(self, error: LogStoreError) -> bool:
        """Whether the store's directory is gone, or another store's, which is why the work failed."""
        if not isinstance(error, _VANISHED):
            try:
                self._look_for_changes()
            except _VANISHED as found:
                error = found
            except LogStoreError:
                return False  # a fault of another kind, which the next look at the catalogue tells
            else:
                return False
        self._vanished = True
        logger.warning("housekeeping ends: %s", error)
        return True

    def close(self) -> None:
        self._thread.close()


def _soonest(waits: Iterable[float | None]) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)
