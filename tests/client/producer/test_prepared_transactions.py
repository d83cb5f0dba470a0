"""Prepared transactions of producers: written here, decided there, in both worlds."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from logstore.api.transactions import PreparedTransaction
from logstore.client.producer.producer import Producer
from logstore.errors import (
    InvalidArgumentError,
    InvalidTransactionIdError,
    OutcomeUnknownError,
    TransactionAbortedError,
    TransactionStateError,
)
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.client.conftest import AnyStore

POINT = TopicPartition("in", 0)


@pytest.fixture
def store(empty_store: AnyStore) -> AnyStore:
    empty_store.create_topic("in")
    empty_store.create_topic("out", partitions=3)
    with empty_store.producer() as producer:
        producer.send_many("in", [(None, b"%d" % number) for number in range(10)])
    return empty_store


def values(store: AnyStore, isolation: Any = "read_committed") -> list[bytes]:
    with store.consumer("out", isolation=isolation, until_end=True) as consumer:
        return sorted(record.value or b"" for records in consumer.batches() for record in records)


def state_of(store: AnyStore, transactional_id: str) -> str:
    return store.admin.describe_transaction(transactional_id).state


def written(store: AnyStore, name: str, *rows: bytes, coordinator: str = "c") -> PreparedTransaction:
    """As a task does it: its producer is gone when the handle is on its way."""
    with (
        store.producer(transactional_id=name, transaction_coordinator=coordinator) as producer,
        producer.transaction() as tx,
    ):
        for number, row in enumerate(rows):
            tx.send("out", row, partition=number % 3)
        prepared = tx.prepare()
    assert prepared is not None
    return pickle.loads(pickle.dumps(prepared))


def driver(store: AnyStore) -> Producer[bytes, bytes]:
    return store.producer(transactional_id="c", keep_prepared=True)


def test_what_tasks_wrote_counts_with_the_drivers_commit_alone(store: AnyStore) -> None:
    one, two = written(store, "p1", b"a", b"b"), written(store, "p2", b"c")
    written(store, "p3", b"lost")
    assert values(store) == []
    assert values(store, "read_uncommitted") == [b"a", b"b", b"c", b"lost"]
    summary = store.admin.describe_transaction("p1")
    assert (summary.state, summary.coordinator, summary.holder) == ("PREPARED", "c", None)
    with driver(store) as producer, producer.transaction() as tx:
        tx.commit_offsets("g", {POINT: 5})
        tx.commit(prepared=[one, two])
    assert values(store) == [b"a", b"b", b"c"]
    assert store.committed_offsets("g") == {POINT: OffsetAndMetadata(5)}
    states = {one.transactional_id: one.state for one in store.admin.list_transactions()}
    assert states == {
        "c": "COMPLETE_COMMIT",
        "p1": "COMPLETE_COMMIT",
        "p2": "COMPLETE_COMMIT",
        "p3": "COMPLETE_ABORT",
    }


def test_a_driver_with_nothing_to_send_decides(store: AnyStore) -> None:
    one = written(store, "p1", b"a")
    with driver(store) as producer:
        producer.begin()
        producer.commit(prepared=[one])
        assert values(store) == [b"a"]
        producer.begin()
        two = written(store, "p1", b"b")
        producer.commit(prepared=iter([two]))
    assert values(store) == [b"a", b"b"]


def test_a_driver_that_opens_its_id_plainly_or_aborts_ends_all(store: AnyStore) -> None:
    one = written(store, "p1", b"a")
    with store.producer(transactional_id="c") as producer:
        assert state_of(store, "p1") == "COMPLETE_ABORT"
        with (
            pytest.raises(TransactionStateError, match="was aborted"),
            producer.transaction() as tx,
        ):
            tx.commit(prepared=[one])
    two = written(store, "p1", b"b")
    with driver(store) as producer:
        producer.begin()
        producer.abort()
    assert state_of(store, two.transactional_id) == "COMPLETE_ABORT"
    assert values(store) == []


def test_a_refused_commit_can_be_made_without_the_one(store: AnyStore) -> None:
    one, bad = written(store, "p1", b"a"), written(store, "p2", b"b")
    assert written(store, "p2", b"again") != bad
    with driver(store) as producer:
        producer.begin()
        with pytest.raises(TransactionStateError, match=r"fenced|was aborted"):
            producer.commit(prepared=[one, bad])
        producer.commit(prepared=[one])
    assert values(store) == [b"a"]


def test_a_participant_goes_on_once_that_is_decided(store: AnyStore) -> None:
    with store.producer(transactional_id="p", transaction_coordinator="c") as producer:
        for number in range(3):
            tx = producer.begin()
            tx.send("out", b"%d" % number)
            prepared = producer.prepare()
            assert prepared is not None
            assert tx.prepare() == prepared
            for call in (
                lambda tx=tx: tx.send("out", b"late"),
                lambda: producer.commit(),
                lambda: producer.abort(),
                lambda: producer.begin(),
            ):
                with pytest.raises(TransactionStateError, match="prepared"):
                    call()
            with driver(store) as deciding:
                deciding.begin()
                if number == 1:
                    deciding.abort()
                else:
                    deciding.commit(prepared=[prepared])
    assert values(store) == [b"0", b"2"]


def test_what_cannot_be_prepared(store: AnyStore) -> None:
    with store.producer(transactional_id="p", transaction_coordinator="c") as producer:
        with producer.transaction() as tx:
            assert tx.prepare() is None
        with pytest.raises(TransactionStateError, match="is its coordinator"), producer.transaction() as tx:
            tx.send("out", b"x")
        with producer.transaction() as tx:
            tx.send("out", b"y")
            tx.abort()
    with store.producer(transactional_id="x") as producer:
        producer.begin()
        producer.send("out", b"z")
        with pytest.raises(TransactionStateError, match="names no coordinator"):
            producer.prepare()
        producer.abort()
    assert values(store) == []
    written = values(store, "read_uncommitted")
    assert [value for value in written if value != b"y"] == [b"x", b"z"]  # "y" may have left before the abort


def test_an_administrator_ends_it(store: AnyStore) -> None:
    with store.producer(transactional_id="p", transaction_coordinator="c") as producer:
        producer.begin()
        producer.send("out", b"x")
        prepared = producer.prepare()
        assert store.admin.abort_transaction("p").state == "COMPLETE_ABORT"
        producer.begin()
        producer.abort()
    assert prepared is not None
    with driver(store) as deciding:
        deciding.begin()
        with pytest.raises(TransactionStateError, match=r"was aborted|fenced"):
            deciding.commit(prepared=[prepared])
        deciding.abort()


def test_arguments_that_cannot_be(store: AnyStore) -> None:
    for bad in ({"transaction_coordinator": "c"}, {"keep_prepared": True}):
        with pytest.raises(InvalidArgumentError, match="without a transactional id"):
            store.producer(**bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="keep_prepared"):
        store.producer(transactional_id="c", keep_prepared=1)  # type: ignore[arg-type]
    for name in ("", "x" * 250, 5):
        with pytest.raises(InvalidTransactionIdError):
            store.producer(transactional_id="p", transaction_coordinator=name)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="its own coordinator"):
        store.producer(transactional_id="p", transaction_coordinator="p")
    with driver(store) as producer:
        for given in ("p", 3, [("p", 1, 0)], [None], [PreparedTransaction("p", -1, 0)]):
            producer.begin()
            with pytest.raises(InvalidArgumentError):
                producer.commit(prepared=given)  # type: ignore[arg-type]
            producer.abort()


def test_a_reopened_participant_was_aborted(store: AnyStore) -> None:
    with store.producer(transactional_id="p", transaction_coordinator="c") as producer:
        producer.begin()
        producer.send("out", b"x")
        producer.prepare()
        with store.producer(transactional_id="p", transaction_coordinator="c"):
            assert state_of(store, "p") == "EMPTY"
        with pytest.raises((TransactionAbortedError, Exception), match=r"newer producer|opened again"):
            producer.begin()


def test_a_commit_that_never_arrived_is_made_again_with_the_same(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = written(store, "p1", b"a")
    with driver(store) as producer:
        producer.begin()
        assert producer._transactions is not None
        lease = producer._transactions.lease
        end = lease.end

        def lost(**named: Any) -> None:
            monkeypatch.setattr(lease, "end", end)
            raise OutcomeUnknownError("the call was lost")

        monkeypatch.setattr(lease, "end", lost)
        with pytest.raises(OutcomeUnknownError):
            producer.commit(prepared=[one])
        producer.commit()
    assert values(store) == [b"a"]
