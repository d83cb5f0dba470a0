"""Compaction of an internal topic: one process cleans, all go on writing, and nothing that counts is lost."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import TopicLockedError
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.machine import Decision, TransactionalWriter
from logstore.seams.faults import FaultKind, Operation, SimulatedCrash
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.store import LogStore
from tests.shared_world import ROOT, Ledger, SharedWorld

TOPIC = "__shared"


class Values(Ledger):
    replayed = 0

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        super().replay(key, value)
        self.replayed += 1


def world() -> SharedWorld[Values]:
    return SharedWorld(Values, segment_bytes=1024)


def put(shared: CoordinatorRuntime[Values], key: bytes, value: bytes | None) -> None:
    shared.decide(lambda _: Decision(((key, value),), None))


def fill(shared: CoordinatorRuntime[Values], rows: int = 60, keys: int = 5) -> dict[bytes, bytes]:
    for number in range(rows):
        put(shared, b"k%d" % (number % keys), b"%04d" % number)
    return values(shared)


def values(shared: CoordinatorRuntime[Values]) -> dict[bytes, bytes]:
    return shared.look(lambda machine: dict(machine.values))


def run(machine: SharedWorld[Values], store: LogStore, ms: int = 40_000) -> None:
    """Let so much time pass, with a step whenever the store asks for one."""
    end_s = machine.clock.monotonic_s() + ms / 1000
    while (left_s := end_s - machine.clock.monotonic_s()) > 0:
        wait = store.step()
        pause_s = left_s if wait is None else min(wait, left_s)
        machine.clock.advance(max(round(pause_s * 1000), 1))


def size(store: LogStore) -> int:
    return store.describe_topic(TOPIC).partitions[0].size_bytes


def compaction(store: LogStore) -> Any:
    return store.describe_topic(TOPIC).partitions[0].compaction


def faults(machine: SharedWorld[Values]) -> list[Any]:
    found = verify_store(machine.fs, ROOT, machine.clock.boot_id(), Totals())
    return [fault for fault in found if not fault.warning]


def test_the_background_cleans_what_several_processes_wrote() -> None:
    machine = world()
    (store, first), (_, second) = machine.process(), machine.process()
    fill(first)
    expected = fill(second)
    before = size(store)
    assert compaction(store).dirty_ratio == 1.0
    run(machine, store)
    described = compaction(store)
    assert size(store) < before / 2
    assert described.last is not None
    assert described.dirty_ratio < 0.5
    for shared in (first, second, machine.process()[1], machine.process("r")[1]):
        assert values(shared) == expected
    fresh = machine.process()[1]
    values(fresh)
    assert fresh.look(lambda seen: seen.replayed) < 40  # of 120
    put(second, b"new", b"1")  # its list of segments is of before
    put(first, b"new", b"2")
    assert values(second) == values(fresh) == expected | {b"new": b"2"}
    assert faults(machine) == []


def test_writes_between_slices_and_rolls_by_others() -> None:
    machine = world()
    (store, first), (_, second) = machine.process(), machine.process()
    fill(first, 200)
    expected = values(first)
    for number in range(120):
        run(machine, store, 400)
        shared = (first, second)[number % 2]
        put(shared, b"k%d" % (number % 5), b"new-%d" % number)
        expected[b"k%d" % (number % 5)] = b"new-%d" % number
        assert values((second, first)[number % 2]) == expected
    run(machine, store)
    assert values(machine.process()[1]) == expected
    assert compaction(store).last is not None
    assert compaction(store).error is None
    assert faults(machine) == []


def test_another_process_that_rolls_ends_the_cleaning_and_it_begins_anew() -> None:
    machine = world()
    (store, first), (_, second) = machine.process(), machine.process()
    expected = fill(first, 200)
    topic = store._registry.shared_cleaning(TOPIC)
    kit = store._cleaning.kit
    assert topic.own_if_free()
    assert topic.try_enter()
    begun = kit.start(topic, 0, (0, topic.log(0).segments.segments[-1].base_offset))
    assert begun is not None
    begun.slice(0.0)
    topic.leave()
    assert not begun.ended
    put(second, b"big", b"b" * 990)  # rolls
    put(first, b"k0", b"last")
    assert begun.ended
    assert not topic.owned
    run(machine, store)
    assert values(second) == expected | {b"big": b"b" * 990, b"k0": b"last"}
    assert not [name for name in machine.fs.listdir(f"{ROOT}/{TOPIC}-0") if name.endswith(".cleaned")]


def test_a_second_process_leaves_the_files_of_a_cleaning_alone() -> None:
    machine = world()
    (store, first), (other, second) = machine.process(), machine.process()
    expected = fill(first, 200)
    topic = store._registry.shared_cleaning(TOPIC)
    assert topic.own_if_free()
    assert topic.try_enter()
    begun = store._cleaning.kit.start(topic, 0, (0, topic.log(0).segments.segments[-1].base_offset))
    assert begun is not None
    made: set[str] = set()
    while not made:
        begun.slice(0.0)
        made = {name for name in machine.fs.listdir(f"{ROOT}/{TOPIC}-0") if name.endswith(".cleaned")}
    topic.leave()
    assert values(second) == expected
    put(second, b"k0", b"other")  # it opens the log, cleanly
    assert made <= set(machine.fs.listdir(f"{ROOT}/{TOPIC}-0"))
    with pytest.raises(TopicLockedError, match="is being cleaned by pid"):
        other.admin.compact(TOPIC)
    while not begun.ended:
        assert topic.try_enter()
        begun.slice(1.0)
        topic.leave()
    assert not topic.owned
    assert values(machine.process()[1]) == expected | {b"k0": b"other"}
    other.admin.compact(TOPIC)


def test_by_hand_with_a_roll_only_the_newest_values_stay() -> None:
    machine = world()
    (store, first), (_, second) = machine.process(), machine.process()
    fill(first)
    for key in range(4):
        put(second, b"k%d" % key, None)
    (done,) = store.admin.compact(TOPIC, roll=True)
    assert done.records_after == 5  # the last value, and tombstones until their time has come
    assert values(machine.process()[1]) == {b"k4": b"0059"}
    put(second, b"k0", b"back")
    assert values(first) == {b"k4": b"0059", b"k0": b"back"}
    assert faults(machine) == []


def test_transactions_through_a_cleaning() -> None:
    machine = world()
    (store, first), (_, second) = machine.process(), machine.process()
    fill(first, 30)
    for number, commit in enumerate((True, False)):
        writer = TransactionalWriter(7 + number, 0)
        first.decide(lambda _, w=writer, n=number: Decision(((b"t%d" % n, b"1"),), None, producer=w))
        first.end_transaction(7 + number, 1, commit=commit)
    fill(first, 30)
    second.decide(lambda _: Decision(((b"k0", b"open"),), None, producer=TransactionalWriter(9, 0)))
    expected = fill(second, 60) | {b"t0": b"1"}
    assert b"t1" not in expected
    store.admin.compact(TOPIC, roll=True)
    for shared in (first, second, machine.process()[1]):
        assert values(shared) == expected
    second.end_transaction(9, 1, commit=True)  # k0 was set later, outside: that counts
    store.admin.compact(TOPIC, roll=True)
    for shared in (first, second, machine.process()[1]):
        assert values(shared) == expected
    assert faults(machine) == []


def test_a_crash_at_any_call_of_a_cleaning_keeps_every_value() -> None:
    def prepared() -> tuple[SharedWorld[Values], LogStore, CoordinatorRuntime[Values], dict[bytes, bytes]]:
        machine = world()
        store, shared = machine.process()
        return machine, store, shared, fill(shared, 22, 3)

    machine, store, _, _ = prepared()
    start = machine.fs.faults.calls
    store.admin.compact(TOPIC)
    total = machine.fs.faults.calls - start
    assert total > 40
    for call in range(1, total + 1):
        power = (None, KeepNothing(), KeepAll())[call % 3]
        machine, store, _, expected = prepared()
        machine.fs.faults.at(machine.fs.faults.calls + call, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            store.admin.compact(TOPIC)
        if power is None:
            machine.kill(store)
        else:
            machine.lose_power(power, store)
        assert values(machine.process("r")[1]) == expected
        again_store, again = machine.process()
        put(again, b"k0", b"again")
        again_store.admin.compact(TOPIC, roll=True)
        assert values(machine.process()[1]) == expected | {b"k0": b"again"}
        names = machine.fs.listdir(f"{ROOT}/{TOPIC}-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def test_a_retired_file_that_is_swept_amid_the_loading_is_no_error() -> None:
    """The cleaner removes what it retired without the topic's lock, at the moment at which another process does."""
    machine = world()
    store, shared = machine.process()
    for _ in range(2):  # the second cleaning joins what the first left, and retires the rest
        expected = fill(shared)
        store.admin.compact(TOPIC, roll=True)
    swept: list[str] = []

    def sweep(operation: Operation) -> None:
        if operation.name == "remove" and operation.path.endswith(".deleted") and not swept:
            swept.append(operation.path)
            store._cleaning.kit.retirement.sweep(float("inf"))

    machine.fs.faults.observer = sweep
    _, other = machine.process()
    put(other, b"more", b"1")
    assert len(swept) == 1
    assert values(other) == values(shared) == {**expected, b"more": b"1"}
