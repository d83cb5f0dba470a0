"""A Spark driver as a process with all that belongs to it (JVM, Python workers), to be watched and killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import logstore
from spark_connector.writing.sink_commit import COUNTER, sink_group
from tests.house import ROOT

PATIENCE_S = 600.0
_POLL_S = 0.005


class WrongStreamError(AssertionError):
    """What is not as it should be, and with which seed."""


class Progress(NamedTuple):
    """What the checkpoint says: the last batch that was begun and the last that Spark noted as done; -1: none."""

    begun: int
    noted: int

    @property
    def inside(self) -> bool:
        """A batch is begun and not done."""
        return self.begun > self.noted


def progress(checkpoint: Path) -> Progress:
    # In this order: of a live query, what looks like inside a batch was.
    begun = _last(checkpoint / "offsets")
    return Progress(begun, _last(checkpoint / "commits"))


def _last(folder: Path) -> int:
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1


def stage(root: Path, checkpoint: Path, batch: int, address: str | None = None) -> str:
    """How far batch ``batch``, which Spark did not finish, has come, by what is in the store: "begun", "staged" (at
    brokers: a task writes, or has prepared), "open" (appended to a transaction), "decided" (no marker, or not all),
    "unnoted" (in, and Spark does not know). ``address``: of the brokers of a cluster, none of whose directories has it
    all."""
    try:
        query = json.loads((checkpoint / "metadata").read_text())["id"]
    except FileNotFoundError:
        return "begun"
    with logstore.open(root, mode="r") if address is None else logstore.connect(address) as store:
        known = {found.transactional_id: found for found in store.admin.list_transactions()}
        own = known.get(f"spark-{query}")
        state = "" if own is None else own.state
        counter = store.committed_offsets(sink_group(query)).get(COUNTER)
    if state.startswith("PREPARE"):
        return "decided"
    if state == "ONGOING":
        return "open"
    if counter is not None and counter.offset > batch:
        return "unnoted"
    tasks = [one for one in known.values() if one.coordinator == f"spark-{query}"]
    at_work = any(one.state in ("ONGOING", "PREPARED") for one in tasks)
    return "staged" if at_work or list((root / ".staging").glob(f"{query}.{batch}.*")) else "begun"


class Driver:
    """Started at once, in a session of its own: what belongs to it is found by that."""

    def __init__(self, command: list[str], errors: Path, env: dict[str, str]) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self._errors = errors
        self._file: IO[bytes] = errors.open("wb")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._file,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(errors.parent), **env},
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")[-6000:]

    def wait_for(self, what: Callable[[], bool], told: str) -> bool:
        """False: the process ended before. ``WrongStreamError`` after ``PATIENCE_S``."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not what():
            if self.ended:
                return what()
            if time.monotonic() > deadline_s:
                raise WrongStreamError(f"{told}: not within {PATIENCE_S} s; {self.errors()}")
            time.sleep(_POLL_S)
        return True

    def wait(self, *checkpoints: Path) -> int:
        """Its return code, as long as it takes while batches are done. ``WrongStreamError``."""

        def seen() -> list[Progress]:
            return [progress(checkpoint) for checkpoint in checkpoints]

        def moved(before: list[Progress]) -> bool:
            return self.ended or seen() != before

        while not self.ended:
            before = seen()
            self.wait_for(partial(moved, before), f"what comes after {before}")
        return self._process.wait()

    def kill_workers(self, dice: random.Random) -> int:
        """The Python processes that Spark has started, not the driver; how many."""
        workers = [pid for pid in self._processes() if pid != self._process.pid and _is_python(pid)]
        return _kill(workers, dice)

    def kill(self, dice: random.Random) -> None:
        """Driver, JVM and workers, in any order, until none is left."""
        deadline_s = time.monotonic() + PATIENCE_S
        while processes := self._processes():
            _kill(processes, dice)
            self._process.poll()
            if time.monotonic() > deadline_s:
                raise WrongStreamError(f"processes {processes} were killed and are still there")
            time.sleep(_POLL_S)
        self._process.wait()
        self._file.close()

    def _processes(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdecimal():
                try:
                    text = Path("/proc", name, "stat").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue  # ended meanwhile
                # pid (name) state parent group session ...; the name may hold anything
                state, _, _, session = text.rpartition(")")[2].split()[:4]
                if int(session) == self._process.pid and state not in "ZX":
                    found.append(int(name))
        return sorted(found)


def _is_python(pid: int) -> bool:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return re.search(rb"python[0-9.]*$", words[0]) is not None


def _kill(pids: list[int], dice: random.Random) -> int:
    killed = 0
    for pid in dice.sample(pids, len(pids)):
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            continue
    return killed
