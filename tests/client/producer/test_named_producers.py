"""Producers with a name: one at a time, counted for ever, stopped by the first gap."""

from __future__ import annotations

import gc
import warnings
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from logstore.client.producer.producer import Producer
from logstore.client.producer.sender import Sender
from logstore.errors import (
    DeliveryTimeoutError,
    DiskFullError,
    InvalidArgumentError,
    LogStoreError,
    OutcomeUnknownError,
    PartitionPoisonedError,
    ProducerBusyError,
    ProducerFencedError,
    TopicLockedError,
)
from logstore.seams.clock import ManualClock
from tests.client.fake_backend import FakeBackend
from tests.client.fake_producers import MASK, FakeEntry
from tests.client.producer.test_sequences import WIDE, places
from tests.client.records import until, values_of


def named(backend: FakeBackend, **given: Any) -> Producer[bytes, bytes]:
    return Producer(backend, name="import", **given)


def test_a_name_goes_on_where_it_was(fake: FakeBackend) -> None:
    with named(fake) as producer:
        assert producer.name == "import"
        assert producer.last_sequence("flights", 1) == 0
        producer.send_many("flights", [(None, b"%d" % number) for number in range(7)], partition=1).result()
        assert producer.last_sequence("flights", 1) == 7
        assert producer.last_sequence("flights", 2) == 0
    with named(fake) as producer:
        assert producer.last_sequence("flights", 1) == 7
        producer.send("flights", b"7", partition=1).result()
    assert places(fake, "flights", 1) == [(0, 0, 0, 7), (0, 1, 7, 1)]
    assert values_of(fake, "flights", 1) == [b"%d" % number for number in range(8)]


def test_a_name_has_one_producer_at_a_time(fake: FakeBackend) -> None:
    with named(fake), pytest.raises(ProducerBusyError, match="'import' is open: pid 1"):
        named(fake)
    named(fake).close()
    Producer(fake, name="other").close()


def test_a_name_is_free_when_its_producer_is_dropped(fake: FakeBackend) -> None:
    producer = named(fake)
    producer.send("events", b"v")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del producer
        gc.collect()
        until(lambda: not fake.holders, "the dropped producer's name is free")
    assert values_of(fake, "events") == [b"v"]


def test_a_producer_without_a_name_is_told_so(fake: FakeBackend) -> None:
    with Producer(fake) as producer:
        assert producer.name is None
        for call in (lambda: producer.last_sequence("events", 0), lambda: producer.spread("events")):
            with pytest.raises(InvalidArgumentError, match="has no name"):
                call()


@pytest.mark.parametrize(
    "error",
    [PartitionPoisonedError("bad disk"), OutcomeUnknownError("sync failed"), DeliveryTimeoutError("hung")],
)
def test_it_stops_at_a_batch_that_fails(fake: FakeBackend, error: LogStoreError) -> None:
    producer = named(fake, linger_ms=60_000, batch_bytes=100)
    producer.send("events", b"before").result()
    fake.faults.append(lambda items: error)
    fake.gate.clear()  # the first batch is full, and on its way, before the last record is given
    sent = [producer.send("events", value) for value in WIDE]
    elsewhere = producer.send("flights", b"waits", partition=3)
    fake.gate.set()
    for delivery in [*sent, elsewhere]:
        assert isinstance(delivery.exception(60), type(error))
    for call in (
        lambda: producer.send("events", b"later"),
        lambda: producer.send("flights", b"later", partition=0),
        lambda: producer.send_many("events", [(None, b"later")]),
    ):
        with pytest.raises(type(error)) as caught:
            call()
        assert any("producer 'import' has stopped" in note for note in caught.value.__notes__)
    producer.close()
    with named(fake, batch_bytes=100) as producer:
        assert producer.last_sequence("events", 0) == 1
        producer.send("events", b"later").result(60)
    assert values_of(fake, "events") == [b"before", b"later"]


def test_it_stops_when_a_record_timed_out_unsent(fake: FakeBackend) -> None:
    clock = ManualClock()
    producer = named(fake, clock=clock, linger_ms=10, delivery_timeout_ms=100)
    fake.faults.extend([DiskFullError("full")] * 50)
    delivery = producer.send("events", b"v")
    until(lambda: delivery.done() or clock.advance(5), "the delivery is over")  # type: ignore[func-returns-value]
    assert isinstance(delivery.exception(0), DeliveryTimeoutError)
    with pytest.raises(DeliveryTimeoutError):
        producer.send("events", b"later")
    producer.close()


def test_an_older_self_is_fenced(fake: FakeBackend) -> None:
    old = named(fake)
    old.send("events", b"old").result()
    fake.holders.clear()  # as if its lock had been lost
    with named(fake) as new:
        new.send("events", b"new").result()
        with pytest.raises(ProducerFencedError) as caught:
            old.send("events", b"zombie").result()
        assert (caught.value.expected_epoch, caught.value.found_epoch) == (1, 0)
        with pytest.raises(ProducerFencedError):
            old.send("events", b"again")
    old.close()
    assert values_of(fake, "events") == [b"old", b"new"]


@pytest.mark.parametrize("lost", [False, True])
def test_numbers_go_on_past_the_end_of_an_id(fake: FakeBackend, lost: bool) -> None:
    named(fake).close()
    fake.log("events", 0).producers.entries[0] = FakeEntry(0, MASK - 3)
    with named(fake, linger_ms=60_000) as producer:
        assert producer.last_sequence("events", 0) == MASK - 2
        sent = [producer.send("events", b"%d" % number) for number in range(7)]
        group = producer.send_many("events", [(None, b"%d" % number) for number in range(7, 9)])
        if lost:
            fake.lost.append(TopicLockedError("gone"))
        assert [one.result(60).offset for one in sent] == list(range(7))
        assert [tuple(one[2:]) for one in group.result(60)] == [(7, 9)]
        assert producer.last_sequence("events", 0) == (1 << 31) + 6
    assert places(fake) == [(0, 1, MASK - 2, 3), (1, 1, 0, 6)]
    with named(fake) as producer:
        assert producer.last_sequence("events", 0) == (1 << 31) + 6
        producer.send("events", b"9").result()
        producer.send("flights", b"0", partition=0).result()
    assert values_of(fake, "events") == [b"%d" % number for number in range(10)]
    assert places(fake)[-1] == (1, 2, 6, 1)
    assert places(fake, "flights", 0) == [(0, 2, 0, 1)]


def test_where_the_epochs_end_ids_begin_where_the_old_ones_stood(fake: FakeBackend) -> None:
    with named(fake) as producer:
        producer.send_many("events", [(None, b"%d" % number) for number in range(3)]).result()
    for _ in range(32_765):
        fake.init_producer("import").release()
    with named(fake) as producer:
        producer.send("events", b"3").result()
    with named(fake) as producer:
        assert producer.last_sequence("events", 0) == 4
        producer.send("events", b"4").result()
    with named(fake) as producer:
        assert producer.last_sequence("events", 0) == 5
        producer.send("events", b"5").result()
    assert places(fake) == [(0, 0, 0, 3), (0, 32_766, 3, 1), (1, 0, 4, 1), (1, 1, 5, 1)]


def test_a_topic_made_anew_is_counted_from_zero(fake: FakeBackend) -> None:
    with named(fake) as producer:
        producer.send("events", b"old").result()
        fake.delete_topic("events")
        fake.create_topic("events", 1, {})
        producer.send("events", b"new").result()
        assert producer.last_sequence("events", 0) == 1
    assert places(fake) == [(0, 0, 0, 1)]


def test_rows_are_dealt_over_the_partitions_of_the_first_time(fake: FakeBackend) -> None:
    with named(fake) as producer:
        assert producer.spread("flights") == 4
    fake.add_partitions("flights", 6, allow_keyed=True)
    with named(fake) as producer, Producer(fake, name="other") as other:
        assert (producer.spread("flights"), other.spread("flights")) == (4, 6)


class Importer(RuleBasedStateMachine):
    """An importer that is killed at any point, meets faults, and comes again: each partition holds a prefix of
    its input, exactly, and in the end all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = FakeBackend()
        self.backend.create_topic("t", 2, {})
        self.position = {0: 0, 1: 0}
        self.producer: Producer[bytes, bytes] | None = None
        self.clock = ManualClock(wall_ms=10**12)

    def opened(self) -> Producer[bytes, bytes]:
        if self.producer is None:
            with mock.patch.object(Sender, "_start", return_value=None):  # steps are the machine's to take
                self.producer = named(
                    self.backend,
                    clock=self.clock,
                    batch_bytes=300,
                    delivery_timeout_ms=2000,
                    linger_ms=2000,
                )
            self.producer._sender._start = lambda: None  # type: ignore[method-assign]
            self.position = {place: self.producer.last_sequence("t", place) for place in (0, 1)}
        return self.producer

    @rule(partition=st.integers(0, 1), count=st.integers(1, 30))
    def send(self, partition: int, count: int) -> None:
        producer = self.opened()
        try:
            for _ in range(count):
                number = self.position[partition]
                producer.send("t", b"%d" % number, partition=partition)
                self.position[partition] = number + 1
        except LogStoreError:
            self.kill()

    @rule(error=st.sampled_from([PartitionPoisonedError("bad disk"), DiskFullError("full")]))
    def refuse(self, error: LogStoreError) -> None:
        self.backend.faults.append(lambda items: error)

    @rule(lost=st.booleans())
    def lose(self, lost: bool) -> None:
        self.backend.lost.append(TopicLockedError("the answer is lost") if lost else None)

    @rule()
    def flush(self) -> None:
        producer = self.opened()
        with producer._lock:
            batches = producer._accumulator.take_ready(self.clock.monotonic_s())
        if batches:
            producer._sender._fly(batches, None)
        self.check()

    @rule()
    def kill(self) -> None:
        """Nothing that is queued goes out any more."""
        producer, self.producer = self.producer, None
        if producer is not None:
            with producer._lock:
                producer._accumulator.stopped = OutcomeUnknownError("killed")
                producer._accumulator.stop_waiting()
                producer._accumulator.failed.clear()
            producer.close()
        self.check()

    def check(self) -> None:
        for partition in (0, 1):
            stored = values_of(self.backend, "t", partition)
            assert stored == [b"%d" % number for number in range(len(stored))]

    def teardown(self) -> None:
        self.kill()
        self.backend.faults.clear()
        self.backend.lost.clear()
        producer = self.opened()
        for partition in (0, 1):
            rows = [(None, b"%d" % number) for number in range(self.position[partition], 500)]
            producer.send_many("t", rows, partition=partition)
        producer.close()
        self.check()
        assert [len(values_of(self.backend, "t", partition)) for partition in (0, 1)] == [500, 500]


TestImporter = Importer.TestCase
TestImporter.settings = settings(derandomize=True, deadline=None, max_examples=60, stateful_step_count=30)
