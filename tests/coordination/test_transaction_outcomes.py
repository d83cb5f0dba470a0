"""Commits that got no answer, asked for when the id is open elsewhere; and partitions that the catalogue lacks yet."""

from __future__ import annotations

import itertools

import pytest

from logstore.errors import (
    OutcomeUnknownError,
    ProducerBusyError,
    ProducerFencedError,
    TransactionAbortedError,
)
from logstore.transactions.coordinator import TransactionCoordinator
from logstore.types import TopicPartition
from tests.coordination.test_transaction_manager import losing_answers
from tests.transaction_world import World, Writer, committed, settled

PLACE = TopicPartition("out", 0)


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("done", [True, False])
def test_who_asks_after_the_id_was_opened_again_is_told_the_outcome(done: bool, elsewhere: bool) -> None:
    world = World()
    store, other = world.made(), world.process()
    writer = Writer(store)
    writer.begin()
    writer.send(b"a")
    losing_answers(store, 2, done=done)
    with pytest.raises(OutcomeUnknownError):
        writer.commit()
    if elsewhere:
        store.release("out")  # so that the other one can write the markers
        with pytest.raises(ProducerBusyError):
            Writer(other)  # it has the id, and waits for the older one to let go
    else:
        Writer(store)
    for _ in range(2):
        if done:
            writer.commit()
        else:
            with pytest.raises(TransactionAbortedError, match="got no answer was aborted"):
                writer.commit()
    assert committed(other) == ([b"a"] if done else [])
    with pytest.raises(ProducerFencedError):
        writer.begin()
    with pytest.raises(ProducerFencedError):
        writer.abort()
    store.close()
    other.close()


def test_a_producer_is_told_too_and_then_that_it_is_fenced() -> None:
    world = World()
    store = world.made()
    with store.producer(transactional_id="t", clock=world.clock) as producer:
        tx = producer.begin()
        tx.send("out", b"a").result()
        losing_answers(store, 2, done=True)
        with pytest.raises(OutcomeUnknownError):
            tx.commit()
        newer = Writer(store)
        newer.begin()
        newer.send(b"b")
        newer.commit()
        tx.commit()
        with pytest.raises(ProducerFencedError):
            producer.begin()
    assert committed(store) == [b"a", b"b"]
    store.close()


def test_a_commit_that_nobody_asked_for_is_fenced() -> None:
    store = World().made()
    writer = Writer(store)
    writer.begin()
    writer.send(b"a")
    Writer(store)
    with pytest.raises(ProducerFencedError):
        writer.commit()
    store.close()


def test_the_coordinator_remembers_the_outcomes_before_some_openings() -> None:
    machine = TransactionCoordinator()

    def apply(records: tuple[tuple[bytes, bytes | None], ...]) -> None:
        for key, value in records:
            machine.replay(key, value)

    fresh_ids = itertools.count(77)

    def opened() -> tuple[int, int]:
        while True:
            decision = machine.decide_init("t", 1000, next(fresh_ids), 0)
            apply(decision.records)
            pending = decision.reply.pending
            if pending is None:
                return decision.reply.producer_id, decision.reply.epoch
            apply(
                machine.decide_marked(
                    "t", pending.producer_id, pending.marker_epoch, pending.places, 0
                ).records
            )

    begun: list[tuple[int, int, bool | None]] = []
    for outcome in (True, None, False, None, True, False):
        own = opened()
        assert machine.outcome_of("t", *own) is None, "nothing is decided"
        apply(machine.decide_add_partitions("t", *own, [PLACE], 0).records)
        assert machine.outcome_of("t", *own) is None
        if outcome is not None:
            apply(machine.decide_end("t", *own, commit=outcome, now_ms=0).records)
            assert machine.outcome_of("t", *own) is outcome
        begun.append((*own, outcome))
    opened()
    told = [machine.outcome_of("t", producer_id, epoch) for producer_id, epoch, _ in begun]
    assert told == [None, None, False, False, True, False], (
        "of the last four; what was found open was aborted"
    )
    assert machine.outcome_of("t", 78, begun[-1][1]) is None
    assert machine.outcome_of("u", 77, 0) is None
    apply(machine.decide_forget(10**15, 1).records)
    assert machine.outcome_of("t", begun[-1][0], begun[-1][1]) is None


def test_a_marker_reaches_a_partition_that_another_process_has_just_added() -> None:
    world = World()
    owner, helper = world.made(), world.process()
    writer = Writer(owner)
    owner.pin("out")
    helper.admin.add_partitions("out", 4)
    writer.begin()
    writer.send(b"a", 0)
    writer.lease.add_partitions([TopicPartition("out", 3)])
    topic = owner._registry.get("out")
    assert topic.entry.partitions in (3, 4)
    writer.commit()
    log = topic.log(3)
    assert log.producers.entry(writer.lease.producer_id) is not None, "it has its marker"
    assert settled(owner)
    owner.close()
    helper.close()
