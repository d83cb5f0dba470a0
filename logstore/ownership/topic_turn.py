"""How long a process keeps a topic that another process waits for: a short turn, then it lets go.

To pass a topic on costs some syncs on both sides, so a turn is longer where taking the topic over was expensive.
"""

from __future__ import annotations

from typing import Final

LOOK_S: Final = 0.05  # how often an owner looks whether another process waits
_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 0.4
_PRICE: Final = 3  # a turn lasts this many times as long as the take-over before it
_UNUSED_S: Final = 0.02  # an owner that does nothing with the topic for so long has no use of its turn
DRAIN_S: Final = 0.1  # how long other threads of the owner are kept from the topic for those inside to leave
_AGAIN_S: Final = 1.0  # work that takes longer holds the topic: it is asked again after this time


class TopicTurn:
    """One owner's turn, from ``begin`` on. Times in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._ends_s = 0.0
        self._not_before_s = 0.0

    def begin(self, now_s: float, took_s: float) -> None:
        """The topic is owned now; to take it over took ``took_s``, without the wait for the lock."""
        self._ends_s = now_s + min(max(_SHORTEST_S, _PRICE * took_s), _LONGEST_S)
        self._not_before_s = now_s

    def is_over(self, now_s: float, last_used_s: float) -> bool:
        if now_s < self._not_before_s:
            return False
        return now_s >= self._ends_s or now_s - last_used_s >= _UNUSED_S

    def put_off(self, now_s: float) -> None:
        """Work that was under way did not let go in time."""
        self._not_before_s = now_s + _AGAIN_S
