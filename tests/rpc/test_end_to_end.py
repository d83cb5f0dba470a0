"""The client API at a broker: what is sent is read, committed, decided and described as in an embedded store."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from logstore.errors import (
    ProducerBusyError,
    ProducerFencedError,
    TopicExistsError,
    UnknownTopicError,
    WakeupError,
)
from logstore.types import OffsetAndMetadata, TopicPartition
from rpc.client.store import RemoteStore
from tests.rpc.served import Served


def test_records_go_in_and_out(served: Served, client: RemoteStore) -> None:
    client.create_topic("flights", partitions=3)
    with client.producer() as producer:
        deliveries = [
            producer.send("flights", b"value %d" % n, key=b"%d" % n, headers=[("h", b"x")])
            for n in range(500)
        ]
        assert all(delivery.result(timeout_s=30).offset >= 0 for delivery in deliveries)
    with client.consumer("flights", group="g", until_end=True) as consumer:
        records = list(consumer)
        consumer.commit()
    assert sorted(record.value for record in records) == sorted(b"value %d" % n for n in range(500))
    assert {record.headers for record in records} == {(("h", b"x"),)}
    committed = client.committed_offsets("g")
    assert sum(offset.offset for offset in committed.values()) == 500
    assert committed == served.store.committed_offsets("g")
    with served.store.consumer("flights", until_end=True) as beside:
        assert sorted(beside, key=lambda record: record[:3]) == sorted(records, key=lambda record: record[:3])


def test_a_reader_that_waits_is_told_at_once(client: RemoteStore) -> None:
    client.create_topic("t")
    with client.consumer("t") as consumer, client.producer(linger_ms=0) as producer:
        assert consumer.poll(timeout_s=0) == []
        sender = threading.Timer(0.3, lambda: producer.send("t", b"late").result(timeout_s=30))
        sender.start()
        assert [record.value for record in consumer.poll(timeout_s=60)] == [b"late"]
        sender.join()


def test_a_wait_is_ended_by_wakeup(client: RemoteStore) -> None:
    client.create_topic("t")
    with client.consumer("t") as consumer:
        waker = threading.Timer(0.3, consumer.wakeup)
        waker.start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_s=60)
        waker.join()


def test_errors_keep_their_names_and_numbers(client: RemoteStore) -> None:
    client.create_topic("t")
    with pytest.raises(TopicExistsError):
        client.create_topic("t")
    with pytest.raises(UnknownTopicError, match="nope"):
        client.describe_topic("nope")


def test_transactions_are_all_or_nothing(client: RemoteStore) -> None:
    client.create_topic("t", partitions=2)
    with client.producer(transactional_id="tx") as producer:
        with producer.transaction() as transaction:
            transaction.send("t", b"kept", partition=0)
            transaction.send("t", b"kept too", partition=1)
        producer.begin()
        producer.send("t", b"dropped", partition=0)
        producer.abort()
    with client.consumer("t", until_end=True) as consumer:
        assert sorted(record.value or b"" for record in consumer) == [b"kept", b"kept too"]


def test_a_newer_opening_fences_the_older(client: RemoteStore) -> None:
    client.create_topic("t")
    with client.producer(transactional_id="tx") as older:
        with older.transaction() as transaction:
            transaction.send("t", b"1")
        with client.producer(transactional_id="tx") as newer, newer.transaction() as transaction:
            transaction.send("t", b"2")
        with pytest.raises(ProducerFencedError), older.transaction() as transaction:
            transaction.send("t", b"3")


def test_a_named_producer_goes_on_where_it_was(client: RemoteStore) -> None:
    client.create_topic("t")
    for first in (0, 10):
        with client.producer(name="import") as producer:
            assert producer.last_sequence("t", 0) == first
            for n in range(10):
                producer.send("t", b"%d" % n)
            producer.flush()
            with pytest.raises(ProducerBusyError):
                client.producer(name="import")


def test_groups_share_and_are_described(client: RemoteStore) -> None:
    client.create_topic("t", partitions=4)
    with client.producer() as producer:
        for n in range(40):
            producer.send("t", b"%d" % n, partition=n % 4)
    with client.consumer("t", group="g") as one:
        assert one.poll(timeout_s=30)
        (group,) = client.admin.list_groups()
        assert group.state == "stable"
        assert set(group.members[0].assigned) == {TopicPartition("t", n) for n in range(4)}
        one.commit({TopicPartition("t", 0): OffsetAndMetadata(3)})
    assert client.committed_offsets("g")[TopicPartition("t", 0)].offset == 3
    client.admin.delete_group("g")
    assert client.admin.list_groups() == []


def test_administration_of_records(client: RemoteStore) -> None:
    client.create_topic("t", config={"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"})
    with client.producer() as producer:
        for n in range(100):
            producer.send("t", b"%d" % n, key=b"%d" % (n % 5))
    (row,) = client.admin.compact("t", roll=True)
    assert row.records_after < row.records_before
    report = client.admin.erase_keys("t", [b"1"])
    assert report.proven
    assert report.records_removed == 1
    client.admin.delete_records("t", {0: 50})
    assert client.describe_topic("t").partitions[0].log_start_offset == 50


@pytest.mark.parametrize("settings", [{}, {"acks": 1}, {"idempotence": False}, {"compression": "gzip"}])
def test_much_for_many_partitions_goes_in_requests_that_a_broker_takes(
    client: RemoteStore, settings: dict[str, Any]
) -> None:
    """All at once they would be more than one message may have."""
    client.create_topic("wide", partitions=8, config={"visible.after": "append"})
    noise = random.Random(1)
    with client.producer(linger_ms=60_000, buffer_bytes=64 << 20, **settings) as producer:
        for number in range(24_000):
            value = b"%d " % number + noise.randbytes(1000)
            producer.send("wide", value, partition=number % 8)
    with client.consumer("wide", until_end=True) as consumer:
        found: dict[int, list[int]] = {}
        for record in consumer:
            found.setdefault(record.partition, []).append(int((record.value or b"").split(b" ")[0]))
    assert found == {partition: list(range(partition, 24_000, 8)) for partition in range(8)}
