"""Every behaviour that does not need a fault is tested over the fake, the embedded store, and replicated partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import logstore
from logstore.api.backend import Backend
from tests.client.fake_backend import FakeBackend
from tests.partition.replicated import ReplicatedPartition


@pytest.fixture
def fake() -> FakeBackend:
    backend = FakeBackend()
    backend.create_topic("events", 1, {})
    backend.create_topic("flights", 4, {})
    return backend


@pytest.fixture(params=["fake", "embedded", "replicated"])
def backend(request: Any, fake: FakeBackend) -> Iterator[Backend]:
    if request.param == "fake":
        yield fake
        return
    with logstore.open(":memory:") as store:
        if request.param == "replicated":  # behind the same Partition: nothing above can tell
            store._context.make_partition = ReplicatedPartition
        store.create_topic("events", partitions=1)
        store.create_topic("flights", partitions=4)
        yield store.backend
        if request.param == "replicated":
            for topic in store._registry.opened():
                for number in range(topic.entry.partitions):
                    held = topic.partition(number)
                    assert isinstance(held, ReplicatedPartition)
                    held.check()
