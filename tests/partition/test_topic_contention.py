"""A topic passes on to the process that waits for it: what survives that, and what keeps the topic.

Two stores share memory as two processes share a directory. While the second waits, time goes on and the first one's
housekeeper does what is due.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from logstore.api.records import ProduceItem
from logstore.errors import DeliveryTimeoutError, TopicLockedError
from logstore.format.batch import encode_batch
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

ROOT = "/store"
ROW = [(b"k", b"v")]


class Pair:
    """``owner`` works whenever ``waiter`` sleeps."""

    def __init__(self, **settings: Any) -> None:
        self.fs, self.clock, self.table = MemoryFileSystem(), ManualClock(), LockTable()
        self.live: dict[int, LiveSlot] = {}
        self.owner = self._store(lambda: None, **settings)
        self.waiter = self._store(lambda: self.owner.step(), **settings)
        self.owner.create_topic("t", config={"segment.bytes": "1024"})

    def _store(self, beside: Any, **settings: Any) -> LogStore:
        def sleep(seconds: float) -> None:
            self.clock.advance(max(int(seconds * 1000), 1))
            beside()

        return LogStore(
            ROOT,
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(self.table, clock=self.clock, sleep=sleep),
            live=MemoryLive(self.live),
            threads=False,
            **({"lock_timeout_s": 2.0} | settings),
        )

    def owned(self) -> tuple[float, float]:
        return tuple(store.metrics()["logstore_owned_topics"] for store in (self.owner, self.waiter))  # type: ignore[return-value]

    def values(self, store: LogStore) -> list[bytes | None]:
        return [record.value for record in store.partition("t", 0).records(0, isolation="read_committed")]


def test_a_topic_passes_on_within_a_turn_and_back() -> None:
    pair = Pair()
    pair.owner.partition("t", 0).append([(None, b"a")])
    pair.owner.step()
    started_s = pair.clock.monotonic_s()
    pair.waiter.partition("t", 0).append([(None, b"b")])
    assert pair.clock.monotonic_s() - started_s < 0.2
    assert pair.owned() == (0, 1)
    assert pair.values(pair.owner) == [b"a", b"b"]


def test_a_pinned_topic_stays() -> None:
    pair = Pair()
    pair.owner.pin("t")
    pair.owner.step()
    with pytest.raises(TopicLockedError, match=r"waited 2\.0 s"):
        pair.waiter.partition("t", 0).append(ROW)
    assert pair.owned() == (1, 0)


def test_a_lone_owner_keeps_its_topic() -> None:
    pair = Pair()
    pair.owner.partition("t", 0).append(ROW)
    for _ in range(100):
        pair.clock.advance(60)
        pair.owner.step()
    assert pair.owned() == (1, 0)


def test_a_topic_under_long_work_stays_until_that_ends() -> None:
    pair = Pair()
    topic = pair.owner._registry.get("t")
    pair.owner.step()
    with topic.using(), pytest.raises(TopicLockedError):
        pair.waiter.partition("t", 0).append(ROW)
    assert pair.owned() == (1, 0)
    assert topic.try_enter(), "others of the owner are let in again meanwhile"
    topic.leave()
    pair.clock.advance(1100)
    pair.waiter.partition("t", 0).append(ROW)
    assert pair.owned() == (0, 1)


def test_an_open_transaction_survives() -> None:
    pair = Pair(lock_timeout_s=20.0)
    pair.owner.create_topic("u")
    producer = pair.owner.producer(transactional_id="id", clock=pair.clock)
    producer.begin()
    producer.send("t", b"in doubt").result()
    pair.owner.step()
    pair.waiter.partition("t", 0).append([(None, b"other")])
    assert pair.owned() == (0, 1)
    pair.waiter.release("t")
    producer.send("t", b"in doubt, too").result()
    producer.send("u", b"and here").result()
    assert pair.values(pair.waiter) == []  # the other's record lies behind the open transaction
    pair.owner.step()
    pair.waiter.partition("t", 0).append([(None, b"another")])
    pair.waiter.release("t")
    producer.commit()
    assert pair.values(pair.waiter) == [b"in doubt", b"other", b"in doubt, too", b"another"]
    producer.begin()
    producer.send("t", b"never").result()
    pair.owner.step()
    pair.waiter.partition("t", 0).append([(None, b"last")])
    pair.waiter.release("t")
    producer.abort()
    assert pair.values(pair.owner)[-1] == b"last"
    producer.close()


def test_named_and_unnamed_producers_survive() -> None:
    pair = Pair(lock_timeout_s=20.0)
    named, unnamed = (
        pair.owner.producer(name="import", clock=pair.clock),
        pair.owner.producer(clock=pair.clock),
    )
    for number in range(5):
        named.send("t", b"%d" % number).result()
        unnamed.send("t", b"u%d" % number).result()
        pair.owner.step()
        pair.waiter.partition("t", 0).append([(None, b"w%d" % number)])
        pair.waiter.release("t")
    assert named.last_sequence("t", 0) == 5
    wanted = [value for number in range(5) for value in (b"%d" % number, b"u%d" % number, b"w%d" % number)]
    assert pair.values(pair.waiter) == wanted
    named.close()
    unnamed.close()


def test_a_cleaning_ends_in_order_and_is_done_again() -> None:
    pair = Pair(lock_timeout_s=20.0)
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "2000"}
    pair.owner.create_topic("c", config=compacted)
    for number in range(300):
        pair.owner.partition("c", 0).append([(b"%d" % (number % 3), b"%d" % number * 9)])
    topic = pair.owner._registry.get("c")
    pair.owner.step()
    with topic.using():
        assert pair.owner._cleaning.kit.start(topic, 0, (0, 250)) is not None
    assert topic.cleaning is not None
    pair.waiter.partition("c", 0).append([(b"0", b"last")])
    assert topic.cleaning is None
    assert not [name for name in pair.fs.listdir(f"{ROOT}/c-0") if ".cleaned" in name]
    pair.waiter.release("c")
    pair.owner.admin.compact("c")
    records = list(pair.owner.partition("c", 0).records(0))
    assert {record.key: record.value for record in records}[b"0"] == b"last"
    assert len(records) < 100


def test_a_consumer_in_the_former_owner_goes_on() -> None:
    pair = Pair()
    with pair.owner.consumer("t") as consumer:
        for number in range(4):
            pair.owner.partition("t", 0).append([(None, b"o%d" % number)])
            pair.owner.step()
            pair.waiter.partition("t", 0).append([(None, b"w%d" % number)])
            pair.waiter.release("t")
            values = [record.value for _ in range(2) for record in consumer.poll(timeout_s=0)]
            assert values == [b"o%d" % number, b"w%d" % number]
        assert consumer.position("t", 0) == 8


def test_a_wait_is_warned_of_once_and_then_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(lock_timeout_s=25.0)
    pair.owner.pin("t")
    with caplog.at_level(logging.WARNING, "logstore"), pytest.raises(TopicLockedError):
        pair.waiter.partition("t", 0).append(ROW)
    said = [
        record.getMessage() for record in caplog.records if record.name == "logstore.ownership.lock_turns"
    ]
    assert [text.split("for ")[-1].split(" ")[0] for text in said] == ["1", "11", "21"]
    assert all(
        "topic 't'" in text and "pid" in text and "since" in text and "25.0 s" in text for text in said
    )


def test_a_delivery_ends_in_time_and_its_error_names_the_holder() -> None:
    pair = Pair(lock_timeout_s=30.0)
    pair.owner.pin("t")
    producer = pair.waiter.producer(delivery_timeout_ms=3000, clock=pair.clock)
    started_s = pair.clock.monotonic_s()
    with pytest.raises(
        DeliveryTimeoutError, match=r"t-0 .*delivery_timeout_ms=3000.*topic 't' is locked by pid"
    ):
        producer.send("t", b"x").result()
    assert 2.9 < pair.clock.monotonic_s() - started_s < 4
    producer.close()


def test_a_held_topic_does_not_keep_another_ones_records_back() -> None:
    """One call with batches of two topics: what can be written is, and no topic is held while one is waited for."""
    pair = Pair(lock_timeout_s=30.0)
    pair.owner.create_topic("u")
    pair.owner.pin("t")
    batch = encode_batch(ROW, now_ms=pair.clock.wall_ms())
    items = [ProduceItem(topic, 0, batch) for topic in ("t", "t", "u")]
    started_s = pair.clock.monotonic_s()
    locked, behind, free = pair.waiter.backend.produce(items, "all", 20.0)
    assert pair.clock.monotonic_s() - started_s < 1.1, "the caller is told soon, and tries again"
    assert isinstance(locked.error, TopicLockedError)
    assert behind.error is locked.error
    assert (free.base_offset, free.error) == (0, None)
    assert pair.values(pair.owner) == []
    pair.owner.release("t")
    assert [result.base_offset for result in pair.waiter.backend.produce(items, "all", 20.0)] == [0, 1, 1]


def test_two_stores_with_batches_of_two_topics_do_not_wait_for_each_other(tmp_path: Any) -> None:
    """In opposite order, as fast as they can: each would hold what the other waits for."""
    root = str(tmp_path / "store")
    with LogStore(root) as first:
        first.create_topic("a")
        first.create_topic("b")
        failures: list[BaseException] = []

        def send(topics: tuple[str, str]) -> None:
            try:
                with LogStore(root, lock_timeout_s=60) as store, store.producer(linger_ms=20) as producer:
                    for _ in range(15):
                        for delivery in [producer.send(topic, b"x") for topic in topics]:
                            delivery.result(60)
            except BaseException as error:  # noqa: BLE001 - carried to the test's thread
                failures.append(error)

        threads = [threading.Thread(target=send, args=(topics,)) for topics in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not failures
        assert [first.partition(topic, 0).high_watermark for topic in "ab"] == [30, 30]
