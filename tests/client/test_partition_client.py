"""``client.partition()`` and ``client.topic()`` answer as those of the store behind the broker do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logstore.errors import (
    CorruptBatchError,
    InvalidArgumentError,
    OffsetMismatchError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RecordTypeError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedMagicError,
)
from logstore.format.batch import encode_batch
from logstore.types import Isolation
from rpc.client.store import RemoteStore
from tests.rpc.served import Served

BOTH: list[Isolation] = ["read_committed", "read_uncommitted"]


@pytest.fixture
def served() -> Iterator[Served]:
    """A partition with gaps, markers, aborted records, a start that is not 0, and an open transaction at its end."""
    with Served(":memory:") as served:
        store = served.store
        store.create_topic("t", config={"cleanup.policy": "compact,delete", "segment.bytes": "4096"})
        with store.producer(batch_bytes=500) as producer:
            for number in range(400):
                producer.send("t", bytes(number % 60), key=b"k%d" % (number * 7 % 30))
        with store.producer(transactional_id="x") as producer:
            for number in range(40):
                tx = producer.begin()
                tx.send_many("t", [(b"k%d" % number, b"%d" % number)] * (number % 4 + 1))
                producer.abort() if number % 3 else producer.commit()
        store.admin.compact("t", roll=True)
        store.delete_records("t", 17)
        with store.producer(transactional_id="y") as producer:
            producer.begin().send("t", b"open", key=b"o").result(timeout_s=60)
            yield served
            producer.abort()


@pytest.fixture
def client(served: Served) -> Iterator[RemoteStore]:
    with served.connect() as client:
        yield client


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("reverse", [False, True])
def test_records_both_ways(served: Served, client: RemoteStore, isolation: Isolation, reverse: bool) -> None:
    ours, theirs = served.store.partition("t", 0), client.partition("t", 0)
    end = ours.high_watermark
    for start, stop in ((17, None), (17, 18), (300, 420), (400, 400), (end, None), (end - 40, end - 3)):
        wanted = list(ours.records(start, stop, isolation=isolation, reverse=reverse))
        assert list(theirs.records(start, stop, isolation=isolation, reverse=reverse)) == wanted
    assert theirs.to_arrow(17, isolation=isolation).equals(ours.to_arrow(17, isolation=isolation))
    assert theirs.to_arrow(end).num_rows == 0
    assert theirs.read(17, isolation=isolation) == ours.read(17, isolation=isolation)
    assert theirs.read(end) == b""


def test_offsets_times_and_what_is_refused(served: Served, client: RemoteStore) -> None:
    ours, theirs = served.store.partition("t", 0), client.partition("t", 0)
    assert theirs.describe() == ours.describe()
    for name in (
        "log_start_offset",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "leader_epoch",
    ):
        assert getattr(theirs, name) == getattr(ours, name)
    record = next(ours.records(17))
    assert theirs.offset_for_timestamp(record.timestamp_ms) == ours.offset_for_timestamp(record.timestamp_ms)
    assert theirs.offset_for_timestamp(2**60) is None
    for start in (3, 10_000):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            theirs.records(start)
        assert (caught.value.log_start_offset, caught.value.end_offset) == (17, ours.high_watermark)
    with pytest.raises(UnknownPartitionError):
        client.partition("t", 1)
    with pytest.raises(UnknownTopicError):
        client.partition("none", 0)
    with pytest.raises(InvalidArgumentError, match="isolation"):
        theirs.records(17, isolation="no")  # type: ignore[arg-type]


def test_appends_and_what_they_expect(client: RemoteStore) -> None:
    client.create_topic("events", config={"max.message.bytes": "2000"})
    log = client.partition("events", 0)
    first = log.append([(b"k", b"a", [("h", b"x")], 1_700_000_000_000), (None, b"b")], expected_offset=0)
    assert (first.topic, first.partition, first.offset, first.timestamp_ms) == (
        "events",
        0,
        0,
        1_700_000_000_000,
    )
    assert log.append([(None, b"c")], expected_offset=2).offset == 2
    with pytest.raises(OffsetMismatchError) as caught:
        log.append([(None, b"d")], expected_offset=2)
    assert caught.value.end_offset == 3
    assert log.append_batch(encode_batch([(None, b"e")], now_ms=7)).timestamp_ms == 7
    assert log.append([(None, b"f")], acks=0).offset == -1
    assert log.append([(None, b"g")], acks=1).offset == 5
    log.append([(None, b"h")])
    assert [record.value for record in log.records(0)] == [b"a", b"b", b"c", b"e", b"f", b"g", b"h"]
    with pytest.raises(RecordTooLargeError, match="batches of at most 2000"):
        log.append([(None, bytes(900))] * 3)
    with pytest.raises(RecordTooLargeError):
        log.append([(None, bytes(3000))])
    for wrong in ("rows", None, [b"no row"]):
        with pytest.raises(RecordTypeError):
            log.append(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError):
        log.append([])
    with pytest.raises(InvalidArgumentError, match="acks"):
        log.append([(None, b"x")], acks=2)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedMagicError):
        log.append_batch(b"no batch at all" * 10)
    damaged = bytearray(encode_batch([(None, b"e")], now_ms=7))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        log.append_batch(damaged)
    assert log.log_end_offset == 7


def test_a_topic_by_its_name(served: Served, client: RemoteStore) -> None:
    made = client.create_topic("users", 2, {"cleanup.policy": "compact"})
    assert (made.name, made.partitions, dict(made.config)) == ("users", 2, {"cleanup.policy": "compact"})
    assert made.topic_id == served.store.topic("users").topic_id
    made.partition(1).append([(b"k", b"v")])
    with made.table() as table:
        assert dict(table) == {b"k": b"v"}
    assert made.describe().partitions[1].high_watermark == 1
    with pytest.raises(UnknownTopicError):
        client.topic("none")
