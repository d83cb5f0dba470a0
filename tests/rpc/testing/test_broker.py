"""A broker under faults: named errors within deadlines, and nothing acknowledged is lost or there twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.client.consumer.membership import NOT_A_MEMBER
from logstore.errors import DeliveryTimeoutError, DiskFullError, LogStoreError
from rpc.client.store import RemoteStore
from rpc.errors import BrokerTimeoutError, BrokerUnavailableError
from rpc.testing.broker import BrokerForTests
from tests.beside import Beside

PATIENCE_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerForTests]:
    broker = BrokerForTests(tmp_path / "data")
    yield broker
    broker.close()
    BrokerForTests.end_spares()


def values(client: RemoteStore, topic: str = "t") -> list[int]:
    with client.consumer(topic, until_end=True) as consumer:
        return [int(record.value or b"") for record in consumer]


class Sending:
    """Sends numbers until ``end``, each once it knows of the one before; ``acknowledged`` are those that were."""

    def __init__(self, client: RemoteStore) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[LogStoreError] = []
        self._client = client
        self._stop = threading.Event()

    def run(self) -> None:
        number = 0
        with self._client.producer(linger_ms=0) as producer:
            while not self._stop.is_set():
                try:
                    producer.send("t", b"%d" % number).result(PATIENCE_S)
                    self.acknowledged.append(number)
                except LogStoreError as error:
                    self.errors.append(error)
                number += 1

    def until(self, count: int) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < count and time.monotonic() < deadline_s:
            self._stop.wait(0.01)
        assert len(self.acknowledged) >= count, self.errors

    def end(self) -> None:
        self._stop.set()


def drop(broker: BrokerForTests) -> None:
    """A connection of the client's is cut. That of before may have been cut a moment ago, and the next not be there."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not broker.drop_connections():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize("fault", ["kill", "drop", "freeze", "pause", "slow"])
def test_a_sender_goes_on_behind_a_fault_without_loss_or_double(broker: BrokerForTests, fault: str) -> None:
    client = broker.connect()
    client.create_topic("t")
    sending = Sending(client)
    with Beside(sending.run, stop=sending.end):
        for round_ in range(1, 4):
            sending.until(20 * round_)
            if fault == "kill":
                broker.kill()
                broker.restart()
            elif fault == "drop":
                drop(broker)
            elif fault == "freeze":
                broker.freeze_connections()
                broker.drop_connections()
                broker.thaw_connections()
            elif fault == "pause":
                broker.pause()
                before = len(sending.acknowledged)
                broker.resume()
                sending.until(before + 1)
            else:
                broker.slow_disk(0.01)
        sending.until(90)
    assert sending.errors == []
    found = values(client)
    assert found == sorted(set(found)), "each once, in order"
    assert set(sending.acknowledged) <= set(found)


@pytest.mark.parametrize("fault", [pytest.param("kill", marks=pytest.mark.slow), "drop"])
def test_many_requests_in_flight_lose_and_double_nothing(broker: BrokerForTests, fault: str) -> None:
    client = broker.connect()
    client.create_topic("t")
    ends_s = time.monotonic() + PATIENCE_S
    number, cut = 0, 0
    with client.producer(buffer_bytes=8 << 20) as producer:
        deliveries = []
        for number in range(120_000):
            deliveries.append(producer.send("t", b"%d" % number + b" " * 200))
            if number % 30_000 == 20_000:
                assert time.monotonic() < ends_s
                cut += 1
                if fault == "kill":
                    broker.kill()
                    broker.restart()
                else:
                    drop(broker)
        producer.flush(PATIENCE_S)
    assert cut == 4
    assert all(delivery.exception(0) is None for delivery in deliveries)
    assert values(client) == list(range(120_000)), "each once, in order"


def test_a_full_disk_is_named_and_everything_goes_on_behind_it(broker: BrokerForTests) -> None:
    client = broker.connect()
    client.create_topic("t")
    with client.producer(disk_full_timeout_ms=300) as producer:
        producer.send("t", b"1").result()
        broker.full_disk()
        with pytest.raises(DiskFullError):
            producer.send("t", b"2").result(PATIENCE_S)
        assert values(client) == [1]
        broker.full_disk(False)
        producer.send("t", b"3").result(PATIENCE_S)
    assert values(client) == [1, 3]


def test_a_failed_sync_is_never_acknowledged_and_a_restart_heals_it(broker: BrokerForTests) -> None:
    client = broker.connect()
    client.create_topic("t")
    with client.producer() as producer:
        producer.send("t", b"1").result()
    with client.producer(delivery_timeout_ms=2_000) as producer:
        broker.broken_disk()
        with pytest.raises(LogStoreError) as caught:
            producer.send("t", b"2").result(PATIENCE_S)
        assert not isinstance(caught.value, DiskFullError)
    broker.broken_disk(False)
    broker.restart()
    with client.producer() as producer:
        producer.send("t", b"3").result(PATIENCE_S)
    found = values(client)
    assert found in ([1, 3], [1, 2, 3]), "the second is in doubt, and said to be"


def test_a_stopped_broker_is_a_named_error_within_the_deadline(broker: BrokerForTests) -> None:
    client = broker.connect(request_timeout_s=1.0)
    client.create_topic("t")
    broker.pause()
    began_s = time.monotonic()
    with pytest.raises((BrokerTimeoutError, BrokerUnavailableError)):
        client.describe_topic("t")
    assert time.monotonic() - began_s < PATIENCE_S
    broker.resume()
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            assert client.describe_topic("t").partitions
            break
        except (BrokerTimeoutError, BrokerUnavailableError):
            continue
    assert client.list_topics() == ["t"]


@pytest.mark.slow
def test_half_open_connections_end_by_the_deadline(broker: BrokerForTests) -> None:
    client = broker.connect(request_timeout_s=1.0)
    client.create_topic("t")
    with client.producer() as producer:
        producer.send("t", b"1").result()
    with client.producer(delivery_timeout_ms=2_000) as producer:
        broker.freeze_connections()
        with pytest.raises((DeliveryTimeoutError, BrokerTimeoutError, BrokerUnavailableError)):
            producer.send("t", b"2").result(PATIENCE_S)
        broker.thaw_connections()
        broker.drop_connections()
    found = values(client)
    assert found in ([1], [1, 2])


def test_members_of_a_group_go_on_behind_a_kill_amid_a_rebalance(broker: BrokerForTests) -> None:
    client = broker.connect()
    client.create_topic("t", partitions=4)
    with client.producer() as producer:
        for number in range(200):
            producer.send("t", b"%d" % number, partition=number % 4)
    seen: list[int] = []
    with client.consumer("t", group="g") as first:
        seen += [int(record.value or b"") for record in first.poll(40)]
        first.commit()
        with client.consumer("t", group="g") as second:
            broker.kill()
            broker.restart()
            deadline_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline_s and len(set(seen)) < 200:
                for consumer in (first, second):
                    try:
                        seen += [int(record.value or b"") for record in consumer.poll(50, timeout_s=0.1)]
                        consumer.commit()
                    except NOT_A_MEMBER:
                        continue  # the broker took it out meanwhile: it joins again
    assert set(seen) == set(range(200))


def test_a_transaction_cut_by_a_kill_counts_in_full_or_not_at_all(broker: BrokerForTests) -> None:
    client = broker.connect()
    client.create_topic("t", partitions=2)
    sure: list[int] = []
    for number in range(6):
        try:
            with client.producer(transactional_id="x") as producer, producer.transaction() as tx:
                for part in range(2):
                    tx.send("t", b"%d" % number, partition=part)
                if number % 2:
                    broker.kill()
                    broker.restart()
            sure.append(number)
        except LogStoreError:
            continue
    found = values(client)
    assert all(found.count(number) == 2 for number in found)
    assert set(sure) <= set(found)
    assert len(sure) >= 3


def test_a_stop_in_order_and_time_that_goes_on(broker: BrokerForTests) -> None:
    client = broker.connect()
    client.create_topic("t", config={"retention.ms": "60000", "segment.ms": "1000"})
    with client.producer() as producer:
        producer.send("t", b"1").result()
    broker.advance_clock(3_600_000)
    with client.producer() as producer:
        producer.send("t", b"2").result()
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        assert broker.stop() == 0
        assert not broker.is_running
        with pytest.raises(BrokerUnavailableError):
            broker.pause()
        broker.restart()
        if values(broker.connect()) == []:
            return  # both are an hour old to the broker
    pytest.fail("an hour's retention did not come")
