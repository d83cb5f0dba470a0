"""Every workload of up to three calls, cut off at every I/O call, with bounded subsets of what was unsynced.

One run of a workload gives all its boundaries: the file system is cloned, with the model, before each call
that changes anything. Boundaries of all but the last call belong to the shorter workload, so only those of
the last one are looked at. From each boundary come the outcomes of a power loss (``crash_states``) and of a
kill; outcomes that were met before, with the same promises, are counted and not run again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from logstore.ownership.live import LiveSlot
from logstore.seams.faults import Operation
from logstore.seams.memory_fs import MemoryFileSystem
from tests.sim import model as rules
from tests.sim.host import Host
from tests.sim.machine import Machine
from tests.sim.model import Violation
from tests.sim.workload import ALPHABET, Settings

CHANGES = frozenset(
    ("create", "pwritev", "sync", "truncate", "mkdir", "rename", "link", "remove", "rmdir", "sync_dir")
)
SETTINGS = Settings()
Workload = tuple[Any, ...]
Make = Callable[[], Host]


def plain_machine() -> Machine:
    return Machine(SETTINGS)


@dataclass(slots=True)
class Counts:
    """What was run. ``states``: outcomes of crashes met; ``distinct``: those recovered from."""

    workloads: int = 0
    boundaries: int = 0
    states: int = 0
    distinct: int = 0
    crashed_recoveries: int = 0

    def add(self, other: Counts) -> None:
        self.workloads += other.workloads
        self.boundaries += other.boundaries
        self.states += other.states
        self.distinct += other.distinct
        self.crashed_recoveries += other.crashed_recoveries


@dataclass(slots=True)
class Boundary:
    """The machine just before ``operation`` (None: after the last call)."""

    operation: Operation | None
    fs: MemoryFileSystem
    model: Any
    wall_ms: int
    live: dict[int, LiveSlot]
    boots: int


def workloads(longest: int, alphabet: Sequence[Any] = ALPHABET) -> Iterator[Workload]:
    """All sequences of up to ``longest`` calls, the empty one (the setting up) first."""
    for length in range(longest + 1):
        yield from itertools.product(alphabet, repeat=length)


def boundaries(workload: Workload, make: Make = plain_machine) -> Iterator[Boundary]:
    """Run the workload once; the machine before each change that its last call makes, and behind it."""
    machine = make()
    found: list[Boundary] = []

    def look(operation: Operation) -> None:
        if operation.name in CHANGES:
            found.append(_here(machine, operation))

    if not workload:
        machine.fs.faults.observer = look
        machine.set_up()
    else:
        machine.set_up()
        for call in workload[:-1]:
            machine.do(call)
        machine.fs.faults.observer = look
        machine.do(workload[-1])
    machine.fs.faults.observer = None
    found.append(_here(machine, None))
    machine.abandon()
    yield from found


def _here(machine: Host, operation: Operation | None) -> Boundary:
    wall_ms, live = machine.clock.wall_ms(), dict(machine.live)
    return Boundary(operation, machine.fs.clone(), machine.model.copy(), wall_ms, live, machine.boots)


@dataclass(slots=True)
class Explorer:
    """Recovers from every outcome once. ``limit``: outcomes of a power loss looked at per boundary;
    ``recrash_every``: each so many distinct outcomes recovery itself is cut off at every change."""

    limit: int = 40
    recrash_every: int = 200
    make: Make = plain_machine
    counts: Counts = field(default_factory=Counts)
    _met: set[tuple[bytes, int, bool]] = field(default_factory=set)

    def explore(self, chosen: Iterable[Workload]) -> Counts:
        for workload in chosen:
            self.counts.workloads += 1
            for boundary in boundaries(workload, self.make):
                self.counts.boundaries += 1
                self._outcomes(workload, boundary)
        return self.counts

    def _outcomes(self, workload: Workload, boundary: Boundary) -> None:
        promises = boundary.model.signature()
        for disk in boundary.fs.crash_states(self.limit):
            self._outcome(workload, boundary, disk, promises, power_loss=True)
        self._outcome(workload, boundary, boundary.fs, promises, power_loss=False)

    def _outcome(
        self,
        workload: Workload,
        boundary: Boundary,
        disk: MemoryFileSystem,
        promises: int,
        *,
        power_loss: bool,
    ) -> None:
        self.counts.states += 1
        mark = (disk.fingerprint(), promises, power_loss)
        if mark in self._met:
            return
        self._met.add(mark)
        self.counts.distinct += 1
        recrash = self.counts.distinct % self.recrash_every == 0
        try:
            rows = recovered(self.make, disk.clone(), boundary, power_loss=power_loss)
            if recrash:
                self._recrash(disk, boundary, rows, power_loss=power_loss)
        except Violation as violation:
            kind = "power loss" if power_loss else "kill"
            place = f"{kind} before {boundary.operation or 'the end'} of {list(workload)}"
            raise Violation(violation.rule, f"{violation.detail}; {place}") from violation

    def _recrash(self, disk: MemoryFileSystem, boundary: Boundary, rows: object, *, power_loss: bool) -> None:
        """Cut recovery off before each of its changes, and recover from what that leaves."""
        for again in recovery_boundaries(self.make, disk.clone(), boundary, power_loss=power_loss):
            outcomes = [(left, True) for left in again.fs.crash_states(6)]
            for left, power_again in [*outcomes, (again.fs, False)]:
                self.counts.crashed_recoveries += 1
                second = recovered(self.make, left.clone(), again, power_loss=power_again, since=power_loss)
                if power_loss and second != rows:
                    raise Violation(
                        rules.IDEMPOTENT, f"recovered {rows}, cut off before {again.operation}: {second}"
                    )


def _machine_at(make: Make, disk: MemoryFileSystem, boundary: Boundary, *, power_loss: bool) -> Host:
    machine = make()
    machine.model = boundary.model.copy()
    machine.boots = boundary.boots
    machine.clock.reboot(f"boot-{machine.boots}")
    machine.clock.jump_wall(boundary.wall_ms - machine.clock.wall_ms())
    if power_loss:
        machine.lose_power(disk)
    else:
        machine.lose_process(disk)
        machine.live = dict(boundary.live)
    return machine


def recovered(
    make: Make,
    disk: MemoryFileSystem,
    boundary: Boundary,
    *,
    power_loss: bool,
    since: bool = False,
) -> object:
    """Recover, hold the outcome against the promises, prove the store usable; what was left of the topic.

    ``since``: the power was lost already before the recovery that this crash cut off.
    """
    machine = _machine_at(make, disk, boundary, power_loss=power_loss)
    machine.recover(power_loss=power_loss or since)
    rows = machine.survivors()
    machine.prove_usable()
    if not power_loss:
        machine.lose_all_unsynced()
    return rows


def recovery_boundaries(
    make: Make, disk: MemoryFileSystem, boundary: Boundary, *, power_loss: bool
) -> Sequence[Boundary]:
    machine = _machine_at(make, disk, boundary, power_loss=power_loss)
    found: list[Boundary] = []

    def look(operation: Operation) -> None:
        if operation.name in CHANGES:
            found.append(_here(machine, operation))

    machine.fs.faults.observer = look
    machine.recover(power_loss=power_loss)
    machine.fs.faults.observer = None
    machine.abandon()
    return found
