"""``LockCheck``: whether the file of the locks that are held is still in its place, looked at now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logstore.native import compiled
from logstore.seams.clock import Clock

CHECKED_FOR_S: Final = 0.001


@compiled("partition.lock_check")
class LockCheck:
    """What every append asks of its locks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checked_until_s = 0.0
        self._lost = False

    if TYPE_CHECKING:

        def _look(self) -> None: ...

    def check(self, *, now: bool = False) -> None:
        """LockLostError if the file of the locks that are held was removed or replaced: another process may hold
        the same by a new one. Looks at the file at most once a millisecond unless ``now``: a process that opens
        the store anew takes longer until its first write."""
        if not now:
            now_s = self._clock.monotonic_s()
            if now_s < self._checked_until_s and not self._lost:
                return
            self._checked_until_s = now_s + CHECKED_FOR_S
        self._look()
