"""`logstore transaction`: list, describe, abort, find-hanging."""

from __future__ import annotations

import pytest

import logstore
from logstore.format.batch import encode_batch
from logstore.types import TopicPartition
from tests.cli.conftest import Shell


@pytest.fixture
def begun(filled: Shell) -> Shell:
    """Transactional id "done" has committed one record to "t", "open" died with one under way."""
    with logstore.open(filled.store) as store:
        with store.producer(transactional_id="done") as producer, producer.transaction() as tx:
            tx.send("t", b"counts", partition=0)
        lease = store.backend.init_transactions("open", 60_000)
        lease.begin()
        lease.add_partitions([TopicPartition("t", 1)])
        batch = encode_batch(
            [(None, b"lost")],
            now_ms=1_700_000_000_000,
            producer_id=lease.producer_id,
            producer_epoch=lease.epoch,
            base_sequence=0,
            transactional=True,
        )
        store.partition("t", 1).append_batch(batch)
        store.backend.transactions.manager.forget(lease)  # type: ignore[arg-type]
        lease.id_lock.release()  # type: ignore[attr-defined]
    return filled


def test_list_and_describe(begun: Shell) -> None:
    found = begun.json("transaction", "list")
    assert [(one["transactional_id"], one["state"], one["holder"]) for one in found] == [
        ("done", "COMPLETE_COMMIT", None),
        ("open", "ONGOING", None),
    ]
    assert found[1]["partitions"] == [{"topic": "t", "partition": 1}]
    table = begun.run("transaction", "list").stdout.splitlines()
    assert table[0].split()[:2] == ["ID", "STATE"]
    assert table[2].split()[:2] == ["open", "ONGOING"]
    text = begun.run("transaction", "describe", "open").stdout
    assert "state     ONGOING\n" in text
    assert "open by   nobody\n" in text
    assert begun.json("transaction", "describe", "done")["timeout_ms"] == 60_000
    assert "no transactional id 'other'" in begun.run("transaction", "describe", "other", code=1).stderr


def test_abort(begun: Shell) -> None:
    assert "'open' is COMPLETE_ABORT" in begun.run("transaction", "abort", "open").stderr
    assert begun.json("transaction", "abort", "done")["state"] == "COMPLETE_COMMIT"
    assert "no transactional id" in begun.run("transaction", "abort", "other", code=1).stderr
    with logstore.open(begun.store, mode="r") as store:
        values = [record.value for record in store.partition("t", 1).records(0)]
        assert b"lost" not in values


def test_what_is_prepared_says_who_decides(begun: Shell) -> None:
    with (
        logstore.open(begun.store) as store,
        store.producer(transactional_id="part", transaction_coordinator="whole") as producer,
    ):
        producer.begin()
        producer.send("t", b"waits", partition=2)
        assert producer.prepare() is not None
    (found,) = [one for one in begun.json("transaction", "list") if one["transactional_id"] == "part"]
    assert (found["state"], found["coordinator"], found["holder"]) == ("PREPARED", "whole", None)
    table = begun.run("transaction", "list").stdout
    assert "PREPARED" in table
    assert "whole" in table
    assert "decided   by whole\n" in begun.run("transaction", "describe", "part").stdout
    said = begun.run("transaction", "abort", "part").stderr
    assert "'part' is COMPLETE_ABORT" in said
    assert "a commit of 'whole' with it will be refused" in said


def test_what_hangs_is_shown_and_repaired(begun: Shell) -> None:
    begun.run("transaction", "abort", "open")
    assert begun.json("transaction", "find-hanging") == {"hanging": [], "repaired": False}
    with logstore.open(begun.store) as store:
        for producer_id in (70_001, 70_002):
            batch = encode_batch(
                [(None, b"stray")],
                now_ms=1_700_000_000_000,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            store.partition("t", 2).append_batch(batch)
        store.partition("t", 2).append([(None, b"behind")])
    shown = begun.run("transaction", "find-hanging")
    assert "70001" in shown.stdout
    assert "--repair" in shown.stderr
    repaired = begun.json("transaction", "find-hanging", "--repair")
    assert [one["producer_id"] for one in repaired["hanging"]] == [70_001, 70_002]
    assert begun.json("transaction", "find-hanging")["hanging"] == []
    with logstore.open(begun.store, mode="r") as store:
        values = [record.value for record in store.partition("t", 2).records(0)]
        assert (b"behind" in values, b"stray" in values) == (True, False)
