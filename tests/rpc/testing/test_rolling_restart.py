"""A rolling restart of all brokers under load: each client sees latency, and no error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import Consumer, Record
from logstore.errors import LogStoreError
from rpc.client.store import RemoteStore
from rpc.drill import Drill, DrillSettings
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests

SETTINGS = DrillSettings(topic="t", rate=200, seconds=25, act_at=0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterForTests]:
    with ClusterForTests(tmp_path) as made:
        yield made
    BrokerForTests.end_spares()


class Copier:
    """Copies a topic in transactions, as a member of a group, until it is told to end. ``error``: what it saw."""

    def __init__(self, client: RemoteStore) -> None:
        self._client = client
        self._ends = threading.Event()
        self.error: LogStoreError | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with (
                self._client.producer(transactional_id="copier") as producer,
                self._client.consumer("t", group="copiers") as consumer,
            ):
                while records := self._polled(consumer):
                    with producer.transaction(rewind=consumer) as tx:
                        tx.send_many("out", [(one.key, one.value) for one in records], partition=0)
                        tx.send_offsets(consumer)
        except LogStoreError as error:
            self.error = error

    def _polled(self, consumer: Consumer[Any, Any]) -> list[Record[Any, Any]]:
        while True:
            found = consumer.poll(timeout_s=0.2)
            if found or self._ends.is_set():
                return found

    def end(self) -> None:
        """Once it has copied what there is."""
        self._ends.set()
        self._thread.join()


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
    report = Drill(cluster.connect(), SETTINGS, lambda: rolled(cluster)).run()
    copier.end()
    assert report.happened == "restarted all brokers, one after the other"
    assert (report.errors, report.in_doubt, report.is_good) == ({}, 0, True), report
    assert copier.error is None, copier.error
    with client.consumer("t", until_end=True) as consumer:
        written = sorted(record.value or b"" for record in consumer)
    with client.consumer("out", until_end=True) as consumer:
        copied = sorted(record.value or b"" for record in consumer)
    assert len(written) == report.sent
    assert copied == written, "each once"
