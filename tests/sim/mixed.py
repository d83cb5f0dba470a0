"""The second kind of schedules and of exhaustive workloads: producers, transactions, cleaning, erasure.

Small on purpose in their number of calls, since each of them makes many times the disk calls of a plain append.
"""

from __future__ import annotations

import random

from logstore.seams.memory_crash import RandomChooser
from tests.sim.exhaustive import Explorer
from tests.sim.host import Host
from tests.sim.ledger_machine import LedgerMachine
from tests.sim.ledger_workload import (
    Clean,
    End,
    Erase,
    LedgerSettings,
    Put,
    Recreate,
    Send,
    random_call,
    random_settings,
)
from tests.sim.schedules import Outcome, Schedule, run_schedule
from tests.sim.workload import Tick

SETTINGS = LedgerSettings(delete_retention_ms=0, file_delete_delay_ms=10_000)


class MixedSchedule(Schedule):
    """See ``Schedule``; every call of ``ledger_workload`` comes up."""

    KIND = "mixed"
    LONGEST = 20

    def random_settings(self) -> LedgerSettings:
        return random_settings(self.source)

    def new_machine(self, trace: bool) -> Host:
        return LedgerMachine(self.settings, trace=trace)

    def random_call(self) -> object:
        return random_call(self.source, self.settings)


def mixed_machine() -> LedgerMachine:
    return LedgerMachine(SETTINGS)


def mixed_explorer(limit: int = 12, recrash_every: int = 100) -> Explorer:
    return Explorer(limit=limit, recrash_every=recrash_every, make=mixed_machine)


def run_mixed(seed: int, *, trace: bool = False) -> Outcome:
    return run_schedule(seed, trace=trace, kind=MixedSchedule)


CRITICAL: tuple[tuple[object, ...], ...] = (
    (Put("a", "all", 8), Clean(), Put("b", "all", 700), Clean()),
    (Send(1, "ab"), End(1, commit=False), Tick(6_000)),
    (Send(1, "ab"), End(1, commit=False), Clean()),
    (Erase("a"),),
    (Put("a", "all", 8), Clean(), Put("b", "all", 700), Clean(), Erase("b")),
    (Recreate(),),
)
"""Workloads whose last call has most to lose at each of its boundaries: segments merged and swapped, a checkpoint
with an aborted transaction, an erasure, a deletion."""


def torn_tail(seed: int) -> None:
    """Batches torn by a power loss, cut off by the recovery, and then their keys erased. Violation."""
    source = random.Random(f"torn {seed}")
    machine = mixed_machine()
    machine.set_up()
    for _ in range(source.randint(2, 4)):
        machine.do(Put(source.choice("abcd"), 1, source.choice((24, 100, 250))))
    machine.lose_power(machine.fs.crash(RandomChooser(source)))
    machine.recover(power_loss=True)
    for key in "abcd":
        machine.do(Erase(key))
    machine.prove_usable()
