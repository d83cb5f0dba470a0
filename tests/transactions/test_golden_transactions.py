"""``__transaction_state`` as a real broker left it: every record is understood, and says what its partitions say."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.format.batch import decode_batches, iter_headers
from logstore.log.producers.producer_replay import ProducerReplay
from logstore.log.producers.producer_state import ProducerStates
from logstore.transactions.coordinator import TransactionCoordinator
from logstore.transactions.coordinator import TransactionStatus as Status
from logstore.transactions.transaction_records import decode_key, decode_value
from logstore.types import TopicPartition
from tests.golden_broker import KINDS, unpack
from tests.transactions.test_coordinator_machine import FOLLOWS
from tests.transactions.test_transaction_records import flexible


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(request.param, tmp_path)


def test_a_brokers_log_is_replayed(broker: Path) -> None:
    machine = TransactionCoordinator()
    records = 0
    for path in sorted(broker.glob("__transaction_state-*/*.log")):
        for record in decode_batches(path.read_bytes(), "__transaction_state", 0):
            assert record.key is not None
            assert record.value is not None
            name = decode_key(record.key)
            assert name is not None
            state = decode_value(name, record.value)
            assert record.value.startswith(flexible(state, b"")), (
                "all fields, up to the tagged ones at the end"
            )
            before = machine.find(name)
            assert state.status in FOLLOWS[None if before is None else before.status]
            machine.replay(record.key, record.value)
            records += 1
    assert records > 100
    assert machine.ignored_records == 0


def test_what_is_in_doubt_is_open_in_the_partitions(broker: Path) -> None:
    in_doubt = replayed(broker).in_doubt()
    for state in in_doubt:
        assert state.status is Status.ONGOING
        assert state.places == (TopicPartition("txn", 0),)
    assert in_doubt
    open_there = producers_of(broker / "txn-0").open_transactions()
    assert {state.producer_id for state in in_doubt} == set(open_there)


def test_the_producers_epochs_are_those_of_the_partitions(broker: Path) -> None:
    """KIP-890 in a broker's own hand: the epoch on record is that of the last marker."""
    machine = replayed(broker)
    newest: dict[int, int] = {}
    for partition in (0, 1):
        for entry in producers_of(broker / f"txn-{partition}"):
            newest[entry.producer_id] = max(entry.epoch, newest.get(entry.producer_id, -1))
    for name in ("one", "two"):
        state = machine.describe(name)
        assert state.status is Status.COMPLETE_COMMIT
        assert newest[state.producer_id] == state.epoch == 6


def replayed(broker: Path) -> TransactionCoordinator:
    machine = TransactionCoordinator()
    for path in sorted(broker.glob("__transaction_state-*/*.log")):
        for record in decode_batches(path.read_bytes(), "__transaction_state", 0):
            machine.replay(record.key, record.value)
    return machine


def producers_of(folder: Path) -> ProducerStates:
    """By the partition's own batches."""
    replay = ProducerReplay(ProducerStates(), 0)
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            if header.producer_id >= 0:
                replay.take(0, header, data[position : position + header.size])
    return replay.states
