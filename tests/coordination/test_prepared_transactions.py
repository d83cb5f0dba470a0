"""Prepared transactions of an embedded store: a crash at every step from the first prepare to the coordinator's
completion, owners that live and die, zombies, and the bound."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from logstore.api.transactions import PreparedTransaction
from logstore.errors import (
    OutcomeUnknownError,
    ProducerFencedError,
    TopicLockedError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionTimedOutError,
)
from logstore.seams.faults import FaultKind, Operation, SimulatedCrash
from logstore.seams.memory_crash import KeepNothing
from logstore.store import LogStore
from tests.transaction_world import World, Writer, committed, group_offset, recorded_run, settled, states

DONE = ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT")


def participant(
    store: LogStore, name: str, *partitions: int, value: bytes | None = None
) -> PreparedTransaction:
    """Writes ``NAME-PARTITION`` into each, prepares, and is gone."""
    writer = Writer(store, name, coordinator="c")
    writer.begin()
    for partition in partitions:
        writer.send(value or b"%s-%d" % (name.encode(), partition), partition)
    prepared = writer.prepare()
    writer.lease.release()
    return pickle.loads(pickle.dumps(prepared))


def coordinator(store: LogStore, *, keep: bool = True) -> Writer:
    writer = Writer(store, "c", keep_prepared=keep)
    writer.begin()
    return writer


# --- a crash at every step ---


def run_script(store: LogStore, note: Callable[[str], None]) -> None:
    """Two batches; in each two participants win, one loses, and one is still writing; with the group's offset."""
    for number in (1, 2):
        note(f"begun {number}")
        won = [
            participant(store, f"p{partition}", partition, value=b"%d-%d" % (number, partition))
            for partition in (0, 1)
        ]
        participant(store, "loser", 0, 2, value=b"lost")
        slow = Writer(store, "slow", coordinator="c")
        slow.begin()
        slow.send(b"slow", 1)
        driver = coordinator(store)
        driver.offset(10 * number)
        note(f"deciding {number}")
        driver.commit(*won)
        note(f"ended {number}")
        driver.lease.release()


CONTENT = {1: {b"1-0", b"1-1"}, 2: {b"2-0", b"2-1"}}


def check_after(world: World, heard: list[str]) -> set[int]:
    """Another process resolves what the crash left, the next driver opens the id; the batches that count."""
    store = world.process()
    world.turn(store, times=2)
    ready = coordinator(store, keep=False)
    world.turn(store, times=2)
    assert settled(store), heard
    assert set(states(store).values()) <= set(DONE), (states(store), heard)
    found = committed(store)
    counted = {number for number, content in CONTENT.items() if content & set(found)}
    assert found == sorted(value for number in counted for value in CONTENT[number]), heard
    assert group_offset(store) == 10 * max(counted, default=0), heard
    assert counted >= {number for number in CONTENT if f"ended {number}" in heard}
    assert counted <= {number for number in CONTENT if f"deciding {number}" in heard}
    ready.commit(participant(store, "p0", 0, value=b"later"))
    assert committed(store) == sorted([*found, b"later"])
    store.close()
    return counted


def test_a_process_killed_at_any_call_leaves_whole_batches() -> None:
    seen = [check_after(World(fs.process_crash()), heard) for fs, heard in recorded_run(run_script)[::2]]
    assert len(seen) > 30
    assert {frozenset(counted) for counted in seen} == {frozenset(), frozenset({1}), frozenset({1, 2})}


def test_a_power_loss_at_any_call_leaves_whole_batches() -> None:
    moments = recorded_run(run_script)
    seen = set()
    for number, (fs, heard) in enumerate(moments):
        seen.add(frozenset(check_after(World(fs.crash(KeepNothing()), boot="boot-1"), heard)))
        if number % 12 == 0:
            for survivor in fs.crash_states(1):
                seen.add(frozenset(check_after(World(survivor, boot="boot-1"), heard)))
    assert seen == {frozenset(), frozenset({1}), frozenset({1, 2})}


def decided_and_cut_short(world: World, store: LogStore) -> None:
    """The coordinator's record is durable, and its process dies before it reaches a participant."""
    won = [participant(store, "p0", 0), participant(store, "p1", 1, 2)]
    participant(store, "loser", 2)
    driver = coordinator(store)
    driver.offset(7)

    def killed(*_: Any, **__: Any) -> Any:
        raise SimulatedCrash("before the participants' records")

    manager = store.backend.transactions.manager
    manager._settle = killed  # type: ignore[method-assign]
    with pytest.raises(SimulatedCrash):
        driver.commit(*won)
    store.abandon()


@pytest.mark.slow
def test_a_crash_in_the_finishing_is_finished_by_the_next() -> None:
    world = World()
    store = world.made()
    decided_and_cut_short(world, store)
    base = world.fs.clone()
    crashes = 0
    for call in range(1, 400):
        fs = base.clone()
        second = World(fs)
        helper = second.process()
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        try:
            second.turn(helper, times=2)
            fs.faults.clear()
        except SimulatedCrash:
            crashes += 1
            helper.abandon()
            third = World(fs.process_crash())
            last = third.process()
            third.turn(last, times=2)
            assert committed(last) == [b"p0-0", b"p1-1", b"p1-2"]
            assert settled(last)
            assert group_offset(last) == 7
            last.close()
            continue
        helper.close()
        break
    assert crashes > 20


@pytest.mark.parametrize("opening", ["participant", "coordinator", "administrator"])
def test_whoever_comes_after_the_decision_finishes_it(opening: str) -> None:
    world = World()
    store = world.made()
    decided_and_cut_short(world, store)
    later = world.process()
    if opening == "participant":
        Writer(later, "p0")
        Writer(later, "p1", coordinator="d")
    elif opening == "coordinator":
        Writer(later, "c")
    else:
        assert later.admin.abort_transaction("p0").state == "COMPLETE_COMMIT"
    world.turn(later)
    assert committed(later) == [b"p0-0", b"p1-1", b"p1-2"]
    assert group_offset(later) == 7
    assert settled(later)


# --- what a prepared transaction outlives ---


def test_it_outlives_its_lease_its_process_and_its_timeout() -> None:
    world = World()
    store = world.made()
    prepared = participant(store, "p0", 0, 1)
    store.abandon()
    later = world.process()
    world.turn(later, times=3, milliseconds=3_600_000)
    assert states(later) == {"p0": "PREPARED"}
    assert committed(later) == []
    assert not settled(later)
    coordinator(later).commit(prepared)
    assert committed(later) == [b"p0-0", b"p0-1"]


def test_a_store_that_is_closed_in_order_leaves_it_prepared() -> None:
    world = World()
    store = world.made()
    writer = Writer(store, "p0", coordinator="c")
    writer.begin()
    writer.send(b"x")
    prepared = writer.prepare()
    store.close()
    later = world.process()
    coordinator(later).commit(prepared)
    assert committed(later) == [b"x"]


def test_the_bound_ends_it_and_names_it(caplog: pytest.LogCaptureFixture) -> None:
    for owner_lives in (False, True):
        world = World()
        store = world.made(prepared_max_age_s=600)
        writer = Writer(store, "p0", coordinator="c")
        writer.begin()
        writer.send(b"x")
        prepared = writer.prepare()
        if not owner_lives:
            writer.lease.release()
        world.turn(store, milliseconds=599_000)
        assert states(store)["p0"] == "PREPARED"
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            world.turn(store, times=2, milliseconds=5_000)
        (line,) = [record.getMessage() for record in caplog.records if "prepared" in record.getMessage()]
        assert "'p0'" in line
        assert "'c'" in line
        assert states(store)["p0"] == "COMPLETE_ABORT"
        assert settled(store)
        with pytest.raises(TransactionStateError, match="was aborted"):
            coordinator(store).commit(prepared)
        if owner_lives:
            writer.begin()  # it may go on
            writer.send(b"y")
        store.close()


def test_the_bound_does_not_touch_what_is_decided() -> None:
    world = World()
    store = world.made()
    decided_and_cut_short(world, store)
    later = world.process(prepared_max_age_s=0)
    world.turn(later, times=2, milliseconds=10_000)
    assert committed(later) == [b"p0-0", b"p1-1", b"p1-2"]


# --- refusals, as a lease gives them ---


def test_what_is_prepared_takes_nothing_more() -> None:
    world = World()
    store = world.made()
    writer = Writer(store, "p0", coordinator="c")
    writer.begin()
    assert writer.lease.prepare() is None, "nothing was in it"
    writer.send(b"x")
    prepared = writer.prepare()
    assert writer.prepare() == prepared
    for call in (
        lambda: writer.send(b"y", 1),
        lambda: writer.offset(3),
        lambda: writer.commit(),
        lambda: writer.abort(),
        lambda: writer.begin(),
    ):
        with pytest.raises(TransactionStateError, match="prepared"):
            call()
    driver = coordinator(store)
    driver.commit(prepared)
    writer.begin()
    writer.send(b"second")
    driver.begin()
    driver.commit(writer.prepare())
    assert committed(store) == [b"second", b"x"]


def test_offsets_of_a_participant_count_with_it() -> None:
    world = World()
    store = world.made()
    for commit in (False, True):
        writer = Writer(store, "p0", coordinator="c")
        writer.begin()
        writer.offset(5)
        prepared = writer.prepare()
        writer.lease.release()
        driver = coordinator(store)
        assert group_offset(store) == 0
        if commit:
            driver.commit(prepared)
        else:
            driver.abort()
    assert group_offset(store) == 5


def test_a_plain_id_prepares_nothing_and_a_participant_commits_nothing() -> None:
    world = World()
    store = world.made()
    plain = Writer(store, "x")
    plain.begin()
    plain.send(b"x")
    with pytest.raises(TransactionStateError, match="names no coordinator"):
        plain.lease.prepare()
    plain.commit()
    writer = Writer(store, "p0", coordinator="c", timeout_ms=1_000)
    writer.begin()
    writer.send(b"y")
    with pytest.raises(TransactionStateError, match="is its coordinator"):
        writer.commit()
    writer.abort()
    writer.begin()
    writer.send(b"z")
    world.clock.advance(1_001)
    with pytest.raises(TransactionTimedOutError):
        writer.prepare()
    assert committed(store) == [b"x"]


def test_a_fenced_participant_fails_the_commit_as_a_whole() -> None:
    world = World()
    store = world.made()
    one, two = participant(store, "p0", 0), participant(store, "p1", 1)
    Writer(store, "p1", coordinator="c")
    driver = coordinator(store)
    driver.offset(7)
    with pytest.raises(TransactionStateError, match=r"was aborted|fenced"):
        driver.commit(one, two)
    assert states(store)["p0"] == "PREPARED", "nothing has changed"
    driver.commit(one)
    assert committed(store) == [b"p0-0"]
    assert group_offset(store) == 7


def test_a_driver_that_was_replaced_commits_nothing() -> None:
    world = World()
    first, second = world.made(), world.process()
    prepared = participant(first, "p0", 0)
    first.release("out")
    old = coordinator(first)
    with pytest.raises(Exception, match="taken over"):
        Writer(second, "c")  # the old process lives, and has the id's lock
    with pytest.raises((ProducerFencedError, TransactionAbortedError)):
        old.commit(prepared)
    world.turn(first, second, times=2)
    Writer(second, "c")
    assert committed(second) == []
    assert settled(second)


def test_a_zombie_that_wakes_after_the_decision_writes_nothing() -> None:
    world = World()
    store, other = world.made(), world.process()
    slow = Writer(store, "slow", coordinator="c")
    slow.begin()
    slow.send(b"slow", 1)
    prepared = participant(store, "p0", 0)
    coordinator(store).commit(prepared)
    assert settled(store)
    with pytest.raises(ProducerFencedError):
        slow.send_blindly(b"late", next(iter(slow._next)))
    with pytest.raises(TransactionAbortedError):
        slow.send(b"late", 2)
    slow.abort()
    assert committed(store) == [b"p0-0"]
    other.close()


def test_an_abort_of_the_coordinator_and_by_an_administrator(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    store = world.made()
    participant(store, "p0", 0)
    driver = coordinator(store)
    driver.abort()
    assert states(store)["p0"] == "COMPLETE_ABORT"
    prepared = participant(store, "p1", 1)
    with caplog.at_level(logging.WARNING):
        assert store.admin.describe_transaction("p1").coordinator == "c"
        assert store.admin.abort_transaction("p1").state == "COMPLETE_ABORT"
    assert "'p1'" in caplog.text
    driver.begin()
    with pytest.raises(TransactionStateError, match="was aborted"):
        driver.commit(prepared)
    live = Writer(store, "p2", coordinator="c")
    live.begin()
    live.send(b"x")
    live.prepare()
    assert store.admin.abort_transaction("p2").state == "COMPLETE_ABORT"
    live.begin()
    assert settled(store)
    assert committed(store) == []


def test_a_commit_without_its_answer_is_asked_for_again() -> None:
    world = World()
    store = world.made()
    prepared = participant(store, "p0", 0)
    driver = coordinator(store)
    manager = store.backend.transactions.manager
    settle, lost = manager._settle, []

    def once(*given: Any, **named: Any) -> Any:
        if not lost:
            lost.append(True)
            return TopicLockedError("another process has the topic")
        return settle(*given, **named)

    manager._settle = once  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError):
        driver.commit(prepared)
    driver.commit()
    assert committed(store) == [b"p0-0"]
    assert set(states(store).values()) == {"COMPLETE_COMMIT"}


def test_topics_of_another_process_are_marked_by_that() -> None:
    world = World()
    store, driver_store = world.made(), world.process()
    prepared = participant(store, "p0", 0, 1)
    driver = coordinator(driver_store)
    with pytest.raises(OutcomeUnknownError):
        driver.commit(prepared)  # the participant's process owns the topic
    world.turn(store, driver_store, times=2)
    driver.commit()
    assert committed(driver_store) == [b"p0-0", b"p0-1"]


# --- around it ---


def test_a_compacted_coordinators_log_knows_the_same() -> None:
    world = World()
    store = world.made(prepared_max_age_s=1e8)
    for number in range(5):
        one = participant(store, "p0", 0, value=b"%d" % number)
        driver = coordinator(store)
        driver.commit(one)
        driver.lease.release()
    waiting = participant(store, "p1", 1)
    before = store.backend.list_transactions()
    world.turn(store, milliseconds=8 * 24 * 3600 * 1000)
    store.close()
    compactor = world.process(prepared_max_age_s=1e8)
    compactor.admin.compact("__transaction_state")
    assert [one.state for one in before if one.transactional_id == "p1"] == ["PREPARED"]
    compactor.close()
    later = world.process(prepared_max_age_s=1e8)
    assert states(later)["p1"] == "PREPARED"
    coordinator(later).commit(waiting)
    assert committed(later) == sorted([b"0", b"1", b"2", b"3", b"4", b"p1-1"])


def test_a_copy_of_the_store_has_what_is_decided_and_not_what_waits() -> None:
    world = World()
    store = world.made()
    decided_and_cut_short(world, store)
    origin = world.process(prepared_max_age_s=1e8)
    origin.backend.transactions.reaper.step = lambda: None  # type: ignore[method-assign]
    participant_of_another = Writer(origin, "q", coordinator="d")
    participant_of_another.begin()
    participant_of_another.send(b"waits", 2)
    participant_of_another.prepare()
    origin.backup("/copy")
    copy = LogStore("/copy", fs=world.fs, clock=world.clock, threads=False)
    assert committed(copy) == [b"p0-0", b"p1-1", b"p1-2"]
    assert settled(copy)
    assert set(states(copy).values()) <= set(DONE)
    assert group_offset(copy) == 7


def test_many_participants_share_syncs() -> None:
    world = World()
    store = world.made()
    prepared = [participant(store, f"p{number}", number % 3) for number in range(30)]
    driver = coordinator(store)
    syncs = 0

    def observe(operation: Operation) -> None:
        nonlocal syncs
        syncs += operation.name in ("sync", "fsync", "fdatasync")

    world.fs.faults.observer = observe
    driver.commit(*prepared)
    world.fs.faults.observer = None
    assert len(committed(store)) == 30
    assert syncs <= 12, "one decision, one batch of records, one sync a partition, one completion"
