"""Idempotent and named producers over the embedded store: what its logs remember, also after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.api.records import FetchRequest, ProduceItem
from logstore.errors import ProducerBusyError, TopicLockedError
from logstore.format.batch import BatchHeader, encode_batch, read_header
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from tests.client.records import values_of

RECORDS = 120


def rows(first: int, end: int) -> list[tuple[None, bytes]]:
    return [(None, b"%d" % number) for number in range(first, end)]


def test_a_name_goes_on_after_a_restart(tmp_path: Path) -> None:
    for start in range(0, 50, 10):
        with logstore.open(tmp_path / "s") as store:
            if not start:
                store.create_topic("t", partitions=2)
            with store.producer(name="import", batch_bytes=200) as producer:
                assert producer.last_sequence("t", 0) == start
                assert producer.last_sequence("t", 1) == start // 2
                producer.send_many("t", rows(start, start + 10), partition=0)
                producer.send_many("t", rows(start // 2, start // 2 + 5), partition=1).result()
    with logstore.open(tmp_path / "s") as store:
        assert values_of(store.backend, "t", 0) == [b"%d" % number for number in range(50)]
        assert values_of(store.backend, "t", 1) == [b"%d" % number for number in range(25)]


def test_a_name_goes_on_after_a_power_loss_at_any_call() -> None:
    """Importers that die anywhere leave a prefix of the input, and the next one adds the rest."""
    deaths = 0
    for call in range(1, 400, 7):
        fs = MemoryFileSystem()
        with LogStore("/s", fs=fs, threads=False) as store:
            store.create_topic("t", config={"segment.bytes": "2048"})
        store = LogStore("/s", fs=fs, threads=False)
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        acknowledged, died = import_until_crash(store)
        for survivor in fs.crash_states(2):
            with LogStore("/s", fs=survivor, threads=False) as again:
                with again.producer(name="import") as producer:
                    start = producer.last_sequence("t", 0)
                    assert start >= acknowledged
                    producer.send_many("t", rows(start, RECORDS), partition=0).result()
                assert values_of(again.backend, "t") == [b"%d" % number for number in range(RECORDS)]
        if not died:
            break
        deaths += 1
    else:
        raise AssertionError("the import never came to its end")
    assert deaths > 5


def import_until_crash(store: LogStore) -> tuple[int, bool]:
    """How many records of the import were acknowledged before the power went; whether it did."""
    acknowledged, producer = 0, None
    try:
        producer = store.producer(name="import", linger_ms=60_000)  # flights are the caller's, in its thread
        for start in range(producer.last_sequence("t", 0), RECORDS, 8):
            producer.send_many("t", rows(start, start + 8), partition=0).result()
            acknowledged = start + 8
        return acknowledged, False
    except SimulatedCrash:
        return acknowledged, True
    finally:
        store.abandon()
        if producer is not None:
            producer._sender.stop()
            producer._sender.join()


def test_two_producers_of_one_store_are_told_apart(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")
        with store.producer() as one, store.producer() as two, store.producer(name="n") as three:
            for number in range(12):
                (one, two, three)[number % 3].send("t", b"%d" % number).result()
            assert three.last_sequence("t", 0) == 4
        found = [(one.producer_id, one.base_sequence) for one in batch_headers(store)]
    ids = [producer_id for producer_id, _ in found[:3]]
    assert len(set(ids)) == 3
    assert found == [(ids[number % 3], number // 3) for number in range(12)]


def test_a_repeated_batch_is_answered_with_its_first_place(tmp_path: Path) -> None:
    """What a lost answer leads to: the very same bytes once more."""
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")
        backend = store.backend
        lease = backend.init_producer(None)
        items = [
            ProduceItem(
                "t",
                0,
                encode_batch(
                    rows(number, number + 1),
                    now_ms=1,
                    producer_id=lease.producer_id,
                    producer_epoch=0,
                    base_sequence=number,
                ),
            )
            for number in range(3)
        ]
        for item in (*items, *items):
            (result,) = backend.produce([item], "all", 10)
            assert (result.error, result.base_offset) == (None, items.index(item))
        assert values_of(backend, "t") == [b"0", b"1", b"2"]


def test_a_topic_made_anew_is_counted_anew(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s") as store, store.producer(name="n") as producer:
        for _ in range(2):
            store.create_topic("t")
            producer.send_many("t", rows(0, 5)).result()
            assert producer.last_sequence("t", 0) == 5
            store.delete_topic("t")


def test_a_name_outlives_rolls_and_deleted_records(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t", config={"segment.bytes": "4096"})
        with store.producer(name="n", batch_bytes=300) as producer:
            producer.send_many("t", rows(0, 2000)).result()
        store.delete_records("t", 1990)
    with logstore.open(tmp_path / "s") as store, store.producer(name="n") as producer:
        assert producer.last_sequence("t", 0) == 2000
        producer.send("t", b"2000").result()
        assert producer.last_sequence("t", 0) == 2001


def test_counting_takes_the_topic(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s") as store, logstore.open(tmp_path / "s", lock_timeout_s=0.01) as other:
        store.create_topic("t")
        store.pin("t")
        with other.producer(name="n") as producer:
            with pytest.raises(TopicLockedError):
                producer.last_sequence("t", 0)
            with pytest.raises(ProducerBusyError):
                store.producer(name="n")


def batch_headers(store: LogStore) -> list[BatchHeader]:
    request = FetchRequest("t", 0, 0, -1, 1 << 20)
    (found,) = store.backend.fetch(
        [request], isolation="read_uncommitted", min_bytes=1, max_bytes=1 << 20, max_wait_s=0
    )
    headers, at = [], 0
    while at < len(found.batches):
        headers.append(read_header(found.batches, at))
        at += headers[-1].size
    return headers
