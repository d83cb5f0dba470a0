"""Who of the others is dead: by locks, by beats, and by what a process that slept itself may conclude."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.groups.views import MemberSession
from logstore.ownership.heartbeats import TORN, Beat
from logstore.ownership.member_watch import SHORTEST_STOP_MS, MemberWatch

SESSION_MS = 2_000
BEAT_MS = SESSION_MS // 2  # the longest that a consumer may be set to


class Slots:
    """``taken``: slots whose lock is held; ``beats``: what stands in them."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.beats: dict[int, Beat] = {}

    def is_taken(self, slot: int) -> bool:
        return slot in self.taken

    def last_beat(self, slot: int) -> Beat | None:
        return self.beats.get(slot)


class Scene(NamedTuple):
    slots: Slots
    watch: MemberWatch


def scene() -> Scene:
    slots: Any = Slots()
    return Scene(slots, MemberWatch(slots))


def member(name: str = "m", **fields: Any) -> MemberSession:
    known: dict[str, Any] = {
        "group": "g",
        "instance_id": None,
        "liveness": b"\0\0\0\1",
        "session_timeout_ms": SESSION_MS,
        "joined_ms": 0,
        "left_ms": -1,
    }
    return MemberSession(member_id=name, **(known | fields))


def is_dead(watch: MemberWatch, one: MemberSession, now_ms: int, wall_ms: int = 0) -> bool:
    return watch.dead([one], {"g"}, now_ms, wall_ms) == {"g": [one.member_id]}


def test_a_free_lock_or_anothers_beat_is_death_at_once() -> None:
    slots, watch = scene()
    slots.beats[1] = Beat("m", 1000)
    assert is_dead(watch, member(), 1001), "its lock is free"
    slots.taken.add(1)
    assert not is_dead(watch, member(), 1001)
    slots.beats[1] = Beat("other", 1000)
    assert is_dead(watch, member(), 1001), "its slot is another's"
    slots.beats[1] = TORN
    assert not is_dead(watch, member(), 1001), "being written"


def test_a_static_member_has_its_session_to_come_back() -> None:
    slots, watch = scene()
    static = member(instance_id="i")
    slots.beats[1] = Beat("m", 1000)
    assert not is_dead(watch, static, 1000 + SESSION_MS)
    assert is_dead(watch, static, 1001 + SESSION_MS)
    slots.beats[1] = Beat("other", 10**6)
    assert not is_dead(watch, static, 5000), "counted from the first sight"
    assert not is_dead(watch, static, 5000 + SESSION_MS)
    assert is_dead(watch, static, 5001 + SESSION_MS)
    left = member(left_ms=100)
    slots.taken.add(1)
    slots.beats[1] = Beat("m", 10**6)
    assert not is_dead(watch, left, 10**6, wall_ms=100 + SESSION_MS)
    assert is_dead(watch, left, 10**6, wall_ms=101 + SESSION_MS)


def test_without_a_beat_the_boot_counts() -> None:
    slots, watch = scene()
    slots.taken.add(1)
    assert not is_dead(watch, member(), SESSION_MS)
    assert is_dead(watch, member(), SESSION_MS + 1)


def test_only_the_groups_asked_for_are_judged_and_times_of_others_are_kept() -> None:
    slots, watch = scene()
    static, other = (
        member("a", instance_id="i"),
        member("b", instance_id="j", group="h", liveness=b"\0\0\0\2"),
    )
    slots.beats |= {1: TORN, 2: TORN}
    assert watch.dead([static, other], {"g", "h"}, 0, 0) == {}
    assert watch.dead([static, other], {"g"}, SESSION_MS, 0) == {}
    assert watch.dead([static, other], {"h"}, SESSION_MS + 1, 0) == {"h": ["b"]}


def test_a_stop_of_half_a_session_gives_the_others_a_whole_one() -> None:
    slots, watch = scene()
    slots.taken.add(1)
    slots.beats[1] = Beat("m", 10_000)
    watch.runs(10_000)
    woke_ms = 10_000 + 3 * SESSION_MS  # all slept
    assert not is_dead(watch, member(), woke_ms), "asked before the regular step"
    for now_ms in range(woke_ms, woke_ms + SESSION_MS + 1, 50):
        watch.runs(now_ms)
        assert not is_dead(watch, member(), now_ms), "it was judged too soon"
    assert is_dead(watch, member(), woke_ms + SESSION_MS + 1), "it did not wake"


def test_a_short_stop_is_none_for_a_long_session() -> None:
    slots, watch = scene()
    slots.taken.add(1)
    slots.beats[1] = Beat("m", 0)
    long = member(session_timeout_ms=SESSION_MS + 2)
    watch.runs(0)
    for now_ms in range(BEAT_MS, SESSION_MS + 1, 50):  # the first step is half of a session long
        watch.runs(now_ms)
    assert not is_dead(watch, member(), SESSION_MS + 3)
    assert is_dead(watch, long, SESSION_MS + 3)


def test_who_rests_did_not_stop() -> None:
    slots, watch = scene()
    slots.taken.add(1)
    slots.beats[1] = Beat("m", 0)
    watch.runs(0)
    watch.rests()
    assert is_dead(watch, member(), SESSION_MS + 1)


gaps = st.lists(st.integers(1, 3 * SESSION_MS), min_size=1, max_size=20)


@given(gaps, st.integers(1, BEAT_MS))
@settings(derandomize=True, deadline=None)
def test_processes_that_always_stop_together_never_lose_each_other(stops: list[int], beat_ms: int) -> None:
    """Both run, and sleep at the same times; whoever wakes first judges before the other has beaten."""
    slots, watch = scene()
    slots.taken.add(1)
    now_ms = next_beat_ms = 0
    for stop_ms in stops:
        for _ in range(30):
            if now_ms >= next_beat_ms:
                slots.beats[1] = Beat("m", now_ms)
                next_beat_ms = now_ms + beat_ms
            watch.runs(now_ms)
            assert not is_dead(watch, member(), now_ms)
            now_ms += 50
        now_ms += stop_ms
        watch.runs(now_ms)
        assert not is_dead(watch, member(), now_ms), "before it could beat"


@given(gaps)
@settings(derandomize=True, deadline=None)
def test_what_is_remembered_of_stops_is_what_counts(stops: list[int]) -> None:
    """Against all stops: for each length of a session, the newest that is half as long or longer."""
    watch = scene().watch
    now_ms, known = 0, []
    watch.runs(0)
    for gap_ms in stops:
        now_ms += gap_ms
        watch.runs(now_ms)
        known.append((gap_ms, now_ms))
        for session_ms in (2 * SHORTEST_STOP_MS, SESSION_MS, 3 * SESSION_MS):
            woke_ms = max((at for gap, at in known if 2 * gap >= session_ms), default=0)
            if now_ms - woke_ms <= session_ms:
                assert watch._woke_ms(session_ms) == woke_ms
