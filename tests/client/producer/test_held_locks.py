"""What another process holds: a delivery, a flush and a close end within ``delivery_timeout_ms`` all the same, and the
error names the process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logstore.client.producer.producer import Producer
from logstore.errors import DeliveryTimeoutError, LogStoreError, TopicLockedError
from logstore.ownership.lock import CATALOGUE_SLOT
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition

TIMEOUT_MS = 400
LOCK_TIMEOUT_S = 240.0
IN_TIME_S = 60.0  # far less than the store's lock timeout: what waits for that is late
IN_TIME_CLOSED_S = IN_TIME_S + 1.0  # and a second for the lease


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[LogStore, LogStore]]:
    """Two openings of a directory, whose locks keep each other out as those of two processes do."""
    root = str(tmp_path / "store")
    with (
        LogStore(root, lock_timeout_s=LOCK_TIMEOUT_S) as store,
        LogStore(root, lock_timeout_s=LOCK_TIMEOUT_S) as other,
    ):
        store.create_topic("t")
        yield store, other


@contextmanager
def held(other: LogStore, name: str | None) -> Iterator[str]:
    """The lock of a topic, None for the catalogue's, held by ``other``; the holder as errors name it."""
    slot = CATALOGUE_SLOT if name is None else other._registry.catalogue.topic(name).lock_slot
    locks = other._context.locks
    locks.acquire(slot, 10.0, "the lock under test")
    holder = locks.holder(slot)
    assert holder is not None
    try:
        yield f"pid {holder.pid} on {holder.host}"
    finally:
        locks.release(slot)


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    assert time.monotonic() - started_s < limit_s


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.001)


def opened(store: LogStore, **settings: object) -> Producer[bytes, bytes]:
    return store.producer(delivery_timeout_ms=TIMEOUT_MS, **settings)  # type: ignore[call-overload, no-any-return]


def test_a_first_delivery_behind_the_catalogue_ends_in_time(stores: tuple[LogStore, LogStore]) -> None:
    store, other = stores
    producer = opened(store)
    with held(other, None) as holder:
        with within(IN_TIME_S), pytest.raises(DeliveryTimeoutError, match="catalogue") as caught:
            producer.send("t", b"x").result()
        assert holder in str(caught.value)
        producer.send("t", b"y")
        with within(IN_TIME_S), pytest.raises(DeliveryTimeoutError, match="catalogue") as caught:
            producer.flush()
        assert holder in str(caught.value)
        producer.send("t", b"z")
        with within(IN_TIME_CLOSED_S), pytest.raises(DeliveryTimeoutError, match="catalogue") as caught:
            producer.close()
        assert holder in str(caught.value)


def test_a_caller_who_waits_less_is_answered_sooner(stores: tuple[LogStore, LogStore]) -> None:
    store, other = stores
    with store.producer() as producer:
        with held(other, None), within(IN_TIME_S), pytest.raises(LogStoreError):
            producer.send("t", b"x").result(timeout_s=0.3)
        producer.flush()  # it is on its way still
    assert store.partition("t", 0).log_end_offset == 1


def test_a_wait_for_the_catalogue_keeps_no_other_thread_from_its_topics(
    stores: tuple[LogStore, LogStore],
) -> None:
    store, other = stores
    other.create_topic("u")
    with held(other, None):
        failures: list[LogStoreError] = []

        def create() -> None:
            try:
                store.create_topic("v")
            except LogStoreError as error:
                failures.append(error)

        thread = threading.Thread(target=create)
        thread.start()
        until(store._registry._changing.locked)
        with within(IN_TIME_S):
            assert store.partition("u", 0).append([(None, b"x")]).offset == 0
            with pytest.raises(TopicLockedError, match="catalogue"), store._context.wait_limit.within(0.1):
                store.create_topic("w")
    thread.join(60)
    assert not failures


def test_a_named_producer_behind_a_held_topic_ends_in_time(stores: tuple[LogStore, LogStore]) -> None:
    store, other = stores
    producer = opened(store, name="import")
    with held(other, "t") as holder:
        with within(IN_TIME_S), pytest.raises(DeliveryTimeoutError, match="topic 't'") as caught:
            producer.send("t", b"x").result()
        assert holder in str(caught.value)
        with within(IN_TIME_CLOSED_S):
            producer.close()


def test_a_transaction_behind_its_coordinator_ends_in_time(stores: tuple[LogStore, LogStore]) -> None:
    store, other = stores
    producer = opened(store, transactional_id="copy")
    with held(other, "__transaction_state") as holder:
        transaction = producer.begin()
        with within(IN_TIME_S), pytest.raises(DeliveryTimeoutError, match="__transaction_state") as caught:
            transaction.send("t", b"x").result()
        assert holder in str(caught.value)
        with within(IN_TIME_CLOSED_S):
            producer.close()


def test_the_close_of_an_open_transaction_ends_in_time(
    stores: tuple[LogStore, LogStore], caplog: pytest.LogCaptureFixture
) -> None:
    store, other = stores
    store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    for number, name in enumerate(("__transaction_state", "__consumer_offsets", "t")):
        producer = opened(store, transactional_id=f"copy-{number}")
        transaction = producer.begin()
        transaction.send("t", b"x").result()
        transaction.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
        store.release("t")
        caplog.clear()
        with (
            held(other, name) as holder,
            caplog.at_level(logging.WARNING, "logstore"),
            within(IN_TIME_CLOSED_S),
        ):
            producer.close()
        assert holder in caplog.text
    assert store.committed_offsets("g")[TopicPartition("t", 0)].offset == 0


def test_a_thread_in_line_behind_one_that_waits_longer_ends_in_time(
    stores: tuple[LogStore, LogStore],
) -> None:
    """The line's leader waits for the store's lock timeout; a transaction's delivery waits for its own."""
    store, other = stores
    producer, patient = opened(store, transactional_id="copy"), store.producer(transactional_id="patient")
    coordinator = store.backend.transactions.manager.coordinator()
    with held(other, "__transaction_state") as holder:
        first, second = patient.begin(), producer.begin()
        leader = threading.Thread(target=lambda: first.send("t", b"x").result())
        leader.start()
        until(lambda: coordinator._line._led)
        with within(IN_TIME_S), pytest.raises(DeliveryTimeoutError, match="__transaction_state") as caught:
            second.send("t", b"x").result()
        assert holder in str(caught.value)
    leader.join(60)
    first.commit()
    second.abort()
    producer.close()
    patient.close()
