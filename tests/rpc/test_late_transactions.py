"""Calls of a transaction that come late or twice: they never touch the next one; the same end gives the same answer.

A broker may still have a call of a connection that its client has given up, and made again. Each call is repeated here
at each moment of the next transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

import logstore
from logstore.errors import LogStoreError, TransactionStateError, TransactionTimedOutError
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from rpc.client.store import RemoteStore
from rpc.client.transactions import RemoteTransactionLease
from tests.rpc.served import Served

GROUP = "g"


@pytest.fixture
def served() -> Iterator[Served]:
    with Served(":memory:") as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[RemoteStore]:
    with served.connect() as client:
        client.create_topic("t", 3)
        client.create_topic("source", 1)
        with client.producer() as producer:
            producer.send_many("source", [(None, b"v")] * 20)
        yield client


class Recorded:
    """A producer whose lease's calls are noted as (method, request), so that they can be made again."""

    def __init__(
        self, client: RemoteStore, monkeypatch: pytest.MonkeyPatch, timeout_ms: int = 60_000
    ) -> None:
        self.calls: list[Callable[[], object]] = []
        original = RemoteTransactionLease._call

        def call(lease: RemoteTransactionLease, method: str, request: object, **given: bool) -> object:
            if self.noting:
                copied = type(request)()
                copied.CopyFrom(request)  # type: ignore[attr-defined]
                self.calls.append(lambda: original(lease, method, copied))  # type: ignore[arg-type]
            return original(lease, method, request, **given)  # type: ignore[arg-type]

        monkeypatch.setattr(RemoteTransactionLease, "_call", call)
        self.noting = True
        self.producer = client.producer(transactional_id="tx", transaction_timeout_ms=timeout_ms)
        self.client = client

    def transaction(self, name: str, offset: int, *, commit: bool, between: Callable[[], None]) -> None:
        """Records to three partitions and an offset, with something happening between any two steps."""
        transaction = self.producer.begin()
        between()
        for partition in range(3):
            self.producer.send("t", f"{name}-{partition}".encode(), partition=partition).result(30)
            between()
        transaction.commit_offsets(GROUP, {TopicPartition("source", 0): OffsetAndMetadata(offset)})
        between()
        self.producer.commit() if commit else self.producer.abort()
        between()


def values(client: RemoteStore) -> set[bytes]:
    with client.consumer("t", until_end=True) as consumer:
        return {record.value or b"" for record in consumer}


def whole(name: str) -> set[bytes]:
    return {f"{name}-{partition}".encode() for partition in range(3)}


@pytest.mark.parametrize("first", [True, False], ids=["commit first", "abort first"])
@pytest.mark.parametrize("second", [True, False], ids=["then commit", "then abort"])
def test_late_calls_do_not_touch_the_next_transaction(
    client: RemoteStore, monkeypatch: pytest.MonkeyPatch, first: bool, second: bool
) -> None:
    run = Recorded(client, monkeypatch)
    run.transaction("one", 5, commit=first, between=lambda: None)
    run.noting = False
    assert len(run.calls) >= 6

    def repeat() -> None:
        for call in run.calls:
            with contextlib.suppress(TransactionStateError):
                call()

    run.transaction("two", 9, commit=second, between=repeat)
    run.transaction("three", 12, commit=True, between=repeat)
    run.producer.close()
    expected = whole("three") | (whole("one") if first else set()) | (whole("two") if second else set())
    assert values(client) == expected
    assert client.committed_offsets(GROUP)[TopicPartition("source", 0)].offset == 12
    assert client.admin.find_hanging() == []


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_same_end_again_gives_the_same_answer_and_the_other_one_is_refused(
    client: RemoteStore, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    run = Recorded(client, monkeypatch)
    run.transaction("one", 5, commit=commit, between=lambda: None)
    end = run.calls[-1]
    run.noting = False
    end()
    lease = run.producer._transactions.lease  # type: ignore[union-attr]
    assert isinstance(lease, RemoteTransactionLease)
    lease.epoch -= 1  # as a client that has not heard the answer
    lease.end(commit=commit)
    lease.epoch -= 1
    with pytest.raises(TransactionStateError, match="already"):
        lease.end(commit=not commit)
    lease.end(commit=commit)
    run.transaction("two", 9, commit=True, between=lambda: None)
    run.producer.close()
    assert values(client) == whole("two") | (whole("one") if commit else set())


def test_a_late_beginning_does_not_hide_that_the_transaction_timed_out(
    served: Served, client: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be committed without a word, and without its records."""
    run = Recorded(client, monkeypatch)
    transaction = run.producer.begin()
    begin = run.calls[-1]
    run.noting = False
    transaction.send("t", b"lost", partition=0).result(30)
    (held,) = served.store.backend.transactions.manager.leases()
    with served.store.backend.transactions.manager.guard("tx"):
        held.abort_for(TransactionTimedOutError("the transaction of 'tx' took longer than 1 ms"))
    with pytest.raises(TransactionStateError):
        begin()
    with pytest.raises(TransactionTimedOutError):
        transaction.commit()
    transaction.abort()
    with run.producer.transaction() as transaction:
        transaction.send("t", b"kept", partition=0)
    run.producer.close()
    assert values(client) == {b"kept"}


def test_a_transaction_that_was_ended_elsewhere_takes_nothing_more(
    served: Served, client: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next partition would otherwise begin another transaction, under the next epoch and without the rest."""
    run = Recorded(client, monkeypatch)
    transaction = run.producer.begin()
    transaction.send("t", b"lost-0", partition=0).result(30)
    (held,) = served.store.backend.transactions.manager.leases()
    held.end(commit=False)  # as a call that came late did, before calls said what they mean
    with pytest.raises(LogStoreError):
        transaction.send("t", b"lost-1", partition=1).result(30)
    with pytest.raises(LogStoreError):
        transaction.commit()
    transaction.abort()
    with run.producer.transaction() as transaction:
        transaction.send("t", b"kept", partition=1)
    run.producer.close()
    assert values(client) == {b"kept"}
    assert client.admin.find_hanging() == []


def test_an_embedded_lease_checks_in_the_same_way() -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("t")
        lease = store.backend.init_transactions("tx", 60_000)
        late = TransactionalWriter(lease.producer_id, lease.epoch)
        lease.begin(late)
        lease.add_partitions([TopicPartition("t", 0)], writer=late)
        lease.end(commit=False, writer=late)
        lease.end(commit=False, writer=late)
        for call in (
            lambda: lease.begin(late),
            lambda: lease.add_partitions([TopicPartition("t", 0)], writer=late),
            lambda: lease.send_offsets(GROUP, {TopicPartition("t", 0): OffsetAndMetadata(1)}, None, late),
            lambda: lease.end(commit=True, writer=late),
        ):
            with pytest.raises(TransactionStateError):
                call()
        lease.begin(TransactionalWriter(lease.producer_id, lease.epoch))
        lease.release()
