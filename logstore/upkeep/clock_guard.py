"""Whether the wall clock may be believed by what deletes data.

Retention by time compares record times with the wall clock: a clock that somebody set years ahead would let
it delete everything at once. Wall time is therefore compared with monotonic time between two looks. The first
look only takes notice (a jump while the process was down cannot be told, so a pass is waited for); after a
jump the guard says no until the clock is back where it should be, or the store is opened anew by someone who
has looked at it.
"""

from __future__ import annotations

from typing import Final

TOLERANCE_MS: Final = 60_000  # slewing and leap seconds stay far below


class ClockGuard:
    def __init__(self) -> None:
        self._anchor: tuple[int, float] | None = None
        self.jump_ms = 0  # how far wall time is from where it should be; 0 while it is steady

    def steady(self, wall_ms: int, monotonic_s: float) -> bool:
        """Take a look; True if time-based deletion may go on."""
        if self._anchor is None:
            self._anchor = (wall_ms, monotonic_s)
            return False
        wall_then, monotonic_then = self._anchor
        drift = wall_ms - wall_then - round((monotonic_s - monotonic_then) * 1000)
        if abs(drift) > TOLERANCE_MS:
            self.jump_ms = drift
            return False
        self.jump_ms = 0
        self._anchor = (wall_ms, monotonic_s)
        return True
