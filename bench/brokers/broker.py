"""A broker as a process of its own: started, measured, ended."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench import child

STARTED_WITHIN_S = 30.0


class BrokerProcess:
    """A broker of its own on ``folder``. ``started_s``: from its begin to its line; ``address``: where it listens.

    ``code``: a folder for compiled code, as an installed package has it; None: it is compiled at each start if the
    environment says so. ``more``: words of its command line.
    """

    def __init__(
        self, folder: str, code: str | None = None, *, listen: str = "127.0.0.1:0", more: Sequence[str] = ()
    ) -> None:
        environment = dict(os.environ)
        if code is not None:
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            environment["PYTHONPYCACHEPREFIX"] = code
        began = time.perf_counter()
        words = ("broker", "start", "--data", folder, "--listen", listen, *more)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "logstore.cli", *words],
            cwd=child.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.address = self._listening()
        self.started_s = time.perf_counter() - began

    def _listening(self) -> str:
        output = self._process.stdout
        assert output is not None  # it was asked for
        if not select.select([output], [], [], STARTED_WITHIN_S)[0]:
            self.end()
            raise TimeoutError(f"the broker did not listen within {STARTED_WITHIN_S:g} s")
        line = output.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the broker said {line!r}, and ended with {self._process.wait()}")
        return line.split()[-1]

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, signal_number: int = signal.SIGTERM) -> None:
        self._process.send_signal(signal_number)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def running(folder: str, code: str | None = None) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(folder, code)
    try:
        yield broker
    finally:
        broker.end()


def resident_mb(pid: int) -> float:
    """MiB of memory that a process has now (Linux)."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def processor_s(pid: int) -> float:
    """Seconds of a processor that a process has taken so far (Linux)."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def allow_descriptors() -> None:
    """For this process and its children: as many as the system lets them have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
