"""Whose turn it is, and what one fetch asks for."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.client.consumer.assignment import Assignment
from logstore.client.consumer.fetcher import Fetcher
from logstore.client.consumer.settings import Subscription, settings_of
from logstore.client.producer.producer import Producer
from logstore.errors import CorruptBatchError, SegmentVanishedError
from logstore.seams.clock import ManualClock
from logstore.types import TopicPartition
from tests.client.fake_backend import FakeBackend


def made(fake: FakeBackend, clock: ManualClock, **changes: Any) -> tuple[Assignment, Fetcher]:
    settings: dict[str, Any] = {
        "start": "earliest",
        "isolation": "read_committed",
        "until_end": False,
        "on_poison": "raise",
        "on_reset": "error",
        "fetch_min_bytes": 1,
        "fetch_max_wait_ms": 500,
        "fetch_max_bytes": 50 << 20,
        "max_partition_fetch_bytes": 1 << 20,
        "auto_commit_interval_ms": None,
        "instance_id": None,
        "assignor": "sticky",
        "session_timeout_ms": 45_000,
        "heartbeat_interval_ms": 3_000,
        "max_poll_interval_ms": 300_000,
    }
    checked = settings_of(**(settings | changes))
    assignment = Assignment(fake, Subscription("flights"), checked, None)
    assignment.start()
    return assignment, Fetcher(fake, assignment, checked, clock)


def fill(fake: FakeBackend, partition: int, count: int = 4) -> None:
    with Producer(fake) as producer:
        producer.send_many("flights", [(None, b"v" * 50)] * count, partition=partition)


def test_the_byte_limit_favours_no_partition(fake: FakeBackend) -> None:
    for _ in range(4):
        for partition in range(4):
            fill(fake, partition)
    _, fetcher = made(fake, ManualClock(), fetch_max_bytes=100)
    order = []
    for _ in range(4):
        fetcher.fetch(0)
        state = fetcher.next_ready()
        assert state is not None
        order.append(state.where.partition)
        state.advance(state.waiting)
    assert sorted(order) == [0, 1, 2, 3]


def test_only_what_lacks_records_is_asked_for(fake: FakeBackend) -> None:
    fill(fake, 0)
    assignment, fetcher = made(fake, ManualClock())
    fetcher.fetch(0)
    asked: list[list[int]] = []
    fetch = fake.fetch
    fake.fetch = lambda requests, **rest: (
        asked.append([r.partition for r in requests]),
        fetch(requests, **rest),
    )[1]  # type: ignore[method-assign]
    assignment.states[TopicPartition("flights", 2)].paused = True
    fetcher.fetch(0)
    assert sorted(asked[0]) == [1, 3]


def test_others_are_asked_again_now_and_then_but_not_those_that_failed(fake: FakeBackend) -> None:
    clock = ManualClock()
    fill(fake, 0)
    fill(fake, 1)
    batches = fake.log("flights", 1).batches
    batches[0] = batches[0][:-1] + b"\xff"
    _, fetcher = made(fake, clock)
    with pytest.raises(CorruptBatchError):
        fetcher.fetch(0)
    before = fake.fetches
    fetcher.refetch_others(clock.monotonic_s())
    assert fake.fetches == before
    clock.advance(11)
    fetcher.refetch_others(clock.monotonic_s())
    assert fake.fetches == before + 1


def test_an_error_that_may_pass_is_given_not_raised(fake: FakeBackend) -> None:
    fill(fake, 0)
    fake.fetch_faults[TopicPartition("flights", 3)].append(SegmentVanishedError("merged away"))
    _, fetcher = made(fake, ManualClock())
    assert isinstance(fetcher.fetch(0), SegmentVanishedError)
    assert fetcher.next_ready() is not None
