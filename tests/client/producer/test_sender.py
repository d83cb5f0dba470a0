"""The sender's steps without its thread, and what it makes of a backend that misbehaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from logstore.api.records import ProduceItem, ProduceResult
from logstore.client.producer.delivery import Delivery
from logstore.client.producer.producer import Producer
from logstore.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    DiskFullError,
    FatalError,
    InvalidTimestampError,
    LogStoreError,
    OutcomeUnknownError,
    PartitionPoisonedError,
)
from logstore.seams.clock import ManualClock
from logstore.types import Acks
from tests.client.fake_backend import FakeBackend
from tests.client.records import all_records, until, values_of

PARTITIONS = 3
REFUSED_MS = 10**15


class SteppedBackend(FakeBackend):
    """Wrong in ways that no backend should be, on request."""

    wrong: Any = None

    def produce(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> list[ProduceResult]:
        if self.wrong is not None:
            wrong, self.wrong = self.wrong, None
            if isinstance(wrong, BaseException):
                raise wrong
            return list(wrong)
        return super().produce(items, acks, timeout_s)


def stepped(backend: FakeBackend, clock: ManualClock, **settings: Any) -> Producer[bytes, bytes]:
    """A producer whose sender has no thread: the test takes the steps."""
    producer: Producer[bytes, bytes] = Producer(backend, clock=clock, **settings)
    producer._sender._start = lambda: None  # type: ignore[method-assign]
    return producer


@pytest.fixture
def wrong_backend() -> SteppedBackend:
    backend = SteppedBackend()
    backend.create_topic("events", 1, {})
    return backend


def test_a_step_says_when_the_next_is_due(fake: FakeBackend) -> None:
    clock = ManualClock()
    producer = stepped(fake, clock, linger_ms=5)
    sender = producer._sender
    assert sender.step() is None
    producer.send("events", b"v")
    clock.advance(2)
    wait_s = sender.step()
    assert wait_s == pytest.approx(0.003)
    clock.advance(3)
    assert sender.step() == 0
    assert values_of(fake, "events") == [b"v"]
    assert sender.step() is None  # nothing new since: sleep until called
    producer.close()


def test_while_batches_keep_coming_the_thread_naps_instead_of_sleeping(fake: FakeBackend) -> None:
    clock = ManualClock()
    producer = stepped(fake, clock, linger_ms=5)
    for _ in range(3):
        producer.send("events", b"v").result(60)
        assert producer._sender.step() == pytest.approx(0.005)
    assert producer._sender.step() is None
    producer.close()


def test_an_idle_thread_does_not_spin(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=1) as producer:
        steps: list[float | None] = []
        step = producer._sender.step
        producer._sender.step = lambda: steps.append(wait_s := step()) or wait_s  # type: ignore[func-returns-value, method-assign]
        producer.send("events", b"v")
        until(lambda: steps and steps[-1] is None, "the thread goes to sleep")
        assert len(steps) < 20


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (ZeroDivisionError("a bug"), OutcomeUnknownError),
        ([], FatalError),
        ([ProduceResult(0)] * 3, FatalError),
    ],
)
def test_a_backend_with_a_bug_fails_deliveries_and_not_the_thread(
    wrong_backend: SteppedBackend, wrong: Any, error: type[LogStoreError], caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(wrong_backend, linger_ms=0) as producer:
        wrong_backend.wrong = wrong
        delivery = producer.send("events", b"lost")
        assert isinstance(delivery.exception(60), error)
        assert producer.send("events", b"kept").result(60).offset == 0
    assert values_of(wrong_backend, "events") == [b"kept"]


def test_an_interrupt_in_the_callers_thread_leaves_no_flight_behind(wrong_backend: SteppedBackend) -> None:
    with Producer(wrong_backend, linger_ms=60_000) as producer:
        wrong_backend.wrong = KeyboardInterrupt()
        delivery = producer.send("events", b"cut short")
        with pytest.raises(KeyboardInterrupt):
            delivery.result(10)
        with pytest.raises(OutcomeUnknownError, match="may be in or not"):
            delivery.result(0)
        assert producer.send("events", b"next").result(60).offset == 0


class SenderMachine(RuleBasedStateMachine):
    """Random sends, faults, steps and time against plain lists: exact outcomes, exact order, bounded buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = FakeBackend()
        self.backend.create_topic("t", PARTITIONS, {})
        self.backend.largest_timestamp_ms = REFUSED_MS - 1
        self.clock = ManualClock(wall_ms=10**12)
        self.producer = stepped(
            self.backend,
            self.clock,
            batch_bytes=300,
            buffer_bytes=6000,
            max_block_ms=0,
            delivery_timeout_ms=2000,
        )
        self.sent: list[tuple[int, bytes, bool, Delivery]] = []

    @rule(partition=st.integers(0, PARTITIONS - 1), refused=st.booleans(), size=st.integers(0, 120))
    def send(self, partition: int, refused: bool, size: int) -> None:
        value = b"%d:" % len(self.sent) + b"v" * size
        timestamp_ms = REFUSED_MS if refused else None
        try:
            delivery = self.producer.send("t", value, partition=partition, timestamp_ms=timestamp_ms)
        except BufferFullError:
            assert self.producer.metrics()["buffered_bytes"] > 6000 - 400
            return
        self.sent.append((partition, value, refused, delivery))

    @rule(
        faults=st.lists(
            st.sampled_from([None, DiskFullError("full"), PartitionPoisonedError("bad disk")]), max_size=4
        )
    )
    def fault(self, faults: list[LogStoreError | None]) -> None:
        self.backend.faults.extend(faults)

    @rule(milliseconds=st.integers(0, 700))
    def step(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.producer._sender.step()
        self.check()

    def check(self) -> None:
        """What is in is what its delivery says, in the order sent; nothing is in twice."""
        for partition in range(PARTITIONS):
            stored = [record.value for record in all_records(self.backend, "t", partition)]
            claimed = []
            for where, value, refused, delivery in self.sent:
                if where != partition or not delivery.done():
                    continue
                error = delivery.exception(0)
                if error is None:
                    assert not refused
                    assert stored[delivery.result(0).offset] == value
                    claimed.append(value)
                elif refused:
                    assert isinstance(
                        error,
                        InvalidTimestampError
                        | PartitionPoisonedError
                        | DeliveryTimeoutError
                        | DiskFullError
                        | OutcomeUnknownError,  # in a call that failed as a whole, behind one that failed
                    )
                else:
                    assert not isinstance(error, InvalidTimestampError)
            assert stored == claimed
        assert 0 <= self.producer.metrics()["buffered_bytes"] <= 6000

    def teardown(self) -> None:
        self.backend.faults.clear()
        for _ in range(200):
            self.clock.advance(50)
            self.producer._sender.step()
        self.check()
        assert all(delivery.done() for *_, delivery in self.sent)
        assert self.producer.metrics()["buffered_bytes"] == 0
        self.producer.close()


TestSenderMachine = SenderMachine.TestCase
TestSenderMachine.settings = settings(
    derandomize=True, deadline=None, max_examples=80, stateful_step_count=40
)
