"""Deliveries: when they send, what they share, and many threads on one producer."""

from __future__ import annotations

import threading

import pytest

from logstore.api.backend import Backend
from logstore.client.producer.producer import Producer
from logstore.errors import DeliveryTimeoutError, DiskFullError, PartitionPoisonedError
from tests.client.fake_backend import FakeBackend
from tests.client.records import all_records, until, values_of


def test_result_sends_the_open_batch_in_the_callers_thread(fake: FakeBackend) -> None:
    threads: list[str] = []
    fake.faults.append(lambda items: threads.append(threading.current_thread().name))  # type: ignore[func-returns-value]
    with Producer(fake, linger_ms=60_000) as producer:
        first, second = producer.send("events", b"1"), producer.send("events", b"2")
        assert not first.done()
        assert second.result(60).offset == 1
        assert first.done()
        assert first.result(0).offset == 0
    assert threads == [threading.current_thread().name]
    assert fake.calls == [[("events", 0, 2)]]


def test_without_result_the_batch_lingers_then_goes_by_itself(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=1) as producer:
        delivery = producer.send("events", b"1")
        until(delivery.done, "the sender's thread sends")
        again = producer.send("events", b"2")
        until(again.done, "the thread goes on")


def test_result_joins_the_next_batch_while_one_is_out(fake: FakeBackend) -> None:
    fake.gate.clear()
    with Producer(fake, linger_ms=60_000) as producer:
        deliveries = [producer.send("events", b"0")]
        results: list[int] = []

        def ask(place: int) -> None:
            results.append(deliveries[place].result(60).offset)

        asking = [threading.Thread(target=ask, args=(0,))]
        asking[0].start()
        assert fake.entered.acquire(timeout=60)
        for place in range(1, 6):
            deliveries.append(producer.send("events", b"%d" % place))
            asking.append(threading.Thread(target=ask, args=(place,)))
            asking[-1].start()
        until(lambda: deliveries[1]._batch.wanted, "somebody waits for the second batch")
        fake.gate.set()
        for thread in asking:
            thread.join(60)
        assert sorted(results) == [0, 1, 2, 3, 4, 5]
    assert fake.calls == [[("events", 0, 1)], [("events", 0, 5)]]


def test_who_waits_behind_a_callers_flight_is_served_when_it_lands(fake: FakeBackend) -> None:
    fake.gate.clear()
    with Producer(fake, linger_ms=60_000) as producer:
        first = producer.send("events", b"1")
        flying = threading.Thread(target=first.result)
        flying.start()
        assert fake.entered.acquire(timeout=60)
        second = producer.send("events", b"2")
        waiting = threading.Thread(target=second.result)
        waiting.start()
        until(lambda: second._batch.gates is not None, "the second one waits")
        fake.gate.set()
        waiting.join(60)
        assert not waiting.is_alive()
        flying.join(60)


def test_a_result_that_is_late_leaves_the_record_on_its_way(fake: FakeBackend) -> None:
    fake.gate.clear()
    with Producer(fake, linger_ms=0) as producer:
        delivery = producer.send("events", b"v")
        assert fake.entered.acquire(timeout=60)
        with pytest.raises(DeliveryTimeoutError, match="still on its way"):
            delivery.result(timeout_s=0.01)
        group = producer.send_many("events", [(None, b"w")])
        with pytest.raises(DeliveryTimeoutError, match="still on their way"):
            group.result(timeout_s=0.01)
        assert not group.done()
        assert "on its way" in repr(delivery)
        fake.gate.set()
        assert delivery.result(60).offset == 0
        assert repr(delivery) == "<Delivery to events-0: offset 0>"


def test_result_waits_through_retries(fake: FakeBackend) -> None:
    fake.faults.extend([DiskFullError("full")] * 2)
    with Producer(fake, linger_ms=60_000) as producer:
        assert producer.send("events", b"v").result(60).offset == 0
    assert len(fake.calls) == 3


def test_a_group_over_many_partitions_shares_one_call(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=60_000) as producer:
        group = producer.send_many("flights", [(b"%d" % number, b"v") for number in range(100)])
        group.result(60)
    assert len(fake.calls) == 1
    assert len(fake.calls[0]) == 4


def test_an_error_is_a_fresh_copy_each_time(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=60_000) as producer:
        fake.faults.append(PartitionPoisonedError("disk failed"))
        delivery = producer.send("events", b"v")
        first, second = delivery.exception(60), delivery.exception(60)
        assert first is not second
        assert str(first) == str(second)
        assert "failed: disk failed" in repr(delivery)


@pytest.mark.parametrize("threads", [4, 16])
def test_many_threads_share_batches_and_get_their_own_offsets(backend: Backend, threads: int) -> None:
    each = 40
    got: dict[int, list[int]] = {}
    start = threading.Barrier(threads)
    with Producer(backend) as producer:

        def run(number: int) -> None:
            start.wait()
            got[number] = [
                producer.send("events", b"%d-%d" % (number, turn)).result(30).offset for turn in range(each)
            ]

        running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(60)
    stored = values_of(backend, "events")
    assert len(stored) == threads * each
    for number, offsets in got.items():
        assert offsets == sorted(offsets)
        assert [stored[offset] for offset in offsets] == [b"%d-%d" % (number, turn) for turn in range(each)]


def test_threads_without_result_lose_nothing(backend: Backend) -> None:
    with Producer(backend, batch_bytes=2000) as producer:

        def run(number: int) -> None:
            for turn in range(500):
                producer.send("flights", b"%d" % turn, key=b"thread-%d" % number)

        running = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(60)
        producer.flush(60)
    total = 0
    for partition in range(4):
        by_key: dict[bytes, list[bytes]] = {}
        for record in all_records(backend, "flights", partition):
            by_key.setdefault(record.key, []).append(record.value)
            total += 1
        for values in by_key.values():
            assert values == [b"%d" % turn for turn in range(500)]
    assert total == 4000
