"""``CancelHandle``: ends one waiting call from another thread, whether the backend is in this process or remote."""

from __future__ import annotations

import threading
from collections.abc import Callable


class CancelHandle:
    """One per call: once cancelled, cancelled for good. Thread-safe.

    The caller keeps it and calls ``cancel``; the backend that serves the call says with ``on_cancel`` how its wait
    ends (an event of this process, the cancelling of a request on the wire). A call whose handle is cancelled
    answers with what there is; it is no error.
    """

    __slots__ = ("_cancelled", "_lock", "_stop")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._stop: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """End the wait, or the one that begins with this handle later. Safe to call again."""
        with self._lock:
            self._cancelled = True
            stop = self._stop
        if stop is not None:
            stop()

    def on_cancel(self, stop: Callable[[], None] | None) -> None:
        """For backends: ``stop`` is called by ``cancel``, at once if that was before; None takes it back."""
        with self._lock:
            self._stop = stop
            late = self._cancelled
        if late and stop is not None:
            stop()
