"""Prepared transactions at a broker: what ends with a client, what outlives it, and the bound of the broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import PreparedTransaction
from logstore.errors import LogStoreError
from logstore.types import TopicPartition
from rpc.client.store import RemoteStore
from rpc.testing.broker import BrokerForTests
from tests.beside import Beside
from tests.rpc.served import Served

PLACE = TopicPartition("t", 0)


def until(met: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def state_of(store: RemoteStore, name: str) -> tuple[str, bool]:
    found = store.admin.describe_transaction(name)
    return found.state, found.holder is not None


def test_a_lease_that_ends_leaves_what_is_prepared_and_aborts_the_rest(tmp_path: Path) -> None:
    with Served(tmp_path, lease_timeout_s=5.0) as served, served.connect() as store:
        store.admin.create_topic("t")
        leases = {}
        for name in ("prepared", "ongoing"):
            lease = store.backend.init_transactions(name, 60_000, coordinator="c")
            lease.begin()
            lease.add_partitions([PLACE])
            leases[name] = lease
        prepared = leases["prepared"].prepare()
        assert prepared is not None
        with served.connect() as silent:
            for lease in leases.values():  # as if this client had died
                lease._keeper.forget(lease._lease_id)  # type: ignore[attr-defined]
            until(lambda: state_of(silent, "ongoing") == ("COMPLETE_ABORT", False))
            until(lambda: state_of(silent, "prepared") == ("PREPARED", False))
            with silent.producer(transactional_id="c", keep_prepared=True) as producer:
                producer.begin()
                producer.commit(prepared=[prepared])
            assert state_of(silent, "prepared")[0] == "COMPLETE_COMMIT"


def written(store: RemoteStore, name: str, value: bytes) -> PreparedTransaction:
    with store.producer(transactional_id=name, transaction_coordinator="c") as producer:
        producer.begin()
        producer.send("t", value)
        prepared = producer.prepare()
    assert prepared is not None
    return prepared


def values(store: RemoteStore) -> list[bytes]:
    with store.consumer("t", isolation="read_committed", until_end=True) as consumer:
        return sorted(record.value or b"" for records in consumer.batches() for record in records)


def test_a_broker_that_is_killed_keeps_what_is_prepared(tmp_path: Path) -> None:
    broker = BrokerForTests(tmp_path / "data")
    try:
        with broker.connect() as store:
            store.admin.create_topic("t")
            one = written(store, "p1", b"a")
            broker.kill()
            broker.restart()
            assert state_of(store, "p1")[0] == "PREPARED"
            with store.producer(transactional_id="c", keep_prepared=True) as producer:
                producer.begin()
                producer.commit(prepared=[one])
            assert values(store) == [b"a"]
    finally:
        broker.close()


def test_a_broker_that_is_killed_in_the_decision_finishes_it(tmp_path: Path) -> None:
    broker = BrokerForTests(tmp_path / "data")
    try:
        with broker.connect() as store, broker.connect() as watching:
            store.admin.create_topic("t", partitions=3)
            prepared = [written(store, f"p{number}", b"%02d" % number) for number in range(20)]
            written(store, "loser", b"lost")
            failures: list[LogStoreError] = []

            def decide() -> None:
                producer = store.producer(transactional_id="c", keep_prepared=True)
                producer.begin()
                try:
                    producer.commit(prepared=prepared)
                except LogStoreError as error:
                    failures.append(error)

            broker.slow_disk(0.3)
            with Beside(decide):
                until(lambda: decision(watching) in ("PREPARE_COMMIT", "COMPLETE_COMMIT"))
                broker.kill()
                broker.restart()
            until(lambda: decision(watching) == "COMPLETE_COMMIT")
            assert values(watching) == [b"%02d" % number for number in range(20)]
            assert state_of(watching, "loser")[0] == "COMPLETE_ABORT"
    finally:
        broker.close()


def decision(store: RemoteStore) -> str:
    found = [one.state for one in store.admin.list_transactions() if one.transactional_id == "c"]
    return found[0] if found else "none"


@pytest.mark.parametrize("bound_s", [60.0, 7200.0])
def test_the_brokers_setting_bounds_the_wait(tmp_path: Path, bound_s: float) -> None:
    broker = BrokerForTests(tmp_path / "data", prepared_max_age_s=bound_s)
    try:
        with broker.connect() as store:
            store.admin.create_topic("t")
            written(store, "p1", b"a")
            broker.advance_clock(3_600_000)
            if bound_s < 3600:
                until(lambda: state_of(store, "p1")[0] == "COMPLETE_ABORT")
            else:
                with store.producer(transactional_id="x", transaction_timeout_ms=60_000) as producer:
                    producer.begin()
                    producer.send("t", b"overdue").result()
                    broker.advance_clock(120_000)
                    until(lambda: state_of(store, "x")[0] == "COMPLETE_ABORT")  # the reaper has looked
                assert state_of(store, "p1")[0] == "PREPARED"
    finally:
        broker.close()
