"""The cleaner: compaction in the background, a slice at a time, one partition at a time.

Every ``check_s`` it looks at the compacted topics that are owned here or by nobody, and begins with the dirtiest
partition whose time has come. From then on it works ``SLICE_S`` and pauses so long that ``duty`` of the time is
work; flushes come first. A partition that fails is left alone for a while (``CleaningLedger.failed``); the
others go on. Driven by the housekeeper; one thread.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from logstore.errors import (
    LogStoreError,
    SegmentVanishedError,
    StoreClosedError,
    TopicLockedError,
    UnknownTopicError,
)
from logstore.log.cleaning.cleanable import Cleanable
from logstore.log.cleaning.cleaner_mark import read_mark
from logstore.log.cleaning.cleaning import CleanResult
from logstore.partition.cleaned_topic import CleanedTopic
from logstore.types import PartitionCompaction
from logstore.upkeep.borrowed_topic import give_back
from logstore.upkeep.cleaning_facts import CleaningFacts
from logstore.upkeep.cleaning_ledger import SHORTEST_HORIZON_MS
from logstore.upkeep.cleaning_run import CleaningKit, CleaningRun

logger = logging.getLogger(__name__)

# About what a step takes: a slice is one or two of them, as long as an appending thread may have to wait.
SLICE_S: Final = 0.0001
SHORTEST_SLICE_S: Final = SLICE_S / 10
DRAIN_SLICE_S: Final = 0.02  # where no thread waits for the next flush
DEFAULT_DUTY: Final = 0.1
CHECK_S: Final = 15.0  # Kafka's log.cleaner.backoff.ms
# A topic that was taken just to be cleaned keeps other processes out meanwhile: that is to be over soon.
BORROWED_DUTY: Final = 0.5
# Processes wait for a topic that is kept for its cleaning: no pauses, and slices as long as an append may wait there.
KEEPING_SLICE_S: Final = 0.005
# Not the partition's fault: it is looked at again at the next check.
_PASSING = (SegmentVanishedError, StoreClosedError, TopicLockedError, UnknownTopicError)


class _Candidate(NamedTuple):
    topic: CleanedTopic
    partition: int
    found: Cleanable


class Cleaner:
    """``topics``: compacted ones, whoever owns them. ``duty``: share of the time that a cleaning may take."""

    def __init__(
        self,
        kit: CleaningKit,
        topics: Callable[[], Sequence[CleanedTopic]],
        *,
        duty: float = DEFAULT_DUTY,
        check_s: float = CHECK_S,
    ) -> None:
        self._kit = kit
        self._topics = topics
        self._duty = duty
        self._check_s = check_s
        self._slice_s = SLICE_S
        self._unknown_in_ms = SHORTEST_HORIZON_MS
        self._largest_bytes = math.inf
        self._observe: Callable[[CleaningRun, CleanResult], None] | None = None
        self.too_large: set[str] = set()  # topics of the last check that would take more than ``drain`` may
        self.passed_on: set[str] = set()  # topics that ``drain`` gave up to a process that waited
        self._facts = CleaningFacts(kit.context.fs, kit.ledger)
        self._run: CleaningRun | None = None
        self._borrowed_at_s: float | None = None  # when the topic of the run was taken, if just for it
        self._looked = False
        self._next_slice_s = 0.0
        self._next_check_s = 0.0

    def step(self, flush_in_s: float | None) -> float | None:
        """Do what is due; seconds until more is, None if nothing will be by itself. ``flush_in_s``: until the
        next timed flush, which a slice should not make late."""
        clock = self._kit.context.clock
        run = self._run
        if run is None or run.ended:
            self._run = None
            if not self._topics():
                return None
            wait = self._next_check_s - clock.monotonic_s()
            if wait > 0:
                return wait
            self._next_check_s = clock.monotonic_s() + self._check_s
            self._run = run = self._begin()
            if run is None:
                return self._check_s
            self._next_slice_s = 0.0
        now_s = clock.monotonic_s()
        if now_s < self._next_slice_s:
            return self._next_slice_s - now_s
        keeps = run.keeps_topic()
        slice_s = max(self._slice_s, KEEPING_SLICE_S) if keeps else self._slice_s
        flush_s = slice_s if flush_in_s is None else flush_in_s
        if self._slice(run, max(min(slice_s, flush_s), SHORTEST_SLICE_S)):
            self._next_check_s = clock.monotonic_s()  # there may be more to do
        worked_s = max(clock.monotonic_s() - now_s, SLICE_S)
        duty = self._duty if self._borrowed_at_s is None else max(self._duty, BORROWED_DUTY)
        duty = 1.0 if keeps else duty
        if run.ended:
            self._give_back(run.topic)
        pause_s = worked_s * (1 - duty) / duty
        self._next_slice_s = clock.monotonic_s() + pause_s
        self._next_check_s = max(self._next_check_s, self._next_slice_s)
        return pause_s

    def drain(
        self,
        until_s: float,
        observe: Callable[[CleaningRun, CleanResult], None],
        *,
        largest_bytes: float = math.inf,
    ) -> str | None:
        """Clean all that is due, one partition after the other, without pauses; this object is of no more use in the
        background afterwards. ``largest_bytes``: what takes more is left alone. A topic that another process waits
        for is given up to it after a short turn, its cleaning ended early (``passed_on``). A cleaning that is under
        way at ``until_s`` is ended early: the name of its topic, None if there was none."""
        clock = self._kit.context.clock
        self._duty, self._slice_s, self._unknown_in_ms = 1.0, DRAIN_SLICE_S, 0
        self._largest_bytes, self._observe = largest_bytes, observe
        self._looked, self._next_check_s, self._next_slice_s = True, 0.0, 0.0
        while clock.monotonic_s() < until_s:
            self.step(None)
            if self._run is None:
                return None
            topic = self._run.topic
            if not self._run.ended and topic.pass_on():
                self.passed_on.add(topic.name)
                self._give_back(topic)
        run = self._run
        if run is None or run.ended:
            return None
        run.end_early()
        self._give_back(run.topic)
        return run.topic.name

    def _slice(self, run: CleaningRun, budget_s: float) -> bool:
        """True if the cleaning came to an end after which another one may begin at once."""
        topic = run.topic
        if not topic.config.cleanup_policy.compact:
            run.end_early()
            return False
        if not topic.try_enter():
            # Whoever gives the topic up ends the run first; one that was dropped without that is not ours to end.
            if not topic.owned:
                self._run = None
            return False
        try:
            result = run.slice(budget_s)
            if result is not None and self._observe is not None:
                self._observe(run, result)
            return result is not None
        except LogStoreError as error:
            return self._note(run.where, run.place, error)
        finally:
            topic.leave(counts_as_use=False)

    def _give_back(self, topic: CleanedTopic) -> None:
        """Release a topic that was taken just to be cleaned, unless it has been used since."""
        borrowed_at_s, self._borrowed_at_s = self._borrowed_at_s, None
        if borrowed_at_s is not None:
            give_back(topic, borrowed_at_s)

    def _note(self, where: str, place: tuple[str, int], error: LogStoreError) -> bool:
        """True if the partition is left alone from now on."""
        if isinstance(error, _PASSING):
            return False
        now_s = self._kit.context.clock.monotonic_s()
        trouble = self._kit.ledger.failed(place, error, now_s)
        logger.error(
            "cleaning of %s failed (%d in a row), tried again in %.0f s: %s",
            where,
            trouble.failures,
            trouble.retry_at_s - now_s,
            error,
        )
        return True

    # --- which is next ---

    def _begin(self) -> CleaningRun | None:
        """Start on the dirtiest partition that is due; another one if that cannot be had."""
        by_time = self._kit.look_at_clock()
        topics = self._topics()
        self._facts.keep_only({topic.entry.topic_id for topic in topics})
        if not self._looked:
            # Who opens a store for a moment does not begin with other people's topics.
            self._looked = True
            topics = [topic for topic in topics if topic.owned]
        due = [found for topic in topics for found in self._due_of(topic, by_time)]
        for candidate in sorted(due, key=_urgency, reverse=True):
            run = self._started(candidate, by_time)
            if run is not None:
                return run
            self._give_back(candidate.topic)
        return None

    def _due_of(self, topic: CleanedTopic, by_time: bool) -> list[_Candidate]:
        """Partitions of one topic that are due, or whose active segment has to be rolled."""
        if not topic.config.cleanup_policy.compact or topic.cleaning is not None:
            return []
        due: list[_Candidate] = []
        try:
            points = topic.cleaner_points()
        except LogStoreError as error:
            logger.warning("the state of topic %s cannot be read: %s", topic.name, error)
            return due
        now_s = self._kit.context.clock.monotonic_s()
        for partition in range(topic.entry.partitions):
            place = (topic.entry.topic_id, partition)
            trouble = self._kit.ledger.trouble(place)
            if trouble is not None and now_s < trouble.retry_at_s:
                continue
            try:
                found = self._look(topic, partition, points.get(partition, 0), by_time)
            except LogStoreError as error:
                self._note(f"{topic.name}-{partition}", place, error)
                continue
            if found.due and found.dirty_bytes + found.clean_bytes > self._largest_bytes:
                self.too_large.add(topic.name)
            elif found.due or found.roll:
                due.append(_Candidate(topic, partition, found))
        return due

    def _look(self, topic: CleanedTopic, partition: int, point: int, by_time: bool) -> Cleanable:
        at = (self._kit.believed_ms(), self._kit.context.clock.monotonic_s())
        unknown_in_ms = self._unknown_in_ms
        return self._facts.decide(
            topic, partition, point, at=at, by_time=by_time, unknown_in_ms=unknown_in_ms
        )

    def _started(self, candidate: _Candidate, by_time: bool) -> CleaningRun | None:
        topic, partition, found = candidate
        place = (topic.entry.topic_id, partition)
        borrowed = not topic.owned and not topic.shared  # a shared one keeps nobody out
        try:
            if not topic.own_if_free() or not topic.try_enter():
                return None
            self._borrowed_at_s = topic.last_used_s if borrowed else None
        except LogStoreError as error:
            self._note(f"{topic.name}-{partition}", place, error)
            return None
        try:
            log = topic.log(partition)
            if log.poisoned:
                return None
            if found.roll:
                log.roll_idle()
            # Looked at anew: what was seen may have been another process's, before it was ours.
            found = self._look(topic, partition, log.cleaner_point, by_time)
            if not found.due:
                return None
            return self._kit.start(topic, partition, (found.start_offset, found.end_offset))
        except LogStoreError as error:
            self._note(f"{topic.name}-{partition}", place, error)
            return None
        finally:
            topic.leave(counts_as_use=False)

    # --- what others may know ---

    def describe(self, topic: CleanedTopic, partition: int, points: Mapping[int, int]) -> PartitionCompaction:
        """For a description; takes no lock. Errors as of reading the partition."""
        kit, clock, point = self._kit, self._kit.context.clock, points.get(partition, 0)
        place = (topic.entry.topic_id, partition)
        at = (clock.wall_ms(), clock.monotonic_s())
        found = CleaningFacts(kit.context.fs, kit.ledger).decide(topic, partition, point, at=at, by_time=True)
        run, trouble = topic.cleaning, kit.ledger.trouble(place)
        mine = isinstance(run, CleaningRun) and run.partition == partition and not run.ended
        mark = read_mark(kit.context.fs, topic.reader(partition).directory)
        clean_to = min(point, found.start_offset)
        return PartitionCompaction(
            cleaner_point=clean_to,
            dirty_bytes=found.dirty_bytes,
            dirty_ratio=found.dirty_ratio,
            exact_from=max(clean_to, mark),
            running=run.progress if mine and isinstance(run, CleaningRun) else None,
            last=kit.ledger.last(place),
            error=None if trouble is None else trouble.message,
            retry_in_s=None if trouble is None else max(trouble.retry_at_s - at[1], 0.0),
        )

    def metrics(self) -> dict[str, float]:
        run = self._run
        return {
            "logstore_cleaning_running": float(run is not None and not run.ended),
            **self._kit.ledger.metrics(),
        }


def _urgency(candidate: _Candidate) -> tuple[bool, bool, float]:
    """By dirty ratio; what is due for a horizon alone, and what is only to be rolled, comes last."""
    found = candidate.found
    return found.due, found.reason != "horizon", found.dirty_ratio
