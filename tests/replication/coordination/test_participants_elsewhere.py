"""Participants whose coordinator's id lies in another partition than their own: opened, committed, fenced, aborted."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.api.transactions import PreparedTransaction
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.errors import LogStoreError, ProducerFencedError, UnknownTransactionError
from replication.coordination.key_partition import partition_of
from tests.replication.cluster_nodes import cluster, until
from tests.replication.coordination.test_cluster_coordinators import PLACES, Client, batch_of, with_topics

DECIDER = "whole"


def names(count: int, *, beside: bool) -> list[str]:
    """Ids of the decider's partition (``beside``), or of others."""
    home = partition_of(DECIDER, 12)
    found = (f"part-{number}" for number in range(1_000))
    return [name for name in found if (partition_of(name, 12) == home) is beside][:count]


def opened(client: Client, name: str, coordinator: str | None = DECIDER) -> CoordinatedLease:
    return client.coordinator(lambda engine: engine.init_transactions(name, 60_000, coordinator=coordinator))


def written(client: Client, lease: CoordinatedLease, number: int, value: bytes) -> None:
    lease.begin()
    lease.add_partitions([PLACES[number]])
    client.produce(PLACES[number], batch_of(lease, value))


def test_they_are_decided_by_one_record_of_another_partition(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        ids = [*names(1, beside=True), *names(2, beside=False)]
        prepared: list[PreparedTransaction] = []
        for number, name in enumerate(ids):
            lease = opened(client, name)
            written(client, lease, number, name.encode())
            handle = lease.prepare()
            assert handle is not None
            prepared.append(handle)
        summaries = client.coordinator(lambda engine: engine.list_transactions())
        assert [one.transactional_id for one in summaries] == sorted(ids)
        assert {one.state for one in summaries} == {"PREPARED"}
        decider = client.coordinator(
            lambda engine: engine.init_transactions(DECIDER, 60_000, keep_prepared=True)
        )
        decider.begin()
        decider.end(commit=True, prepared=prepared[:2])
        until(lambda: client.committed("out", 3) == sorted(name.encode() for name in ids[:2]))
        assert client.coordinator(lambda engine: engine.find_hanging()) == []


def test_an_administrator_aborts_one_by_its_name(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        (name,) = names(1, beside=False)
        lease = opened(client, name)
        written(client, lease, 0, b"never")
        lease.prepare()
        summary = client.coordinator(lambda engine: engine.abort_transaction(name))
        assert (summary.transactional_id, summary.coordinator) == (name, DECIDER)
        assert summary.state in ("PREPARE_ABORT", "COMPLETE_ABORT")
        with pytest.raises(UnknownTransactionError):
            client.coordinator(lambda engine: engine.abort_transaction("nobody"))


@pytest.mark.parametrize(("first", "then"), [(DECIDER, None), (None, DECIDER), (DECIDER, "other")])
def test_an_opening_fences_the_one_before_wherever_that_is(
    tmp_path: Path, first: str | None, then: str | None
) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        assert partition_of("other", 12) != partition_of(DECIDER, 12)
        (name,) = names(1, beside=False)
        older = opened(client, name, first)
        written(client, older, 0, b"never")
        newer = opened(client, name, then)
        for late in (
            lambda: older.add_partitions([PLACES[1]]),
            older.prepare,
            lambda: older.end(commit=True),
        ):
            with pytest.raises((ProducerFencedError, UnknownTransactionError)):
                late()
        assert newer.producer_id != older.producer_id
        (summary,) = client.coordinator(lambda engine: engine.list_transactions())
        assert (summary.coordinator, summary.producer_id) == (then, newer.producer_id)
        back = opened(client, name, first)
        with pytest.raises((ProducerFencedError, UnknownTransactionError)):
            written(client, newer, 1, b"never")
        if first is None:
            written(client, back, 2, b"seen")
            back.end(commit=True)
            until(lambda: client.committed("out", 3) == [b"seen"])
        else:
            assert client.committed("out", 3) == []


def test_they_outlive_both_coordinators(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        (name,) = names(1, beside=False)
        lease = opened(client, name)
        written(client, lease, 0, b"seen")
        handle = lease.prepare()
        assert handle is not None
        for gone in (client.node_of_id(DECIDER), client.node_of_id(name)):
            if gone in three.nodes and len(three.nodes) == 3:
                three.stop(gone)

        def commit(engine: object) -> None:
            decider = engine.init_transactions(DECIDER, 60_000, keep_prepared=True)  # type: ignore[attr-defined]
            decider.begin()
            decider.end(commit=True, prepared=[handle])

        client.coordinator(commit)
        until(lambda: client.committed("out", 3) == [b"seen"])
        until(lambda: _is_complete(client, name))


def _is_complete(client: Client, name: str) -> bool:
    try:
        summaries = client.coordinator(lambda engine: engine.list_transactions())
    except LogStoreError:
        return False
    return {one.transactional_id: one.state for one in summaries}[name] == "COMPLETE_COMMIT"
