"""`logstore broker start` as a process of its own, for tests: started under a deadline, stopped, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from rpc.client.store import RemoteStore, connect

REPOSITORY = str(Path(__file__).resolve().parents[2])
PATIENCE_S = 60.0


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would be taken for settings."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LOGSTORE_")}
    return {**kept, "NOTIFY_SOCKET": "", **more}


def command(data: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "logstore.cli", "broker", "start", "--data", str(data), *options]


class BrokerUnderTest:
    """Serves when it is made. ``port``: 0 takes any; a restart takes the same one."""

    def __init__(self, data: Path, *options: str, port: int = 0, **more: str) -> None:
        self.data = data
        self.options = options
        self.more = more
        self.port = port
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        listen = f"127.0.0.1:{self.port}"
        process = subprocess.Popen(
            command(self.data, "--listen", listen, *self.options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env=environment(**self.more),
        )
        assert process.stdout is not None
        late = threading.Timer(PATIENCE_S, process.kill)
        late.start()
        line = process.stdout.readline()
        late.cancel()
        if not line.startswith("listening on 127.0.0.1:"):
            process.kill()
            raise AssertionError((line, *process.communicate()))
        self.port = int(line.rpartition(":")[2])
        return process

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self, **settings: float) -> RemoteStore:
        return connect(self.address, **settings)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)

    def restart(self) -> None:
        """After a kill or an end: on the same port."""
        self.process = self._start()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to stop: exit code, and what it logged."""
        self.process.send_signal(number)
        _, logged = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, logged

    def dispose(self) -> None:
        if self.process.poll() is None:
            self.kill()
