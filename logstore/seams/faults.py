"""Planned faults for the in-memory file system: which call fails, how, and how often; and the trace of calls.

A call is counted when it is made, before anything happens; the first is number 1. ``File.close`` is not
counted: it cannot fail and changes nothing that lasts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class SimulatedCrash(BaseException):
    """The power went, or the process was killed. No ``except Exception`` may swallow it."""


class FaultKind(Enum):
    EIO = "eio"  # the call fails and changes nothing; a sync fails as FAILED_SYNC does
    ENOSPC = "enospc"  # calls that take space fail and change nothing
    SHORT_WRITE = "short-write"  # half of the bytes are written; the write after it gets ENOSPC
    FAILED_SYNC = (
        "failed-sync"  # EIO; a file's dirty pages read on, count as clean, and may vanish at a crash
    )
    CRASH = "crash"  # SimulatedCrash before the call
    CRASH_AMID = "crash-amid"  # SimulatedCrash after the first half of a write


_TAKES_SPACE: Final = frozenset({"create", "pwritev", "mkdir", "link", "rename"})
_SYNCS: Final = frozenset({"sync", "sync_dir"})
_WRITES: Final = frozenset({"pwritev"})
_APPLIES: Final[dict[FaultKind, frozenset[str] | None]] = {
    FaultKind.EIO: None,  # to every call
    FaultKind.ENOSPC: _TAKES_SPACE,
    FaultKind.SHORT_WRITE: _WRITES,
    FaultKind.FAILED_SYNC: _SYNCS,
    FaultKind.CRASH: None,
    FaultKind.CRASH_AMID: _WRITES,
}


class Operation(NamedTuple):
    """One call of the trace. ``detail``: positions, lengths and the CRC-32 of what was written."""

    number: int
    name: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.number} {self.name} {self.path} {self.detail}".rstrip()


@dataclass(slots=True)
class _Rule:
    kind: FaultKind
    forever: bool
    call: int  # call number, or 0 for "the nth that matches"
    name: str = ""
    path_ends: str = ""
    to_skip: int = 0

    def matches(self, number: int, name: str, path: str) -> bool:
        applies = _APPLIES[self.kind]
        if applies is not None and name not in applies:
            return False
        if self.call:
            return number >= self.call if self.forever else number == self.call
        if (self.name and name != self.name) or not path.endswith(self.path_ends):
            return False
        self.to_skip -= 1
        return self.to_skip < 0


class Faults:
    """Consulted at every call of one ``MemoryFileSystem``.

    ``calls``: calls made so far; ``fired``: faults that took effect (a fault planned for a call it cannot
    hit, such as ENOSPC on a read, does not fire); ``trace``: the calls, kept only when asked for;
    ``observer``: shown each call before it happens, it may clone the file system.
    """

    def __init__(self, *, trace: bool = False) -> None:
        self.calls = 0
        self.fired = 0
        self.crashed = False
        self.trace: list[Operation] = []
        self.tracing = trace
        self.observer: Callable[[Operation], None] | None = None
        self._rules: list[_Rule] = []

    def at(self, call: int, kind: FaultKind, forever: bool = False) -> None:
        """Plan a fault for call number ``call`` (from 1); ``forever``: and for every later one it can hit."""
        if call < 1:
            raise ValueError(f"calls are counted from 1, not from {call}")
        self._rules.append(_Rule(kind, forever, call))

    def on(
        self, name: str, kind: FaultKind, *, path_ends: str = "", skip: int = 0, forever: bool = False
    ) -> None:
        """Plan a fault for the next call named ``name`` ("" for any) whose path ends so, after ``skip``."""
        self._rules.append(_Rule(kind, forever, 0, name, path_ends, skip))

    def clear(self) -> None:
        """Forget the planned faults: the disk works again. A crash that happened stays."""
        self._rules.clear()

    def halt(self) -> None:
        """Every later call raises ``SimulatedCrash``: this machine or process is gone."""
        self.crashed = True

    def consult(self, name: str, path: str, detail: str = "") -> FaultKind | None:
        """Count one call and raise what is planned for it.

        Faults that the call itself must act out are returned instead: ``FAILED_SYNC`` (also for EIO on a
        sync), ``SHORT_WRITE`` and ``CRASH_AMID``. Raises ``OSError`` or ``SimulatedCrash``.
        """
        if self.crashed:
            raise SimulatedCrash(f"{name} {path} after the crash")
        self.calls += 1
        if self.tracing:
            self.trace.append(Operation(self.calls, name, path, detail))
        if self.observer is not None:
            self.observer(Operation(self.calls, name, path, detail))
        if not self._rules:
            return None
        for rule in self._rules:
            if rule.matches(self.calls, name, path):
                return self._fire(rule, name, path)
        return None

    def _fire(self, rule: _Rule, name: str, path: str) -> FaultKind | None:
        self.fired += 1
        if not rule.forever:
            self._rules.remove(rule)
        kind = rule.kind
        if kind is FaultKind.CRASH:
            self.halt()
            raise SimulatedCrash(f"before call {self.calls}: {name} {path}")
        if kind is FaultKind.CRASH_AMID:
            self.halt()
            return kind
        if kind is FaultKind.SHORT_WRITE:
            if rule.forever:
                self._rules.remove(rule)
            self._rules.append(_Rule(FaultKind.ENOSPC, rule.forever, 0, name="pwritev"))
            return kind
        if kind is FaultKind.FAILED_SYNC or (kind is FaultKind.EIO and name in _SYNCS):
            return FaultKind.FAILED_SYNC
        number = errno.ENOSPC if kind is FaultKind.ENOSPC else errno.EIO
        raise OSError(number, os.strerror(number), path)
