"""Ctrl-C and SIGTERM in a long command: noted, and obeyed where the command can stop in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import click

from logstore.cli.streams.failures import EXIT_INTERRUPTED, EXIT_TERMINATED


class Interrupts:
    """Ctrl-C and SIGTERM noted instead of raised, so that they never fall into the middle of the engine; a
    second one is raised all the same.

    Outside the main thread Python lets nobody set handlers; then nothing changes. ``exit_code``: 0 until one
    came.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self._waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """End the command here, with its exit code, if a signal came."""
        if self.exit_code:
            raise click.exceptions.Exit(self.exit_code)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The block waits for input and does nothing else: a signal ends it at once."""
        self._waiting = True
        try:
            self.check()  # of one that came before
            yield
        finally:
            self._waiting = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        again = self.exit_code != 0
        self.exit_code = EXIT_TERMINATED if number == signal.SIGTERM else EXIT_INTERRUPTED
        if self._waiting:
            self.check()
        if again:
            raise KeyboardInterrupt
