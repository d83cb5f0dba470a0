"""Retention carried out: decides per partition (``log.retention``), moves the start, retires segments.

Order, so that a crash leaves whole answers: the log start is raised and made durable first; only then do
segments leave the list and their files get renamed. What a crash leaves behind lies below the durable start,
and the next pass retires it.
"""

from __future__ import annotations

import logging

from logstore.config import TopicConfig
from logstore.directory.partition_folder import folder_is_mine
from logstore.errors import from_os_error
from logstore.log.cleaning.retention import KEEP_ALL, RetentionDecision, RetentionRules, decide_retention
from logstore.log.cleaning.retirement import Retirement
from logstore.log.owned_log import OwnedLog
from logstore.log.read_only_log import ReadOnlyLog
from logstore.partition.context import StoreContext
from logstore.partition.topic import Topic
from logstore.upkeep.clock_guard import ClockGuard

logger = logging.getLogger(__name__)


class RetentionTask:
    """Driven by the housekeeper; one thread."""

    def __init__(self, context: StoreContext, retirement: Retirement) -> None:
        self._context = context
        self._retirement = retirement
        self._guard = ClockGuard()
        self._told_of_jump = False

    def look_at_clock(self) -> bool:
        """Once per pass: whether time-based retention may act in it."""
        clock = self._context.clock
        steady = self._guard.steady(clock.wall_ms(), clock.monotonic_s())
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

    def pass_over(self, topic: Topic, *, by_time: bool) -> int:
        """One pass over an owned topic; how many segments went. Errors are those of state and disk."""
        retired = 0
        with topic.using(counts_as_use=False):
            for partition in range(topic.entry.partitions):
                log = topic.owned_log(partition)
                if log is None and not self._has_folder(topic, partition):
                    continue
                retired += self._one(topic, topic.log(partition), by_time)
        return retired

    def _has_folder(self, topic: Topic, partition: int) -> bool:
        directory = self._context.partition_directory(topic.name, partition)
        return folder_is_mine(self._context.fs, directory, topic.entry.topic_id)

    def _one(self, topic: Topic, log: OwnedLog, by_time: bool) -> int:
        if log.poisoned or _keeps_all(topic.config, log):
            return 0
        decision = self._decide(topic.config, log, by_time)
        if decision.roll:
            log.roll_idle()
            decision = self._decide(topic.config, log, by_time)
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
            return len(dropped)
        return 0

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
        """Remove files whose delay is over; seconds until the next are due."""
        try:
            return self._retirement.sweep(self._context.clock.monotonic_s())
        except OSError as error:
            raise from_os_error(error, "remove a retired file below", self._context.root) from error


def _keeps_all(config: TopicConfig, log: OwnedLog) -> bool:
    """Whether a pass could not find anything to do, seen without a look at any segment."""
    if config.cleanup_policy.delete and (config.retention_ms >= 0 or config.retention_bytes >= 0):
        return False
    segments = log.segments.segments
    return len(segments) < 2 or segments[0].next_offset > log.log_start_offset
