"""Idempotent producers over a log that remembers: stored once, in order, whatever becomes of the answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from logstore.client.producer.delivery import Delivery
from logstore.client.producer.producer import Producer
from logstore.directory.named_producers import LAST_EPOCH
from logstore.errors import (
    DeliveryTimeoutError,
    DiskFullError,
    DuplicateSequenceError,
    InvalidArgumentError,
    LogStoreError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    PartitionPoisonedError,
    TopicLockedError,
)
from logstore.format.batch import BatchHeader, read_header
from logstore.seams.clock import ManualClock
from tests.client.fake_backend import FakeBackend
from tests.client.fake_producers import MASK
from tests.client.producer.test_sender import stepped
from tests.client.records import all_records, values_of

Place = tuple[int, int, int, int]


def headers(backend: FakeBackend, topic: str = "events", partition: int = 0) -> list[BatchHeader]:
    return [read_header(batch) for batch in backend.log(topic, partition).batches]


def places(backend: FakeBackend, topic: str = "events", partition: int = 0) -> list[Place]:
    """(producer id, epoch, base sequence, records) of every batch."""
    return [
        (one.producer_id, one.producer_epoch, one.base_sequence, one.records_count)
        for one in headers(backend, topic, partition)
    ]


class Stepped:
    """A producer without a thread: ``run`` takes the sender's steps while time goes by."""

    def __init__(self, backend: FakeBackend, **given: Any) -> None:
        self.clock = ManualClock(wall_ms=10**12)
        self.producer = stepped(backend, self.clock, **{"batch_bytes": 100, **given})

    def send(self, *values: bytes, topic: str = "events", partition: int = 0) -> list[Delivery]:
        return [self.producer.send(topic, value, partition=partition) for value in values]

    def run(self, steps: int = 60, milliseconds: int = 50) -> None:
        for _ in range(steps):
            self.clock.advance(milliseconds)
            self.producer._sender.step()


WIDE = [b"%d" % number + b"." * 40 for number in range(4)]  # each fills a batch of its own


def test_batches_are_numbered_on_from_zero(fake: FakeBackend) -> None:
    run = Stepped(fake)
    run.send(*WIDE, b"a", b"b")
    run.run()
    run.send(b"c", topic="flights", partition=2)
    run.run()
    assert places(fake) == [
        (0, 0, 0, 1),
        (0, 0, 1, 1),
        (0, 0, 2, 1),
        (0, 0, 3, 1),
        (0, 0, 4, 1),
        (0, 0, 5, 1),
    ]
    assert places(fake, "flights", 2) == [(0, 0, 0, 1)]
    assert len(fake.leases) == 1
    run.producer.close()


@pytest.mark.parametrize("given", [{"acks": 0}, {"acks": 1}, {"idempotence": False}])
def test_other_producers_have_no_id(fake: FakeBackend, given: dict[str, Any]) -> None:
    with Producer(fake, **given) as producer:
        producer.send("events", b"v")
    assert places(fake) == [(-1, -1, -1, 1)]
    assert not fake.leases


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"idempotence": True, "acks": 1}, "idempotence=True with acks=1"),
        ({"idempotence": True, "acks": 0}, "idempotence=True with acks=0"),
        ({"name": "n", "acks": 1}, "name='n' with acks=1"),
        ({"name": "n", "idempotence": False}, "name='n' with idempotence=False"),
        ({"idempotence": 1}, "idempotence=1"),
    ],
)
def test_settings_that_exclude_each_other(fake: FakeBackend, given: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        Producer(fake, **given)
    assert not fake.holders


def test_a_producer_that_sends_nothing_takes_no_id(fake: FakeBackend) -> None:
    with Producer(fake):
        pass
    assert not fake.leases


def test_a_lost_answer_stores_nothing_twice(fake: FakeBackend) -> None:
    run = Stepped(fake)
    fake.lost.extend([TopicLockedError("gone"), TopicLockedError("gone again")])
    sent = run.send(*WIDE)
    run.run()
    assert values_of(fake, "events") == WIDE
    assert [one.result(0).offset for one in sent] == [0, 1, 2, 3]
    assert run.producer.metrics()["retries_total"] == 2
    run.producer.close()


def test_a_duplicate_whose_place_is_forgotten_is_a_success_without_an_offset(fake: FakeBackend) -> None:
    run = Stepped(fake)
    fake.lost.append(TopicLockedError("gone"))
    sent = run.send(*WIDE)
    run.run(2, 5)  # all four are in, and nobody was told
    assert values_of(fake, "events") == WIDE
    fake.log("events", 0).producers.forget_all_but_last()
    run.run()
    assert values_of(fake, "events") == WIDE
    assert [one.result(0).offset for one in sent] == [-1, -1, -1, 3]
    run.producer.close()


def test_behind_a_forgotten_duplicate_nothing_counts_as_stored(fake: FakeBackend) -> None:
    """The backend answers what it did not try with the error of what it did."""
    run = Stepped(fake)
    fake.lost.append(TopicLockedError("gone"))
    run.send(*WIDE[:1])
    run.run(1, 5)
    more = run.send(*WIDE[1:])
    queue = run.producer._router._queues["events", 0]
    queue.closed[0].attempts = 0  # as a flight of several whose first was tried before
    fake.log("events", 0).producers.entries[0].batches.clear()
    run.run()
    assert values_of(fake, "events") == WIDE
    assert [one.result(0).offset for one in more] == [1, 2, 3]
    run.producer.close()


def test_after_a_failed_batch_the_rest_goes_under_a_new_epoch(fake: FakeBackend) -> None:
    run = Stepped(fake)
    run.send(b"before")
    run.run()
    fake.faults.append(lambda items: PartitionPoisonedError("bad disk"))
    sent = run.send(*WIDE)
    other = run.send(b"other", topic="flights", partition=1)
    run.run()
    assert isinstance(sent[0].exception(0), PartitionPoisonedError)
    assert [one.result(0).offset for one in sent[1:]] == [1, 2, 3]
    assert places(fake)[1:] == [(0, 1, 0, 1), (0, 1, 1, 1), (0, 1, 2, 1)]
    assert isinstance(other[0].exception(0), PartitionPoisonedError)
    run.send(b"more", topic="flights", partition=1)
    run.run()
    assert places(fake, "flights", 1)[0][1:3] == (1, 0)
    assert fake.leases[0].bumps == 1  # two partitions failed in one epoch
    run.producer.close()


def test_a_gap_fails_the_batch_and_a_new_epoch_goes_on(fake: FakeBackend) -> None:
    run = Stepped(fake)
    run.send(b"a")
    run.run()
    run.producer._router._queues["events", 0].next_sequence = 40
    sent = run.send(b"b")
    run.run()
    assert isinstance(sent[0].exception(0), OutOfOrderSequenceError)
    sent = run.send(b"c")
    run.run()
    assert sent[0].result(0).offset == 1
    assert places(fake)[-1] == (0, 1, 0, 1)
    run.producer.close()


def test_a_duplicate_of_what_was_never_sent_before_is_no_success(fake: FakeBackend) -> None:
    run = Stepped(fake)
    run.send(b"a")
    run.run()
    fake.log("events", 0).producers.entries[0].last_sequence = 40  # of somebody with this very id
    sent = run.send(b"b")
    run.run()
    assert isinstance(sent[0].exception(0), DuplicateSequenceError)
    assert values_of(fake, "events") == [b"a"]
    run.producer.close()


def test_where_the_epochs_end_comes_a_new_id(fake: FakeBackend) -> None:
    run = Stepped(fake)
    run.send(b"a")
    run.run()
    lease = fake.leases[0]
    lease.epoch = LAST_EPOCH
    fake.faults.append(lambda items: PartitionPoisonedError("bad disk"))
    failed = run.send(b"b")
    run.run()
    lease.faults.append(DiskFullError("no room for the catalogue"))
    run.send(b"c")
    run.run()
    assert failed[0].exception(0) is not None
    assert places(fake) == [(0, 0, 0, 1), (1, 0, 0, 1)]
    run.producer.close()


def test_sequences_wrap(fake: FakeBackend) -> None:
    run = Stepped(fake, batch_bytes=1000)
    run.send(b"a")
    run.run()
    fake.log("events", 0).producers.entries[0].last_sequence = MASK - 2
    run.producer._router._queues["events", 0].next_sequence = MASK - 1
    run.send(*(b"%d" % number for number in range(5)))
    run.run()
    run.send(b"z")
    run.run()
    assert places(fake)[1:] == [(0, 0, MASK - 1, 5), (0, 0, 3, 1)]
    run.producer.close()


def test_a_record_that_is_refused_leaves_no_gap(fake: FakeBackend) -> None:
    run = Stepped(fake, batch_bytes=1000)
    fake.largest_timestamp_ms = 10**13
    sent = [
        run.producer.send("events", b"%d" % number, timestamp_ms=10**14 if number == 2 else 5)
        for number in range(6)
    ]
    sent += run.send(b"behind")
    run.run()
    assert [one.exception(0) is None for one in sent] == [True, True, False, True, True, True, True]
    assert values_of(fake, "events") == [b"0", b"1", b"3", b"4", b"5", b"behind"]
    run.producer.close()


def test_what_may_be_in_is_not_sent_under_another_sequence(fake: FakeBackend) -> None:
    """A call fails as a whole after its work; then the first batch is refused for good."""
    run = Stepped(fake)
    fake.lost.append(TopicLockedError("gone"))
    fake.faults.extend([None, lambda items: PartitionPoisonedError("bad disk")])
    sent = run.send(*WIDE)
    run.run()
    later = run.send(b"later")
    run.run()
    assert "bad disk" in str(sent[0].exception(0))
    for one in sent:
        assert isinstance(one.exception(0), OutcomeUnknownError)
    assert later[0].result(0).offset == 4
    assert values_of(fake, "events") == [*WIDE, b"later"]
    run.producer.close()


def test_a_retry_that_comes_too_late_leaves_no_gap(fake: FakeBackend) -> None:
    run = Stepped(fake, delivery_timeout_ms=200)
    run.send(b"a")
    run.run()
    fake.faults.extend([lambda items: DiskFullError("full")] * 30)
    sent = run.send(b"late")
    run.run(10, 40)
    fake.faults.clear()
    sent += run.send(b"next")
    run.run()
    assert isinstance(sent[0].exception(0), DeliveryTimeoutError)
    assert sent[1].result(0).offset == 1
    assert places(fake)[-1] == (0, 1, 0, 1)
    run.producer.close()


class ForgetfulAnswers(RuleBasedStateMachine):
    """Random faults before and after a call's work, damage to what the log remembers, and time: every record
    is stored at most once and in order; what succeeded is stored; what failed for sure is not."""

    partitions = 2

    def __init__(self) -> None:
        super().__init__()
        self.backend = FakeBackend()
        self.backend.create_topic("t", self.partitions, {})
        self.run_ = Stepped(
            self.backend, batch_bytes=300, buffer_bytes=20_000, max_block_ms=0, delivery_timeout_ms=2000
        )
        self.sent: list[tuple[int, bytes, Delivery]] = []

    @rule(partition=st.integers(0, 1), sizes=st.lists(st.integers(0, 120), min_size=1, max_size=6))
    def send(self, partition: int, sizes: list[int]) -> None:
        for size in sizes:
            value = b"%d:" % len(self.sent) + b"v" * size
            (delivery,) = self.run_.send(value, topic="t", partition=partition)
            self.sent.append((partition, value, delivery))

    @rule(error=st.sampled_from([DiskFullError("full"), PartitionPoisonedError("bad disk"), None]))
    def refuse(self, error: LogStoreError | None) -> None:
        self.backend.faults.append(None if error is None else lambda items: error)

    @rule(lost=st.booleans())
    def lose(self, lost: bool) -> None:
        self.backend.lost.append(TopicLockedError("the answer is lost") if lost else None)

    @rule(partition=st.integers(0, 1))
    def reload(self, partition: int) -> None:
        self.backend.log("t", partition).producers.forget_all_but_last()

    @rule(milliseconds=st.integers(0, 900))
    def step(self, milliseconds: int) -> None:
        self.run_.run(1, milliseconds)
        self.check()

    def check(self) -> None:
        for partition in range(self.partitions):
            stored = [record.value for record in all_records(self.backend, "t", partition)]
            mine = [(value, delivery) for where, value, delivery in self.sent if where == partition]
            assert stored == [value for value, _ in mine if value in set(stored)]
            for value, delivery in mine:
                if not delivery.done():
                    continue
                error = delivery.exception(0)
                if error is None:
                    offset = delivery.result(0).offset
                    assert value in stored
                    assert offset in (-1, stored.index(value))

    def teardown(self) -> None:
        self.backend.faults.clear()
        self.backend.lost.clear()
        self.run_.run(200)
        self.check()
        assert all(delivery.done() for *_, delivery in self.sent)
        assert self.run_.producer.metrics()["buffered_bytes"] == 0
        self.run_.producer.close()


TestForgetfulAnswers = ForgetfulAnswers.TestCase
TestForgetfulAnswers.settings = settings(
    derandomize=True, deadline=None, max_examples=80, stateful_step_count=40
)
