"""What of a partition may be cleaned, and whether it is time: pure, from facts and the clock.

A compacted log is clean up to its cleaner point and dirty behind it. Closed segments that lie wholly below the
last stable offset, and hold nothing younger than ``min.compaction.lag.ms``, may be cleaned. It is time when the
dirty share of what would be cleaned reaches ``min.cleanable.dirty.ratio``, when a dirty record is older than
``max.compaction.lag.ms`` (KIP-354), or when a tombstone of an earlier cleaning may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

NEVER = -1


class DirtySegment(NamedTuple):
    """One segment, oldest first. ``oldest_ms``: timestamp of its first batch (-1: it has none, or it was not
    looked at because the segment is clean); ``newest_ms``: its largest timestamp, -1 none."""

    base_offset: int
    next_offset: int
    size: int
    oldest_ms: int
    newest_ms: int
    closed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionFacts:
    """``stable_end``: the smaller of last stable offset and high watermark. ``horizon_ms``: when a cleaning
    would find a tombstone or marker to remove, ``NEVER`` if none waits."""

    segments: Sequence[DirtySegment]
    log_start_offset: int
    stable_end: int
    cleaner_point: int
    horizon_ms: int
    active_age_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanRules:
    """The topic's settings, by their names. ``by_time``: whether the wall clock may be believed: without it
    nothing is done for its sake (lags count as not reached, horizons as not passed)."""

    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    segment_ms: int
    by_time: bool


Reason = Literal["", "ratio", "lag", "horizon"]


class Cleanable(NamedTuple):
    """``start_offset``: first dirty offset; ``end_offset``: first one that may not be cleaned. ``reason``: why
    it is time, "" if it is not. ``roll``: close the active segment now, so that its dirt can be cleaned."""

    start_offset: int
    end_offset: int
    dirty_bytes: int
    clean_bytes: int
    reason: Reason
    roll: bool

    @property
    def due(self) -> bool:
        return self.reason != ""

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes by all bytes that a cleaning would go through; 0 where there are none."""
        total = self.dirty_bytes + self.clean_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty_offset(segments: Sequence[DirtySegment], log_start_offset: int, cleaner_point: int) -> int:
    """The cleaner point, made to fit: not below the front of the log, and the front if it lies past all that is
    closed (the log was cut or replaced since, so nothing is known to be clean)."""
    if not segments:
        return log_start_offset
    closed_end = segments[-1].next_offset if segments[-1].closed else segments[-1].base_offset
    front = max(segments[0].base_offset, min(log_start_offset, closed_end))
    return front if not front <= cleaner_point <= closed_end else cleaner_point


def decide_cleanable(facts: PartitionFacts, rules: CleanRules, now_ms: int) -> Cleanable:
    start = first_dirty_offset(facts.segments, facts.log_start_offset, facts.cleaner_point)
    end = _end(facts, rules, start, now_ms)
    inside = [segment for segment in facts.segments if segment.next_offset <= end]
    dirty = [segment for segment in inside if segment.next_offset > start]
    dirty_bytes = sum(segment.size for segment in dirty)
    clean_bytes = sum(segment.size for segment in inside) - dirty_bytes
    found = Cleanable(start, end, dirty_bytes, clean_bytes, "", _must_roll(facts, rules, now_ms))
    if dirty_bytes:
        if found.dirty_ratio >= rules.min_dirty_ratio:
            return found._replace(reason="ratio")
        if rules.by_time and any(0 <= segment.oldest_ms < now_ms - rules.max_lag_ms for segment in dirty):
            return found._replace(reason="lag")
    if rules.by_time and inside and facts.horizon_ms != NEVER and facts.horizon_ms <= now_ms:
        return found._replace(reason="horizon")
    return found


def _end(facts: PartitionFacts, rules: CleanRules, start: int, now_ms: int) -> int:
    """Base of the first segment that may not be cleaned; never below ``start``."""
    end = start
    for segment in facts.segments:
        if not segment.closed or segment.next_offset > facts.stable_end:
            break
        if segment.next_offset > start and _too_young(segment, rules, now_ms):
            break
        end = max(end, segment.next_offset)
    return end


def _too_young(segment: DirtySegment, rules: CleanRules, now_ms: int) -> bool:
    """Whether ``min.compaction.lag.ms`` keeps the segment. A clock that is not believed lets nothing be old."""
    if rules.min_lag_ms == 0:
        return False
    return not rules.by_time or segment.newest_ms > now_ms - rules.min_lag_ms


def _must_roll(facts: PartitionFacts, rules: CleanRules, now_ms: int) -> bool:
    """An active segment nobody appends to is closed when it is older than ``segment.ms``, or holds a record past
    ``max.compaction.lag.ms``: all of it is dirty, and would stay so until somebody appends."""
    active = facts.segments[-1] if facts.segments else None
    if active is None or active.closed or active.size == 0 or active.next_offset > facts.stable_end:
        return False
    past_lag = rules.by_time and 0 <= active.oldest_ms < now_ms - rules.max_lag_ms
    return past_lag or facts.active_age_ms > rules.segment_ms
