"""An internal topic's log after a sync that failed, or never was: what is acknowledged later is on the disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.directory import topic_state
from logstore.errors import LogStoreError
from logstore.machine import Decision, TransactionalWriter
from logstore.seams.faults import FaultKind, Operation, SimulatedCrash
from logstore.seams.fs import read_file
from logstore.seams.memory_crash import KeepNothing
from logstore.store import LogStore
from tests.shared_world import ROOT, Ledger, SharedWorld
from tests.transaction_world import World, Writer, committed, settled

LOG = f"{ROOT}/__shared-0/{0:020d}.log"
Shared = CoordinatorRuntime[Ledger]
Call = Callable[[Shared], object]


def put(key: bytes, value: bytes) -> Call:
    return lambda shared: shared.decide(lambda _: Decision(((key, value),), None))


def pend(key: bytes, value: bytes, epoch: int) -> Call:
    writer = TransactionalWriter(7, epoch)
    return lambda shared: shared.decide(lambda _: Decision(((key, value),), None, producer=writer))


def end(epoch: int, commit: bool) -> Call:
    return lambda shared: shared.end_transaction(7, epoch, commit=commit)


# Segments hold 1 KiB: the log rolls twice, and a segment's first batch, later ones and markers are among them.
CALLS: Sequence[Call] = (
    put(b"a", b"1"),
    put(b"b", b"2" * 400),
    pend(b"c", b"3" * 400, 0),
    put(b"d", b"4" * 300),
    end(1, commit=True),
    put(b"e", b"5" * 900),
    pend(b"a", b"6", 1),
    end(2, commit=False),
    lambda shared: shared.close(),
    put(b"f", b"7"),
)


def make_all(shared: Shared) -> None:
    for call in CALLS:
        call(shared)


@dataclass
class Machine:
    """Processes of one machine. ``shown``: what is committed after the last call that was answered."""

    world: SharedWorld[Ledger] = field(default_factory=lambda: SharedWorld(Ledger))
    stores: list[LogStore] = field(default_factory=list)
    shared: Shared | None = None

    def start(self) -> Shared:
        store, self.shared = self.world.process()
        self.stores.append(store)
        return self.shared

    def state(self) -> tuple[dict[bytes, bytes], dict[int, dict[bytes, bytes | None]]]:
        assert self.shared is not None
        return self.shared.look(
            lambda machine: (dict(machine.values), {k: dict(v) for k, v in machine.pending.items() if v})
        )

    def after_a_power_loss(self) -> None:
        """All that was acknowledged is there."""
        before = self.state()
        self.world.lose_power(KeepNothing(), *self.stores)
        self.stores = []
        again = self.start()
        assert again.decide(lambda machine: Decision((), None)) is None  # recovers the log
        assert self.state() == before


def goes_on(machine: Machine, way: str) -> Shared:
    """The process that calls next after the failure."""
    assert machine.shared is not None
    if way == "same":
        return machine.shared
    if way == "reopened":
        machine.stores.pop().close()
    return machine.start()


def failing_syncs() -> int:
    machine = Machine()
    shared, syncs = machine.start(), []
    machine.world.fs.faults.observer = lambda op: syncs.append(op) if op.name == "sync" else None
    make_all(shared)
    return len(syncs)


@pytest.mark.parametrize("way", ["same", "other", "reopened"])
def test_nothing_is_acknowledged_behind_a_sync_that_failed(way: str) -> None:
    total, refused = failing_syncs(), 0
    assert total > 20
    for number in range(total):
        machine = Machine()
        shared = machine.start()
        faults = machine.world.fs.faults
        faults.on("sync", FaultKind.FAILED_SYNC, skip=number)
        for call in CALLS:
            try:
                call(shared)
            except LogStoreError:
                refused += 1
                shared = goes_on(machine, way)
        assert faults.fired == 1
        put(b"last", b"%d" % number)(shared)
        machine.after_a_power_loss()
    assert refused > total // 2


def test_what_a_killed_process_wrote_is_made_durable_before_more_is_acknowledged() -> None:
    machine = Machine()
    shared, faults = machine.start(), machine.world.fs.faults
    begun = faults.calls
    make_all(shared)
    total = faults.calls - begun
    assert total > 100
    for number in range(1, total + 1, 2):
        machine = Machine()
        shared = machine.start()
        machine.world.fs.faults.at(begun + number, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            make_all(shared)
        machine.world.kill(*machine.stores)
        machine.stores = []
        put(b"last", b"%d" % number)(machine.start())
        machine.after_a_power_loss()


def test_an_empty_segment_whose_name_is_not_durable_yet_is_made_so() -> None:
    """A process was killed between the making of the first segment and the sync of its directory."""
    machine = Machine()
    shared = machine.start()
    shared.decide(lambda _: Decision((), None))
    machine.world.fs.faults.on("sync_dir", FaultKind.CRASH, path_ends="__shared-0", skip=1)
    with pytest.raises(SimulatedCrash):
        put(b"a", b"1")(shared)
    machine.world.kill(*machine.stores)
    machine.stores = []
    assert read_file(machine.world.fs, LOG) == b""
    put(b"b", b"2")(machine.start())
    machine.after_a_power_loss()
    assert machine.state()[0] == {b"b": b"2"}


def test_the_failure_is_noted_where_the_next_process_looks() -> None:
    machine = Machine()
    shared = machine.start()
    put(b"a", b"1")(shared)
    machine.world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    with pytest.raises(LogStoreError):
        put(b"b", b"2")(shared)
    (slot,) = [slot for slot in machine.world.live.values() if slot.log_end_offset]
    assert slot.high_watermark != slot.log_end_offset
    state = topic_state.load(machine.world.fs, ROOT, "__shared")
    assert state is not None
    assert state.boot_id == ""


# --- a transaction torn by a kill and a power loss ---


def moments_of_a_commit() -> list[tuple[World, Operation]]:
    """The machine before each call of a commit whose decision is the first batch of its segment."""
    world = World()
    store = world.made()
    writer = Writer(store)
    writer.begin()
    for partition in (0, 1):
        writer.send(b"%d" % partition, partition)
    store.admin.compact("__transaction_state", roll=True)
    moments: list[tuple[World, Operation]] = []

    def observe(operation: Operation) -> None:
        if operation.name in ("pwritev", "sync", "rename", "sync_dir"):
            moments.append((copy_of(world), operation))

    world.fs.faults.observer = observe
    writer.commit()
    world.fs.faults.observer = None
    store.abandon()
    return moments


def copy_of(world: World) -> World:
    copy = World(world.fs.clone())
    copy._live.update(world._live)
    return copy


def test_a_decision_of_a_killed_process_is_durable_before_another_marks_by_it() -> None:
    moments = moments_of_a_commit()
    written = [
        moment
        for moment, op in moments
        if op.name == "sync" and op.path.endswith("log") and "__trans" in op.path
    ]
    assert len(written) == 1  # the decision is in the page cache alone
    outcomes = {resolved_then_lost(moment, 10_000) for moment, _ in moments}
    for stop in range(1, 400):
        outcome = resolved_then_lost(written[0], stop)
        if outcome is None:
            break
        outcomes.add(outcome)
    assert outcomes >= {0, 2}


def resolved_then_lost(moment: World, stop: int) -> int | None:
    """The process is killed at ``moment``, the one that resolves at its call number ``stop``, then the power goes:
    how many partitions show the transaction. None: all was resolved before."""
    world = copy_of(moment)
    world.fs = moment.fs.process_crash()
    world.fs.faults.at(stop, FaultKind.CRASH)
    resolver, cut = None, False
    try:
        resolver = world.process()
        world.turn(resolver, times=2)
    except SimulatedCrash:
        cut = True
    if resolver is not None:
        resolver.abandon()
    if not cut and stop < 10_000:
        return None
    after = World(world.fs.crash(KeepNothing()), boot="boot-1")
    store = after.process()
    after.turn(store, times=2)
    assert settled(store)
    found = committed(store)
    assert found in ([], [b"0", b"1"])
    store.abandon()
    return len(found)
