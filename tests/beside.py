"""``Beside``: what a test has done beside it, in threads that end with its block, also where the test fails."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final

_PATIENCE_S: Final = 120.0
"""Longer than what waits for a broker that does not come back: no thread may outlive its test."""


def _nothing() -> None:
    """Of works that end by themselves."""


class Beside:
    """Each of ``works`` in a thread of its own, from the beginning of the block to its end: then ``stop`` is called and
    all are joined. What one of them raised is raised there; where the block itself fails it is noted on that failure,
    so that the report of the test has both, and no other test meets it.
    """

    def __init__(self, *works: Callable[[], object], stop: Callable[[], object] = _nothing) -> None:
        self._stop = stop
        self._failures: list[BaseException] = []
        # Daemons: one that cannot be stopped fails its test, and does not hold up the end of all tests.
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self._failures.append(error)

    @property
    def is_alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    @property
    def has_failed(self) -> bool:
        return bool(self._failures)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, patience_s: float = _PATIENCE_S) -> None:
        """Wait until the works have ended by themselves. What one raised; AssertionError: they do not end."""
        deadline_s = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(deadline_s - time.monotonic(), 0.0))
        failures, self._failures = self._failures, []
        if failures:
            for further in failures[1:]:
                failures[0].add_note(_words(further))
            raise failures[0]
        assert not self.is_alive, f"what ran beside the test has not ended within {patience_s:g} s"

    def run(self) -> None:
        """All of them, at the same time."""
        self.start()
        self.join()

    def end(self) -> None:
        """As ``join``, once ``stop`` was called. Safe to call again."""
        self._stop()
        self.join()

    def __enter__(self) -> Beside:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
            return
        try:
            self.end()
        except BaseException as further:  # noqa: BLE001 - the test's own failure came first
            error.add_note(_words(further))


def _words(error: BaseException) -> str:
    return "beside it: " + "".join(traceback.format_exception(error))
