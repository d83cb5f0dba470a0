"""Which segments may go, and whether an idle active one rolls: pure, from facts and the time.

Size: the oldest closed segment goes only while what remains is still at least ``retention.bytes``. Time: a
segment goes when its largest timestamp is more than ``retention.ms`` ago; where all are before 1970, the file's
time counts, as in Kafka. Start: a segment wholly below the log start offset goes. Nothing at or past the high
watermark ever goes, and segments only go from the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

KEEP_ALL = -1


class SegmentFacts(NamedTuple):
    """One segment, oldest first. ``max_timestamp_ms``: what its age counts from (``Segment.newest_ms``), -1 if it
    holds no records; ``size`` in bytes."""

    base_offset: int
    next_offset: int
    size: int
    max_timestamp_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionRules:
    """``retention_ms``, ``retention_bytes``: -1 keeps all. ``deletes``: whether cleanup.policy has "delete";
    without it only what lies below the log start offset goes."""

    deletes: bool
    retention_ms: int
    retention_bytes: int
    segment_ms: int


Reason = Literal["", "start", "time", "size"]


class RetentionDecision(NamedTuple):
    """``drop``: how many segments go, from the oldest; ``log_start_offset``: what it is afterwards;
    ``roll``: close the active segment now; ``reasons``: why the segments go, in the order of their rules: below
    the log start offset, older than ``retention.ms``, beyond ``retention.bytes``."""

    drop: int
    log_start_offset: int
    roll: bool
    reasons: tuple[Reason, ...] = ()


def decide_retention(
    segments: Sequence[SegmentFacts],
    rules: RetentionRules,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    active_age_ms: int,
) -> RetentionDecision:
    """``active_age_ms``: how long ago the active segment was made, by monotonic time.

    The active segment itself never goes: when its time has come it is rolled, and goes at the next decision.
    """
    closed = segments[:-1]
    reasons: dict[Reason, None] = {}
    drop = 0
    remaining = sum(segment.size for segment in segments)
    while drop < len(closed) and closed[drop].next_offset <= high_watermark:
        remaining -= closed[drop].size
        reason = _why_gone(closed[drop], remaining, rules, log_start_offset, now_ms)
        if not reason:
            break
        reasons[reason] = None
        drop += 1
    start = max(log_start_offset, segments[drop].base_offset) if drop else log_start_offset
    roll = _must_roll(segments, rules, high_watermark, now_ms, active_age_ms)
    return RetentionDecision(drop, start, roll, tuple(reasons))


def _why_gone(
    segment: SegmentFacts, remaining: int, rules: RetentionRules, log_start_offset: int, now_ms: int
) -> Reason:
    """``remaining``: bytes of all later segments; "" if the segment stays."""
    if segment.next_offset <= log_start_offset:
        return "start"
    if not rules.deletes:
        return ""
    # A segment without any usable time has no age: it is kept until size or the start lets it go.
    if rules.retention_ms >= 0 and 0 <= segment.max_timestamp_ms < now_ms - rules.retention_ms:
        return "time"
    return "size" if 0 <= rules.retention_bytes <= remaining else ""


def _must_roll(
    segments: Sequence[SegmentFacts],
    rules: RetentionRules,
    high_watermark: int,
    now_ms: int,
    active_age_ms: int,
) -> bool:
    """An idle active segment is closed when its newest record is past retention, or when it is older than
    ``segment.ms``: else its records could neither go nor be compacted until somebody appends."""
    if not segments or segments[-1].size == 0 or segments[-1].next_offset > high_watermark:
        return False
    active = segments[-1]
    expired = (
        rules.deletes
        and rules.retention_ms >= 0
        and 0 <= active.max_timestamp_ms < now_ms - rules.retention_ms
    )
    return expired or active_age_ms > rules.segment_ms
