"""``NodeLiveness``: which members of groups are alive, as their coordinator's node knows it.

Members of this process are looked after by their broker, which takes out those whose client it does not hear of. Of all
others nothing was heard here: they joined at another broker, or before this one was started. They are alive for a
session after this node looked for them first since it runs the coordinator, time enough to come here; then they are
dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from logstore.groups.group_records import LIVENESS_BYTES
from logstore.groups.views import MemberSession
from logstore.seams.clock import Clock

_NOTHING = bytes(LIVENESS_BYTES)


class NodeLiveness:
    """A ``MemberLiveness``. Thread-safe. ``era``: another number whenever this node begins to run the coordinator."""

    def __init__(self, clock: Clock, era: Callable[[], int]) -> None:
        self._clock = clock
        self._era = era
        self._guard = threading.Lock()
        self._seen_in = -1
        self._since_s: dict[str, float] = {}  # member id -> since when it is waited for

    def begin(self, member_id: str) -> bytes:
        with self._guard:
            self._since_s.pop(member_id, None)
        return _NOTHING

    def beat(self, liveness: bytes, member_id: str) -> None:
        """Nobody but this process asks."""

    def end(self, liveness: bytes) -> None:
        """Nothing is held."""

    def note_looking(self, regularly: bool) -> None:
        """A stop of this process is as long a wait for its clients."""

    def dead(self, sessions: Iterable[MemberSession], groups: Collection[str]) -> dict[str, list[str]]:
        now_s, wall_ms, era = self._clock.monotonic_s(), self._clock.wall_ms(), self._era()
        found: dict[str, list[str]] = {}
        with self._guard:
            if era != self._seen_in:
                self._seen_in = era
                self._since_s.clear()
            before, self._since_s = self._since_s, {}
            for one in sessions:
                since_s = self._since_s[one.member_id] = before.get(one.member_id, now_s)
                has_left = one.left_ms >= 0 and wall_ms - one.left_ms > one.session_timeout_ms
                if one.group in groups and (has_left or now_s - since_s > one.session_timeout_ms / 1000):
                    found.setdefault(one.group, []).append(one.member_id)
        return found

    def close(self) -> None:
        """Nothing is held."""
