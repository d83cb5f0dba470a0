"""The facts that say whether a partition is to be cleaned, gathered from its files as seldom as can be.

A partition that nobody appends to is looked at once: afterwards its bounds are compared, no file is touched.
"""

from __future__ import annotations

from logstore.config import TopicConfig
from logstore.errors import from_os_error
from logstore.format.batch import HEADER_SIZE, read_header
from logstore.log.cleaning.cleanable import (
    NEVER,
    Cleanable,
    CleanRules,
    DirtySegment,
    PartitionFacts,
    decide_cleanable,
    first_dirty_offset,
)
from logstore.log.cleaning.cleaner_mark import read_whole_mark
from logstore.log.log_offsets import LogOffsets
from logstore.log.owned_log import OwnedLog
from logstore.log.read_only_log import ReadOnlyLog
from logstore.log.segments.segment import Segment
from logstore.log.segments.segment_list import SegmentList
from logstore.partition.cleaned_topic import CleanedTopic
from logstore.seams.fs import FileSystem
from logstore.upkeep.cleaning_ledger import SHORTEST_HORIZON_MS, CleaningLedger, Place

_Seen = tuple[object, ...]


class CleaningFacts:
    """One thread (the cleaner's), or a fresh one for each question."""

    def __init__(self, fs: FileSystem, ledger: CleaningLedger) -> None:
        self._fs = fs
        self._ledger = ledger
        self._known: dict[Place, tuple[_Seen, list[DirtySegment]]] = {}

    def decide(
        self,
        topic: CleanedTopic,
        partition: int,
        point: int,
        *,
        at: tuple[int, float],
        by_time: bool,
        unknown_in_ms: int = SHORTEST_HORIZON_MS,
    ) -> Cleanable:
        """What is cleanable now. ``point``: the cleaner point; ``at``: wall ms and monotonic s.
        ``unknown_in_ms``: when to look for tombstones of which no cleaning has told, from the first sight on.

        Errors: StorageError and its kin, CorruptBatchError."""
        config = topic.config
        now_ms, now_s = at
        log = topic.owned_log(partition) or topic.reader(partition)
        bounds = log.bounds()
        place = (topic.entry.topic_id, partition)
        segments = self._segments(place, log, bounds, point, config)
        facts = PartitionFacts(
            segments=segments,
            log_start_offset=bounds.log_start_offset,
            stable_end=min(bounds.last_stable_offset, bounds.high_watermark),
            cleaner_point=point,
            horizon_ms=self._horizon_ms(place, point, (log.directory, bounds), now_ms + unknown_in_ms),
            active_age_ms=_active_age_ms(log, segments, now_ms if by_time else -1, now_s),
        )
        return decide_cleanable(facts, rules_of(config, by_time), now_ms)

    def _horizon_ms(self, place: Place, point: int, log: tuple[str, LogOffsets], unknown_ms: int) -> int:
        directory, bounds = log
        if point <= bounds.log_start_offset:
            return NEVER  # nothing is clean, so no horizon was stamped
        return self._ledger.horizon_ms(
            place, point, lambda: read_whole_mark(self._fs, directory).horizon_ms, unknown_ms
        )

    def _segments(
        self,
        place: Place,
        log: OwnedLog | ReadOnlyLog,
        bounds: LogOffsets,
        point: int,
        config: TopicConfig,
    ) -> list[DirtySegment]:
        listed: SegmentList | None = log.segments if isinstance(log, OwnedLog) else None
        seen: _Seen = (listed, bounds, point, config.min_compaction_lag_ms > 0)
        known = self._known.get(place)
        if known is not None and known[0] == seen:
            return known[1]
        try:
            if isinstance(log, ReadOnlyLog):
                log.refresh()
            newest = config.min_compaction_lag_ms > 0
            found = log.look(lambda segments: segment_facts(segments, bounds, point, newest=newest))
        except OSError as error:
            raise from_os_error(error, "read", log.directory) from error
        self._known[place] = (seen, found)
        return found

    def keep_only(self, topic_ids: set[str]) -> None:
        """The topics that there are: what was known of others goes."""
        for place in [place for place in self._known if place[0] not in topic_ids]:
            del self._known[place]


def segment_facts(
    segments: SegmentList, bounds: LogOffsets, cleaner_point: int, *, newest: bool
) -> list[DirtySegment]:
    """``newest``: also the largest timestamp of each dirty segment. Raises ``OSError``."""
    listed = segments.segments
    bare = [
        DirtySegment(segment.base_offset, segment.next_offset, segment.size, -1, -1, number < len(listed) - 1)
        for number, segment in enumerate(listed)
    ]
    start = first_dirty_offset(bare, bounds.log_start_offset, cleaner_point)
    return [
        facts
        if facts.next_offset <= start or segment.size == 0
        else facts._replace(
            oldest_ms=_oldest_ms(segment),
            newest_ms=segment.max_timestamp(bounds.high_watermark) if newest and facts.closed else -1,
        )
        for facts, segment in zip(bare, listed, strict=True)
    ]


def _oldest_ms(segment: Segment) -> int:
    """Timestamp of the first batch, as rolling by time takes it."""
    if segment.first_timestamp_ms >= 0:
        return segment.first_timestamp_ms
    head = segment.bytes_at(0, HEADER_SIZE)
    return read_header(head).max_timestamp if len(head) == HEADER_SIZE else -1


def _active_age_ms(
    log: OwnedLog | ReadOnlyLog, segments: list[DirtySegment], now_ms: int, now_s: float
) -> int:
    """How old the active segment is: by monotonic time since it was made or opened here. Of a topic that another
    process wrote, as an append would take it, by its first record's timestamp: the processes that write may be
    too short-lived to see it grow old. ``now_ms``: -1 where the wall clock is not believed."""
    if isinstance(log, OwnedLog):
        active = log.segments.active
        return 0 if active is None or active.closed else round((now_s - active.active_since_s) * 1000)
    first_ms = segments[-1].oldest_ms if segments else -1
    return max(now_ms - first_ms, 0) if first_ms >= 0 else 0


def rules_of(config: TopicConfig, by_time: bool) -> CleanRules:
    return CleanRules(
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_lag_ms=config.min_compaction_lag_ms,
        max_lag_ms=config.max_compaction_lag_ms,
        segment_ms=config.segment_ms,
        by_time=by_time,
    )
