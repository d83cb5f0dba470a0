"""``MemberWatch``: which members of groups are dead, by locks and heartbeats.

- A member whose lock is free, or whose slot another member has, is dead: its process ended. A static member
  (one with an instance id) may be on its way back: it has until its session ends.
- A member that holds its lock and does not beat (its process is stopped, or the machine is out of breath) is dead
  when its session ends: ``session_timeout_ms`` after its last beat.
- In a new boot no member has beaten yet: sessions of members of the boot before are counted from its start.
- When this process itself was stopped, what it finds on waking is as old as its sleep, and others may have slept
  as well. A sleep of half a session is enough for that session to seem over: there belong two heartbeats in it. So
  those sessions are counted from the waking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from logstore.groups.views import MemberSession
from logstore.ownership.heartbeats import TORN
from logstore.ownership.member_slots import MemberSlots, slot_of

# No session is twice as short as that. The task that looks after members looks more often.
SHORTEST_STOP_MS: Final = 100


class _Stop(NamedTuple):
    """This process did not look for ``gap_ms``, and does again since ``woke_ms``."""

    gap_ms: int
    woke_ms: int


class MemberWatch:
    """Judges; belongs to one caller at a time."""

    def __init__(self, slots: MemberSlots) -> None:
        self._slots = slots
        self._looked_ms: int | None = None
        self._stops: list[_Stop] = []  # oldest first: none with a longer one behind it
        self._unseen: dict[str, int] = {}  # member id -> since when nothing is known of its beats

    def runs(self, now_ms: int) -> None:
        """Called at every step of a task that judges regularly: a long pause between two was a stop."""
        gap_ms = 0 if self._looked_ms is None else now_ms - self._looked_ms
        if gap_ms >= SHORTEST_STOP_MS:
            # One that was longer goes on counting for longer sessions, until those are over.
            left = [
                one for one in self._stops if one.gap_ms > gap_ms and now_ms - one.woke_ms <= 2 * one.gap_ms
            ]
            self._stops = [*left, _Stop(gap_ms, now_ms)]
        self._looked_ms = now_ms

    def rests(self) -> None:
        """There is nothing to judge regularly for now: no pause from here on was a stop."""
        self._looked_ms = None

    def _woke_ms(self, timeout_ms: int) -> int:
        """Since when this process has been there, as sessions of that length count; 0: since the boot's start."""
        return max((one.woke_ms for one in self._stops if 2 * one.gap_ms >= timeout_ms), default=0)

    def dead(
        self, members: Iterable[MemberSession], groups: Collection[str], now_ms: int, wall_ms: int
    ) -> dict[str, list[str]]:
        """Member ids by group, of ``groups``. ``members``: of all groups, whose times are to be remembered;
        ``wall_ms``: ms since 1970 UTC."""
        if self._looked_ms is not None:
            self.runs(now_ms)  # asked in between, perhaps before the regular step after a stop
        before, self._unseen = self._unseen, {}
        found: dict[str, list[str]] = {}
        for member in members:
            since_ms = before.get(member.member_id, now_ms)
            if member.group not in groups:
                if member.member_id in before:
                    self._unseen[member.member_id] = since_ms
            elif self._is_dead(member, now_ms, wall_ms, since_ms):
                found.setdefault(member.group, []).append(member.member_id)
        return found

    def _is_dead(self, member: MemberSession, now_ms: int, wall_ms: int, unseen_since_ms: int) -> bool:
        timeout_ms = member.session_timeout_ms
        if member.left_ms >= 0 and wall_ms - member.left_ms > timeout_ms:
            return True
        slot = slot_of(member.liveness)
        beat = self._slots.last_beat(slot)
        if member.instance_id is None:
            replaced = beat is not None and beat is not TORN and beat.member_id != member.member_id
            if replaced or not self._slots.is_taken(slot):
                return True
        if beat is None:
            last_ms = 0  # the boot's start
        elif beat.member_id == member.member_id:
            last_ms = max(beat.boot_ms, self._woke_ms(timeout_ms))
        else:
            last_ms = self._unseen[member.member_id] = unseen_since_ms
        return now_ms - last_ms > timeout_ms
