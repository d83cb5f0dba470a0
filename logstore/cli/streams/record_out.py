"""Stdout for records: it says how much got out, and a reader that sleeps cannot hold it for ever.

A blocking write to a full pipe ends when the reader reads, or never. So a pipe is written to only when it takes
more, in pieces that it takes whole (PIPE_BUF), with a look in between at whether to go on.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable

_WAIT_S = 0.25
_FILE_BYTES = 1 << 20


class RecordOut:
    """``written``: bytes of the last ``write`` that got out, also when it raised."""

    def __init__(self) -> None:
        self.written = 0
        try:
            self._descriptor = sys.stdout.fileno()
        except (OSError, ValueError):
            self._descriptor = -1  # no descriptor behind it: a buffer in memory
            return
        sys.stdout.flush()
        mode = os.fstat(self._descriptor).st_mode
        self._piece_bytes = select.PIPE_BUF if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else _FILE_BYTES

    def write(self, data: bytes, give_up: Callable[[], bool]) -> None:
        """Write all of ``data``, unless ``give_up()`` turns true while the reader takes nothing.
        BrokenPipeError when it is gone."""
        self.written = 0
        if self._descriptor < 0:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            self.written = len(data)
            return
        view = memoryview(data)
        while self.written < len(view):
            _, writable, _ = select.select([], [self._descriptor], [], _WAIT_S)
            if writable:
                piece = view[self.written : self.written + self._piece_bytes]
                self.written += os.write(self._descriptor, piece)
            elif give_up():
                return
