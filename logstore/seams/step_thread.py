"""``StepThread``: calls a step again and again, when the step asked for it or when it is woken."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from logstore.errors import LogStoreError, StoreClosedError

_MOST_REPORTED: Final = 1000


class StepThread:
    """``step`` gives the seconds until it wants to be called next, None: only when woken; after StoreClosedError
    there is nothing left to look after. ``enabled=False``: no thread, whoever owns the step calls it."""

    def __init__(self, name: str, step: Callable[[], float | None], *, enabled: bool) -> None:
        self._name = name
        self._step = step
        self._enabled = enabled
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._closing = False

    def start(self) -> None:
        """Run from now on, if it does not yet; look at once."""
        if self._enabled and self._thread is None:
            with self._start_lock:
                if self._thread is None and not self._closing:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            try:
                wait = self._step()
            except StoreClosedError:
                return
            if not self._closing:
                self._wake.wait(wait)

    def close(self) -> None:
        """End it and wait for its end, unless it is the thread itself that closes."""
        with self._start_lock:  # a thread that is just being made is started, then joined
            self._closing = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class Complaints:
    """What goes wrong in the background, logged once for each kind and place: it comes again with every step."""

    def __init__(self, logger: logging.Logger, doing: str) -> None:
        self._logger = logger
        self._doing = doing
        self._told: set[int] = set()

    def tell(self, what: str, error: LogStoreError) -> None:
        key = hash((what, type(error), error.message))
        if key not in self._told and len(self._told) < _MOST_REPORTED:
            self._told.add(key)
            self._logger.error("%s %s failed: %s", self._doing, what, error)
