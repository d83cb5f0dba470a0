"""``MovedClock``: the system's clock, so far ahead as a test says."""

from __future__ import annotations

from logstore.seams.clock import SystemClock


class MovedClock(SystemClock):
    """For ``logstore.open(path, clock=MovedClock())``: retention, tombstones and expiry see the time go on. Waits do
    not get shorter, as threads sleep by the real one."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_ms = 0

    def advance(self, ms: int) -> None:
        """Both wall and monotonic time go on by ``ms``; never back."""
        if ms < 0:
            raise ValueError(f"time goes on only, not by {ms} ms")
        self._ahead_ms += ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self._ahead_ms / 1000
