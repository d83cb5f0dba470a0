"""Groups, transactions and internal topics in hostile hands: named errors, and nothing is harmed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import logstore
from logstore.client.consumer.dead_letters import DeadLetters
from logstore.errors import (
    ClientClosedError,
    CorruptBatchError,
    DamagedStoreError,
    InvalidArgumentError,
    InvalidTopicError,
    LogStoreError,
    StoreClosedError,
)
from logstore.format.batch import encode_batch
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from rpc.client.store import RemoteStore
from tests.rpc.served import Served

AnyStore: TypeAlias = LogStore | RemoteStore


@pytest.fixture(params=["embedded", "remote"])
def store(request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    if request.param == "embedded":
        with logstore.open(":memory:", lock_timeout_s=0.5) as opened:
            yield filled(opened)
    else:
        with Served(":memory:") as served, served.connect() as client:
            yield filled(client)


def filled(store: AnyStore) -> AnyStore:
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        for partition in range(2):
            producer.send_many("t", [(None, b"%d" % number) for number in range(10)], partition=partition)
    return store


def values(store: AnyStore) -> int:
    with store.consumer("t", until_end=True) as consumer:
        return sum(len(records) for records in consumer.batches())


INTERNAL = ("__consumer_offsets", "__transaction_state")
WRITES: dict[str, Callable[[AnyStore, str], object]] = {
    "send": lambda store, name: store.producer().send(name, b"garbage", key=b"key"),
    "send_many": lambda store, name: store.producer().send_many(name, [(b"key", b"garbage")]),
    "append": lambda store, name: store.partition(name, 0).append([(b"key", b"garbage")]),
    "append_batch": lambda store, name: store.partition(name, 0).append_batch(
        encode_batch([(b"key", b"garbage")], now_ms=1)
    ),
    "alter": lambda store, name: store.admin.alter_topic(name, {"retention.ms": "1"}),
    "partitions": lambda store, name: store.admin.add_partitions(name, 3, allow_keyed=True),
}


@pytest.mark.parametrize("name", INTERNAL)
def test_internal_topics_are_not_pinned(name: str) -> None:
    with logstore.open(":memory:") as store:
        filled(store)
        with store.producer(transactional_id="a") as producer, producer.transaction() as tx:
            tx.send("t", b"in")
            tx.commit_offsets("g", {logstore.TopicPartition("t", 0): 1})
        with pytest.raises(InvalidTopicError, match="internal"):
            store.pin(name)


@pytest.mark.parametrize("name", INTERNAL)
@pytest.mark.parametrize("write", WRITES)
def test_internal_topics_are_not_written_by_hand(store: AnyStore, name: str, write: str) -> None:
    with store.producer(transactional_id="a") as producer:
        with producer.transaction() as tx:
            tx.send("t", b"in")
            tx.commit_offsets("g", {logstore.TopicPartition("t", 0): 1})
        with pytest.raises(InvalidTopicError, match="internal"):
            WRITES[write](store, name)
        with producer.transaction() as tx:  # nothing holds the topic, nothing strange is in it
            tx.send("t", b"in")
    store.commit_offsets("g", {logstore.TopicPartition("t", 1): logstore.OffsetAndMetadata(1)})
    assert values(store) == 22


@pytest.mark.parametrize(
    "make",
    [
        lambda store: store.consumer(re.compile(b"t")),
        lambda store: store.consumer("t", group="g", auto_commit_interval_ms=10**400),
        lambda store: store.consumer("t", fetch_max_wait_ms=10**400),
        lambda store: store.consumer("t", instance_id="i"),
        lambda store: store.consumer("t", session_timeout_ms=9_000),
        lambda store: store.consumer("t", assignor="range"),
        lambda store: store.producer(transaction_timeout_ms=5_000),
        lambda store: store.admin.find_hanging(5),
        lambda store: store.admin.find_hanging([5]),
        lambda store: store.admin.end_hanging(None),
    ],
)
def test_wrong_arguments(store: AnyStore, make: Callable[[AnyStore], object]) -> None:
    with pytest.raises(InvalidArgumentError):
        make(store)


def test_one_name_is_a_list_of_it(store: AnyStore) -> None:
    assert store.admin.find_hanging("t") == []
    with pytest.raises(LogStoreError, match="'nope'"):
        store.admin.find_hanging("nope")


@pytest.mark.parametrize("odd", [5, "x", object()])
def test_what_is_no_consumer(store: AnyStore, odd: Any) -> None:
    with store.producer(transactional_id="a") as producer:
        with pytest.raises(InvalidArgumentError, match="no consumer"):
            producer.transaction(rewind=odd)
        with producer.transaction() as tx:
            tx.send("t", b"in")
            with pytest.raises(InvalidArgumentError, match="no consumer"):
                tx.send_offsets(odd)
    assert values(store) == 21


@pytest.mark.parametrize("topics", ["t", [("t", 0)]])
def test_a_consumer_of_another_store(store: AnyStore, topics: Any) -> None:
    with logstore.open(":memory:") as other:
        other.create_topic("t", partitions=2)
        with other.producer() as producer:
            producer.send("t", b"theirs", partition=0)
        with other.consumer(topics, group="g") as consumer, store.producer(transactional_id="a") as producer:
            assert len(consumer.poll()) == 1
            with pytest.raises(InvalidArgumentError, match="another store"):
                producer.transaction(rewind=consumer)
            with producer.transaction() as tx, pytest.raises(InvalidArgumentError, match="another store"):
                tx.send_offsets(consumer)
    assert store.admin.list_groups() == []


def test_a_producer_closed_in_its_block_says_that_nothing_counts(store: AnyStore) -> None:
    producer = store.producer(transactional_id="a")

    def close_inside() -> None:
        with producer.transaction() as tx:
            tx.send("t", b"in")
            producer.close()

    with pytest.raises(ClientClosedError, match="nothing of it counts"):
        close_inside()
    assert values(store) == 20


@pytest.mark.parametrize("odd", [None, 5])
def test_committing_what_is_no_records(store: AnyStore, odd: Any) -> None:
    with (
        store.consumer("t", group="g") as consumer,
        pytest.raises(InvalidArgumentError, match="poll"),
        consumer.committing(odd),
    ):
        pass


@pytest.mark.parametrize("hook", ["on_assigned", "on_revoked"])
def test_close_inside_a_hook_leaves_no_member_behind(store: AnyStore, hook: str) -> None:
    box: list[Any] = []
    consumer = store.consumer("t", group="g", **{hook: lambda places: box[0].close()})
    box.append(consumer)
    refused = pytest.raises(InvalidArgumentError, match="inside on_assigned")
    if hook == "on_assigned":
        with refused:
            consumer.poll()
        consumer.close()
    else:
        consumer.poll()
        with refused:
            consumer.close()
        consumer.close()
    assert all(not group.members for group in store.admin.list_groups())


def test_a_store_closed_inside_a_hook_ends_the_poll() -> None:
    store = logstore.open(":memory:")
    store.create_topic("t")
    consumer = store.consumer("t", group="g", on_assigned=lambda places: store.close())
    with pytest.raises(LogStoreError):
        consumer.poll()
    with pytest.raises(ClientClosedError):
        consumer.poll()


def test_a_callback_that_closes_ends_the_poll(store: AnyStore) -> None:
    told: list[Any] = []
    with store.consumer("t", group="g") as consumer:
        assert len(consumer.poll()) == 20
        consumer.commit_async(callback=lambda points, error: consumer.close())
        consumer.commit_async(callback=lambda points, error: told.append(error))

        def poll_on() -> None:
            while True:
                consumer.poll(timeout_s=0.01)

        with pytest.raises(ClientClosedError):
            poll_on()
    assert told == [None]


@pytest.mark.parametrize("topics", ["t", ["other", "t"], [("t", 0)], re.compile("t|other")])
def test_dead_letters_do_not_go_where_they_came_from(store: AnyStore, topics: Any) -> None:
    store.create_topic("other")
    with pytest.raises(InvalidArgumentError, match="come back"):
        store.consumer(topics, on_poison=DeadLetters("t"))
    with store.consumer("other", on_poison=DeadLetters("t")):
        pass


def test_dead_letters_do_not_go_to_internal_topics(store: AnyStore) -> None:
    store.commit_offsets("g", {logstore.TopicPartition("t", 0): logstore.OffsetAndMetadata(1)})
    with pytest.raises(InvalidTopicError, match="internal"):
        store.consumer("t", on_poison=DeadLetters("__consumer_offsets"))
    with pytest.raises(InvalidArgumentError):
        DeadLetters("t", timeout_s=float("nan"))


def test_a_poll_under_a_closing_store_says_closed() -> None:
    store = logstore.open(":memory:")
    store.create_topic("t")
    ready, ended = threading.Event(), []

    def read() -> None:
        consumer = store.consumer("t", group="g", on_assigned=lambda places: ready.set())
        try:
            while True:
                consumer.poll(timeout_s=600)
        except LogStoreError as error:
            ended.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert ready.wait(60)
    store.close()
    reader.join(60)
    assert [type(error) for error in ended] in ([ClientClosedError], [StoreClosedError])


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("how", ["close", "commit"])
def test_a_deleted_topic_does_not_hold_up_the_commit_of_others(
    store: AnyStore, how: str, again: bool
) -> None:
    store.create_topic("t2")
    fill = [(None, b"old")] * 5
    with store.producer() as producer:
        producer.send_many("t2", fill)
    consumer = store.consumer(re.compile("t|t2"), group="g", auto_commit_interval_ms=1e6)
    assert len(consumer.poll()) == 25
    store.delete_topic("t2")
    if again:  # its new records are none of those that were read
        store.create_topic("t2")
        with store.producer() as producer:
            producer.send_many("t2", fill)
    if how == "commit":
        consumer.commit()
    consumer.close()
    offsets = {place: point.offset for place, point in store.committed_offsets("g").items()}
    assert offsets == {("t", 0): 10, ("t", 1): 10}


@pytest.mark.parametrize("given", ["no", 0, 1, None])
def test_a_flag_that_is_no_bool_is_refused_by_its_name(given: Any) -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("t", config={"cleanup.policy": "compact"})
        admin = store.admin
        calls: dict[str, Callable[[], object]] = {
            "dry_run": lambda: admin.seek_group("g", "earliest", topics=["t"], dry_run=given),
            "internal": lambda: admin.list_topics(internal=given),
            "allow_keyed": lambda: admin.add_partitions("t", 2, allow_keyed=given),
            "roll": lambda: admin.compact("t", roll=given),
            "until_end": lambda: store.consumer("t", until_end=given),
            "any_policy": lambda: store.topic("t").table(any_policy=given),
            "reverse": lambda: store.partition("t", 0).records(0, reverse=given),
            "threads": lambda: logstore.open(":memory:", threads=given),
        }
        for name, call in calls.items():
            with pytest.raises(InvalidArgumentError, match=f"{name}={given!r}".replace("'", ".")):
                call()
        with pytest.raises(InvalidArgumentError, match="internal="):
            store.list_topics(internal=given)


def test_calls_of_transactions_on_a_plain_producer_are_named() -> None:
    with logstore.open(":memory:") as store, store.producer() as producer:
        for call in (producer.transaction, producer.begin, producer.commit, producer.abort):
            with pytest.raises(InvalidArgumentError, match=f"^{call.__name__}\\(\\) on a producer without"):
                call()


def test_a_damaged_internal_topic_says_what_to_do(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        for _ in range(3):
            store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    log = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with logstore.open(tmp_path) as store:
        for call in (
            lambda: store.committed_offsets("g"),
            lambda: store.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)}),
        ):
            with pytest.raises(LogStoreError, match=r"__consumer_offsets.*log verify.*log salvage") as caught:
                call()
            assert isinstance(caught.value, CorruptBatchError | DamagedStoreError)
