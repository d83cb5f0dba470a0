"""``Backoff``: when to try again what failed: longer each time that it fails again soon after it worked."""

from __future__ import annotations


class Backoff:
    """Not thread-safe. Times are seconds of a monotonic clock. ``first_s``: the pause after a first failure;
    ``longest_s``: no pause is longer; ``steady_s``: what has worked for so long is trusted as at first."""

    def __init__(self, first_s: float = 1.0, longest_s: float = 30.0, steady_s: float = 60.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._steady_s = steady_s
        self._pause_s = first_s
        self._due_s = 0.0
        self._worked_s = float("-inf")  # since when it works again

    def failed(self, now_s: float) -> bool:
        """It did work until now; whether that was not for long."""
        again = not self.is_steady(now_s)
        self._pause_s = min(2 * self._pause_s, self._longest_s) if again else self._first_s
        self.put_off(now_s)
        return again

    def put_off(self, now_s: float) -> None:
        """It still does not work, or is just tried: not again before the same pause is over."""
        self._due_s = now_s + self._pause_s

    def worked(self, now_s: float) -> None:
        self._worked_s = now_s

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def is_steady(self, now_s: float) -> bool:
        """Of what works: whether it does so for long, or has never failed."""
        return now_s - self._worked_s >= self._steady_s
