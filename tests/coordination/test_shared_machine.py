"""Internal topics under random schedules: several processes write, end transactions, clean, fail, die, lose power.

What was acknowledged stays, in order; a call that was cut short is in as a whole or not at all; every process and
every reload shows the same state. Sequences and rolls make the files as in a long life: segments of 1 KiB.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.machine import Decision, TransactionalWriter
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import KeepAll, KeepNothing, RandomChooser
from logstore.store import LogStore
from tests.shared_world import ROOT, Ledger, SharedWorld

TOPIC = "__shared"
State = tuple[dict[bytes, bytes], dict[int, dict[bytes, bytes | None]]]


@dataclass
class Op:
    """One call; ``apply`` is what it does to the state once it is in."""

    kind: str
    producer: int = 0
    epoch: int = 0
    key: bytes = b""
    value: bytes | None = None
    commit: bool = False

    def apply(self, ledger: Ledger) -> None:
        if self.kind == "put":
            ledger.replay(self.key, self.value)
        elif self.kind == "pend":
            ledger.replay_pending(self.producer, self.epoch, self.key, self.value)
        elif self.kind == "end":
            ledger.replay_marker(self.producer, self.epoch, self.commit)

    def run(self, shared: CoordinatorRuntime[Ledger], store: LogStore) -> None:
        if self.kind == "end":
            shared.end_transaction(self.producer, self.epoch, commit=self.commit)
        elif self.kind == "compact":
            store.admin.compact(TOPIC, roll=self.commit)
        else:
            writer = TransactionalWriter(self.producer, self.epoch) if self.kind == "pend" else None
            shared.decide(lambda _: Decision(((self.key, self.value),), None, producer=writer))


@dataclass
class Life:
    source: random.Random
    world: SharedWorld[Ledger] = field(default_factory=lambda: SharedWorld(Ledger))
    processes: list[tuple[LogStore, CoordinatorRuntime[Ledger]]] = field(default_factory=list)
    acked: list[Op] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0})
    crashes: int = 0

    def expected(self, *more: Op) -> State:
        ledger = Ledger()
        for op in (*self.acked, *more):
            op.apply(ledger)
        return ledger.values, {k: v for k, v in ledger.pending.items() if v}

    def draw(self) -> Op:
        source = self.source
        kind = source.choice(("put", "put", "put", "pend", "pend", "end", "compact"))
        producer = source.choice((1, 2))
        key = b"k%d" % source.randrange(6)
        value = (
            None
            if source.random() < 0.1
            else b"%d" % source.randrange(1000) + b"." * source.choice((0, 30, 400))
        )
        epoch = self.epochs[producer] + (kind == "end")
        return Op(kind, producer, epoch, key, value, source.random() < 0.5)

    def seen(self, shared: CoordinatorRuntime[Ledger]) -> State:
        return shared.look(
            lambda machine: (dict(machine.values), {k: dict(v) for k, v in machine.pending.items() if v})
        )

    def settle(self, op: Op) -> None:
        """``op`` may or may not be in: what is there now says it."""
        store, shared = self.world.process()
        shared.decide(lambda _: Decision((), None))  # recovers, if there is anything to recover
        self.processes.append((store, shared))
        found, with_it = self.seen(shared), self.expected(op)
        assert found in (self.expected(), with_it)
        if found == with_it:
            self.took(op)

    def took(self, op: Op) -> None:
        self.acked.append(op)
        if op.kind == "end":
            self.epochs[op.producer] = op.epoch

    def step(self) -> None:
        source, world = self.source, self.world
        while len(self.processes) < 2:
            self.processes.append(world.process())
        store, shared = source.choice(self.processes)
        op, fate = self.draw(), source.random()
        faults = world.fs.faults
        if fate < 0.12:
            faults.at(faults.calls + source.randrange(1, 40), FaultKind.CRASH)
        elif fate < 0.2:
            kind = source.choice(
                (FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE, FaultKind.FAILED_SYNC)
            )
            faults.at(faults.calls + source.randrange(1, 25), kind)
        try:
            op.run(shared, store)
            faults.clear()
            self.took(op)
        except SimulatedCrash:
            self.crash()
            self.settle(op)
        except LogStoreError as error:
            faults.clear()
            if op.kind != "compact" and isinstance(error, OutcomeUnknownError):
                self.settle(op)
        self.check()

    def crash(self) -> None:
        self.crashes += 1
        stores = [store for store, _ in self.processes]
        self.processes = []
        choice = self.source.randrange(4)
        if choice == 0:
            self.world.kill(*stores)
        else:
            power = (KeepAll(), KeepNothing(), RandomChooser(self.source))[choice - 1]
            self.world.lose_power(power, *stores)

    def check(self) -> None:
        expected = self.expected()
        for _, shared in self.processes:
            assert self.seen(shared) == expected
        del self.processes[3:]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_state_is_that_of_what_was_acknowledged(seed: int) -> None:
    life = Life(random.Random(seed))
    for _ in range(60):
        life.step()
    store, shared = life.world.process()
    shared.decide(lambda _: Decision((), None))
    assert life.seen(shared) == life.expected()
    for other, _ in life.processes:
        other.close()
    store.close()
    found = verify_store(life.world.fs, ROOT, life.world.clock.boot_id(), Totals())
    assert [fault for fault in found if not fault.warning] == []
