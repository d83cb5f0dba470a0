"""A topic is copied in transactions by a group of two, while nodes stop and come back: each record once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.beside import Beside
from tests.replication.cluster_nodes import until
from tests.rpc.client.replicated import ReplicatedBrokers, replicated_brokers
from tests.rpc.client.test_replicated import Disturber

PARTITIONS = 3


class Copier:
    """Reads what its share of "in" is, and writes it to "out" in the same transaction as its offsets."""

    def __init__(self, brokers: ReplicatedBrokers, name: str, over: threading.Event) -> None:
        self._brokers = brokers
        self._name = name
        self._over = over
        self.copied = 0

    def run(self) -> None:
        with (
            self._brokers.connect() as client,
            client.consumer("in", group="copy", session_timeout_ms=60_000) as consumer,
            client.producer(transactional_id=self._name) as producer,
        ):
            while not self._over.is_set():
                records = consumer.poll(timeout_s=0.2)
                if not records:
                    continue
                with producer.transaction() as transaction:
                    for record in records:
                        transaction.send("out", record.value, partition=record.partition)
                    transaction.send_offsets(consumer)
                self.copied += len(records)


def copied(brokers: ReplicatedBrokers) -> list[int]:
    with brokers.connect() as client, client.consumer("out", until_end=True) as consumer:
        return sorted(int(record.value or b"-1") for record in consumer)


@pytest.mark.slow
def test_each_record_is_copied_once(tmp_path: Path) -> None:
    over = threading.Event()
    sent = 0
    with replicated_brokers(tmp_path) as brokers, brokers.connect() as client:
        for name in ("in", "out"):
            client.create_topic(name, PARTITIONS)
        copiers = [Copier(brokers, f"copier-{number}", over) for number in range(2)]
        with Beside(*[one.run for one in copiers], stop=over.set) as beside:
            with client.producer() as producer, Disturber(brokers, 1) as disturber:
                while disturber.stopped < 4:
                    for _ in range(20):
                        producer.send("in", b"%d" % sent, partition=sent % PARTITIONS)
                        sent += 1
                    producer.flush(90)
            until(lambda: len(copied(brokers)) >= sent or beside.has_failed, 60)
        assert copied(brokers) == list(range(sent))
        assert sum(one.copied for one in copiers) == sent
