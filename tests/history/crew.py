"""``Crew``: the worker processes of a campaign, which faults kill, stop and start again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.history.events import Event, read_events
from tests.worker_process import Worker

PATIENCE_S: Final = 90.0


class Member:
    """One worker by its place in the crew: a process after another, each with a name and a file of its own."""

    def __init__(self, job: str, base: str, address: str, folder: Path, seed: int, pace_s: float) -> None:
        self.job, self.base = job, base
        self._address, self._folder, self._seed = address, folder, seed
        self._pace_s = pace_s
        self._made = 0
        self._process: Worker | None = None
        self.paused = False
        self.errors = 0

    @property
    def name(self) -> str:
        return f"{self.base}.{self._made}"

    @property
    def path(self) -> Path:
        return self._folder / f"{self.name}.events"

    def start(self) -> None:
        self._made += 1
        arguments = (self.job, self._address, self.path, self.name, self._seed + self._made, self._pace_s)
        self._process = Worker(*arguments, module="tests.history.workers")
        self._process.expect("ready", PATIENCE_S)

    @property
    def process(self) -> Worker:
        if self._process is None:
            raise AssertionError(f"{self.base} does not run")
        return self._process

    def noted(self) -> int:
        """Bytes of events, of all its processes."""
        return sum(path.stat().st_size for path in self._folder.glob(f"{self.base}.*.events"))

    def kill(self) -> None:
        self.process.kill()
        self.dispose()

    def pause(self) -> None:
        self.process.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.process.process.send_signal(signal.SIGCONT)
            self.paused = False

    def ask_to_end(self) -> None:
        stdin = self.process.process.stdin
        assert stdin is not None
        stdin.close()

    def await_end(self) -> None:
        """AssertionError: it did not end in order."""
        self.errors += int(self.process.expect("ended", PATIENCE_S).split()[1])
        code = self.process.process.wait(PATIENCE_S)
        assert code == 0, f"{self.name} ended with {code}"
        self.dispose()

    def dispose(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.paused = False
            process.dispose()


class Crew:
    """``roles``: the job of each worker by its base name; ``pace_s``: between two calls of a worker."""

    def __init__(
        self, roles: dict[str, str], address: str, folder: Path, seed: int, pace_s: float = 0.0
    ) -> None:
        self._folder = folder
        self.members = {
            base: Member(job, base, address, folder, seed * 1_000_003 + number * 1_009, pace_s)
            for number, (base, job) in enumerate(roles.items())
        }

    def start(self) -> None:
        for member in self.members.values():
            member.start()

    def of(self, *jobs: str) -> list[Member]:
        return [member for member in self.members.values() if member.job in jobs]

    def await_progress(self) -> None:
        """Every worker notes something more. AssertionError names those that do not."""
        before = {base: member.noted() for base, member in self.members.items()}
        await_condition(
            lambda: all(member.noted() > before[base] for base, member in self.members.items()),
            lambda: (
                "nothing more from "
                + ", ".join(base for base, member in self.members.items() if member.noted() <= before[base])
            ),
        )

    def end(self, *jobs: str) -> None:
        """Let those with these jobs end in order."""
        members = self.of(*jobs)
        for member in members:
            member.resume()
            member.ask_to_end()
        for member in members:
            member.await_end()

    def events(self) -> dict[str, list[Event]]:
        """What each process noted, by its name."""
        paths = sorted(self._folder.glob("*.events"))
        return {path.name.removesuffix(".events"): list(read_events(path)) for path in paths}

    def dispose(self) -> None:
        for member in self.members.values():
            member.dispose()


def await_condition(
    holds: Callable[[], bool], words: Callable[[], str], patience_s: float = PATIENCE_S
) -> None:
    """AssertionError with ``words`` if it does not hold in time."""
    deadline_s = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{words()} within {patience_s} s")
        time.sleep(0.02)
