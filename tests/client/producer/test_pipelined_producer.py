"""A producer with several flights under way: order, retries, broken streams, by steps without its thread."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from logstore.client.producer.delivery import Delivery
from logstore.client.producer.producer import Producer
from logstore.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    DiskFullError,
    OutcomeUnknownError,
    PartitionPoisonedError,
)
from logstore.format.batch import read_header
from logstore.seams.clock import ManualClock
from tests.client.fake_pipeline import PipelinedBackend
from tests.client.producer.test_sender import stepped
from tests.client.records import all_records

PARTITIONS = 3
REFUSED_MS = 10**15
DEEP_BYTES = 400


def made(backend: PipelinedBackend, clock: ManualClock, **given: Any) -> Producer[bytes, bytes]:
    backend.create_topic("t", PARTITIONS, {})
    producer = stepped(backend, clock, batch_bytes=200, **given)
    producer._accumulator.deep_bytes = DEEP_BYTES
    return producer


def send(producer: Producer[bytes, bytes], count: int, start: int = 0) -> list[Delivery]:
    """Two fill a batch."""
    return [
        producer.send("t", b"%03d" % number + b"v" * 60, partition=0)
        for number in range(start, start + count)
    ]


def numbers(backend: PipelinedBackend, partition: int = 0) -> list[int]:
    return [int(bytes(record.value or b"")[:3]) for record in all_records(backend, "t", partition)]


def steps(producer: Producer[bytes, bytes], clock: ManualClock, count: int = 60) -> None:
    for _ in range(count):
        clock.advance(50)
        producer._sender.step()


@pytest.mark.parametrize("given", [{}, {"acks": 1}])
def test_a_deep_queue_flies_several_times_before_the_first_answer(given: dict[str, Any]) -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock, **given)
    deliveries = send(producer, 60)
    (pipeline,) = backend.pipelines
    for _ in range(pipeline.window):
        assert producer._sender.step() == 0
    assert len(pipeline.waiting) == pipeline.window
    assert not any(delivery.done() for delivery in deliveries)
    producer._sender.step()  # no room for another: the oldest is landed
    assert deliveries[0].done()
    assert len(pipeline.waiting) == pipeline.window - 1
    steps(producer, clock)
    assert numbers(backend) == list(range(60))
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(60))
    assert pipeline.most_waiting == pipeline.window
    assert pipeline.rests, "an idle pipeline is let go"
    producer.close()


def test_little_goes_one_flight_at_a_time() -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock)
    send(producer, 3)
    steps(producer, clock)
    assert numbers(backend) == [0, 1, 2]
    assert not backend.pipelines[0].most_waiting
    producer.close()


def test_what_is_to_be_compressed_is_left_to_all_threads() -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock, compression="gzip")
    send(producer, 60)
    steps(producer, clock)
    assert numbers(backend) == list(range(60))
    assert not backend.pipelines[0].most_waiting
    producer.close()


def test_without_sequences_and_with_syncs_flights_go_one_by_one() -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock, idempotence=False)
    send(producer, 60)
    steps(producer, clock)
    assert numbers(backend) == list(range(60))
    assert not backend.pipelines
    producer.close()


@pytest.mark.parametrize("given", [{}, {"acks": 1}])
def test_what_flew_behind_a_failed_batch_goes_again_behind_it(given: dict[str, Any]) -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock, **given)
    deliveries = send(producer, 60)
    backend.faults += [lambda items: DiskFullError("full")]  # type: ignore[list-item]
    (pipeline,) = backend.pipelines
    for _ in range(pipeline.window):
        producer._sender.step()
    pipeline.come_to(3)  # the second and the third are not tried
    assert numbers(backend) == []
    producer._sender.step()
    assert len(pipeline.waiting) == 2, "nothing new flies before those behind are back"
    steps(producer, clock)
    assert numbers(backend) == list(range(60))
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(60))
    producer.close()


def test_a_broken_stream_repeats_what_has_a_sequence() -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock)
    deliveries = send(producer, 60)
    (pipeline,) = backend.pipelines
    for _ in range(pipeline.window):
        producer._sender.step()
    pipeline.cut(tried=2)
    assert numbers(backend), "the broker has some, and nobody knows"
    steps(producer, clock, 300)
    assert numbers(backend) == list(range(60))
    assert all(delivery.exception(0) is None for delivery in deliveries)
    producer.close()


def test_a_broken_stream_repeats_nothing_without_sequences() -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock, acks=1)
    deliveries = send(producer, 60)
    (pipeline,) = backend.pipelines
    for _ in range(pipeline.window):
        producer._sender.step()
    flown = sum(read_header(i.batch).records_count for pending in pipeline.waiting for i in pending.items)
    pipeline.cut(tried=1)
    steps(producer, clock, 300)
    outcomes = [delivery.exception(0) for delivery in deliveries]
    assert all(isinstance(error, OutcomeUnknownError) for error in outcomes[:flown])
    assert outcomes[flown:] == [None] * (60 - flown)
    stored = numbers(backend)
    assert stored == sorted(set(stored))
    assert stored[-(60 - flown) :] == list(range(flown, 60))
    producer.close()


@pytest.mark.parametrize("tried", [0, 1])
@pytest.mark.parametrize("unsent", [False, True])
def test_what_is_refused_after_a_lost_answer_may_be_in_or_not(tried: int, unsent: bool) -> None:
    """The first answer was lost, and the second attempt, or one after an attempt that never left, is refused."""
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock)
    deliveries = send(producer, 8)
    producer._sender.step()
    (pipeline,) = backend.pipelines
    flown = sum(read_header(item.batch).records_count for item in pipeline.waiting[0].items)
    pipeline.cut(tried)
    producer._sender.step()
    if unsent:
        encode, producer._sender._encode = producer._sender._encode, Mock(side_effect=DiskFullError("here"))  # type: ignore[method-assign]
        steps(producer, clock, 2)
        producer._sender._encode = encode  # type: ignore[method-assign]
    backend.faults += [lambda items: PartitionPoisonedError("bad disk")] * 8  # type: ignore[list-item]
    steps(producer, clock)
    assert flown
    for delivery in deliveries[:flown]:
        error = delivery.exception(0)
        assert isinstance(error, OutcomeUnknownError)
        assert "may be in or not" in str(error)
    assert "bad disk" in str(deliveries[0].exception(0))
    assert [delivery.done() for delivery in deliveries] == [True] * 8
    assert not [delivery for delivery in deliveries[flown:] if delivery.exception(0) is None]
    producer.close()


def test_a_flight_that_never_left_lets_none_pass_it() -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock)
    send(producer, 20)
    producer._sender.step()
    sequences = producer._sender._sequences
    assert sequences is not None
    assign, refusals = sequences.assign, [DiskFullError("full")]

    def refusing(batch: Any) -> int:
        if refusals:
            raise refusals.pop()
        return assign(batch)

    sequences.assign = refusing  # type: ignore[method-assign]
    send(producer, 40, start=20)
    producer._sender.step()
    (pipeline,) = backend.pipelines
    assert len(pipeline.waiting) == 1, "the second flight was refused here"
    steps(producer, clock)
    assert numbers(backend) == list(range(60))
    producer.close()


def test_a_flight_has_no_more_than_a_request_may() -> None:
    backend, clock = PipelinedBackend(), ManualClock()
    producer = made(backend, clock)
    for number in range(90):
        producer.send("t", b"%03d" % number + b"v" * 60, partition=number % PARTITIONS)
    (pipeline,) = backend.pipelines
    producer._sender.step()
    assert {item.partition for item in pipeline.waiting[0].items} == {0, 1, 2}, "a share for each"
    while pipeline.waiting:
        assert sum(len(item.batch) for item in pipeline.waiting[-1].items) <= backend.limit
        producer._sender.step()
    steps(producer, clock)
    for partition in range(PARTITIONS):
        assert numbers(backend, partition) == list(range(partition, 90, PARTITIONS))
    producer.close()


def test_threads_and_a_flush_leave_a_deep_queue_to_the_pipeline() -> None:
    backend = PipelinedBackend()
    backend.create_topic("t", PARTITIONS, {})
    with Producer(backend, batch_bytes=200, linger_ms=0, buffer_bytes=3000) as producer:
        producer._accumulator.deep_bytes = DEEP_BYTES
        deliveries = send(producer, 900)
        producer.flush(60)
        assert all(delivery.done() for delivery in deliveries)
    assert numbers(backend) == list(range(900))


class PipelineMachine(RuleBasedStateMachine):
    """Random sends, faults, cuts, answers and time: what is in is in once and in order, and every delivery is right."""

    @initialize(given=st.sampled_from([{}, {"acks": 1}, {"acks": 0}]))
    def begin(self, given: dict[str, Any]) -> None:
        self.backend = PipelinedBackend()
        self.backend.largest_timestamp_ms = REFUSED_MS - 1
        self.clock = ManualClock(wall_ms=10**12)
        self.producer = made(
            self.backend, self.clock, buffer_bytes=9000, max_block_ms=0, delivery_timeout_ms=2000, **given
        )
        self.sent: list[tuple[int, Delivery]] = []

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        count=st.integers(1, 20),
        size=st.integers(0, 120),
        refused=st.sampled_from([False] * 9 + [True]),
    )
    def send(self, partition: int, count: int, size: int, refused: bool) -> None:
        for _ in range(count):
            value = b"%d:" % len(self.sent) + b"v" * size
            timestamp_ms = REFUSED_MS if refused else None
            try:
                delivery = self.producer.send("t", value, partition=partition, timestamp_ms=timestamp_ms)
            except BufferFullError:
                return
            self.sent.append((partition, delivery))

    @rule(
        faults=st.lists(
            st.sampled_from(
                [
                    None,
                    lambda items: DiskFullError("full"),
                    lambda items: PartitionPoisonedError("bad disk"),
                ]
            ),
            max_size=4,
        )
    )
    def fault(self, faults: list[Any]) -> None:
        self.backend.faults.extend(faults)

    @rule(count=st.integers(1, 3))
    def come_to(self, count: int) -> None:
        for pipeline in self.backend.pipelines:
            pipeline.come_to(count)

    @rule(tried=st.integers(0, 3))
    def cut(self, tried: int) -> None:
        for pipeline in self.backend.pipelines:
            pipeline.cut(tried)
        self.check()

    @rule(milliseconds=st.integers(0, 300), count=st.integers(1, 5))
    def step(self, milliseconds: int, count: int) -> None:
        self.clock.advance(milliseconds)
        for _ in range(count):
            self.producer._sender.step()
        self.check()

    def check(self) -> None:
        for partition in range(PARTITIONS):
            stored = [
                int(bytes(record.value or b"").partition(b":")[0])
                for record in all_records(self.backend, "t", partition)
            ]
            assert stored == sorted(set(stored)), "out of order, or in twice"
            places = {number: offset for offset, number in enumerate(stored)}
            for number, (where, delivery) in enumerate(self.sent):
                if where != partition or not delivery.done():
                    continue
                error = delivery.exception(0)
                if error is None:
                    assert number in places, "acknowledged, and lost"
                    offset = delivery.result(0).offset
                    assert offset in (-1, places[number])
                elif number in places:
                    assert isinstance(error, OutcomeUnknownError | DeliveryTimeoutError)
        assert 0 <= self.producer.metrics()["buffered_bytes"] <= 9000

    def teardown(self) -> None:
        if not hasattr(self, "producer"):
            return
        self.backend.faults.clear()
        for _ in range(200):
            self.clock.advance(50)
            self.producer._sender.step()
        self.check()
        assert all(delivery.done() for _, delivery in self.sent)
        assert self.producer.metrics()["buffered_bytes"] == 0
        self.producer.close()


TestPipelineMachine = PipelineMachine.TestCase
TestPipelineMachine.settings = settings(
    derandomize=True, deadline=None, max_examples=120, stateful_step_count=40
)
