"""``BrokerForTests``: a real broker, started in a moment, that a test kills, pauses, cuts off and starves."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import IO, Any, ClassVar, Final

import logstore
from logstore.errors import InvariantError, LogStoreError
from rpc.client.store import RemoteStore
from rpc.errors import BrokerUnavailableError
from rpc.testing.proxy import Proxy

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 60.0
_LAST_LINES: Final = 8


class Child:
    """One process, which has imported all it needs and waits for its settings."""

    def __init__(self) -> None:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("LOGSTORE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rpc.testing.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**environment, "NOTIFY_SOCKET": ""},
        )
        stdin, stdout, stderr = self.process.stdin, self.process.stdout, self.process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise InvariantError("pipes were asked for")
        self._input, self._output = stdin, stdout
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._passing = threading.Thread(target=self._pass_on, args=(stderr,), daemon=True)
        self._passing.start()

    def _pass_on(self, stderr: IO[str]) -> None:
        """What the process says on its stderr is on ours, and its end is kept."""
        with stderr:
            for line in stderr:
                self._last_lines.append(line)
                with contextlib.suppress(OSError):  # ours is closed: the process must not wait for that
                    os.write(2, line.encode())

    def tell(self, message: dict[str, Any]) -> str:
        """A line to the process; its answer."""
        self._input.write(json.dumps(message) + "\n")
        self._input.flush()
        return self.hear()

    def hear(self) -> str:
        """A line from the process. BrokerUnavailableError where it has ended, or says nothing."""
        late = threading.Timer(PATIENCE_S, self.process.kill)
        late.start()
        try:
            line = self._output.readline().strip()
        finally:
            late.cancel()
        if not line:
            code = self.process.wait(PATIENCE_S)
            self._passing.join(PATIENCE_S)
            words = "".join(self._last_lines).strip() or "nothing"
            raise BrokerUnavailableError(
                f"the broker's process has ended with {code}; its stderr ended with: {words}"
            )
        return line

    def end(self) -> None:
        self._output.close()
        try:
            self._input.close()
        except BrokenPipeError:
            pass  # the process has ended, and what was not read of its input goes with it
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self._passing.join(PATIENCE_S)


class BrokerForTests:
    """Serves when it is made. ``settings``: of ``rpc.settings.BrokerSettings``. Its address stays over restarts.

    Faults: ``kill``, ``restart``, ``pause``, ``resume``, ``drop_connections``, ``freeze_connections``, ``slow_disk``,
    ``full_disk``, ``broken_disk``, ``advance_clock``.
    """

    _spares: ClassVar[list[Child]] = []

    def __init__(self, data: str | os.PathLike[str], **settings: Any) -> None:
        self.data = Path(data)
        self._settings = {"data": str(self.data), "listen": "127.0.0.1:0", "drain_s": 1.0, **settings}
        self._proxy = Proxy(0)
        if self._settings.get("peers"):
            self._settings.setdefault("advertise", self.address)
        self._faults: dict[str, Any] = {}
        self._clients: list[RemoteStore] = []
        self._child: Child | None = None
        try:
            self._start()
        except BaseException:
            self._proxy.close()
            raise

    @classmethod
    def prepare(cls) -> None:
        """Have a process ready for the next broker."""
        if not cls._spares:
            cls._spares.append(Child())

    @classmethod
    def end_spares(cls) -> None:
        while cls._spares:
            cls._spares.pop().end()

    @property
    def settings(self) -> dict[str, Any]:
        """Of ``rpc.settings.BrokerSettings``, as the next start has them."""
        return dict(self._settings)

    def set(self, **settings: Any) -> None:
        """From the next start on."""
        self._settings.update(settings)

    @classmethod
    def _spare(cls) -> Child:
        """A process that waits, or a new one: several brokers may start at once."""
        try:
            return cls._spares.pop()
        except IndexError:
            return Child()

    def _start(self) -> None:
        child = self._child = self._spare()
        try:
            child.hear()
            line = child.tell(self._settings)
            self._proxy.target = int(line.rpartition(":")[2])
            if self._faults:
                child.tell(self._faults)
        except BaseException:
            child.end()
            self._child = None
            raise
        self.prepare()

    @property
    def address(self) -> str:
        """HOST:PORT, for ``logstore.connect``."""
        return f"127.0.0.1:{self._proxy.port}"

    @property
    def pid(self) -> int:
        return self._running().process.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None

    def connect(self, **settings: Any) -> RemoteStore:
        """A client, closed with the broker."""
        client: RemoteStore = logstore.connect(self.address, **settings)
        self._clients.append(client)
        return client

    def _running(self) -> Child:
        if self._child is None:
            raise BrokerUnavailableError("this broker was killed or stopped: restart() it")
        return self._child

    # --- the process ---

    def kill(self) -> None:
        """kill -9. What was acknowledged under acks="all" is there after ``restart``."""
        child, self._child = self._running(), None
        child.end()

    def stop(self) -> int:
        """SIGTERM, and the end in order; the exit code."""
        child, self._child = self._running(), None
        child.process.send_signal(signal.SIGTERM)
        code = child.process.wait(PATIENCE_S)
        child.end()
        return code

    def restart(self) -> None:
        """Serve again, killing it first where it runs; faults of the disk and the clock stay."""
        if self._child is not None:
            self.kill()
        self._start()

    def pause(self) -> None:
        """SIGSTOP: it neither answers nor ends until ``resume``."""
        self._running().process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().process.send_signal(signal.SIGCONT)

    # --- its connections ---

    def drop_connections(self) -> int:
        """Cut every connection; how many. Clients connect again."""
        return self._proxy.drop()

    def freeze_connections(self) -> None:
        """Nothing passes either way, and neither side is told, until ``thaw_connections``."""
        self._proxy.freeze()

    def thaw_connections(self) -> None:
        self._proxy.thaw()

    # --- its disk and clock ---

    def slow_disk(self, seconds: float = 0.2) -> None:
        """Every sync takes so much longer; 0: no more."""
        self._fault(slow_s=float(seconds))

    def full_disk(self, full: bool = True) -> None:
        """Nothing more can be written."""
        self._fault(full=full)

    def broken_disk(self, broken: bool = True) -> None:
        """Syncs fail: partitions accept nothing more until the broker has restarted on a disk that works."""
        self._fault(broken=broken)

    def advance_clock(self, ms: int) -> None:
        """Time goes on by ``ms`` for retention, tombstones and expiry."""
        self._running().tell({"advance_ms": int(ms)})
        self._faults["advance_ms"] = self._faults.get("advance_ms", 0) + int(ms)

    def forget_faults(self) -> None:
        """The next start has a disk that works; the clock stays where it is."""
        for name in ("slow_s", "full", "broken"):
            self._faults.pop(name, None)

    def _fault(self, **fault: Any) -> None:
        self._faults.update(fault)
        self._running().tell(fault)

    def close(self) -> None:
        """Stop it, and close its clients. Safe to call again."""
        self._proxy.thaw()
        child, self._child = self._child, None
        if child is not None:
            child.process.send_signal(signal.SIGCONT)
        while self._clients:
            client = self._clients.pop()
            try:
                if child is not None and not (self._faults.get("full") or self._faults.get("broken")):
                    client.close()
            except LogStoreError as error:
                logger.warning("a client of a broker for tests did not close in order: %s", error)
            finally:
                client.abandon()
        if child is not None:
            child.end()
        self._proxy.close()
