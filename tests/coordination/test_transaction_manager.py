"""Transactions of the embedded store: crashes at every step, live and dead owners, timeouts, epochs that end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from logstore.errors import (
    DiskFullError,
    LogStoreError,
    OutcomeUnknownError,
    ProducerBusyError,
    ProducerFencedError,
    TopicLockedError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionTimedOutError,
)
from logstore.machine import Decision, TransactionalWriter
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import KeepNothing
from logstore.store import LogStore
from logstore.transactions.coordinator import LAST_EPOCH, TransactionState, TransactionStatus
from logstore.transactions.transaction_records import encode_key, encode_value
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.transaction_world import (
    SOURCE,
    World,
    Writer,
    committed,
    group_offset,
    recorded_run,
    settled,
    states,
)

# --- a crash at every step ---


def run_script(store: LogStore, note: Callable[[str], None]) -> None:
    """Three transactions, the second aborted; ``note`` hears what was begun and what was answered."""
    writer = Writer(store)
    for number, partitions in enumerate(((0, 1), (0,), (1, 2))):
        note(f"begun {number}")
        writer.begin()
        for partition in partitions:
            writer.send(b"%d-%d" % (number, partition), partition)
        writer.offset(10 * (number + 1))
        if number == 1:
            writer.abort()
        else:
            writer.commit()
        note(f"ended {number}")


CONTENT = {0: {b"0-0", b"0-1"}, 2: {b"2-1", b"2-2"}}


def check_after(world: World, heard: list[str]) -> set[int]:
    """Resolve what a crash left, and see all or nothing of each transaction; those that count."""
    store = world.process()
    world.turn(store, times=2)
    assert settled(store), heard
    assert all(state in ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT") for state in states(store).values())
    found = committed(store)
    counted = {number for number, content in CONTENT.items() if content & set(found)}
    assert found == sorted(value for number in counted for value in CONTENT[number]), heard
    assert group_offset(store) == (10 * (max(counted) + 1) if counted else 0), heard
    assert counted >= {number for number in CONTENT if f"ended {number}" in heard}
    assert counted <= {number for number in CONTENT if f"begun {number}" in heard}
    again = Writer(store)
    again.send(b"later", 1)
    again.commit()
    assert committed(store) == sorted([*found, b"later"])
    store.close()
    return counted


def test_a_process_killed_at_any_call_leaves_all_or_nothing() -> None:
    seen = [check_after(World(fs.process_crash()), heard) for fs, heard in recorded_run(run_script)[::2]]
    assert len(seen) > 30
    assert {frozenset(counted) for counted in seen} == {frozenset(), frozenset({0}), frozenset({0, 2})}


def test_a_power_loss_at_any_call_leaves_all_or_nothing() -> None:
    moments = recorded_run(run_script)
    seen = set()
    for number, (fs, heard) in enumerate(moments):
        seen.add(frozenset(check_after(World(fs.crash(KeepNothing()), boot="boot-1"), heard)))
        if number % 6 == 0:
            for survivor in fs.crash_states(2):
                seen.add(frozenset(check_after(World(survivor, boot="boot-1"), heard)))
    assert seen == {frozenset(), frozenset({0}), frozenset({0, 2})}


def test_a_crash_in_the_resolving_is_resolved_by_the_next() -> None:
    world = World()
    store = world.made()
    writer = decided_and_cut_short(world, store)
    assert writer.lease is not None
    base = world.fs.clone()
    ends = 0
    for call in range(1, 200):
        fs = base.clone()
        second = World(fs)
        helper = second.process()
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        try:
            second.turn(helper, times=2)
            fs.faults.clear()
        except SimulatedCrash:
            ends += 1
            helper.abandon()
            third = World(fs.process_crash())
            last = third.process()
            third.turn(last, times=2)
            assert committed(last) == [b"a", b"b"]
            assert settled(last)
            assert group_offset(last) == 7
            last.close()
            continue
        helper.close()
        break
    assert ends > 10


# --- who ends what ---


def decided_and_cut_short(world: World, store: LogStore) -> Writer:
    """A commit that is decided, its owner killed before the first marker."""
    writer = Writer(store)
    writer.begin()
    writer.send(b"a", 0)
    writer.send(b"b", 1)
    writer.offset(7)
    cut_at_markers(store)
    with pytest.raises(SimulatedCrash):
        writer.commit()
    store.abandon()
    return writer


def cut_at_markers(store: LogStore) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise SimulatedCrash("before the markers")

    store.backend.transactions.manager.markers.write = killed  # type: ignore[method-assign]


def test_a_decided_commit_is_finished_and_anything_else_aborted() -> None:
    for decided in (True, False):
        world = World()
        store = world.made()
        if decided:
            decided_and_cut_short(world, store)
        else:
            writer = Writer(store)
            writer.begin()
            writer.send(b"a", 0)
            writer.send(b"b", 1)
            writer.offset(7)
            store.abandon()
        other = world.process()
        assert committed(other) == []
        world.turn(other)
        assert committed(other) == ([b"a", b"b"] if decided else [])
        assert group_offset(other) == (7 if decided else 0)
        assert settled(other)
        assert states(other) == {"t": "COMPLETE_COMMIT" if decided else "COMPLETE_ABORT"}
        other.close()


def test_a_live_owners_transaction_is_left_alone_whatever_its_state() -> None:
    world = World()
    owner, other = world.made(), world.process()
    writer = Writer(owner, timeout_ms=5_000)
    writer.begin()
    writer.send(b"a")
    world.turn(other, times=10)  # far past the timeout: that is its own housekeeper's business
    assert states(other) == {"t": "ONGOING"}
    with pytest.raises(TransactionTimedOutError):
        writer.commit()
    writer.begin()
    writer.send(b"b")
    room = owner.backend.transactions.manager
    write, room.markers.write = room.markers.write, lambda *_, **__: ([], DiskFullError("full"))  # type: ignore
    with pytest.raises(OutcomeUnknownError, match="committed"):
        writer.commit()
    world.turn(other, times=3)
    assert states(other) == {"t": "PREPARE_COMMIT"}
    room.markers.write = write  # type: ignore[method-assign]
    with pytest.raises(TransactionStateError):
        writer.lease.add_partitions([TopicPartition("out", 2)])
    world.turn(owner)
    assert states(other) == {"t": "COMPLETE_COMMIT"}
    assert committed(other) == [b"b"]
    writer.commit()  # asked again: it is done
    writer.begin()
    writer.send(b"c", 2)
    writer.commit()
    assert committed(owner) == [b"b", b"c"]
    other.close()
    owner.close()


def test_the_owners_housekeeper_aborts_what_is_overdue() -> None:
    world = World()
    store = world.made()
    writer = Writer(store, timeout_ms=3_000)
    writer.begin()
    writer.send(b"late")
    world.turn(store, times=2)
    assert states(store) == {"t": "ONGOING"}
    world.turn(store, times=2)
    assert states(store) == {"t": "COMPLETE_ABORT"}
    assert isinstance(writer.lease.ended_by(), TransactionTimedOutError)
    for call in (writer.commit, lambda: writer.send(b"more", 1), lambda: writer.offset(3)):
        with pytest.raises(TransactionTimedOutError, match="3000"):
            call()
    with pytest.raises(ProducerFencedError):
        writer.send_blindly(b"zombie", TopicPartition("out", 0), writer.lease.epoch - 1)
    writer.abort()
    writer.begin()
    writer.send(b"in time")
    writer.commit()
    assert committed(store) == [b"in time"]
    store.close()


def test_an_id_opened_elsewhere_fences_its_former_owner() -> None:
    world = World()
    older, newer = world.made(), world.process()
    zombie = Writer(older)
    zombie.begin()
    zombie.send(b"old", 0)
    zombie.offset(5)
    with pytest.raises((TopicLockedError, ProducerBusyError), match=r"pid \d+"):
        Writer(newer)  # the topic is the zombie's process's, which has to mark it
    assert states(newer) == {"t": "PREPARE_ABORT"}
    world.turn(older)
    assert states(newer) == {"t": "COMPLETE_ABORT"}
    older.release("out")
    fresh = Writer(newer)
    with pytest.raises(ProducerFencedError):
        zombie.commit()
    for call in (zombie.begin, lambda: zombie.send(b"late", 1), lambda: zombie.offset(9)):
        with pytest.raises(ProducerFencedError):
            call()
    fresh.begin()
    fresh.send(b"new", 0)
    fresh.offset(6)
    fresh.commit()
    assert committed(newer) == [b"new"]
    assert group_offset(older) == 6
    newer.release("out")
    with pytest.raises(ProducerFencedError):
        zombie.send_blindly(b"zombie", TopicPartition("out", 0))
    older.close()
    newer.close()


def test_a_former_owner_that_hangs_is_named() -> None:
    world = World()
    older, newer = world.made(), world.process()
    Writer(older)
    with pytest.raises(ProducerBusyError, match="pid"):
        Writer(newer)
    world.turn(older)  # it hangs no more, and sees that it was fenced
    Writer(newer)
    older.close()
    newer.close()


def test_a_resolver_leaves_topics_of_others_to_those() -> None:
    world = World()
    owner, second, third = world.made(), world.process(), world.process()
    owner.create_topic("more")
    writer = Writer(owner)
    writer.begin()
    writer.send(b"a", 0)
    writer.send(b"b", 0, topic="more")
    cut_at_markers(owner)
    with pytest.raises(SimulatedCrash):
        writer.commit()
    owner.abandon()
    second.partition("more", 0).append([(None, b"own")])
    second.pin("more")
    world.turn(third)
    (left,) = third.backend.list_transactions()
    assert (left.state, left.places) == ("PREPARE_COMMIT", (TopicPartition("more", 0),))
    assert (settled(third, "out"), settled(third, "more")) == (True, False)
    world.turn(second, third)
    assert states(third) == {"t": "COMPLETE_COMMIT"}
    assert committed(third, "more") == [b"b", b"own"]
    second.close()
    third.close()


def test_an_id_is_opened_while_the_owner_of_a_topic_marks_what_a_dead_process_left() -> None:
    world = World()
    dead = world.made()
    writer = Writer(dead)
    writer.begin()
    writer.send(b"lost", 0)
    dead.abandon()
    owner = world.process(lock_timeout_s=5)
    owner.partition("out", 0).append([(None, b"own")])
    restarted = world.process(lock_timeout_s=5)
    opened: list[Writer] = []
    opening = threading.Thread(target=lambda: opened.append(Writer(restarted)))
    opening.start()
    for _ in range(2000):
        if opened:
            break
        if states(owner) == {"t": "PREPARE_ABORT"}:
            world.turn(owner, milliseconds=100)  # fifty of these turns are the time that the opening has
        threading.Event().wait(0.002)
    opening.join(30)
    assert len(opened) == 1
    assert states(owner) == {"t": "EMPTY"}
    assert settled(owner)
    owner.close()
    restarted.close()


def test_a_slow_owner_of_an_aborted_transaction_writes_no_first_offset() -> None:
    world = World()
    slow, other = world.made(), world.process()
    writer = Writer(slow)
    writer.begin()
    writer.lease.add_partitions([], offsets=True)  # and there it stands: no group has ever committed here
    with pytest.raises(ProducerBusyError):
        Writer(other)
    with pytest.raises(ProducerFencedError):
        slow.backend.transactions.manager.send_offsets(
            "g",
            {SOURCE: OffsetAndMetadata(3)},
            TransactionalWriter(writer.lease.producer_id, writer.lease.epoch),
            None,
        )
    assert not slow.backend.find_hanging()
    slow.close()
    other.close()


def test_a_topic_in_an_open_transaction_is_not_idle() -> None:
    world = World()
    store = world.made(lock_idle_release_s=10)
    writer = Writer(store)
    writer.begin()
    writer.send(b"a")
    world.turn(store, times=20)
    owned = {topic.name: topic.owned for topic in store._registry.opened()}
    assert (owned["out"], owned["in"]) == (True, False)
    writer.commit()
    world.turn(store, times=12)
    assert not any(topic.owned for topic in store._registry.opened())
    store.close()


# --- outcomes nobody knows ---


def losing_answers(store: LogStore, count: int, *, done: bool) -> None:
    """The next ``count`` decisions of the coordinator end in doubt, made or not."""
    shared = store.backend.transactions.manager.coordinator()
    real = shared.decide

    def decide(asked: Any) -> Any:
        nonlocal count
        if count <= 0:
            return real(asked)
        count -= 1
        if done:
            real(asked)
        raise OutcomeUnknownError("the disk said nothing")

    shared.decide = decide  # type: ignore[method-assign]


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_a_commit_of_unknown_outcome_is_asked_for(count: int, done: bool) -> None:
    store = World().made()
    writer = Writer(store)
    writer.begin()
    writer.send(b"a")
    losing_answers(store, count, done=done)
    if count == 2:
        with pytest.raises(OutcomeUnknownError):
            writer.commit()
    writer.commit()
    assert committed(store) == [b"a"]
    writer.begin()
    writer.send(b"b")
    writer.commit()
    assert committed(store) == [b"a", b"b"]
    store.close()


def test_a_commit_whose_sync_fails_is_decided_by_what_the_disk_holds() -> None:
    world = World()
    store = world.made()
    writer = Writer(store)
    writer.begin()
    writer.send(b"a")
    world.fs.faults.on("sync", FaultKind.EIO, path_ends="__transaction_state-0/00000000000000000000.log")
    writer.commit()
    assert world.fs.faults.fired == 1
    assert committed(store) == [b"a"]
    store.close()


def test_a_producer_in_doubt_may_only_ask() -> None:
    world = World()
    store = world.made()
    producer = store.producer(transactional_id="t", clock=world.clock)
    tx = producer.begin()
    tx.send("out", b"a")
    tx.send("out", b"b").result()
    losing_answers(store, 2, done=True)
    with pytest.raises(OutcomeUnknownError):
        tx.commit()
    for call in (tx.abort, producer.begin, lambda: tx.send("out", b"c")):
        with pytest.raises(TransactionStateError, match="commit"):
            call()
    tx.commit()
    assert committed(store) == [b"a", b"b"]
    producer.close()
    store.close()


@pytest.mark.parametrize("done", [True, False])
def test_the_housekeeper_between_two_askings_changes_no_answer(done: bool) -> None:
    world = World()
    store = world.made()
    producer = store.producer(transactional_id="t", clock=world.clock)
    tx = producer.begin()
    tx.send("out", b"a").result()
    losing_answers(store, 2, done=done)
    with pytest.raises(OutcomeUnknownError):
        tx.commit()
    world.turn(store, times=2)
    assert committed(store) == ([b"a"] if done else [])
    tx.commit()
    assert committed(store) == [b"a"]
    with producer.transaction() as following:
        following.send("out", b"b")
    assert committed(store) == [b"a", b"b"]
    producer.close()
    store.close()


def test_a_commit_that_may_be_decided_is_in_doubt_whatever_the_second_asking_meets() -> None:
    world = World()
    store = world.made()
    producer = store.producer(transactional_id="t", clock=world.clock)
    tx = producer.begin()
    tx.send("out", b"a").result()
    losing_answers(store, 1, done=True)
    other = world.process()
    shared = other.backend.transactions.manager.coordinator()
    room = store.backend.transactions.manager
    real = room.coordinator().decide

    def with_lock_of_other(asked: Any) -> Any:
        if losing.count == 0:  # the second asking
            losing.count += 1
            with shared._log.held(0):
                return real(asked)
        losing.count = 0
        return real(asked)

    losing = SimpleNamespace(count=-1)
    room.coordinator().decide = with_lock_of_other  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError):
        tx.commit()
    assert losing.count == 1
    with pytest.raises(TransactionStateError, match="commit"):
        tx.abort()
    tx.commit()
    assert committed(store) == [b"a"]
    producer.close()
    store.close()
    other.close()


def test_a_full_disk_leaves_the_transaction_open() -> None:
    world = World()
    store = world.made()
    writer = Writer(store)
    writer.begin()
    writer.send(b"a")
    world.fs.faults.on(
        "pwritev", FaultKind.ENOSPC, path_ends="__transaction_state-0/00000000000000000000.log"
    )
    with pytest.raises(DiskFullError):
        writer.commit()
    assert world.fs.faults.fired == 1
    writer.send(b"b")
    writer.commit()
    assert committed(store) == [b"a", b"b"]
    store.close()


# --- epochs ---


def with_epoch(store: LogStore, epoch: int, producer_id: int = 77) -> None:
    """Make the coordinator's log say that the id has come as far as this epoch."""
    state = TransactionState("t", producer_id, epoch, 60_000, TransactionStatus.COMPLETE_COMMIT, (), 1, 1)
    record = (encode_key("t"), encode_value(state))
    store.backend.transactions.manager.coordinator().decide(lambda _: Decision((record,), None))


def test_an_id_goes_on_under_another_producer_id_when_its_epochs_end() -> None:
    store = World().made()
    with_epoch(store, LAST_EPOCH - 5)
    writer = Writer(store)
    used = []
    for number in range(9):
        writer.begin()
        used.append((writer.lease.producer_id, writer.lease.epoch))
        writer.send(b"%d" % number, number % 3)
        writer.offset(number)
        if number % 4 == 3:
            writer.abort()
        else:
            writer.commit()
    assert len(set(used)) == 9
    assert max(epoch for _, epoch in used) < LAST_EPOCH
    ids = list(dict.fromkeys(producer_id for producer_id, _ in used))
    assert (len(ids), ids[0]) == (2, 77)
    assert committed(store) == [b"%d" % number for number in range(9) if number % 4 != 3]
    assert group_offset(store) == 8
    store.close()


# --- topics that go, processes that share, threads ---


def test_a_deleted_topic_needs_no_marker() -> None:
    world = World()
    store = world.made()
    store.create_topic("gone")
    writer = Writer(store)
    writer.begin()
    writer.send(b"a")
    writer.send(b"lost", topic="gone")
    store.delete_topic("gone")
    writer.commit()
    world.turn(store)  # nobody waited for the coordinator to be told
    assert states(store) == {"t": "COMPLETE_COMMIT"}
    assert committed(store) == [b"a"]
    store.close()


def test_ids_of_many_threads_do_not_meet() -> None:
    store = World().made(lock_timeout_s=30)
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for turn in range(5):
                writer = Writer(store, name)
                writer.begin()
                writer.send(f"{name}-{turn}".encode(), turn % 3)
                writer.offset(turn + 1, group=name)
                if turn == 3:
                    writer.abort()
                else:
                    writer.commit()
                writer.lease.release()
        except LogStoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"id{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    expected = sorted(f"id{number}-{turn}".encode() for number in range(4) for turn in (0, 1, 2, 4))
    assert committed(store) == expected
    assert [group_offset(store, f"id{number}") for number in range(4)] == [5] * 4
    store.close()


def test_ids_out_of_use_are_forgotten() -> None:
    world = World()
    store = world.made()
    for name in ("held", "spark-sink", "used"):
        writer = Writer(store, name)
        writer.begin()
        writer.send(name.encode())
        writer.commit()
        if name != "held":
            writer.lease.release()
    week_ms = 7 * 24 * 3600 * 1000
    world.turn(store, milliseconds=week_ms - 1)
    assert sorted(states(store)) == ["held", "spark-sink", "used"]
    world.turn(store, milliseconds=3_700_000)
    assert sorted(states(store)) == ["held", "spark-sink"]
    Writer(store, "used").lease.release()
    assert len(states(store)) == 3
    store.close()


# --- administration ---


def test_aborted_by_request() -> None:
    world = World()
    owner, other = world.made(), world.process()
    for store in (owner, other):
        writer = Writer(owner)
        writer.begin()
        writer.send(b"a")
        assert store.backend.abort_transaction("t").state in ("COMPLETE_ABORT", "PREPARE_ABORT")
        world.turn(owner)
        assert states(other) == {"t": "COMPLETE_ABORT"}
        with pytest.raises(TransactionAbortedError):
            writer.commit()
        writer.abort()
        writer.begin()
        writer.send(b"b")
        writer.commit()
        writer.lease.release()
    assert committed(other) == [b"b", b"b"]
    assert other.backend.abort_transaction("t").state == "COMPLETE_COMMIT"  # nothing to abort
    owner.close()
    other.close()


def test_what_hangs_is_found_and_ended() -> None:
    world = World()
    store = world.made()
    live = Writer(store, "live")
    live.begin()
    live.send(b"live", 2)
    stray = Writer(store, "stray")
    stray.begin()
    stray.send_blindly(b"lost", TopicPartition("out", 0))  # no coordinator was told
    store.partition("out", 0).append([(None, b"behind")])
    (hanging,) = store.backend.find_hanging()
    assert (hanging.topic, hanging.partition, hanging.start_offset) == ("out", 0, 0)
    assert (hanging.producer_id, hanging.transactional_id) == (stray.lease.producer_id, "stray")
    assert committed(store) == []
    store.backend.end_hanging(hanging)
    assert store.backend.find_hanging(["out"]) == []
    assert committed(store) == [b"behind"]
    with pytest.raises(TransactionStateError, match="hangs"):
        store.backend.end_hanging(hanging)
    live.commit()
    assert committed(store) == [b"behind", b"live"]
    store.close()
