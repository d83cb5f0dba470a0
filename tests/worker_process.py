"""A job in a process of its own, as tests of several processes start it, listen to it and kill it."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

REPOSITORY = str(Path(__file__).resolve().parent.parent)
PATIENCE_S = 60.0


class Worker:
    """One job of ``tests.workers``, or of another module, in a process of its own; its lines come through a
    queue."""

    def __init__(self, *arguments: object, module: str = "tests.workers") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # else it was killed within the line, and said nothing yet
                self.lines.put(line.strip())
        self.lines.put(None)

    def next(self, patience_s: float = PATIENCE_S) -> str | None:
        """The next line, None at the end."""
        return self.lines.get(timeout=patience_s)

    def expect(self, start: str, patience_s: float = PATIENCE_S) -> str:
        while (line := self.next(patience_s)) is not None:
            assert not line.startswith(("failed", "wrong", "stuck", "past")), line
            if line.startswith(start):
                return line
        raise AssertionError(f"the worker ended without saying {start!r}")

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self) -> int:
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def dispose(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self.thread.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
