"""``Polling``: looks at something again and again until it is so, or the time is over.

For what nobody tells of: another process's lock, a broker that starts, a cluster that changes. What can be told of is
waited for with an event.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Polling:
    """Of one wait. ``look_s``: between two looks; ``timeout_s``: from now on, for all of them."""

    def __init__(
        self,
        look_s: float,
        timeout_s: float = math.inf,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._look_s = look_s
        self._now_s = now_s
        self._sleep = sleep
        self._until_s = now_s() + timeout_s

    @property
    def left_s(self) -> float:
        return max(self._until_s - self._now_s(), 0.0)

    def again(self) -> bool:
        """True after a pause: look again. False at once: the time is over."""
        left_s = self.left_s
        if left_s <= 0:
            return False
        self._sleep(min(self._look_s, left_s))
        return True
