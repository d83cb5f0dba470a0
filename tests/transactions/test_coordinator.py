"""The coordinator's decisions one by one; the conversations are in tests/scripts/transaction_*.txt."""

from __future__ import annotations

import time
from typing import TypeVar

import pytest

from logstore.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTransactionIdError,
    InvariantError,
    ProducerFencedError,
    TransactionStateError,
)
from logstore.machine import Decision, StateMachine
from logstore.transactions.coordinator import (
    LAST_EPOCH,
    EndedTransaction,
    InitReply,
    TransactionCoordinator,
    TransactionState,
    TransactionStatus,
    validate_transactional_id,
)
from logstore.transactions.transaction_records import encode_key, encode_value
from logstore.types import TopicPartition

Reply = TypeVar("Reply")
FLIGHTS = TopicPartition("flights", 0)
DELAYS = TopicPartition("delays", 3)


def apply(machine: StateMachine, decision: Decision[Reply]) -> Reply:
    for key, value in decision.records:
        machine.replay(key, value)
    return decision.reply


def opened(*names: str) -> TransactionCoordinator:
    """With these ids open, under producer ids from 1 on and epoch 0."""
    machine = TransactionCoordinator()
    for number, name in enumerate(names, 1):
        apply(machine, machine.decide_init(name, 1_000, number, 0))
    return machine


def put(machine: TransactionCoordinator, epoch: int, status: TransactionStatus) -> TransactionState:
    state = TransactionState("a", 1, epoch, 1_000, status, (), 0, 0)
    machine.replay(encode_key("a"), encode_value(state))
    return state


def test_a_decision_changes_nothing_until_it_is_replayed() -> None:
    machine = TransactionCoordinator()
    first = machine.decide_init("a", 1_000, 7, 5)
    assert first.reply == InitReply(7, 0, None)
    assert machine.find("a") is None
    assert machine.decide_init("a", 1_000, 7, 5) == first
    apply(machine, first)
    apply(machine, first)
    state = TransactionState("a", 7, 0, 1_000, TransactionStatus.EMPTY, (), 5, -1)
    assert machine.transactions() == [state]
    added = machine.decide_add_partitions("a", 7, 0, [FLIGHTS], 6)
    assert machine.describe("a") == state
    apply(machine, added)
    assert machine.describe("a").places == (FLIGHTS,)
    ended = machine.decide_end("a", 7, 0, commit=True, now_ms=8)
    assert machine.describe("a").status is TransactionStatus.ONGOING
    assert ended.reply == EndedTransaction("a", 7, 1, True, (FLIGHTS,))


def test_a_replayed_record_comes_in_one_batch_of_one() -> None:
    """Each decision about one id is one record, so that it is in the log or not."""
    machine = opened("a")
    decisions = [
        machine.decide_init("b", 1_000, 9, 0),
        machine.decide_add_partitions("a", 1, 0, [FLIGHTS, DELAYS], 1),
    ]
    assert [len(decision.records) for decision in decisions] == [1, 1]
    assert all(decision.producer is None for decision in decisions)


def test_the_errors_tell_the_epochs_expected_and_found() -> None:
    machine = opened("a")
    apply(machine, machine.decide_init("a", 1_000, 9, 0))
    with pytest.raises(ProducerFencedError) as fenced:
        machine.decide_add_partitions("a", 1, 0, [FLIGHTS], 1)
    assert (fenced.value.expected_epoch, fenced.value.found_epoch) == (1, 0)


def test_plain_tuples_will_do_and_other_things_are_named() -> None:
    machine = opened("a")
    places = machine.decide_add_partitions("a", 1, 0, [("t", 1)], 1).reply  # type: ignore[list-item]
    assert type(places[0]) is TopicPartition
    for odd in ("ab", [("t", -1)], [5], None):
        with pytest.raises(InvalidArgumentError):
            machine.decide_add_partitions("a", 1, 0, odd, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a" * 250, "a\0b", "\ud800", 5, None])
def test_bad_transactional_ids_are_named_by_every_request(name: str) -> None:
    machine = TransactionCoordinator()
    for ask in (
        lambda: validate_transactional_id(name),
        lambda: machine.decide_init(name, 1_000, 1, 0),
        lambda: machine.decide_add_partitions(name, 1, 0, [FLIGHTS], 0),
        lambda: machine.decide_end(name, 1, 0, commit=True, now_ms=0),
        lambda: machine.decide_marked(name, 1, 0, [FLIGHTS], 0),
        lambda: machine.decide_resolve(name, 0),
        lambda: machine.describe(name),
    ):
        with pytest.raises(InvalidTransactionIdError):
            ask()


@pytest.mark.parametrize("timeout_ms", [0, -1, 86_400_001, True, 1.5, None, "1000"])
def test_bad_timeouts(timeout_ms: int) -> None:
    with pytest.raises(InvalidArgumentError, match="transaction_timeout_ms"):
        TransactionCoordinator().decide_init("a", timeout_ms, 1, 0)


def test_a_producer_id_in_use_is_no_fresh_one() -> None:
    machine = opened("a")
    with pytest.raises(InvariantError, match="producer id 1 was given for a fresh one, and 'a' has it"):
        machine.decide_init("b", 1_000, 1, 0)


def test_producer_ids_lead_to_their_transactional_ids() -> None:
    machine = opened("a", "b")
    assert [machine.owner_of(number) for number in (1, 2, 3)] == ["a", "b", None]
    put(machine, LAST_EPOCH - 1, TransactionStatus.EMPTY)
    apply(machine, machine.decide_init("a", 1_000, 3, 0))
    assert [machine.owner_of(number) for number in (1, 2, 3)] == [None, "b", "a"]
    apply(machine, machine.decide_forget(10**9, 1))
    assert [machine.owner_of(number) for number in (1, 2, 3)] == [None, None, None]


def test_two_ids_of_a_foreign_log_with_one_producer_id() -> None:
    """No broker writes that; the machine must not lose its way."""
    machine = opened("a", "b")
    machine.replay(encode_key("b"), encode_value(machine.describe("a")))
    assert machine.owner_of(1) == "b"
    apply(machine, machine.decide_init("a", 1_000, 5, 0))
    machine.replay(encode_key("b"), None)
    assert machine.find("b") is None
    assert machine.describe("a").producer_id == 1


def test_an_opening_always_leaves_room_for_a_transaction_and_its_fence() -> None:
    for epoch in range(LAST_EPOCH - 6, LAST_EPOCH + 2):
        machine = TransactionCoordinator()
        put(machine, epoch, TransactionStatus.COMPLETE_COMMIT)
        reply = apply(machine, machine.decide_init("a", 1_000, 9, 0))
        assert reply.epoch < LAST_EPOCH
        assert reply.producer_id == (9 if epoch + 1 >= LAST_EPOCH else 1)
        apply(machine, machine.decide_add_partitions("a", reply.producer_id, reply.epoch, [FLIGHTS], 0))
        fenced = apply(machine, machine.decide_init("a", 1_000, 10, 0))
        assert fenced.pending is not None
        assert fenced.pending.marker_epoch == reply.epoch + 2
        encode_value(machine.describe("a"))


def test_nothing_begins_past_the_last_epoch() -> None:
    machine = TransactionCoordinator()
    put(machine, LAST_EPOCH, TransactionStatus.COMPLETE_COMMIT)
    with pytest.raises(TransactionStateError, match=r"past the last that can, 32765 \(open the id again"):
        machine.decide_add_partitions("a", 1, LAST_EPOCH, [FLIGHTS], 0)


def test_the_end_of_a_producer_ids_life() -> None:
    """Transaction by transaction to the end of the 16 bits, and into the next producer id; no pair twice."""
    machine = TransactionCoordinator()
    producer_id, epoch, seen = 1, LAST_EPOCH - 100, set()
    put(machine, epoch, TransactionStatus.COMPLETE_COMMIT)
    fresh = iter(range(2, 10))
    for number in range(300):
        if epoch >= LAST_EPOCH:
            reply = apply(
                machine, machine.decide_init("a", 1_000, next(fresh), 0, continuing=(producer_id, epoch))
            )
            producer_id, epoch = reply.producer_id, reply.epoch
        assert (producer_id, epoch) not in seen
        seen.add((producer_id, epoch))
        apply(machine, machine.decide_add_partitions("a", producer_id, epoch, [FLIGHTS], 0))
        commit = number % 2 == 0
        ended = apply(machine, machine.decide_end("a", producer_id, epoch, commit=commit, now_ms=0))
        assert ended.marker_epoch == epoch + 1
        apply(machine, machine.decide_marked("a", producer_id, epoch + 1, [FLIGHTS], 0))
        epoch += 1
    assert (producer_id, epoch) == (2, 200)


@pytest.mark.parametrize("status", TransactionStatus)
def test_every_request_in_every_state_is_answered_or_refused_by_name(status: TransactionStatus) -> None:
    """The table of README.md: which request each state takes from the id's own producer."""
    machine = TransactionCoordinator()
    put(machine, 4, status)
    taken = set()
    for name, ask in (
        ("add", lambda: machine.decide_add_partitions("a", 1, 4, [FLIGHTS], 0)),
        ("commit", lambda: machine.decide_end("a", 1, 4, commit=True, now_ms=0)),
        ("abort", lambda: machine.decide_end("a", 1, 4, commit=False, now_ms=0)),
        ("commit before", lambda: machine.decide_end("a", 1, 3, commit=True, now_ms=0)),
        ("abort before", lambda: machine.decide_end("a", 1, 3, commit=False, now_ms=0)),
    ):
        try:
            ask()
            taken.add(name)
        except (TransactionStateError, ProducerFencedError, LookupError) as error:
            assert "'a'" in str(error)  # noqa: PT017 - which it is depends on the state
    due = {
        TransactionStatus.EMPTY: {"add", "abort"},
        TransactionStatus.ONGOING: {"add", "commit", "abort"},
        TransactionStatus.PREPARE_COMMIT: {"commit before"},
        TransactionStatus.PREPARE_ABORT: {"abort before"},
        TransactionStatus.COMPLETE_COMMIT: {"add", "abort", "commit before"},
        TransactionStatus.COMPLETE_ABORT: {"add", "abort", "abort before"},
        TransactionStatus.DEAD: set(),
    }
    assert taken == due[status]


def test_a_decided_transaction_without_places_is_completed_by_any_note() -> None:
    """A broker may leave one when it dies between the last marker and its note."""
    machine = TransactionCoordinator()
    put(machine, 4, TransactionStatus.PREPARE_COMMIT)
    assert apply(machine, machine.decide_marked("a", 1, 4, [], 0)) == ()
    assert machine.describe("a").status is TransactionStatus.COMPLETE_COMMIT


def test_aborted_from_tells_whose_transaction_was_aborted() -> None:
    machine = opened("a")
    apply(machine, machine.decide_add_partitions("a", 1, 0, [FLIGHTS], 0))
    assert not machine.describe("a").aborted_from(1, 0)
    apply(machine, machine.decide_resolve("a", 0))
    state = machine.describe("a")
    assert state.aborted_from(1, 0)
    assert not state.aborted_from(1, 1)
    assert not state.aborted_from(2, 0)
    apply(machine, machine.decide_marked("a", 1, 1, [FLIGHTS], 0))
    assert machine.describe("a").aborted_from(1, 0)
    apply(machine, machine.decide_add_partitions("a", 1, 1, [FLIGHTS], 0))
    apply(machine, machine.decide_resolve("a", 0, fence=True))
    assert not machine.describe("a").aborted_from(1, 1)


def test_the_log_of_a_coordinator_holds_no_transactions() -> None:
    machine = TransactionCoordinator()
    with pytest.raises(InvalidRecordError, match="of producer 5, epoch 6"):
        machine.replay_pending(5, 6, b"key", b"value")
    with pytest.raises(InvalidRecordError, match="of producer 5, epoch 6, abort"):
        machine.replay_marker(5, 6, False)


def test_ten_thousand_ids_are_looked_over_by_what_is_under_way() -> None:
    """Housekeeping asks every second: what is idle must cost it nothing."""
    machine = opened(*(f"id-{number}" for number in range(10_000)))
    apply(machine, machine.decide_add_partitions("id-77", 78, 0, [FLIGHTS], 0))
    began_s = time.thread_time()
    for _ in range(1_000):
        assert [state.transactional_id for state in machine.in_doubt()] == ["id-77"]
    assert time.thread_time() - began_s < 0.5, "1,000 looks take 2 ms"
