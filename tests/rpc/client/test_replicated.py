"""A client of brokers whose partitions are replicated: it goes on while nodes stop and come back."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import StaleGenerationError, UnknownMemberError
from logstore.types import TopicPartition
from tests.beside import Beside
from tests.replication.cluster_nodes import until
from tests.rpc.client.replicated import ReplicatedBrokers, replicated_brokers

PARTITIONS = 3


def numbers(count: int, partition: int) -> list[bytes]:
    return [b"%d" % number for number in range(count) if number % PARTITIONS == partition]


def read_all(brokers: ReplicatedBrokers) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    with brokers.connect() as client, client.consumer("t", until_end=True) as consumer:
        for record in consumer:
            found[record.partition].append(record.value or b"")
    return found


def test_records_go_to_the_leaders_and_come_from_them(tmp_path: Path) -> None:
    with replicated_brokers(tmp_path) as brokers, brokers.connect() as client:
        client.create_topic("t", PARTITIONS)
        with client.producer() as producer:
            for number in range(300):
                producer.send("t", b"%d" % number, partition=number % PARTITIONS)
        leaders = client.backend.topic("t").leaders
        assert set(leaders) <= {1, 2, 3}
        places = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
        listed = client.backend.list_offsets(places, "latest", "read_committed")
        assert [listed[place].offset for place in places] == [100] * PARTITIONS
        assert read_all(brokers) == {one: numbers(300, one) for one in range(PARTITIONS)}


class Disturber:
    """Stops a node and starts it again, one after the other, beside the block."""

    def __init__(self, brokers: ReplicatedBrokers, seed: int) -> None:
        self.stopped = 0
        self._brokers = brokers
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._beside = Beside(self._run, stop=self._over.set)

    def _run(self) -> None:
        while not self._over.wait(0.3):
            number = self._chance.randint(1, 3)
            self._brokers.stop(number)
            self._over.wait(self._chance.random())
            self._brokers.start(number)
            self.stopped += 1

    def __enter__(self) -> Disturber:
        self._beside.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._beside.__exit__(*error)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_records_are_stored_once_and_in_order_while_nodes_stop_and_start(tmp_path: Path, seed: int) -> None:
    read: list[bytes] = []
    sent = 0
    with replicated_brokers(tmp_path) as brokers, brokers.connect() as client:
        client.create_topic("t", PARTITIONS)
        with (
            client.producer(batch_bytes=1000) as producer,
            client.consumer("t") as consumer,
            Disturber(brokers, seed) as disturber,
        ):

            def read_on(timeout_s: float) -> int:
                read.extend(record.value or b"" for record in consumer.poll(timeout_s=timeout_s))
                return len(read)

            while disturber.stopped < 4:
                for _ in range(50):
                    producer.send("t", b"%d" % sent, partition=sent % PARTITIONS)
                    sent += 1
                read_on(0.02)
            producer.flush(90)
            until(lambda: read_on(0.1) >= sent)
        stored = read_all(brokers)
    assert stored == {one: numbers(sent, one) for one in range(PARTITIONS)}
    assert sorted(read) == sorted(b"%d" % number for number in range(sent))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_transactions_are_all_or_nothing_while_nodes_stop_and_start(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with replicated_brokers(tmp_path) as brokers, brokers.connect() as client:
        client.create_topic("t", PARTITIONS)
        with (
            client.producer(transactional_id="tx") as producer,
            Disturber(brokers, seed) as disturber,
        ):
            turn = 0
            while disturber.stopped < 4 or turn <= 4:
                turn += 1
                producer.begin()
                for partition in range(PARTITIONS):
                    producer.send("t", b"%d-%d" % (turn, partition), partition=partition)
                if chance.random() < 0.7:
                    producer.commit()
                    for partition in range(PARTITIONS):
                        committed[partition].append(b"%d-%d" % (turn, partition))
                else:
                    producer.abort()
        stored = read_all(brokers)
    assert stored == dict(enumerate(committed))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_groups_consumers_read_all_while_nodes_stop_and_start(tmp_path: Path, seed: int) -> None:
    seen: set[bytes] = set()
    last: dict[TopicPartition, int] = {}
    sent = 0
    with replicated_brokers(tmp_path) as brokers, brokers.connect() as client:
        client.create_topic("t", PARTITIONS)
        with (
            client.producer() as producer,
            client.consumer("t", group="g", heartbeat_interval_ms=300) as one,
            client.consumer("t", group="g", heartbeat_interval_ms=300) as other,
            Disturber(brokers, seed) as disturber,
        ):

            def read_on() -> int:
                for consumer in (one, other):
                    for record in consumer.poll(timeout_s=0.05):
                        seen.add(record.value or b"")
                        place = TopicPartition(record.topic, record.partition)
                        last[place] = max(record.offset, last.get(place, 0))
                    with suppress(StaleGenerationError, UnknownMemberError):
                        consumer.commit()
                return len(seen)

            while disturber.stopped < 4:
                for _ in range(20):
                    producer.send("t", b"%d" % sent, partition=sent % PARTITIONS)
                    sent += 1
                read_on()
            producer.flush(90)
            until(lambda: read_on() >= sent, 60)

            def is_committed() -> bool:
                read_on()
                committed = client.backend.committed_offsets("g")
                return all(committed[place].offset > offset for place, offset in last.items())

            until(is_committed)
    assert seen == {b"%d" % number for number in range(sent)}


def test_a_named_producer_goes_on_while_nodes_stop_and_start(tmp_path: Path) -> None:
    sent = 0
    with replicated_brokers(tmp_path) as brokers, brokers.connect() as client:
        client.create_topic("t", PARTITIONS)
        with client.producer(name="import") as producer, Disturber(brokers, 5) as disturber:
            while disturber.stopped < 3:
                producer.send("t", b"%d" % sent, partition=sent % PARTITIONS).result(60)
                sent += 1
        with client.producer(name="import") as producer:  # its numbers go on where they were
            for _ in range(PARTITIONS):
                producer.send("t", b"%d" % sent, partition=sent % PARTITIONS).result(60)
                sent += 1
        stored = read_all(brokers)
    assert stored == {one: numbers(sent, one) for one in range(PARTITIONS)}
