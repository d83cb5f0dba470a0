"""Flights in one go: the same as step by step, whatever the backend answers."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.api.records import ProduceItem, ProduceResult
from logstore.client.producer.flights import Flights
from logstore.client.producer.producer import Producer
from logstore.errors import (
    ClientClosedError,
    DeliveryTimeoutError,
    DiskFullError,
    ForkedStoreError,
    LogStoreError,
    OutcomeUnknownError,
    PartitionPoisonedError,
    RecordTooLargeError,
)
from logstore.native import native_status
from logstore.seams.clock import ManualClock
from tests.client.fake_backend import FakeBackend
from tests.client.fake_pipeline import FakePipeline
from tests.client.producer.test_sender import SteppedBackend, stepped
from tests.client.records import values_of

TOPICS = {"plain": {}, "packed": {"compression.type": "gzip"}, "stamped": {}}


def three_results() -> list[ProduceResult]:
    return [ProduceResult(0)] * 3


class RefusingBackend(SteppedBackend):
    """Refuses a batch of partition 1, on request: what is behind it is not tried, what is elsewhere is in."""

    refusal: LogStoreError | None = None

    def _refusal(self, item: ProduceItem) -> LogStoreError | None:
        if item.partition == 1 and self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            return refusal
        return super()._refusal(item)


class Side:
    """One producer over a backend of its own; ``steps``: its flights go step by step."""

    def __init__(self, steps: bool, idempotent: bool) -> None:
        self.backend, self.clock = RefusingBackend(), ManualClock()
        for topic, config in TOPICS.items():
            self.backend.create_topic(topic, 2, config)
        self.producer = stepped(
            self.backend, self.clock, linger_ms=1000, idempotence=idempotent, batch_bytes=200
        )
        if steps:
            self.producer._sender._flights = Flights(FakePipeline(self.backend))
        self.sent: list[Any] = []
        self.groups: list[Any] = []
        self.seen: list[str] = []

    def asked(self, delivery: Any) -> tuple[str, ...]:
        try:
            return tuple(map(str, delivery.result(0)))
        except (LogStoreError, KeyboardInterrupt) as error:
            return type(error).__name__, str(error)

    def take(self, step: tuple[Any, ...]) -> Any:
        name, *told = step
        if name == "send":
            topic, value, asks = told
            self.sent.append(
                self.producer.send(topic, value, timestamp_ms=1234 if topic == "stamped" else None)
            )
            number = len(self.sent) - 1
            if asks == "callback":
                self.sent[-1].add_callback(lambda delivery: self.seen.append(f"{number} {delivery!r}"))
            return self.asked(self.sent[-1]) if asks != "no" else None
        if name == "many":
            self.producer.send_many("plain", [(None, value) for value in told[0]], partition=0)
        elif name == "spread":
            rows, asks = told
            self.groups.append(self.producer.send_many("plain", rows))
            return self.asked(self.groups[-1]) if asks == "yes" else None
        elif name == "refused":
            self.backend.refusal = told[0]("refused")
        elif name == "fault":
            self.backend.faults.append(told[0]("no"))
        elif name == "lost":
            self.backend.lost.append(told[0]("lost"))
        elif name == "wrong":
            self.backend.wrong = told[0]()
        else:
            self.clock.advance(told[0])
            try:
                return self.producer._sender.step()
            except KeyboardInterrupt as error:
                return repr(error)
        return None

    def state(self) -> Any:
        accumulator = self.producer._accumulator
        logs = {place: log.batches for place, log in self.backend.logs.items()}
        queues = [
            (queue.topic, queue.partition, queue.next_sequence, queue.spent) for queue in accumulator.active
        ]
        return logs, queues, self.producer.metrics(), self.seen, self.backend.acks, len(accumulator.failed)


ERRORS = st.sampled_from([DiskFullError, PartitionPoisonedError, RecordTooLargeError])
ASKS = st.sampled_from(["yes", "no", "callback"])
STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(sorted(TOPICS)), st.binary(max_size=20), ASKS),
    st.tuples(st.just("many"), st.lists(st.binary(max_size=9), min_size=1, max_size=4)),
    st.tuples(st.just("spread"), st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=90)), max_size=12), ASKS),
    st.tuples(st.just("refused"), ERRORS),
    st.tuples(st.just("fault"), ERRORS),
    st.tuples(st.just("lost"), ERRORS),
    st.tuples(st.just("wrong"), st.sampled_from([ZeroDivisionError, KeyboardInterrupt, list, three_results])),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 5_000, 150_000])),
)  # fmt: skip


@given(steps=st.lists(STEPS, max_size=25), idempotent=st.booleans())
def test_in_one_go_is_as_step_by_step(steps: list[tuple[Any, ...]], idempotent: bool) -> None:
    one, other = Side(False, idempotent), Side(True, idempotent)
    for step in steps:
        assert one.take(step) == other.take(step), step
        assert one.state() == other.state(), step
    for side in (one, other):
        side.backend.faults.clear()
        side.backend.lost.clear()
        side.backend.wrong = None
        side.clock.advance(200_000)
        side.producer._sender.step()
    assert one.state() == other.state()
    for side in (one, other):
        with suppress(LogStoreError):  # what failed and was not asked for
            side.producer.close()


def test_batches_of_several_partitions_take_no_steps(fake: FakeBackend) -> None:
    rows = [(b"%d" % number, bytes(60)) for number in range(40)]
    with Producer(fake, linger_ms=60_000, batch_bytes=300) as producer:
        producer.send_many("events", rows).result(60)  # an id is taken, and each partition's first numbers
        steps: list[object] = []
        fly = producer._sender._fly_in_steps
        producer._sender._fly_in_steps = lambda *told: steps.append(told) or fly(*told)  # type: ignore[func-returns-value, method-assign]
        for _ in range(3):
            seen: list[object] = []
            group = producer.send_many("events", rows)
            producer.send("events", b"v", key=b"1").add_callback(seen.append)
            producer.flush()
            assert sum(one.end_exclusive - one.start for one in group.result(60)) == 40
            assert len(seen) == 1
        assert not steps or not native_status().compiled
        assert producer.metrics()["buffered_bytes"] == 0
    assert len(values_of(fake, "events")) == 163


def test_a_record_of_one_thread_takes_no_steps(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=60_000) as producer:
        producer.send("events", b"first").result(60)
        steps: list[object] = []
        fly = producer._sender._fly_in_steps
        producer._sender._fly_in_steps = lambda *told: steps.append(told) or fly(*told)  # type: ignore[func-returns-value, method-assign]
        for number in range(5):
            assert producer.send("events", b"v", partition=0).result(60).timestamp_ms > 0, number
        assert len(steps) == (0 if native_status().compiled else 5)
    assert len(values_of(fake, "events")) == 6


def test_a_flight_that_was_given_up_on_does_not_land_twice(fake: FakeBackend) -> None:
    """The batch has its outcome, too late an answer changes nothing, and the queue goes on."""
    clock = ManualClock()
    producer = stepped(fake, clock, linger_ms=500, delivery_timeout_ms=1000)
    assert producer.send("events", b"first", partition=0).result(60).offset == 0
    delivery = producer.send("events", b"late", partition=0)
    fake.gate.clear()
    while fake.entered.acquire(blocking=False):
        pass
    errors: list[LogStoreError | None] = []
    waiting = threading.Thread(target=lambda: errors.append(delivery.exception(60)))
    waiting.start()
    fake.entered.acquire()
    clock.advance(10_000)
    producer._sender.expire()
    assert delivery.done()
    held = producer.metrics()
    fake.gate.set()
    waiting.join()
    assert [type(error) for error in errors] == [DeliveryTimeoutError]
    assert producer.metrics()["records_failed_total"] == held["records_failed_total"] == 1
    assert producer.metrics()["records_sent_total"] == 1
    assert producer.metrics()["buffered_bytes"] == 0
    assert producer.send("events", b"next", partition=0).result(60).offset >= 1
    producer.close()


def test_an_interrupt_frees_the_queue_and_the_buffer() -> None:
    backend = SteppedBackend()
    backend.create_topic("events", 1, {})
    with Producer(backend, linger_ms=60_000) as producer:
        producer.send("events", b"first").result(60)
        for _ in range(3):
            backend.wrong = KeyboardInterrupt()
            delivery = producer.send("events", b"cut short")
            with pytest.raises(KeyboardInterrupt):
                delivery.result(10)
            assert isinstance(delivery.exception(0), OutcomeUnknownError)
            assert producer.metrics()["buffered_bytes"] == 0
            assert producer.send("events", b"next").result(60).offset >= 1


def test_a_closed_producer_answers_what_it_sent_and_takes_no_more(fake: FakeBackend) -> None:
    producer: Producer[bytes, bytes] = Producer(fake, linger_ms=60_000)
    delivery = producer.send("events", b"v")
    producer.close()
    assert delivery.result(0).offset == 0
    with pytest.raises(ClientClosedError):
        producer.send("events", b"v")


def test_a_child_does_not_fly_its_parents_batch(fake: FakeBackend) -> None:
    producer: Producer[bytes, bytes] = Producer(fake, linger_ms=60_000)
    producer.send("events", b"first").result(60)
    delivery = producer.send("events", b"v")
    producer._sender.pid += 1  # as a child sees it
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(ForkedStoreError):
            ask(1)
    producer._sender.pid = os.getpid()
    assert delivery.result(60).offset >= 0
    producer.close()
