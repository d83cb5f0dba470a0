"""Retention carried out: decides per partition (``log.retention``), moves the start, retires segments.

Order, so that a crash leaves whole answers: the log start is raised and made durable first; only then do
segments leave the list and their files get renamed. What a crash leaves behind lies below the durable start,
and the next pass retires it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import NamedTuple

from logstore.config import TopicConfig
from logstore.directory.partition_folder import folder_is_mine
from logstore.errors import from_os_error
from logstore.log.cleaning.retention import (
    KEEP_ALL,
    Reason,
    RetentionDecision,
    RetentionRules,
    decide_retention,
)
from logstore.log.cleaning.retirement import DELETED_SUFFIX, Retirement
from logstore.log.owned_log import OwnedLog
from logstore.log.read_only_log import ReadOnlyLog
from logstore.log.segments.segment import Segment
from logstore.partition.context import StoreContext
from logstore.partition.topic import Topic
from logstore.upkeep.borrowed_topic import borrowed
from logstore.upkeep.clock_guard import ClockGuard

logger = logging.getLogger(__name__)

_WHY: Mapping[Reason, str] = {
    "start": "below the log start offset",
    "time": "older than retention.ms={config.retention_ms}",
    "size": "beyond retention.bytes={config.retention_bytes}",
}


class Retired(NamedTuple):
    """What a pass took out of a topic's logs; the files go when their ``file.delete.delay.ms`` is over."""

    segments: int = 0
    size_bytes: int = 0

    def plus(self, other: Retired) -> Retired:
        return Retired(self.segments + other.segments, self.size_bytes + other.size_bytes)


class RetentionTask:
    """Driven by the housekeeper; one thread."""

    def __init__(self, context: StoreContext, retirement: Retirement, guard: ClockGuard) -> None:
        self._context = context
        self._retirement = retirement
        self._guard = guard
        self._told_of_jump = False

    def look_at_clock(self) -> bool:
        """Once per pass: whether time-based retention may act in it."""
        steady = self._guard.steady()
        if self._guard.jump_ms and not self._told_of_jump:
            logger.error(
                "the wall clock jumped by %d ms: retention by time pauses until it is back, or the store is "
                "opened anew",
                self._guard.jump_ms,
            )
        self._told_of_jump = bool(self._guard.jump_ms)
        return steady

    @property
    def clock_jump_ms(self) -> int:
        return self._guard.jump_ms

    def pass_over(self, topic: Topic, *, by_time: bool) -> Retired:
        """One pass over an owned topic; what went. Errors are those of state and disk. To open a partition's log
        removes what its last owner had retired. A topic that another thread gives up meanwhile is left alone: to take
        it back, or to wait for its next owner, would keep all other topics from what they are due."""
        retired = Retired()
        if not topic.try_enter():
            return retired
        try:
            for partition in range(topic.entry.partitions):
                log = topic.owned_log(partition)
                if log is None and not self._has_folder(topic, partition):
                    continue
                log = topic.log(partition)
                if by_time:
                    log.expire_producers(self._context.clock.wall_ms())
                retired = retired.plus(self._one(topic, log, by_time))
        finally:
            topic.leave(counts_as_use=False)
        return retired

    def _has_folder(self, topic: Topic, partition: int) -> bool:
        directory = self._context.partition_directory(topic.name, partition)
        return folder_is_mine(self._context.fs, directory, topic.entry.topic_id)

    def _one(self, topic: Topic, log: OwnedLog, by_time: bool) -> Retired:
        if log.poisoned or _keeps_all(topic.config, log):
            return Retired()
        decision = self._decide(topic.config, log, by_time)
        if not decision.drop and not decision.roll:
            return Retired()
        with self._context.reserve.opened():
            if decision.roll:
                log.roll_idle()
                decision = self._decide(topic.config, log, by_time)
            return self._retire(topic, log, decision)

    def _retire(self, topic: Topic, log: OwnedLog, decision: RetentionDecision) -> Retired:
        if log.raise_start(decision.log_start_offset):
            topic.save_state()
            log.publish()
        if decision.drop:
            due_s = self._context.clock.monotonic_s() + topic.config.file_delete_delay_ms / 1000
            dropped = log.drop_front(decision.drop)
            try:
                self._retirement.retire(log.directory, dropped, due_s)
            except OSError as error:
                raise from_os_error(error, "retire segments of", log.directory) from error
            return self._told(log, dropped, decision, topic.config)
        return Retired()

    def _told(
        self, log: OwnedLog, dropped: tuple[Segment, ...], decision: RetentionDecision, config: TopicConfig
    ) -> Retired:
        """Of segments that went, in the log of this library and to the caller."""
        gone = Retired(len(dropped), sum(segment.size for segment in dropped))
        if dropped:
            logger.info(
                "%s: retention removed offsets %d to %d: %d segments, %d bytes, %s; the log starts at offset %d",
                log.where,
                dropped[0].base_offset,
                dropped[-1].next_offset - 1,
                *gone,
                " and ".join(_WHY[reason].format(config=config) for reason in decision.reasons),
                log.log_start_offset,
            )
        return gone

    def _decide(self, config: TopicConfig, log: OwnedLog | ReadOnlyLog, by_time: bool) -> RetentionDecision:
        clock, bounds = self._context.clock, log.bounds()
        active = log.segments.active
        age_s = clock.monotonic_s() - active.active_since_s if active is not None and not active.closed else 0
        try:
            facts = log.look(lambda segments: segments.facts(bounds.high_watermark))
        except OSError as error:
            raise from_os_error(error, "read", log.directory) from error
        return decide_retention(
            facts,
            RetentionRules(
                deletes=config.cleanup_policy.delete,
                retention_ms=config.retention_ms if by_time else KEEP_ALL,
                retention_bytes=config.retention_bytes,
                segment_ms=config.segment_ms,
            ),
            log_start_offset=bounds.log_start_offset,
            high_watermark=bounds.high_watermark,
            now_ms=clock.wall_ms(),
            active_age_ms=round(age_s * 1000) if isinstance(log, OwnedLog) else 0,
        )

    def look_after(self, topic: Topic, *, by_time: bool) -> Retired:
        """A pass over a topic that this process does not own, if there is something to do and no other process
        owns it either. Its next owner removes what a former one had retired."""
        if self.has_leftovers(topic) or self.would_retire(topic, by_time=by_time):
            with self._context.reserve.opened(), borrowed(topic) as mine:
                if mine:
                    retired = self.pass_over(topic, by_time=by_time)
                    self.sweep()  # what may go at once makes room for the topic's state
                    return retired
        return Retired()

    def has_leftovers(self, topic: Topic) -> bool:
        """Whether a partition of a topic that this process does not own holds retired files, which its last owner
        left behind, for longer than their delay. The folder's time of change is that of the last rename or a
        later one. A time that is none says nothing."""
        delay_ms, fs = topic.config.file_delete_delay_ms, self._context.fs
        for partition in range(topic.entry.partitions):
            directory = self._context.partition_directory(topic.name, partition)
            try:
                if not any(name.endswith(DELETED_SUFFIX) for name in fs.listdir(directory)):
                    continue
                changed_ms = fs.stat(directory).modified_ms
            except FileNotFoundError:
                continue  # no record was ever appended, or the topic was just deleted
            except OSError as error:
                raise from_os_error(error, "list", directory) from error
            if 0 <= changed_ms <= self._context.clock.wall_ms() - delay_ms:
                return True
        return False

    def would_retire(self, topic: Topic, *, by_time: bool) -> bool:
        """Whether a pass over a topic that nobody here owns would find work; takes no lock."""
        config = topic.config
        if not config.cleanup_policy.delete or (config.retention_ms < 0 and config.retention_bytes < 0):
            return False  # what lies below the log start waits for an owner
        for partition in range(topic.entry.partitions):
            if not self._has_folder(topic, partition):
                continue
            log = topic.reader(partition)
            if isinstance(log, ReadOnlyLog):
                log.refresh()
            decision = self._decide(topic.config, log, by_time)
            if decision.drop or decision.roll:
                return True
        return False

    def sweep(self) -> float | None:
        """Remove files whose delay is over; seconds until the next are due. On a full disk their delay is over at
        once: a reader that had just found one of them is told that it is gone."""
        now_s = self._context.clock.monotonic_s()
        try:
            if self._context.reserve.is_lost and self._retirement.waiting:
                logger.warning(
                    "the disk of %s is full: %d retired files are removed before their file.delete.delay.ms is over",
                    self._context.root,
                    self._retirement.waiting,
                )
                now_s = math.inf
            left_s = self._retirement.sweep(now_s)
        except OSError as error:
            raise from_os_error(error, "remove a retired file below", self._context.root) from error
        if now_s == math.inf:
            self._context.reserve.keep()
        return left_s


def _keeps_all(config: TopicConfig, log: OwnedLog) -> bool:
    """Whether a pass could not find anything to do, seen without a look at any segment."""
    if config.cleanup_policy.delete and (config.retention_ms >= 0 or config.retention_bytes >= 0):
        return False
    segments = log.segments.segments
    return len(segments) < 2 or segments[0].next_offset > log.log_start_offset
