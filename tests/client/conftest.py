"""Every behaviour that does not need a fault is tested over the fake, the embedded store, replicated partitions, and a
broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import logstore
from logstore.api.backend import Backend
from rpc.client.store import RemoteStore
from tests.client.fake_backend import FakeBackend
from tests.partition.replicated import ReplicatedPartition
from tests.rpc.client.replicated import replicated_brokers
from tests.rpc.prompt import make_prompt
from tests.rpc.served import Served

AnyStore: TypeAlias = logstore.LogStore | RemoteStore


@pytest.fixture
def fake() -> FakeBackend:
    backend = FakeBackend()
    backend.create_topic("events", 1, {})
    backend.create_topic("flights", 4, {})
    return backend


# The whole suite over a cluster takes minutes, most of them for clusters that begin: pytest -m long -k cluster.
CLUSTER = pytest.param("cluster", marks=pytest.mark.long)


@pytest.fixture(params=["fake", "embedded", "replicated", "remote", CLUSTER])
def backend(
    request: Any, fake: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Backend]:
    if request.param == "fake":
        yield fake
        return
    if request.param == "cluster":
        make_prompt(monkeypatch)
        with replicated_brokers(tmp_path / "cluster") as brokers, brokers.connect() as client:
            client.create_topic("events", partitions=1)
            client.create_topic("flights", partitions=4)
            yield client.backend
        return
    if request.param == "remote":
        make_prompt(monkeypatch)
        with Served(":memory:") as served, served.connect() as client:
            client.create_topic("events", partitions=1)
            client.create_topic("flights", partitions=4)
            yield client.backend
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


@pytest.fixture(params=["embedded", "remote", CLUSTER])
def empty_store(request: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AnyStore]:
    """A store without topics, in this process, at a broker, or at a cluster's."""
    if request.param == "cluster":
        make_prompt(monkeypatch)
        with replicated_brokers(tmp_path / "cluster") as brokers, brokers.connect() as client:
            yield client
        return
    if request.param == "embedded":
        with logstore.open(":memory:") as store:
            yield store
        return
    make_prompt(monkeypatch)
    with Served(":memory:") as served, served.connect() as client:
        yield client
