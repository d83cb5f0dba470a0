"""A simulated computer: file system and clock that outlive processes, and the real engine opened on them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest.mock import patch

from logstore.errors import LogStoreError
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.partition.partition_log import PartitionLog
from logstore.seams.clock import ManualClock
from logstore.seams.faults import SimulatedCrash
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from tests.sim import model as rules
from tests.sim.model import Place, Violation

ROOT = "/store"


class Host(ABC):
    """``start`` opens the store; ``lose_power`` and ``lose_process`` end its life, ``recover`` begins the next.

    ``lines`` is the run's trace: every call and answer. What a store must do is in the subclasses' ``model``.
    """

    HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {}
    model: Any

    def __init__(self, *, trace: bool = False) -> None:
        self.fs = MemoryFileSystem(trace=trace)
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.boots = 0
        self.live: dict[int, LiveSlot] = {}  # what `.live` holds: it survives a kill, not a power loss
        self._randomness = random.Random("randomness")
        self._locks = LockTable()
        self._store: LogStore | None = None

    @property
    def store(self) -> LogStore:
        if self._store is None:
            raise RuntimeError("the machine was not started")
        return self._store

    def partition(self, place: Place) -> PartitionLog:
        return self.store.partition(place.topic, place.partition)

    # --- lives --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the store; it must open whatever a crash left. SimulatedCrash passes."""
        self._locks = LockTable()
        with patch("os.urandom", self._randomness.randbytes):  # what takes no randomness from the store
            self._store = LogStore(
                ROOT,
                fs=self.fs,
                clock=self.clock,
                locks=MemoryLocks(self._locks, clock=self.clock, sleep=self._sleep),
                live=MemoryLive(self.live),
                threads=False,
                retention_check_s=0.1,
                random_bytes=self._randomness.randbytes,  # ids follow from the seed, as all else does
                maintenance_s=0,  # the calls of a run are those that it names: a close maintains nothing
            )

    @contextmanager
    def another_process(self) -> Iterator[LogStore]:
        """The same directory, opened read-only beside whatever is open."""
        reader = LogStore(
            ROOT,
            mode="r",
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(self._locks, clock=self.clock, sleep=self._sleep),
            live=MemoryLive(self.live),
            threads=False,
        )
        try:
            yield reader
        finally:
            reader.abandon()

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(max(int(seconds * 1000), 1))

    def abandon(self) -> None:
        """The process is gone: nothing of its store is used any more."""
        store, self._store = self._store, None
        if store is not None:
            store.abandon()

    def lose_power(self, disk: MemoryFileSystem) -> None:
        """The machine restarts on what the disk kept."""
        self.abandon()
        self.fs = disk
        self.live = {}
        self.boots += 1
        self.clock.reboot(f"boot-{self.boots}")  # ManualClock starts as boot-0
        self.clock.advance(1_000)

    def lose_process(self, cache: MemoryFileSystem) -> None:
        """The process was killed; the machine goes on."""
        self.abandon()
        self.fs = cache
        self.clock.advance(1_000)

    def lose_all_unsynced(self) -> None:
        """After a close in order nothing is left to be lost, whatever a killed process left unsynced."""
        self.lose_power(self.fs.crash(KeepNothing()))
        self.recover(power_loss=True)
        self.abandon()

    # --- calls --------------------------------------------------------------------------------------

    def do(self, call: object) -> None:
        """Make one call and hold its answer against the model. Errors of the engine pass."""
        self.lines.append(repr(call))
        self.HANDLERS[type(call)](self, call)

    # --- what a machine's model says ----------------------------------------------------------------

    @abstractmethod
    def set_up(self) -> None:
        """A new store with its first durable records."""

    @abstractmethod
    def ensure_topic(self) -> None:
        """Create the topic with its first records, unless it is there."""

    @abstractmethod
    def recover(self, *, power_loss: bool) -> None:
        """Start on what is there, and hold all of it against the promises. SimulatedCrash passes."""

    @abstractmethod
    def prove_usable(self) -> None:
        """New records go in and come out, then a close in order leaves files that agree with each other."""

    @abstractmethod
    def survivors(self) -> object:
        """What the store holds by its model, to be compared with another outcome of the same disk."""

    @abstractmethod
    def records(self) -> int:
        """How many records were made so far."""

    @abstractmethod
    def twin(self) -> Host:
        """A machine of the same settings, not started."""


@contextmanager
def opens() -> Iterator[None]:
    """No error may come out of a start: whatever a crash left has to be understood."""
    try:
        yield
    except (LogStoreError, OSError) as error:
        raise Violation(rules.STARTS, f"{type(error).__name__}: {error}") from error


@contextmanager
def named_errors() -> Iterator[None]:
    """Every failure of the engine is one of its own errors."""
    try:
        yield
    except (LogStoreError, Violation, SimulatedCrash):
        raise
    except Exception as error:
        raise Violation(rules.NAMED_ERRORS, f"{type(error).__name__}: {error}") from error
