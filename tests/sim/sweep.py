"""Disk faults at every call of everything that writes: EIO, ENOSPC and short writes, once and for ever.

Only what can fire is planned: ENOSPC where a call takes space, a short write where one writes. What must hold:
the call fails with a named error or does not feel the fault; reads go on; the next append goes in, or a failed
sync has poisoned the log; after a kill, a power loss, or both, nothing that was promised is missing, and all works.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from logstore.errors import LogStoreError, PartitionPoisonedError
from logstore.seams.faults import _APPLIES, FaultKind, Operation
from tests.sim import model as rules
from tests.sim.fault_run import FaultCounts, FaultRun, goes_on
from tests.sim.ledger_machine import LedgerMachine
from tests.sim.ledger_workload import (
    Clean,
    End,
    Erase,
    Import,
    LedgerSettings,
    Put,
    Recreate,
    Resend,
    Send,
    Slice,
)
from tests.sim.workload import Flush, Read, Reopen, Tick, Trim

KINDS: Final = (FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE)
COMPACTED: Final = LedgerSettings(delete_retention_ms=0)
LATE: Final = LedgerSettings(delete_retention_ms=0, file_delete_delay_ms=10_000)
DELETED: Final = LedgerSettings(policy="compact,delete")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A workload in which every I/O call fails once."""

    settings: LedgerSettings
    calls: tuple[object, ...]


SWEEPS: Final[Mapping[str, Sweep]] = {
    "append, flush, roll": Sweep(
        COMPACTED, (Put("a", 1), Send(0, "ab"), Flush(), Put("b", 1, 700), Put("c", "all", 700))
    ),
    "markers": Sweep(
        COMPACTED,
        (Send(1, "ab"), Send(2, "c", "all"), End(1, commit=False), Put("a", "all", 700), End(2, commit=True)),
    ),
    "snapshots and resends": Sweep(
        COMPACTED, (Send(0, "a", "all"), Tick(6_000), Send(0, "b"), Reopen(), Resend(0), Read())
    ),
    "cleaning": Sweep(COMPACTED, (Send(1, "ab"), End(1, commit=False), Clean(), Put("c"), Clean())),
    "cleaning in slices": Sweep(
        LATE, (Slice(15), Put("a"), Slice(180), Put("b", "all", 700), Slice(300), Tick(11_000))
    ),
    "erasure": Sweep(COMPACTED, (Send(0, "a"), Erase("a"), Send(0, "b", "all"))),
    "deletion of a topic": Sweep(COMPACTED, (Recreate(), Send(0, "a", "all"))),
    "deletion of records": Sweep(DELETED, (Put("a", "all", 700), Trim(), Tick(150), Trim(), Tick(60_000))),
    "named producers": Sweep(COMPACTED, (Import(2), Import(1))),
}


@dataclass(frozen=True, slots=True)
class SweepCase:
    """Fault ``kind`` at I/O call ``call`` (from 1, setting up left out) of a workload."""

    name: str
    call: int
    kind: FaultKind
    forever: bool

    def __str__(self) -> str:
        when = "for ever from" if self.forever else "at"
        return f"{self.kind.value} {when} call {self.call} of {self.name!r}"


@cache
def trace_of(name: str) -> tuple[Operation, ...]:
    """The workload's I/O calls, undisturbed."""
    sweep = SWEEPS[name]
    machine = LedgerMachine(sweep.settings, trace=True)
    machine.set_up()
    start = len(machine.fs.faults.trace)
    for call in sweep.calls:
        machine.do(call)
    return tuple(machine.fs.faults.trace[start:])


def sweep_cases() -> Iterator[SweepCase]:
    for name in SWEEPS:
        for call, operation in enumerate(trace_of(name), 1):
            for kind in KINDS:
                applies = _APPLIES[kind]
                if applies is None or operation.name in applies:
                    yield SweepCase(name, call, kind, forever=False)
                    yield SweepCase(name, call, kind, forever=True)


class SweepRun(FaultRun[SweepCase, LedgerMachine]):
    """One case, run to its end."""

    def __init__(self, case: SweepCase) -> None:
        super().__init__(case, LedgerMachine(SWEEPS[case.name].settings))

    def calls(self) -> Iterable[object]:
        return SWEEPS[self.case.name].calls

    def after_error(self, call: object, error: LogStoreError) -> None:
        """Reads go on, and appends unless a sync failed."""
        if isinstance(call, Reopen | Recreate):
            return
        machine = self.machine
        with goes_on(rules.READS_GO_ON, error):
            list(machine.log.records(machine.log.log_start_offset))
            machine.do(Read())
        excuse = PartitionPoisonedError if self.case.kind is FaultKind.EIO else ()
        try:
            with goes_on(rules.WORKS_AGAIN, error, but=excuse):
                machine.do(Put("d", "all", 16))
                machine.do(Read())
        except PartitionPoisonedError:
            self.counts.poisoned += 1

    def crash(self) -> None:
        self.machine.ledger.unsettle()
        super().crash()


def run_sweep(chosen: Iterable[SweepCase]) -> FaultCounts:
    totals = FaultCounts()
    for case in chosen:
        totals.add(SweepRun(case).run())
    return totals
