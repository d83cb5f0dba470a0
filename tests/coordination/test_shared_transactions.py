"""Decisions in a producer's transaction: pending until its marker, in every process and after every reload."""

from __future__ import annotations

import pytest

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.directory import topic_state
from logstore.errors import ProducerFencedError, TransactionStateError
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.machine import Decision, TransactionalWriter
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.store import LogStore
from tests.shared_world import ROOT, Ledger, SharedWorld


def world() -> SharedWorld[Ledger]:
    return SharedWorld(Ledger)


def pend(shared: CoordinatorRuntime[Ledger], writer: TransactionalWriter, key: bytes, value: bytes) -> None:
    shared.decide(lambda _: Decision(((key, value),), None, producer=writer))


def put(shared: CoordinatorRuntime[Ledger], key: bytes, value: bytes) -> None:
    shared.decide(lambda _: Decision(((key, value),), None))


def state(shared: CoordinatorRuntime[Ledger]) -> tuple[dict[bytes, bytes], dict[int, dict[bytes, bytes]]]:
    return shared.look(
        lambda machine: (dict(machine.values), {k: dict(v) for k, v in machine.pending.items()})
    )


W7 = TransactionalWriter(7, 0)


def test_pending_until_the_marker_in_every_process() -> None:
    machine = world()
    (store, first), (_, second) = machine.process(), machine.process()
    put(first, b"a", b"0")
    pend(first, W7, b"a", b"1")
    pend(second, W7, b"b", b"1")
    for shared in (first, second, machine.process()[1]):
        assert state(shared) == ({b"a": b"0"}, {7: {b"a": b"1", b"b": b"1"}})
    slot = store._context.live.read(machine.entry(store).live_slot(0))
    assert slot is not None
    assert (slot.last_stable_offset, slot.log_end_offset) == (1, 3)
    second.end_transaction(7, 1, commit=True)
    for shared in (first, second, machine.process("r")[1]):
        assert state(shared) == ({b"a": b"1", b"b": b"1"}, {})
    slot = store._context.live.read(machine.entry(store).live_slot(0))
    assert slot is not None
    assert slot.last_stable_offset == slot.log_end_offset == 4


def test_an_abort_forgets_them_and_its_row_is_kept() -> None:
    machine = world()
    (_, first), (store, second) = machine.process(), machine.process()
    for round_ in range(4):  # markers written by turns: each process has to see the other's rows
        writer = TransactionalWriter(7, round_)
        pend(first if round_ % 2 else second, writer, b"a", b"%d" % round_)
        (second if round_ % 2 else first).end_transaction(7, round_ + 1, commit=False)
    put(first, b"z", b"z" * 1100)  # past segment.bytes: the next one rolls
    put(second, b"y", b"y")
    assert state(first) == state(second) == ({b"z": b"z" * 1100, b"y": b"y"}, {})
    assert [record.key for record in store.partition("__shared", 0).records(0)] == [b"z", b"y"]
    first.close()
    found = verify_store(machine.fs, ROOT, machine.clock.boot_id(), Totals())
    assert [fault for fault in found if not fault.warning] == []


def test_an_older_epoch_is_fenced() -> None:
    machine = world()
    _, shared = machine.process()
    pend(shared, TransactionalWriter(7, 3), b"a", b"1")
    with pytest.raises(ProducerFencedError, match="epoch 2"):
        pend(shared, TransactionalWriter(7, 2), b"a", b"2")
    with pytest.raises(TransactionStateError):  # it must end before the next one begins
        pend(shared, TransactionalWriter(7, 4), b"a", b"2")
    with pytest.raises(ProducerFencedError):
        shared.end_transaction(7, 2, commit=True)
    shared.end_transaction(7, 4, commit=True)
    shared.end_transaction(7, 4, commit=True)  # once more, as after a crash: it ends nothing
    assert state(shared) == ({b"a": b"1"}, {})


def test_sequences_go_on_over_processes_and_reloads() -> None:
    machine = world()
    (store, first), (_, second) = machine.process(), machine.process()
    for number in range(3):
        pend(first, W7, b"a", b"%d" % number)
        pend(second, W7, b"b", b"%d" % number)
    machine.kill(store)
    _, third = machine.process()
    pend(third, W7, b"c", b"0")
    entry = third._log._log.producers.entry(7)  # type: ignore[union-attr]
    assert entry is not None
    assert entry.last_sequence == 6


def test_crash_at_any_call_of_a_transaction_leaves_all_or_nothing() -> None:
    def run(machine: SharedWorld[Ledger], store: LogStore, shared: CoordinatorRuntime[Ledger]) -> None:
        pend(shared, W7, b"a", b"new")
        shared.end_transaction(7, 1, commit=True)

    machine = world()
    store, shared = machine.process()
    put(shared, b"a", b"old")
    start = machine.fs.faults.calls
    run(machine, store, shared)
    total = machine.fs.faults.calls - start
    seen = set()
    for call in range(1, total + 1):
        for power in (None, KeepNothing(), KeepAll()):
            machine = world()
            store, shared = machine.process()
            put(shared, b"a", b"old")
            machine.fs.faults.at(machine.fs.faults.calls + call, FaultKind.CRASH)
            with pytest.raises(SimulatedCrash):
                run(machine, store, shared)
            if power is None:
                machine.kill(store)
            else:
                machine.lose_power(power, store)
            _, again = machine.process()
            put(again, b"other", b"1")
            values, pending = state(again)
            found = (values[b"a"], pending.get(7, {}).get(b"a"))
            assert found in ((b"old", None), (b"old", b"new"), (b"new", None))
            seen.add(found)
            # Whatever was left, its coordinator ends it now, and the producer goes on.
            again.end_transaction(7, 1, commit=True)
            pend(again, TransactionalWriter(7, 1), b"a", b"last")
            again.end_transaction(7, 2, commit=True)
            assert state(again)[0][b"a"] == b"last"
    assert len(seen) == 3


def test_the_state_says_from_where_producers_are_to_be_read() -> None:
    machine = world()
    store, shared = machine.process()
    put(shared, b"a", b"1")
    pend(shared, W7, b"a", b"2")
    shared.close()
    row = topic_state.load(machine.fs, ROOT, "__shared")
    assert row is not None
    assert row.partitions[0].recovery_point == 2
    assert row.partitions[0].no_producers_at <= 1
    machine.lose_power(KeepNothing(), store)
    _, again = machine.process()
    with pytest.raises(TransactionStateError):
        pend(again, TransactionalWriter(7, 1), b"a", b"3")
    again.end_transaction(7, 1, commit=False)
    assert state(again) == ({b"a": b"1"}, {})


def test_a_late_marker_ends_nothing_of_the_next_transaction() -> None:
    machine = world()
    (_, first), (_, second) = machine.process(), machine.process()
    pend(first, W7, b"a", b"1")
    first.end_transaction(7, 1, commit=True)
    pend(first, TransactionalWriter(7, 1), b"a", b"2")  # the next one runs under the marker's epoch
    second.end_transaction(7, 1, commit=True)  # of a process that was slow
    for shared in (first, second, machine.process()[1]):
        assert state(shared) == ({b"a": b"1"}, {7: {b"a": b"2"}})
    second.end_transaction(7, 2, commit=False)
    assert state(first) == state(second) == ({b"a": b"1"}, {})


def test_what_hangs_is_ended_only_if_it_is_what_was_found() -> None:
    machine = world()
    _, shared = machine.process()
    put(shared, b"z", b"0")
    pend(shared, W7, b"a", b"1")
    with pytest.raises(TransactionStateError, match="since offset 0"):
        shared.end_hanging(7, 0, 0)
    assert state(shared) == ({b"z": b"0"}, {7: {b"a": b"1"}})
    shared.end_hanging(7, 0, 1)
    assert state(shared) == state(machine.process()[1]) == ({b"z": b"0"}, {})
    with pytest.raises(TransactionStateError, match="since offset 1"):
        shared.end_hanging(7, 0, 1)
