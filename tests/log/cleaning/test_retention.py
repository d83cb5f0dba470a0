"""Retention decided purely: sizes, times and starts, against what the words say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.log.cleaning.retention import (
    KEEP_ALL,
    RetentionDecision,
    RetentionRules,
    SegmentFacts,
    decide_retention,
)

NOW_MS = 1_000_000
DAY_MS = 86_400_000


def facts(*rows: tuple[int, int]) -> list[SegmentFacts]:
    """Segments of ten records each: (size, largest timestamp)."""
    return [
        SegmentFacts(10 * number, 10 * number + 10, size, newest)
        for number, (size, newest) in enumerate(rows)
    ]


def decide(
    segments: list[SegmentFacts],
    *,
    retention_ms: int = KEEP_ALL,
    retention_bytes: int = KEEP_ALL,
    deletes: bool = True,
    start: int = 0,
    high_watermark: int | None = None,
    active_age_ms: int = 0,
) -> RetentionDecision:
    return decide_retention(
        segments,
        RetentionRules(
            deletes=deletes, retention_ms=retention_ms, retention_bytes=retention_bytes, segment_ms=DAY_MS
        ),
        log_start_offset=start,
        high_watermark=segments[-1].next_offset if high_watermark is None else high_watermark,
        now_ms=NOW_MS,
        active_age_ms=active_age_ms,
    )


THREE = facts((100, 10), (100, 20), (50, NOW_MS))


def test_without_limits_everything_stays() -> None:
    assert decide(THREE) == (0, 0, False, ())


def test_by_size_what_remains_is_never_below_the_limit() -> None:
    assert decide(THREE, retention_bytes=150).drop == 1
    assert decide(THREE, retention_bytes=151).drop == 0
    assert decide(THREE, retention_bytes=50).drop == 2
    assert decide(THREE, retention_bytes=0).drop == 2, "the active segment stays"


def test_by_time_old_segments_go_from_the_front_only() -> None:
    assert decide(THREE, retention_ms=NOW_MS - 15).drop == 1
    assert decide(facts((9, NOW_MS), (9, 1), (9, NOW_MS)), retention_ms=100).drop == 0
    assert decide(facts((9, -1), (9, 1), (9, NOW_MS)), retention_ms=100).drop == 0, "no timestamp, no age"


def test_the_start_lets_segments_go_whatever_the_policy() -> None:
    assert decide(THREE, start=20, deletes=False) == (2, 20, False, ("start",))
    assert decide(THREE, start=19, deletes=False) == (1, 19, False, ("start",))


def test_nothing_goes_past_the_high_watermark() -> None:
    assert decide(THREE, retention_bytes=0, high_watermark=15).drop == 1


def test_an_idle_active_segment_rolls_when_its_time_has_come() -> None:
    old = facts((100, 10), (50, 20))
    assert decide(old, retention_ms=100).roll
    assert not decide(old, retention_ms=100, high_watermark=15).roll, "records nobody has seen are not idle"
    assert not decide(facts((100, 10), (0, -1)), retention_ms=100).roll, "nothing in it"
    assert decide(THREE, active_age_ms=DAY_MS + 1).roll


@given(
    rows=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 2000)), min_size=1, max_size=8),
    retention_ms=st.integers(-1, 2000),
    retention_bytes=st.integers(-1, 300),
    start=st.integers(0, 80),
    data=st.data(),
)
@settings(derandomize=True, deadline=None, max_examples=300, database=None)
def test_what_goes_had_a_reason_and_what_stays_had_one_too(
    rows: list[tuple[int, int]], retention_ms: int, retention_bytes: int, start: int, data: st.DataObject
) -> None:
    segments = facts(*((size, NOW_MS - age) for size, age in rows))
    end = segments[-1].next_offset
    high_watermark = data.draw(st.integers(0, end))
    start = min(start, high_watermark)
    drop, new_start, _, reasons = decide(
        segments,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        start=start,
        high_watermark=high_watermark,
    )

    def may_go(number: int) -> bool:
        segment = segments[number]
        remaining = sum(size for size, _ in rows[number + 1 :])
        return segment.next_offset <= high_watermark and (
            segment.next_offset <= start
            or (retention_ms >= 0 and NOW_MS - segment.max_timestamp_ms > retention_ms)
            or 0 <= retention_bytes <= remaining
        )

    assert drop < len(segments)
    assert all(may_go(number) for number in range(drop))
    assert drop == len(segments) - 1 or not may_go(drop)
    assert start <= new_start <= high_watermark
    assert bool(reasons) == (drop > 0)
    assert drop == 0 or new_start >= segments[drop - 1].next_offset
