"""What is cleanable and when: a table of cases, then any log at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.log.cleaning.cleanable import (
    NEVER,
    CleanRules,
    DirtySegment,
    PartitionFacts,
    decide_cleanable,
    first_dirty_offset,
)

NOW = 1_000_000


def log(*ends: int, active: int = 0, size: int = 100, at_ms: int = 500_000) -> list[DirtySegment]:
    """Closed segments that end at these offsets, and an active one with ``active`` records."""
    found, base = [], 0
    for end in ends:
        found.append(DirtySegment(base, end, size, at_ms, at_ms, True))
        base = end
    filled = -1 if not active else at_ms
    return [*found, DirtySegment(base, base + active, active * 10, filled, filled, False)]


def facts(segments: list[DirtySegment], **more: Any) -> PartitionFacts:
    known: dict[str, Any] = {
        "log_start_offset": 0,
        "stable_end": segments[-1].next_offset if segments else 0,
        "cleaner_point": 0,
        "horizon_ms": NEVER,
        "active_age_ms": 0,
    }
    return PartitionFacts(segments=segments, **(known | more))


def rules(**more: Any) -> CleanRules:
    known: dict[str, Any] = {
        "min_dirty_ratio": 0.5,
        "min_lag_ms": 0,
        "max_lag_ms": 2**63 - 1,
        "segment_ms": 10**9,
        "by_time": True,
    }
    return CleanRules(**(known | more))


FOUR = log(10, 20, 30, 40, active=5)


@pytest.mark.parametrize(
    ("more", "change", "start", "end", "reason"),
    [
        pytest.param({}, {}, 0, 40, "ratio", id="all dirty"),
        pytest.param({"cleaner_point": 20}, {}, 20, 40, "ratio", id="half is enough"),
        pytest.param({"cleaner_point": 30}, {}, 30, 40, "", id="a quarter is not"),
        pytest.param({"cleaner_point": 30}, {"min_dirty_ratio": 0.0}, 30, 40, "ratio", id="any dirt"),
        pytest.param({"cleaner_point": 40}, {"min_dirty_ratio": 0.0}, 40, 40, "", id="no dirt"),
        pytest.param({"cleaner_point": 35}, {}, 35, 40, "", id="a point inside a segment"),
        pytest.param({"cleaner_point": 99}, {}, 0, 40, "ratio", id="a point past the end"),
        pytest.param({"cleaner_point": 5, "log_start_offset": 20}, {}, 20, 40, "ratio", id="below the start"),
        pytest.param({"stable_end": 25}, {}, 0, 20, "ratio", id="an open transaction"),
        pytest.param({"cleaner_point": 30, "stable_end": 5}, {}, 30, 30, "", id="nothing stable"),
        pytest.param({}, {"min_lag_ms": 500_001}, 0, 0, "", id="all too young"),
        pytest.param({}, {"min_lag_ms": 500_000}, 0, 40, "ratio", id="just old enough"),
        pytest.param({}, {"min_lag_ms": 1, "by_time": False}, 0, 0, "", id="age is not believed"),
        pytest.param({"cleaner_point": 30}, {"max_lag_ms": 499_999}, 30, 40, "lag", id="dirty for too long"),
        pytest.param({"cleaner_point": 30}, {"max_lag_ms": 500_000}, 30, 40, "", id="not too long"),
        pytest.param(
            {"cleaner_point": 30}, {"max_lag_ms": 1, "by_time": False}, 30, 40, "", id="no lag by a bad clock"
        ),
        pytest.param(
            {"cleaner_point": 40, "horizon_ms": NOW}, {}, 40, 40, "horizon", id="a tombstone's time"
        ),
        pytest.param({"cleaner_point": 40, "horizon_ms": NOW + 1}, {}, 40, 40, "", id="not yet"),
        pytest.param(
            {"cleaner_point": 40, "horizon_ms": 5},
            {"by_time": False},
            40,
            40,
            "",
            id="no horizon by a bad clock",
        ),
    ],
)
def test_the_table(more: dict[str, Any], change: dict[str, Any], start: int, end: int, reason: str) -> None:
    found = decide_cleanable(facts(FOUR, **more), rules(**change), NOW)
    assert (found.start_offset, found.end_offset, found.reason) == (start, end, reason)


def test_the_ratio_is_dirty_bytes_by_all_that_is_gone_through() -> None:
    found = decide_cleanable(facts(FOUR, cleaner_point=30, stable_end=41), rules(), NOW)
    assert (found.dirty_bytes, found.clean_bytes, found.dirty_ratio) == (100, 300, 0.25)
    assert decide_cleanable(facts([]), rules(), NOW).dirty_ratio == 0.0


def test_a_young_segment_ends_it_though_older_ones_follow() -> None:
    segments = log(10, 20, 30, active=1)
    segments[1] = segments[1]._replace(newest_ms=NOW)
    assert decide_cleanable(facts(segments), rules(min_lag_ms=1), NOW).end_offset == 10


@pytest.mark.parametrize(
    ("segments", "more", "change", "roll"),
    [
        pytest.param(log(10, active=5), {"active_age_ms": 10**9}, {}, False, id="at its age"),
        pytest.param(log(10, active=5), {"active_age_ms": 10**9 + 1}, {}, True, id="past segment.ms"),
        pytest.param(log(10), {"active_age_ms": 10**10}, {}, False, id="empty"),
        pytest.param(log(10, active=5), {}, {"max_lag_ms": 499_999}, True, id="past max.compaction.lag.ms"),
        pytest.param(log(10, active=5), {}, {"max_lag_ms": 9, "by_time": False}, False, id="a bad clock"),
        pytest.param(
            log(10, active=5), {"stable_end": 12, "active_age_ms": 10**10}, {}, False, id="unstable"
        ),
    ],
)
def test_an_idle_active_segment_is_rolled(
    segments: list[DirtySegment], more: dict[str, Any], change: dict[str, Any], roll: bool
) -> None:
    assert decide_cleanable(facts(segments, **more), rules(**change), NOW).roll is roll


@st.composite
def logs(draw: st.DrawFn) -> list[DirtySegment]:
    base = draw(st.integers(0, 50))
    found: list[DirtySegment] = []
    for _ in range(draw(st.integers(0, 5))):
        end = base + draw(st.integers(1, 20))
        times = sorted(draw(st.lists(st.integers(-1, NOW), min_size=2, max_size=2)))
        found.append(DirtySegment(base, end, draw(st.integers(0, 300)), times[0], times[1], True))
        base = end
    if found and draw(st.booleans()):
        found.append(DirtySegment(base, base + draw(st.integers(0, 9)), draw(st.integers(0, 9)), 0, 0, False))
    return found


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    segments=logs(),
    point=st.integers(0, 200),
    start=st.integers(0, 200),
    stable=st.integers(0, 200),
    horizon=st.integers(-1, NOW * 2),
    ratio=st.floats(0, 1),
    lag=st.integers(0, NOW),
    by_time=st.booleans(),
)
def test_any_log_and_any_point_give_a_sound_answer(
    segments: list[DirtySegment],
    point: int,
    start: int,
    stable: int,
    horizon: int,
    ratio: float,
    lag: int,
    by_time: bool,
) -> None:
    given_facts = facts(
        segments, cleaner_point=point, log_start_offset=start, stable_end=stable, horizon_ms=horizon
    )
    given_rules = rules(min_dirty_ratio=ratio, min_lag_ms=lag, max_lag_ms=lag, by_time=by_time)
    found = decide_cleanable(given_facts, given_rules, NOW)
    assert found.start_offset <= found.end_offset
    assert 0 <= found.dirty_ratio <= 1
    if found.end_offset > found.start_offset:
        ends = [segment.next_offset for segment in segments if segment.closed]
        assert found.end_offset in ends
        assert found.end_offset <= stable
    if found.due:
        assert found.reason == "horizon" or found.dirty_bytes > 0
        # A cleaning that does what is asked leaves nothing to do: no loop.
        after = facts(segments, cleaner_point=found.end_offset, log_start_offset=start, stable_end=stable)
        assert not decide_cleanable(after, given_rules, NOW).due
    assert first_dirty_offset(segments, start, found.start_offset) == found.start_offset
