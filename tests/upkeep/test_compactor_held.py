"""Compaction by hand beside others: an open transaction that holds it back, processes that roll meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

import logstore
from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import TopicLockedError
from logstore.store import LogStore
from logstore.types import OpenTransaction
from logstore.upkeep.compactor import _MOST_ENDED_EARLY
from tests.partition.test_coordinator_log_cleaning import TOPIC, Values, faults, fill, put, values, world
from tests.shared_world import SharedWorld

COMPACT = {"cleanup.policy": "compact"}


def test_an_open_transaction_is_named_as_what_holds_it_back() -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("t", 2, COMPACT)
        plain = store.partition("t", 0)
        plain.append([(b"k", b"1"), (b"k", b"2")])
        with store.producer(transactional_id="copy") as producer, producer.transaction() as tx:
            tx.send("t", key=b"k", value=b"3", partition=0).result()
            plain.append([(b"k", b"4")])
            held, free = store.admin.compact("t", roll=True)
            producer_id = store.admin.list_transactions()[0].producer_id
            assert held.held_by == OpenTransaction(2, producer_id, "copy")
            assert held.cleaned_to == 0, "all of it lies in one segment"
            assert free.held_by is None
        assert store.admin.compact("t", 0, roll=True)[0].held_by is None, "it has ended"


def test_a_transaction_of_nobody_known_and_one_that_holds_nothing_back() -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("t", 1, COMPACT)
        with store.producer(transactional_id="copy") as producer, producer.transaction() as tx:
            tx.send("t", key=b"k", value=b"1").result()
            (row,) = store.admin.compact("t")
            assert row.held_by is None, "the active segment is left alone anyway"
            store._backend.transactions.admin._state_of_producer = lambda _: None  # type: ignore[method-assign]
            (row,) = store.admin.compact("t", roll=True)
            assert row.held_by is not None
            assert (row.held_by.first_offset, row.held_by.transactional_id) == (0, None)


def beside(machine: SharedWorld[Values], rolls: int) -> tuple[LogStore, CoordinatorRuntime[Values]]:
    """A store, and another process that rolls its internal topic between two slices, so many times."""
    (store, first), (_, second) = machine.process(), machine.process()
    fill(first)
    fill(second)
    topic = store._registry.shared_cleaning(TOPIC)
    left = [rolls]

    def breathe() -> None:
        topic._leave()
        if left[0] > 0:
            left[0] -= 1
            for number in range(20):
                put(second, b"k%d" % (number % 5), b"x" * 60 + b"%04d" % number)
        topic._enter(1.0)

    topic.breathe = breathe  # type: ignore[method-assign]
    return store, second


def slow(machine: SharedWorld[Values], store: Any) -> None:
    """A slice is one batch: a clock that runs on with each look at it."""
    clock = machine.clock
    kit = store._cleaning.kit
    make = kit.make

    class Ticking:
        wall_ms, boot_id = clock.wall_ms, clock.boot_id

        def monotonic_s(self) -> float:
            clock.advance(100)
            return clock.monotonic_s()

    kit.make = lambda log, pool, _clock, retirement, request: make(log, pool, Ticking(), retirement, request)


@pytest.mark.parametrize("rolls", [1, 3])
def test_other_processes_that_roll_an_internal_topic_do_not_end_it(rolls: int) -> None:
    machine = world()
    store, second = beside(machine, rolls)
    slow(machine, store)
    (row,) = store.admin.compact(TOPIC, roll=True)
    assert row.cleaned_to > 120
    assert store.metrics()["logstore_cleanings_cancelled_total"] >= rolls
    newest = {b"k%d" % key: b"x" * 60 + b"%04d" % (15 + key) for key in range(5)}
    assert values(second) == newest
    assert faults(machine) == []
    store.admin.compact(TOPIC, roll=True)
    described = store.describe_topic(TOPIC).partitions[0].compaction
    assert described.dirty_bytes == 0


def test_if_they_never_stop_it_says_so_and_may_be_tried_again() -> None:
    machine = world()
    store, _ = beside(machine, _MOST_ENDED_EARLY)
    slow(machine, store)
    with pytest.raises(TopicLockedError, match=f"rolled its log {_MOST_ENDED_EARLY} times"):
        store.admin.compact(TOPIC)
    assert store.admin.compact(TOPIC)[0].cleaned_to > 0
    assert faults(machine) == []
