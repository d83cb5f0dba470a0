"""Who of a group's members is dead, by locks and heartbeats.

- A member whose lock is free, or whose slot another member has, is dead: its process ended. A static member
  (one with an instance id) may be on its way back: it has until its session ends.
- A member that holds its lock and does not beat (its process is stopped, or the machine is out of breath) is dead
  when its session ends: ``session_timeout_ms`` after its last beat.
- In a new boot nobody has beaten yet: sessions of members of the boot before are counted from its start.
- When this process itself was stopped, what it finds on waking is as old as its sleep. It counts everybody's time
  from its waking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from logstore.groups.views import MemberSlot
from logstore.heartbeats import TORN
from logstore.member_slots import MemberSlots

# A keeper that has not looked for this long was not running.
STOPPED_MS: Final = 5_000


class MemberWatch:
    """Judges; belongs to one caller at a time."""

    def __init__(self, slots: MemberSlots) -> None:
        self._slots = slots
        self._looked_ms: int | None = None
        self._woke_ms = 0
        self._unseen: dict[str, int] = {}  # member id -> since when nothing is known of its beats

    def runs(self, now_ms: int) -> None:
        """Called at every step of who judges regularly: a long pause between two was a stop."""
        if self._looked_ms is not None and now_ms - self._looked_ms > STOPPED_MS:
            self._woke_ms = now_ms
        self._looked_ms = now_ms

    def dead(
        self, members: Iterable[MemberSlot], groups: Collection[str], now_ms: int, wall_ms: int
    ) -> dict[str, list[str]]:
        """Member ids by group, of ``groups``. ``members``: of all groups, whose times are to be remembered;
        ``wall_ms``: ms since 1970 UTC."""
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

    def _is_dead(self, member: MemberSlot, now_ms: int, wall_ms: int, unseen_since_ms: int) -> bool:
        timeout_ms = member.session_timeout_ms
        if member.left_ms >= 0 and wall_ms - member.left_ms > timeout_ms:
            return True
        beat = self._slots.last_beat(member.slot)
        if member.instance_id is None:
            replaced = beat is not None and beat is not TORN and beat.member_id != member.member_id
            if replaced or not self._slots.is_taken(member.slot):
                return True
        if beat is None:
            last_ms = 0  # the boot's start
        elif beat.member_id == member.member_id:
            last_ms = max(beat.boot_ms, self._woke_ms)
        else:
            last_ms = self._unseen[member.member_id] = unseen_since_ms
        return now_ms - last_ms > timeout_ms
