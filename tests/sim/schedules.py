"""Seeded random schedules: random settings and calls, a crash at a random I/O call, recovery, and on.

A quarter of the crashes are kills, where the page cache survives; a fifth of the recoveries is cut off by a
second crash. Everything follows from the seed: settings, calls, where it crashes, what the disk keeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import RandomChooser
from tests.sim import model as rules
from tests.sim.host import Host
from tests.sim.machine import Machine
from tests.sim.model import Violation
from tests.sim.workload import random_call, random_settings


@dataclass(slots=True)
class Outcome:
    """One schedule. ``crashes``: power losses; ``kills``: processes killed; ``amid``: of both, those that
    came inside a call; ``recrashed``: recoveries that were cut off."""

    seed: int
    calls: int = 0
    crashes: int = 0
    kills: int = 0
    amid: int = 0
    recrashed: int = 0
    records: int = 0
    violation: Violation | None = None
    trace: list[str] = field(default_factory=list)

    def digest(self) -> str:
        return blake2b("\n".join(self.trace).encode(), digest_size=16).hexdigest()


@dataclass(slots=True)
class Totals:
    """Sums over schedules; a schedule without a crash does not count."""

    schedules: int = 0
    calls: int = 0
    crashes: int = 0
    kills: int = 0
    amid: int = 0
    recrashed: int = 0
    records: int = 0
    violations: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        if outcome.crashes + outcome.kills:
            self.schedules += 1
        self.calls += outcome.calls
        self.crashes += outcome.crashes
        self.kills += outcome.kills
        self.amid += outcome.amid
        self.recrashed += outcome.recrashed
        self.records += outcome.records
        if outcome.violation is not None:
            self.violations.append(outcome)


class Schedule:
    """One seed's run."""

    KIND = "schedule"
    LONGEST = 14  # calls of one life

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.source = random.Random(f"{self.KIND} {seed}")
        self.outcome = Outcome(seed)
        self.settings = self.random_settings()
        self.machine = self.new_machine(trace)
        self._trace = trace

    def random_settings(self) -> Any:
        return random_settings(self.source)

    def new_machine(self, trace: bool) -> Host:
        return Machine(self.settings, trace=trace)

    def random_call(self) -> object:
        return random_call(self.source, self.settings)

    def run(self) -> Outcome:
        """Violations are put into the outcome, with the trace so far; SimulatedCrash never comes out."""
        try:
            self._run()
        except Violation as violation:
            self.outcome.violation = violation
        except Exception as error:  # noqa: BLE001 - kept: whatever comes out is the finding
            self.outcome.violation = Violation(rules.CALM, f"{type(error).__name__}: {error}")
            self.outcome.violation.__cause__ = error
        self._collect()
        self.outcome.trace = self.machine.lines
        self.outcome.records = self.machine.records()
        return self.outcome

    def _run(self) -> None:
        source = self.source
        if source.random() < 0.05:
            self._arm()
        crashed = self._cut_off(self.machine.set_up)
        for life in range(source.choice((1, 1, 2, 3))):
            if life or not crashed:
                crashed = self._live()
            self._fall()
        self.machine.prove_usable()
        self.machine.lose_all_unsynced()

    def _live(self) -> bool:
        """Some calls, a crash planned at some I/O call from one of them on; whether it came."""
        source = self.source
        self.machine.ensure_topic()
        calls = source.randint(1, self.LONGEST)
        armed = source.randrange(calls)
        for number in range(calls):
            if number == armed:
                self._arm()
            call = self.random_call()
            self.outcome.calls += 1
            if self._cut_off(partial(self.machine.do, call)):
                self.outcome.amid += 1
                return True
        return False

    def _arm(self) -> None:
        source, faults = self.source, self.machine.fs.faults
        if source.random() < 0.15:
            faults.on("pwritev", FaultKind.CRASH_AMID, skip=source.randrange(4))
        else:
            faults.at(faults.calls + source.randint(1, 40), FaultKind.CRASH)

    def _cut_off(self, work: Callable[[], None]) -> bool:
        """Whether a crash came out of ``work``."""
        try:
            work()
        except SimulatedCrash as crash:
            self.machine.lines.append(f"  crash {crash}")
            return True
        return False

    def _fall(self) -> None:
        """The crash, and the recovery: a fifth of them is cut off, some twice or more."""
        power_loss = self._lose()
        recrash = self.source.random() < 0.2
        rows = self._twin() if recrash and power_loss else None
        while not self._recovered(recrash, power_loss=power_loss):
            power_loss = self._lose() or power_loss
            recrash = self.source.random() < 0.3
        if rows is not None:
            mine = self.machine.survivors()
            if mine != rows:
                raise Violation(rules.IDEMPOTENT, f"recovered in one go: {rows}, in several: {mine}")

    def _recovered(self, recrash: bool, *, power_loss: bool) -> bool:
        """Recover, with a crash planned if ``recrash``; whether it came through."""
        machine, faults = self.machine, self.machine.fs.faults
        if recrash:
            faults.at(faults.calls + self.source.randint(1, 60), FaultKind.CRASH)
        crashed = self._cut_off(partial(machine.recover, power_loss=power_loss))
        faults.clear()
        if crashed:
            self.outcome.recrashed += 1
        return not crashed

    def _lose(self) -> bool:
        """Power, or only the process; True if it was the power."""
        self._collect()
        if self.source.random() < 0.25:
            self.outcome.kills += 1
            self.machine.lines.append("kill")
            self.machine.lose_process(self.machine.fs.process_crash())
            return False
        self.outcome.crashes += 1
        self.machine.lines.append("power loss")
        self.machine.lose_power(self.machine.fs.crash(RandomChooser(self.source)))
        return True

    def _twin(self) -> object:
        """What an undisturbed recovery of the same disk gives, after a power loss."""
        twin = self.machine.twin()
        twin.model = self.machine.model.copy()
        twin.clock.jump_wall(self.machine.clock.wall_ms() - twin.clock.wall_ms())
        twin.fs = self.machine.fs.clone()
        twin.clock.reboot(self.machine.clock.boot_id())
        twin.recover(power_loss=True)
        twin.abandon()
        return twin.survivors()

    def _collect(self) -> None:
        """The file system's own trace joins the run's, in place."""
        if self._trace:
            faults = self.machine.fs.faults
            self.machine.lines += [f"    {operation}" for operation in faults.trace]
            faults.trace.clear()


def run_schedule(seed: int, *, trace: bool = False, kind: type[Schedule] = Schedule) -> Outcome:
    return kind(seed, trace=trace).run()


def run_schedules(seeds: Iterable[int], kind: type[Schedule] = Schedule) -> Totals:
    totals = Totals()
    for seed in seeds:
        totals.add(run_schedule(seed, kind=kind))
    return totals
