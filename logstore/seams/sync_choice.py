"""``SyncChoice``: whether many files are synced by one call of the file system, or one by one.

One call costs a commit of the journal, however many files there are, but writes what anybody has written to that file
system and not synced: a copy of gigabytes beside it takes seconds. So after a call that took far longer than its files
would have, the next ones go one by one, more of them each time that this is seen again.
"""

from __future__ import annotations

from typing import Final

_FAR: Final = 4
"""Times what the files would have taken one by one."""
_SLOW_S: Final = 0.25
"""Less than that is never slow: a disk has such moments."""
_MOST_APART: Final = 32
_FIRST_EACH_S: Final = 0.001
_WEIGHT: Final = 1 / 8


class SyncChoice:
    """Of several threads without a lock: a count that is lost costs one slow call."""

    def __init__(self) -> None:
        self._each_s = _FIRST_EACH_S  # of one file lately
        self._apart = 0  # calls that are to go one by one
        self._last_apart = 0

    def together(self, count: int) -> bool:
        """Of the next call, for ``count`` files."""
        if count < 2:
            return False
        if self._apart > 0:
            self._apart -= 1
            return False
        return True

    def took_together(self, count: int, seconds: float) -> None:
        if seconds > max(_SLOW_S, _FAR * count * self._each_s):
            self._apart = self._last_apart = min(2 * self._last_apart or 1, _MOST_APART)
        else:
            self._last_apart = 0

    def took_apart(self, count: int, seconds: float) -> None:
        self._each_s += _WEIGHT * (seconds / max(count, 1) - self._each_s)
