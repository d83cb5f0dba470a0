"""The data plane offers what ``store.partition()`` does: both are asked, and answer alike."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import logstore
from logstore.api.backend import Backend
from logstore.errors import (
    InvalidArgumentError,
    OffsetMismatchError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
)
from logstore.store import LogStore
from logstore.types import Isolation
from tests.client.plane_partition import NOW_MS, PlanePartition

BOTH: list[Isolation] = ["read_committed", "read_uncommitted"]


@pytest.fixture
def store() -> Iterator[LogStore]:
    """A partition with compacted gaps, markers, aborted records and an open transaction at its end."""
    chance = random.Random(5)
    with logstore.open(":memory:") as store:
        store.create_topic("t", config={"cleanup.policy": "compact,delete", "segment.bytes": "4096"})
        with store.producer(batch_bytes=500) as producer:
            for _ in range(400):
                producer.send("t", bytes(chance.randrange(60)), key=b"k%d" % chance.randrange(30))
        with store.producer(transactional_id="x") as producer:
            for number in range(60):
                tx = producer.begin()
                tx.send_many("t", [(b"k%d" % (number % 40), b"%d" % number)] * chance.randrange(1, 5))
                producer.abort() if chance.random() < 0.5 else producer.commit()
        store.admin.compact("t", roll=True)
        with store.producer(batch_bytes=300) as producer:
            producer.send_many("t", [(b"n%d" % number, b"new") for number in range(50)])
        store.delete_records("t", 17)
        with store.producer(transactional_id="y") as producer:
            tx = producer.begin()
            tx.send("t", b"open", key=b"o").result(timeout_s=60)
            yield store
            producer.abort()


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("reverse", [False, True])
def test_records_both_ways(store: LogStore, isolation: Isolation, reverse: bool) -> None:
    log, plane = store.partition("t", 0), PlanePartition(store.backend, "t", 0)
    end = log.high_watermark
    for start, stop in ((17, end), (17, 18), (300, 420), (400, 400), (end - 1, end), (end - 40, end - 3)):
        want = list(log.records(start, stop, isolation=isolation, reverse=reverse))
        assert list(plane.records(start, stop, isolation=isolation, reverse=reverse)) == want
    assert len(list(plane.records(17, end, isolation=isolation, reverse=reverse))) > 50


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("count", [1, 3, 51, 60, 10_000])
def test_the_last_records(store: LogStore, isolation: Isolation, count: int) -> None:
    every = list(store.partition("t", 0).records(17, isolation=isolation))
    assert PlanePartition(store.backend, "t", 0).last(count, isolation=isolation) == every[-count:]


def test_offsets_times_and_description(store: LogStore) -> None:
    log, plane = store.partition("t", 0), PlanePartition(store.backend, "t", 0)
    assert plane.describe() == log.describe()
    assert plane.describe().log_start_offset == 17
    assert plane.describe().last_stable_offset < plane.describe().log_end_offset
    for record in (*plane.last(3), next(plane.records(17, 400))):
        assert plane.offset_for_timestamp(record.timestamp_ms) == log.offset_for_timestamp(
            record.timestamp_ms
        )
    assert plane.offset_for_timestamp(2**60) is None
    with pytest.raises(UnknownPartitionError):
        PlanePartition(store.backend, "t", 1).describe()


def test_reverse_from_outside_the_log(store: LogStore) -> None:
    plane = PlanePartition(store.backend, "t", 0)
    behind = plane.fetch(2**40, "read_committed", reverse=True)
    assert behind.next_offset < behind.last_stable_offset  # from the end that it may see
    front = plane.fetch(17, "read_committed", reverse=True)
    assert (bytes(front.batches), front.next_offset) == (b"", 17)
    with pytest.raises(InvalidArgumentError):
        plane.fetch(-1, "read_committed", reverse=True)
    with pytest.raises(OffsetOutOfRangeError):
        plane.fetch(3, "read_committed")


def test_an_append_that_expects_an_end(backend: Backend) -> None:
    plane = PlanePartition(backend, "events", 0)
    assert plane.append([(None, b"a"), (None, b"b")], expected_offset=0) == 0
    assert plane.append([(None, b"c")], expected_offset=2) == 2
    for wrong in (0, 2, 4):
        with pytest.raises(OffsetMismatchError, match=r"ends at.* 3") as caught:
            plane.append([(None, b"d")], expected_offset=wrong)
        assert caught.value.end_offset == 3
    assert plane.append([(None, b"d")]) == 3
    assert [record.value for record in plane.records(0, 4)] == [b"a", b"b", b"c", b"d"]
    assert [record.value for record in plane.records(1, 3, reverse=True)] == [b"c", b"b"]
    assert [record.value for record in plane.last(2)] == [b"c", b"d"]
    assert plane.describe().log_end_offset == 4
    assert plane.offset_for_timestamp(NOW_MS) == 0


def test_a_conditional_batch_among_others_is_in_their_order() -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("t", partitions=2)
        plane = store.backend
        one = PlanePartition(plane, "t", 0)
        item = one.append([(None, b"a")])
        assert item == 0
        from logstore.api.records import ProduceItem
        from logstore.format.batch import encode_batch

        batch = encode_batch([(None, b"x")], now_ms=NOW_MS)
        results = plane.produce(
            [
                ProduceItem("t", 0, batch, expected_offset=1),
                ProduceItem("t", 0, batch, expected_offset=7),
                ProduceItem("t", 0, batch),  # behind the one that failed: not tried
                ProduceItem("t", 1, batch, expected_offset=0),
            ],
            "all",
            30,
        )
        assert [result.base_offset for result in results] == [1, -1, -1, 0]
        assert isinstance(results[1].error, OffsetMismatchError)
        assert results[2].error is results[1].error
        assert store.partition("t", 0).high_watermark == 2
        assert isinstance(
            plane.produce([ProduceItem("t", 1, batch, expected_offset=-1)], "all", 5)[0].error,
            InvalidArgumentError,
        )
