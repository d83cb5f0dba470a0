"""The time seam: wall time, monotonic time, and which boot of the machine this is."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def boot_id(self) -> str:
        """Changes when the machine restarts: the page cache of an earlier boot is gone."""
        ...


class SystemClock:
    def __init__(self) -> None:
        self._boot_id: str | None = None

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(
        time.monotonic
    )  # asked half a dozen times a durable append: no call in between

    def boot_id(self) -> str:
        if self._boot_id is None:
            try:
                with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                    self._boot_id = file.read().strip()
            except FileNotFoundError:
                # No Linux: the boot time (wall - monotonic, to the minute) tells boots apart well enough;
                # a wrong "other boot" only makes recovery read more.
                self._boot_id = f"boottime-{int(time.time() - time.monotonic()) // 60}"
        return self._boot_id


OWN_WALL_MS: Final = SystemClock.wall_ms
"""By which compiled code, which reads the clock by itself, sees that a tool has put another in its place."""


class ManualClock:
    """A clock that a test or a simulator moves by hand."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, boot_id: str = "boot-0") -> None:
        self._wall_ms = wall_ms
        self._monotonic_s = 0.0
        self._boot_id = boot_id

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def boot_id(self) -> str:
        return self._boot_id

    def advance(self, milliseconds: int) -> None:
        """Both clocks move on together."""
        self._wall_ms += milliseconds
        self._monotonic_s += milliseconds / 1000

    def jump_wall(self, milliseconds: int) -> None:
        """Only wall time moves: somebody set the clock."""
        self._wall_ms += milliseconds

    def reboot(self, boot_id: str) -> None:
        self._boot_id = boot_id
