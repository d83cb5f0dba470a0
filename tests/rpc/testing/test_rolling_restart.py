"""A rolling restart of all brokers under load: each client sees latency, and no error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import Consumer, Record
from rpc.client.store import RemoteStore
from rpc.drill import Drill, DrillSettings
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests
from tests.beside import Beside

SETTINGS = DrillSettings(topic="t", rate=200, seconds=25, act_at=0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterForTests]:
    with ClusterForTests(tmp_path) as made:
        yield made
    BrokerForTests.end_spares()


class Copier:
    """Copies a topic in transactions, as a member of a group, until it is told to end; then what there is still."""

    def __init__(self, client: RemoteStore) -> None:
        self._client = client
        self._ends = threading.Event()

    def run(self) -> None:
        with (
            self._client.producer(transactional_id="copier") as producer,
            self._client.consumer("t", group="copiers") as consumer,
        ):
            while records := self._polled(consumer):
                with producer.transaction(rewind=consumer) as tx:
                    tx.send_many("out", [(one.key, one.value) for one in records], partition=0)
                    tx.send_offsets(consumer)

    def _polled(self, consumer: Consumer[Any, Any]) -> list[Record[Any, Any]]:
        while True:
            found = consumer.poll(timeout_s=0.2)
            if found or self._ends.is_set():
                return found

    def end(self) -> None:
        self._ends.set()


def rolled(cluster: ClusterForTests) -> str:
    for node in sorted(cluster.nodes):
        assert cluster.brokers[node].stop() == 0
        cluster.restart(node)
        cluster.await_healthy()
    return "restarted all brokers, one after the other"


@pytest.mark.slow
def test_a_rolling_restart_costs_clients_nothing_but_time(cluster: ClusterForTests) -> None:
    client = cluster.connect()
    client.create_topic("t", partitions=3)
    client.create_topic("out")
    cluster.await_healthy()
    copier = Copier(cluster.connect())
    with Beside(copier.run, stop=copier.end):
        report = Drill(cluster.connect(), SETTINGS, lambda: rolled(cluster)).run()
    assert report.happened == "restarted all brokers, one after the other"
    assert (report.errors, report.in_doubt, report.is_good) == ({}, 0, True), report
    with client.consumer("t", until_end=True) as consumer:
        written = sorted(record.value or b"" for record in consumer)
    with client.consumer("out", until_end=True) as consumer:
        copied = sorted(record.value or b"" for record in consumer)
    assert len(written) == report.sent
    assert copied == written, "each once"
