"""The handle by which a waiting call is ended from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Wakeup:
    """Lets another thread end a waiting fetch. One per consumer. ``trigger``: the user's; ``nudge``: news for the
    consumer itself, which ends the wait just as well, and is no error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._nudged = False
        self._notify: Callable[[], None] | None = None

    def trigger(self) -> None:
        with self._lock:
            self._set = True
            notify = self._notify
        if notify is not None:
            notify()

    def nudge(self) -> None:
        with self._lock:
            self._nudged = True
            notify = self._notify
        if notify is not None:
            notify()

    def calm(self) -> None:
        """Forget nudges: whoever calls this looks at what they were about after it."""
        self._nudged = False

    def take(self) -> bool:
        """True once after a ``trigger``."""
        with self._lock:
            was, self._set = self._set, False
            return was

    def is_set(self) -> bool:
        return self._set or self._nudged

    def attach(self, notify: Callable[[], None] | None) -> None:
        """The backend's wait registers what wakes it; None takes it back."""
        with self._lock:
            self._notify = notify
            fire = (self._set or self._nudged) and notify is not None
        if fire and notify is not None:
            notify()
