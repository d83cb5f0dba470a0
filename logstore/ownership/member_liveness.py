"""Signs of life of group members on one machine: each holds a slot's lock and beats in it.

A member's record says which slot: its ``liveness`` is the slot's number, big-endian.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from logstore.groups.group_records import LIVENESS_BYTES
from logstore.groups.views import MemberSession
from logstore.ownership.lock_space import LockSpace
from logstore.ownership.member_slots import MemberSlots, slot_of
from logstore.ownership.member_watch import MemberWatch


class SlotLiveness:
    """A ``MemberLiveness`` (``coordination/liveness.py``). Thread-safe."""

    def __init__(self, space: LockSpace) -> None:
        self._clock = space.clock
        self._slots = MemberSlots(space)
        self._watch = MemberWatch(self._slots)
        self._watch_guard = threading.Lock()

    def begin(self, member_id: str) -> bytes:
        return self._slots.take(member_id).to_bytes(LIVENESS_BYTES, "big")

    def beat(self, liveness: bytes, member_id: str) -> None:
        self._slots.beat(slot_of(liveness), member_id)

    def end(self, liveness: bytes) -> None:
        self._slots.give_back(slot_of(liveness))

    def note_looking(self, regularly: bool) -> None:
        with self._watch_guard:
            if regularly:
                self._watch.runs(self._slots.now_ms())
            else:
                self._watch.rests()

    def dead(self, sessions: Iterable[MemberSession], groups: Collection[str]) -> dict[str, list[str]]:
        with self._watch_guard:
            return self._watch.dead(sessions, groups, self._slots.now_ms(), self._clock.wall_ms())

    def close(self) -> None:
        self._slots.close()
