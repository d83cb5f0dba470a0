"""One fault in one workload, run to its end: what the runs of ``faults.py`` and ``sweep.py`` have in common."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from logstore.errors import LogStoreError
from logstore.seams.faults import FaultKind
from logstore.seams.memory_crash import RandomChooser
from tests.sim import model as rules
from tests.sim.host import named_errors
from tests.sim.model import Violation


@dataclass(slots=True)
class FaultCounts:
    """``fired`` by kind; ``errors``: named errors that came out; ``poisoned``: partitions that refused."""

    planned: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    poisoned: int = 0

    def add(self, other: FaultCounts) -> None:
        self.planned += other.planned
        self.fired += other.fired
        self.errors += other.errors
        self.poisoned += other.poisoned


class FaultCase(Protocol):
    """Fault ``kind`` at I/O call ``call`` of a workload (from 1, setting up left out)."""

    @property
    def call(self) -> int: ...
    @property
    def kind(self) -> FaultKind: ...
    @property
    def forever(self) -> bool: ...


CaseT = TypeVar("CaseT", bound=FaultCase)
MachineT = TypeVar("MachineT", bound=Any)  # a Host with ``do`` and ``set_up``


class FaultRun(ABC, Generic[CaseT, MachineT]):
    """The workload, the fault in it, what goes on after its error, and a crash at the end."""

    def __init__(self, case: CaseT, machine: MachineT) -> None:
        self.case = case
        self.machine = machine
        self.counts = FaultCounts(planned=1)
        self.source = random.Random(str(case))

    @abstractmethod
    def calls(self) -> Iterable[Any]:
        """The workload's calls, in order."""

    @abstractmethod
    def after_error(self, call: Any, error: LogStoreError) -> None:
        """``call`` failed with ``error``; the fault is cleared. What still has to work is tried."""

    def run(self) -> FaultCounts:
        """The counts; Violation with the case in its text."""
        try:
            self._run()
        except Violation as violation:
            raise Violation(violation.rule, f"{violation.detail}; {self.case}") from violation
        return self.counts

    def _run(self) -> None:
        machine, case = self.machine, self.case
        machine.set_up()
        faults = machine.fs.faults
        faults.at(faults.calls + case.call, case.kind, case.forever)
        for call in self.calls():
            try:
                with named_errors():
                    machine.do(call)
            except LogStoreError as error:
                if not faults.fired:
                    raise Violation(rules.NAMED_ERRORS, f"{call} failed without a fault: {error}") from error
                self.counts.errors[type(error).__name__] += 1
                faults.clear()
                self.after_error(call, error)
                break
        if faults.fired:
            self.counts.fired[case.kind.value] += 1
            faults.clear()
            self.crash()

    def crash(self) -> None:
        """A kill, or a power loss, or a kill and then a power loss."""
        machine = self.machine
        drawn = self.source.random()
        if drawn < 0.6:
            machine.lose_process(machine.fs.process_crash())
            machine.recover(power_loss=False)
        if drawn > 0.3:
            machine.lose_power(machine.fs.crash(RandomChooser(self.source)))
            machine.recover(power_loss=True)
        try:
            machine.prove_usable()
        except LogStoreError as error:
            raise Violation(rules.USABLE, f"{type(error).__name__}: {error}") from error


@contextmanager
def goes_on(rule: str, error: LogStoreError, but: type[LogStoreError] | tuple[()] = ()) -> Iterator[None]:
    """No error may come out after ``error``, but for the excused one."""
    try:
        with named_errors():
            yield
    except LogStoreError as refused:
        if but and isinstance(refused, but):
            raise
        raise Violation(rule, f"{type(refused).__name__}: {refused}, after {error}") from refused
