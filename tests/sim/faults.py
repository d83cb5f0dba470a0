"""Disk faults: one workload, and at every I/O call of it each kind of fault, once and for ever.

What must hold: the failing call raises a named error, records below the high watermark can still be read,
appends work again when there is space again, a failed sync of a log poisons it until it is reopened, and a
crash afterwards, a kill or a power loss, breaks no promise. A fault that did not fire does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from logstore.errors import LogStoreError, OutcomeUnknownError, PartitionPoisonedError
from logstore.seams.faults import FaultKind, Operation
from tests.sim import model as rules
from tests.sim.fault_run import FaultCounts, FaultRun, goes_on
from tests.sim.host import named_errors
from tests.sim.machine import Machine
from tests.sim.model import Violation
from tests.sim.workload import (
    ROLLING_BYTES,
    Append,
    Call,
    Commit,
    CreateTopic,
    Flush,
    Read,
    Reopen,
    Settings,
    Tick,
)

SETTINGS: Final = Settings(partitions=2)
WORKLOAD: Final[tuple[Call, ...]] = (
    Append("all"),
    Append(1),
    Read(),
    Append("all", 1, ROLLING_BYTES),
    Append(1, 1, ROLLING_BYTES, 1),
    Tick(),
    Commit(),
    CreateTopic(),
    Append(1, 3, 100),
    Flush(),
    Append(1, 2, 24, 1),
    Reopen(),
    Read(),
    Append("all", 2, 24, 1),
    Append("all", 8, 200),
    Append(1, 1, ROLLING_BYTES),
    Read(1),
    Tick(6_000),
    Commit(1),
    Append("all", 8, 24),
)
KINDS: Final = (FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE, FaultKind.FAILED_SYNC)


@dataclass(frozen=True, slots=True)
class Case:
    """Fault ``kind`` at I/O call ``call`` of the workload (from 1, setting up left out)."""

    call: int
    kind: FaultKind
    forever: bool

    def __str__(self) -> str:
        return f"{self.kind.value} {'for ever from' if self.forever else 'at'} call {self.call}"


def trace_of_workload() -> list[Operation]:
    """The workload's I/O calls, undisturbed."""
    machine = Machine(SETTINGS, trace=True)
    machine.set_up()
    start = len(machine.fs.faults.trace)
    for call in WORKLOAD:
        machine.do(call)
    return machine.fs.faults.trace[start:]


def cases() -> Iterator[Case]:
    for call in range(1, len(trace_of_workload()) + 1):
        for kind in KINDS:
            for forever in (False, True):
                yield Case(call, kind, forever)


class WorkloadFault(FaultRun[Case, Machine]):
    """One case, run to its end."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, Machine(SETTINGS))

    def calls(self) -> Iterable[Call]:
        return WORKLOAD

    def after_error(self, call: Call, error: LogStoreError) -> None:
        if isinstance(call, Reopen):
            self._reopened()
            return
        with goes_on(rules.READS_GO_ON, error):
            for number in range(SETTINGS.partitions):
                self.machine.do(Read(number))
        poisoned = isinstance(error, OutcomeUnknownError | PartitionPoisonedError)
        for number in range(SETTINGS.partitions):
            if poisoned and isinstance(call, Append | Flush) and call.partition == number:
                self._must_refuse(number, error)
            else:
                self._append_again(number, error)

    def _must_refuse(self, number: int, error: LogStoreError) -> None:
        """Whatever a retried sync would say, the log takes nothing until it was reopened and recovered."""
        try:
            with named_errors():
                self.machine.do(Append("all", 1, 16, number))
        except PartitionPoisonedError:
            self.counts.poisoned += 1
            return
        raise Violation(rules.POISONED, f"partition {number} took records after {error}")

    def _append_again(self, number: int, error: LogStoreError) -> None:
        """The disk works again: appends do too, unless a sync failed that the caller was not waiting for."""
        try:
            with goes_on(rules.WORKS_AGAIN, error, but=self._excuse()):
                self.machine.do(Append("all", 1, 16, number))
                self.machine.do(Read(number))
        except PartitionPoisonedError:
            self.counts.poisoned += 1

    def _excuse(self) -> type[LogStoreError] | tuple[()]:
        may_poison = self.case.kind in (FaultKind.EIO, FaultKind.FAILED_SYNC)
        return PartitionPoisonedError if may_poison else ()

    def _reopened(self) -> None:
        """Closing or opening failed; the process gives up, and a new one opens the store."""
        self.machine.lose_process(self.machine.fs.process_crash())
        self.machine.recover(power_loss=False)


def run_cases(chosen: Iterable[Case]) -> FaultCounts:
    totals = FaultCounts()
    for case in chosen:
        totals.add(WorkloadFault(case).run())
    return totals
