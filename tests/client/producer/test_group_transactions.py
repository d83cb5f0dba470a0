"""Members of a group that copy in transactions, while partitions move between them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from logstore.client.consumer.consumer import Consumer
from logstore.errors import StaleGenerationError
from logstore.types import Record, TopicPartition
from tests.client.conftest import AnyStore


@pytest.fixture
def store(empty_store: AnyStore) -> AnyStore:
    empty_store.create_topic("in", partitions=4)
    empty_store.create_topic("out")
    with empty_store.producer() as producer:
        for number in range(20):
            producer.send("in", b"%d" % number, partition=number % 4)
    return empty_store


def drain(consumer: Consumer[Any, Any]) -> list[Record]:
    records: list[Record] = []
    while found := consumer.poll(timeout_s=0):
        records += found
    return records


def copied(store: AnyStore) -> list[bytes]:
    with store.consumer("out", until_end=True) as reader:
        return sorted(record.value for records in reader.batches() for record in records)


EXPECTED = sorted(b"%d" % number for number in range(20))


def test_a_partition_that_goes_before_its_offset_was_sent_keeps_the_transaction_from_counting(
    store: AnyStore,
) -> None:
    with (
        store.consumer("in", group="g") as first,
        store.producer(transactional_id="one") as one,
        store.producer(transactional_id="two") as two,
    ):
        tx = one.transaction(rewind=first)
        tx.begin()
        for record in drain(first):
            tx.send("out", record.value)
        with store.consumer("in", group="g") as second:
            assert drain(first) == []
            assert len(first.assignment()) == 2
            with pytest.raises(StaleGenerationError, match="in-"):
                tx.send_offsets(first)
            tx.abort()
            for consumer, producer in ((first, one), (second, two)):
                with producer.transaction(rewind=consumer) as again:
                    for record in drain(consumer):
                        again.send("out", record.value)
                    again.send_offsets(consumer)
    assert copied(store) == EXPECTED


def test_offsets_sent_as_a_partition_goes_count(store: AnyStore) -> None:
    sent = 0

    def send(_: object) -> None:
        nonlocal sent
        if sent == 0:  # else it is closed
            tx.send_offsets(first)
        sent += 1

    with store.producer(transactional_id="one") as producer:
        first = store.consumer("in", group="g", on_revoked=send)
        tx = producer.begin()
        for record in drain(first):
            tx.send("out", record.value)
        second = store.consumer("in", group="g")
        assert drain(first) == []
        assert sent == 1
        assert drain(second) == []  # its share's offsets are in an open transaction
        tx.send_offsets(first)
        tx.commit()
        assert drain(second) == []  # and now committed
        assert len(second.assignment()) == 2
        second.close()
        first.close()
    assert copied(store) == EXPECTED


def test_an_open_batch_goes_with_the_full_ones_before_it(store: AnyStore) -> None:
    """They may be taken while the coordinator is asked for offsets: the rest would need one more flight and sync."""
    seen: list[list[bool]] = []
    with (
        store.consumer("in", group="g") as consumer,
        store.producer(transactional_id="one", linger_ms=60_000) as producer,
    ):
        drain(consumer)
        control: Any = producer._transactions
        prepare = control._sequences.prepare

        def watched(batches: Any, **more: Any) -> None:
            seen.append([batch.wanted for batch in batches])
            prepare(batches, **more)

        control._sequences.prepare = watched
        with producer.transaction() as tx:
            tx.send("out", b"open")
            tx.send_offsets(consumer)
    assert seen[0] == [True]
    assert copied(store) == [b"open"]


def test_a_wait_for_an_open_transaction_that_holds_the_offsets_is_told(
    store: AnyStore, caplog: pytest.LogCaptureFixture
) -> None:
    with store.producer(transactional_id="one") as one:
        tx = one.transaction()
        tx.begin()
        tx.commit_offsets("g", {TopicPartition("in", 0): 2, TopicPartition("in", 1): 2})
        with store.consumer("in", group="g") as consumer:
            deadline_s = time.monotonic() + 60
            while not (told := _waits_told(caplog)) and time.monotonic() < deadline_s:
                consumer.poll(timeout_s=0.1)
            assert told == [
                "group 'g': 2 partitions, in-0 among them, wait for open transactions that hold their committed "
                "offsets: `logstore transaction list` names the transactions"
            ]
            assert len(consumer.assignment()) == 2
            tx.commit()
            while len(consumer.assignment()) < 4 and time.monotonic() < deadline_s:
                consumer.poll(timeout_s=0.1)
            assert {place.partition for place in consumer.assignment()} == {0, 1, 2, 3}
    assert len(_waits_told(caplog)) == 1


def _waits_told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "wait for open transactions" in one.getMessage()]
