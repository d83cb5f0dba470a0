"""``crash_test``: a program on a store, crashed at a random call, and what it was promised looked for afterwards.

The store lies on a file system in memory that forgets what was not synced, as a disk does at a power loss: any part of
the unsynced writes may survive, in any order, down to single sectors. kill -9 alone finds none of that.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

Notes = list[Any]
_KILL_SHARE = 0.2  # of the crashes: the process alone dies, the machine goes on


class CrashTestError(AssertionError):
    """The check failed after a crash. ``seed`` repeats it."""

    def __init__(self, message: str, seed: int) -> None:
        super().__init__(message)
        self.seed = seed


@dataclass(slots=True)
class CrashReport:
    """``runs`` with a crash, ``kills`` among them; ``calls``: of the file system, in a run without a crash."""

    runs: int = 0
    kills: int = 0
    calls: int = 0


def crash_test(
    work: Callable[[LogStore, Notes], object],
    check: Callable[[LogStore, Notes], object],
    *,
    seeds: Iterable[int] = range(200),
) -> CrashReport:
    """Run ``work(store, notes)`` once for each seed, crash it at a call of the file system that the seed draws, open
    what is left, and run ``check(store, notes)``. ``work`` appends to ``notes`` what it was promised (as the offset
    that a delivery's ``result()`` gave), and what it was about to do; ``check`` raises, as by ``assert``, where a
    promise is broken. Both run first without a crash. CrashTestError names the seed."""
    notes: Notes = []
    disk = MemoryFileSystem()
    with _opened(disk) as store:
        work(store, notes)
    report = CrashReport(calls=disk.faults.calls)
    with _opened(disk) as store:
        check(store, notes)
    for seed in seeds:
        _crash_once(work, check, seed, report)
    if not report.runs:
        raise ValueError("crash_test() without a seed shows nothing")
    return report


@contextmanager
def _threads_crash_silently() -> Iterator[None]:
    """A thread that the crash ends, as a producer's, has nothing to tell."""
    before = threading.excepthook

    def hook(told: threading.ExceptHookArgs) -> None:
        if not issubclass(told.exc_type, SimulatedCrash):
            before(told)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def _opened(disk: MemoryFileSystem) -> LogStore:
    return LogStore("/store", fs=disk, threads=False)


def _crash_once(
    work: Callable[[LogStore, Notes], object],
    check: Callable[[LogStore, Notes], object],
    seed: int,
    report: CrashReport,
) -> None:
    source = random.Random(seed)
    disk, notes = MemoryFileSystem(), Notes()
    at = source.randint(1, report.calls)
    disk.faults.at(at, FaultKind.CRASH)
    try:
        with _threads_crash_silently(), _opened(disk) as store:
            work(store, notes)
    except SimulatedCrash:
        pass  # what was asked for
    except Exception:
        if not disk.faults.crashed:
            raise
    killed = source.random() < _KILL_SHARE
    left = disk.process_crash() if killed else disk.crash(RandomChooser(source))
    report.runs += 1
    report.kills += killed
    what = "kill" if killed else "power loss"
    try:
        with _opened(left) as store:
            check(store, notes)
    except Exception as error:
        raise CrashTestError(
            f"seed {seed}: after a {what} before call {at} of {report.calls}: {type(error).__name__}: {error} "
            f"(crash_test(..., seeds=[{seed}]) repeats it)",
            seed,
        ) from error
