"""The producer over the fake and over the embedded store: batches, partitions, errors, the end."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from logstore.api.backend import Backend
from logstore.client.partitioner import key_partitioner, murmur3_partition
from logstore.client.producer.producer import Producer
from logstore.errors import (
    BufferFullError,
    ClientClosedError,
    DeliveryTimeoutError,
    DiskFullError,
    InvalidArgumentError,
    InvalidTimestampError,
    PartitionPoisonedError,
    RecordTooLargeError,
    RecordTypeError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedCodecError,
)
from logstore.format.batch import read_header
from logstore.seams.clock import ManualClock
from logstore.types import OffsetRange
from tests.client.fake_backend import FakeBackend
from tests.client.records import all_records, until, values_of


def test_a_record_arrives_whole(backend: Backend) -> None:
    with Producer(backend) as producer:
        delivery = producer.send(
            "events", b"value", key=b"key", headers=[("h", b"v"), ("n", None)], timestamp_ms=1_700_000_000_000
        )
        where = delivery.result(timeout_s=60)
    assert where == ("events", 0, 0, 1_700_000_000_000)
    (record,) = all_records(backend, "events")
    assert (record.key, record.value, record.timestamp_ms) == (b"key", b"value", 1_700_000_000_000)
    assert record.headers == (("h", b"v"), ("n", None))


def test_null_empty_and_tombstone_are_told_apart(backend: Backend) -> None:
    with Producer(backend) as producer:
        producer.send("events", b"")
        producer.send("events", None, key=b"")
        producer.send("events", key=b"k")
        producer.send_many("events", [(None, None), (b"", b""), (b"k", None)])
    rows = [(record.key, record.value) for record in all_records(backend, "events")]
    assert rows == [(None, b""), (b"", None), (b"k", None), (None, None), (b"", b""), (b"k", None)]


def test_offsets_and_order_over_many_batches(backend: Backend) -> None:
    sent = [b"%05d" % number for number in range(3000)]
    with Producer(backend, batch_bytes=1000) as producer:
        deliveries = [producer.send("events", value) for value in sent]
        producer.flush()
        assert all(delivery.done() for delivery in deliveries)
        assert [delivery.result().offset for delivery in deliveries] == list(range(3000))
        assert producer.metrics()["records_sent_total"] == 3000
        assert producer.metrics()["buffered_bytes"] == 0
    assert values_of(backend, "events") == sent


def test_send_many_gives_ranges_and_keeps_order_per_key(backend: Backend) -> None:
    rows = [(b"key-%d" % (number % 40), b"%06d" % number) for number in range(5000)]
    with Producer(backend) as producer:
        group = producer.send_many("flights", rows)
        ranges = group.result(timeout_s=60)
        assert len(group) == 5000
        assert group.done()
    assert [row[:2] for row in ranges] == [("flights", partition) for partition in range(4)]
    assert sum(row.end_exclusive - row.start for row in ranges) == 5000
    for partition in range(4):
        got = [(record.key, record.value) for record in all_records(backend, "flights", partition)]
        assert got == [row for row in rows if murmur3_partition(row[0], 4) == partition]


def test_send_many_of_null_keys_spreads_batches(backend: Backend) -> None:
    rows = [(None, b"v" * 100)] * 4000
    with Producer(backend, batch_bytes=8000) as producer:
        ranges = producer.send_many("flights", rows).result(timeout_s=60)
    counts = [row.end_exclusive - row.start for row in ranges]
    assert sum(counts) == 4000
    assert min(counts) > 800


def test_send_and_send_many_mix_in_order(backend: Backend) -> None:
    with Producer(backend) as producer:
        producer.send("events", b"1")
        group = producer.send_many("events", [(None, b"2"), (None, b"3", None, 1_700_000_000_000)])
        producer.send("events", b"4")
        assert group.result(timeout_s=60) == [OffsetRange("events", 0, 1, 3)]
    assert values_of(backend, "events") == [b"1", b"2", b"3", b"4"]


def test_the_callers_list_stays_the_callers(backend: Backend) -> None:
    rows = [(None, b"1"), (None, b"2")]
    with Producer(backend, linger_ms=10_000) as producer:
        producer.send_many("events", rows)
        producer.send("events", b"3")
        rows.append((None, b"no"))
    assert len(rows) == 3
    assert values_of(backend, "events") == [b"1", b"2", b"3"]


def test_explicit_partition_and_callable_partitioner(backend: Backend) -> None:
    def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return len(value or b"") % partitions

    with Producer(backend, partitioner=by_length) as producer:
        assert producer.send("flights", b"abc").result(60).partition == 3
        assert producer.send("flights", b"abc", partition=1).result(60).partition == 1
        ranges = producer.send_many("flights", [(b"k", b"a"), (None, b"ab")]).result(60)
        assert [row.partition for row in ranges] == [1, 2]
        ranges = producer.send_many("flights", [(b"k", b"a"), (None, b"ab")], partition=0).result(60)
        assert ranges == [OffsetRange("flights", 0, 0, 2)]
        with pytest.raises(UnknownPartitionError, match="partitions 0 to 3"):
            producer.send("flights", b"v", partition=4)
    with (
        Producer(backend, partitioner=lambda *_: 17) as producer,
        pytest.raises(UnknownPartitionError, match="the partitioner names partition 17"),
    ):
        producer.send("flights", b"v")


@pytest.mark.parametrize("name", ["murmur3", "murmur2", "crc32"])
def test_the_topics_own_partitioner_is_obeyed(backend: Backend, name: str) -> None:
    backend.create_topic("own", 5, {"partitioner": name})
    choose = key_partitioner(name, 5)
    keys = [b"key-%d" % number for number in range(50)] + [b""]
    with Producer(backend) as producer:
        one_by_one = [producer.send("own", b"v", key=key) for key in keys]
        producer.send_many("own", [(key, b"m") for key in keys])
        producer.flush()
        assert [delivery.result().partition for delivery in one_by_one] == [choose(key) for key in keys]
    for partition in range(5):
        for record in all_records(backend, "own", partition):
            assert choose(record.key) == partition


def test_round_robin_takes_turns_record_by_record(backend: Backend) -> None:
    backend.create_topic("turns", 3, {"partitioner": "round_robin"})
    with Producer(backend, clock=ManualClock(wall_ms=0)) as producer:
        went = [producer.send("turns", b"v", key=b"same") for _ in range(7)]
        producer.flush()
        assert [delivery.result().partition for delivery in went] == [0, 1, 2, 0, 1, 2, 0]
        ranges = producer.send_many("turns", [(None, b"v")] * 6).result(60)
        assert [row.end_exclusive - row.start for row in ranges] == [2, 2, 2]


def test_null_keys_visit_all_partitions(backend: Backend) -> None:
    with Producer(backend) as producer:
        for _ in range(12):
            producer.send("flights", b"v").result(60)
    assert [len(all_records(backend, "flights", partition)) for partition in range(4)] == [3, 3, 3, 3]


def test_new_partitions_are_used_after_the_metadata_changed(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=0) as producer:
        producer.send("flights", b"v").result(60)
        fake.add_partitions("flights", 9, allow_keyed=True)
        assert producer.send("flights", b"v", partition=8).result(60).partition == 8
        keyed = [producer.send("flights", b"v", key=b"%d" % number) for number in range(100)]
        producer.flush()
        assert {delivery.result().partition for delivery in keyed} == set(range(9))


# --- what is refused at once ---


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda p: p.send("events", "text"), RecordTypeError, "the value is str"),
        (lambda p: p.send("events", b"v", key="text"), RecordTypeError, "the key is str"),
        (lambda p: p.send("events", None, key=7), RecordTypeError, "the key is int"),
        (lambda p: p.send("events", b"v", headers=[("h", "text")]), RecordTypeError, "header"),
        (lambda p: p.send("events", b"v", headers={"h": b"v"}), RecordTypeError, "headers are dict"),
        (lambda p: p.send("events", b"v", timestamp_ms="now"), RecordTypeError, "timestamp_ms is str"),
        (lambda p: p.send("events", b"v", timestamp_ms=-(2**63)), InvalidTimestampError, "outside -2"),
        (lambda p: p.send("nowhere", b"v"), UnknownTopicError, "nowhere"),
        (lambda p: p.send(7, b"v"), InvalidArgumentError, "by int"),
        (lambda p: p.send("events", b"v", partition=1), UnknownPartitionError, "partition 1"),
        (lambda p: p.send_many("events", [(b"k", b"v"), (b"k", 1)]), RecordTypeError, "row 1"),
        (lambda p: p.send_many("nowhere", []), UnknownTopicError, "nowhere"),
    ],
)
def test_bad_records_are_refused_and_harm_no_other(
    backend: Backend, call: Any, error: type[Exception], said: str
) -> None:
    with Producer(backend, linger_ms=10_000) as producer:
        before = producer.send("events", b"before")
        with pytest.raises(error, match=said):
            call(producer)
        after = producer.send("events", b"after")
        producer.flush()
        assert [before.result().offset, after.result().offset] == [0, 1]
    assert values_of(backend, "events") == [b"before", b"after"]


def test_a_record_past_the_topics_limit_names_it(backend: Backend) -> None:
    backend.create_topic("small", 1, {"max.message.bytes": "1000"})
    with Producer(backend) as producer:
        before = producer.send("small", b"before")
        with pytest.raises(RecordTooLargeError, match=r"max.message.bytes is 1000"):
            producer.send("small", b"v" * 1000)
        with pytest.raises(RecordTooLargeError, match="row 1"):
            producer.send_many("small", [(None, b"v"), (None, b"v" * 1000)])
        assert before.result(60).offset == 0
        exact = producer.send("small", b"v" * (1000 - 61 - 9))
        assert exact.result(60).offset == 1
        with pytest.raises(RecordTooLargeError):
            producer.send("small", b"v" * (1000 - 61 - 8))
    assert [len(value) for value in values_of(backend, "small")] == [6, 930]


@pytest.mark.parametrize("size", [1, 50, 300, 900])
def test_batches_never_pass_the_topics_limit(backend: Backend, size: int) -> None:
    backend.create_topic("small", 1, {"max.message.bytes": "1000"})
    with Producer(backend) as producer:
        for number in range(200):
            headers = [("h", b"x")] if number % 3 == 0 and size < 900 else None
            producer.send("small", b"v" * size, key=b"k", headers=headers, timestamp_ms=None)
        producer.send_many("small", [(b"k", b"v" * size, None, 10**12 * (n % 2)) for n in range(200)])
    assert len(values_of(backend, "small")) == 400


def test_far_apart_timestamps_do_not_outgrow_the_limit(backend: Backend) -> None:
    backend.create_topic("small", 1, {"max.message.bytes": "1000"})
    with Producer(backend, linger_ms=10_000) as producer:
        for number in range(400):
            # The first of each batch has a time of its own; those after it are a 9-byte delta away.
            producer.send("small", b"v", timestamp_ms=0 if number % 30 == 0 else None)
    assert len(values_of(backend, "small")) == 400


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_what_does_not_compress_is_sent_plain(backend: Backend, codec: str) -> None:
    backend.create_topic("small", 1, {"max.message.bytes": "1000"})
    noise = random.Random(7).randbytes(930)
    with Producer(backend, compression=codec) as producer:
        producer.send("small", noise)
        producer.send_many("small", [(None, b"v" * 500)] * 10)
    assert values_of(backend, "small") == [noise] + [b"v" * 500] * 10


def test_compression_comes_from_the_topic_or_the_caller(fake: FakeBackend) -> None:
    fake.create_topic("packed", 1, {"compression.type": "gzip"})
    with Producer(fake) as producer:
        producer.send_many("packed", [(None, b"v" * 100)] * 10)
        producer.send_many("events", [(None, b"v" * 100)] * 10)
    with Producer(fake, compression="zstd") as producer:
        producer.send_many("packed", [(None, b"v" * 100)] * 10)
    codecs = [read_header(batch).codec for batch in fake.log("packed", 0).batches]
    assert codecs == ["gzip", "zstd"]
    assert read_header(fake.log("events", 0).batches[0]).codec == "none"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"acks": 2}, InvalidArgumentError),
        ({"acks": True}, InvalidArgumentError),
        ({"acks": "1"}, InvalidArgumentError),
        ({"compression": "brotli"}, UnsupportedCodecError),
        ({"linger_ms": -1}, InvalidArgumentError),
        ({"batch_bytes": 0}, InvalidArgumentError),
        ({"buffer_bytes": 100}, InvalidArgumentError),
        ({"max_block_ms": "1"}, InvalidArgumentError),
        ({"delivery_timeout_ms": 0}, InvalidArgumentError),
        ({"linger_ms": 100, "delivery_timeout_ms": 50}, InvalidArgumentError),
        ({"name": "import", "acks": 1}, InvalidArgumentError),
        ({"idempotence": "on"}, InvalidArgumentError),
        ({"transactional_id": "tx", "acks": 1}, InvalidArgumentError),
    ],
)
def test_settings_are_checked(fake: FakeBackend, settings: dict[str, Any], error: type[Exception]) -> None:
    (name,) = list(settings)[:1]
    with pytest.raises(error, match=f"{name}|delivery_timeout_ms"):
        Producer(fake, **settings)


# --- acks, time, serializers ---


def test_acks_0_has_no_offsets(backend: Backend) -> None:
    with Producer(backend, acks=0) as producer:
        delivery = producer.send("events", b"v")
        assert delivery.result(60).offset == -1
        assert producer.send_many("events", [(None, b"w")]).result(60) == [OffsetRange("events", 0, -1, -1)]


def test_timestamps_are_those_of_the_batch_leaving(fake: FakeBackend) -> None:
    clock = ManualClock(wall_ms=1000)
    with Producer(fake, clock=clock, linger_ms=10_000) as producer:
        first = producer.send("events", b"1")
        second = producer.send("events", b"2", timestamp_ms=77)
        clock.advance(500)
        assert first.result(60).timestamp_ms == 1500
        assert second.result(60).timestamp_ms == 77
        fake.append_time_ms = 9999
        stamped = producer.send("events", b"3", timestamp_ms=77)
        assert stamped.result(60).timestamp_ms == 9999
    assert [record.timestamp_ms for record in all_records(fake, "events")] == [1500, 77, 9999]


def test_serializers(backend: Backend) -> None:
    def number(value: int | None) -> bytes | None:
        return None if value is None else b"%d" % value

    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    producer: Producer[int, str]
    with Producer(backend, key_serializer=number, value_serializer=text) as producer:
        producer.send("events", "one", key=1)
        producer.send("events", None, key=2)
        producer.send_many("events", [(3, "three"), (None, "four", [("h", b"v")])])
    rows = [(record.key, record.value) for record in all_records(backend, "events")]
    assert rows == [(b"1", b"one"), (b"2", None), (b"3", b"three"), (None, b"four")]
    broken: Producer[int, str]
    with Producer(backend, value_serializer=lambda value: 5) as broken, pytest.raises(RecordTypeError):  # type: ignore[arg-type, return-value]
        broken.send("events", "x")


# --- faults ---


def test_order_survives_retries_on_all_partitions(fake: FakeBackend) -> None:
    fake.faults.extend([DiskFullError("full"), None, lambda items: DiskFullError("full"), None, None] * 20)
    rows = [(b"key-%d" % (number % 30), b"%05d" % number) for number in range(2000)]
    with Producer(fake, batch_bytes=500, linger_ms=0) as producer:
        for number in range(0, 2000, 100):
            producer.send_many("flights", rows[number : number + 50])
            for key, value in rows[number + 50 : number + 100]:
                producer.send("flights", value, key=key)
        producer.flush(timeout_s=60)
        assert producer.metrics()["retries_total"] > 0
        assert producer.metrics()["records_failed_total"] == 0
    for partition in range(4):
        got = [(record.key, record.value) for record in all_records(fake, "flights", partition)]
        assert got == [row for row in rows if murmur3_partition(row[0], 4) == partition]


def test_a_fatal_error_fails_its_batch_alone(fake: FakeBackend) -> None:
    with Producer(fake) as producer:
        fake.faults.append(PartitionPoisonedError("disk failed"))
        lost = producer.send("events", b"lost")
        with pytest.raises(PartitionPoisonedError, match="disk failed"):
            lost.result(10)
        assert isinstance(lost.exception(60), PartitionPoisonedError)
        assert producer.send("events", b"kept").result(60).offset == 0


def test_the_exact_record_that_is_refused_fails(fake: FakeBackend) -> None:
    fake.largest_timestamp_ms = 5000
    with Producer(fake, linger_ms=10_000) as producer:
        times = [1000, 6000, 2000, 3000, 7000, 4000]
        deliveries = [producer.send("events", b"%d" % ms, timestamp_ms=ms) for ms in times]
        group = producer.send_many("events", [(None, b"%d" % ms, None, ms) for ms in times])
        told: list[int] = []
        deliveries[4].add_callback(lambda delivery: told.append(4))
        failed = [isinstance(delivery.exception(60), InvalidTimestampError) for delivery in deliveries]
        assert failed == [False, True, False, False, True, False]
        with pytest.raises(InvalidTimestampError) as caught:
            group.result(20)
        assert any("2 of the 6 records" in note for note in caught.value.__notes__)
        assert told == [4]
        offsets = [deliveries[place].result().offset for place in (0, 2, 3, 5)]
        assert offsets == [0, 1, 2, 3]
    assert values_of(fake, "events") == [b"1000", b"2000", b"3000", b"4000"] * 2


def test_deliveries_resolve_within_the_delivery_timeout(fake: FakeBackend) -> None:
    fake.faults.extend([DiskFullError("no space left")] * 10_000)
    producer: Producer[bytes, bytes] = Producer(fake, delivery_timeout_ms=150, linger_ms=0)
    delivery = producer.send("events", b"v")
    with pytest.raises((DeliveryTimeoutError, DiskFullError)):
        delivery.result(20)
    fake.faults.clear()
    assert producer.send("events", b"w").result(60).offset == 0
    producer.close()


def test_a_store_that_hangs_does_not_hold_deliveries_for_ever(fake: FakeBackend) -> None:
    fake.gate.clear()
    clock = ManualClock()
    producer: Producer[bytes, bytes] = Producer(fake, delivery_timeout_ms=5000, linger_ms=0, clock=clock)
    flying = producer.send("events", b"flying")
    assert fake.entered.acquire(timeout=60)
    waiting = producer.send("flights", b"waiting")
    clock.advance(7000)
    with pytest.raises(DeliveryTimeoutError, match="may be in or not"):
        _result_in_thread(flying)
    with pytest.raises(DeliveryTimeoutError, match="0 attempts"):
        _result_in_thread(waiting)
    fake.gate.set()
    producer.close()


def _result_in_thread(delivery: Any) -> Any:
    """``result()`` where it could hang, with the test's own deadline."""
    caught: list[Any] = []

    def ask() -> None:
        caught.append(delivery.exception())

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(60)
    if not caught:
        raise AssertionError("result() hangs")
    if caught[0] is not None:
        raise caught[0]


def test_back_pressure_blocks_then_says_so(fake: FakeBackend) -> None:
    fake.gate.clear()
    producer: Producer[bytes, bytes] = Producer(
        fake, buffer_bytes=4000, batch_bytes=1000, max_block_ms=1, linger_ms=0
    )
    # One flight hangs in the sender's thread, so that the caller cannot help.
    producer.send("events", b"v" * 500)
    assert fake.entered.acquire(timeout=60)
    sent = 1
    while producer.metrics()["buffered_bytes"] <= 3400:
        producer.send("events", b"v" * 500)
        sent += 1
    with pytest.raises(BufferFullError, match=r"buffer_bytes=4000 .* max_block_ms=1 .*was not queued"):
        producer.send("events", b"v" * 500)
    assert 4 <= sent <= 8
    with pytest.raises(BufferFullError, match="0 of 3 rows were queued"):
        producer.send_many("events", [(None, b"v" * 900)] * 3)
    fake.gate.set()
    producer.close()
    assert len(values_of(fake, "events")) == sent


def test_a_blocked_send_goes_on_when_there_is_room(fake: FakeBackend) -> None:
    producer: Producer[bytes, bytes] = Producer(fake, buffer_bytes=5000, batch_bytes=1000)
    with producer:
        for number in range(500):
            producer.send("events", b"%03d" % number + b"v" * 200)
        group = producer.send_many("events", [(None, b"%03d" % n + b"w" * 200) for n in range(500)])
        assert sum(row.end_exclusive - row.start for row in group.result(60)) == 500
        assert producer.metrics()["buffered_bytes"] == 0
    assert [value[:3] for value in values_of(fake, "events")] == [b"%03d" % n for n in range(500)] * 2


# --- callbacks, flush, close ---


def test_callbacks_come_once_with_their_delivery(backend: Backend) -> None:
    got: list[tuple[int, int]] = []
    with Producer(backend, linger_ms=10_000) as producer:
        deliveries = [producer.send("events", b"%d" % number) for number in range(5)]
        for number, delivery in enumerate(deliveries):
            delivery.add_callback(lambda d, number=number: got.append((number, d.result(0).offset)))
        assert got == []
        producer.flush()
        assert got == [(number, number) for number in range(5)]
        deliveries[2].add_callback(lambda d: got.append((99, d.result(0).offset)))
        assert got[-1] == (99, 2)


def test_a_callback_that_raises_harms_nobody(fake: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    got: list[int] = []
    with Producer(fake, linger_ms=10_000) as producer:
        first, second = producer.send("events", b"1"), producer.send("events", b"2")
        first.add_callback(lambda d: 1 / 0)
        second.add_callback(lambda d: got.append(d.result(0).offset))
        producer.flush()
    assert got == [1]
    assert "a delivery callback for events-0 failed" in caplog.text


def test_a_callback_may_send_and_flush(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=0) as producer:
        first = producer.send("events", b"1")

        def send_more(delivery: Any) -> None:
            producer.send("events", b"2")
            producer.flush()

        first.add_callback(send_more)
        until(lambda: values_of(fake, "events") == [b"1", b"2"], "the callback's record")


def test_leaving_reports_errors_that_nobody_asked_about(fake: FakeBackend) -> None:
    fake.faults.append(PartitionPoisonedError("disk failed"))
    producer: Producer[bytes, bytes] = Producer(fake, linger_ms=10_000)
    with pytest.raises(PartitionPoisonedError) as caught, producer:
        producer.send_many("events", [(None, b"1"), (None, b"2")])
    assert "2 records in 1 batches failed" in caught.value.__notes__[0]
    producer.close()


def test_flush_reports_an_error_once_and_not_what_was_asked(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=10_000) as producer:
        fake.faults.append(PartitionPoisonedError("first"))
        producer.send("events", b"1")
        with pytest.raises(PartitionPoisonedError, match="first"):
            producer.flush()
        producer.flush()
        fake.faults.append(PartitionPoisonedError("second"))
        asked = producer.send("events", b"2")
        assert asked.exception(60) is not None
        fake.faults.append(PartitionPoisonedError("third"))
        producer.send("events", b"3").add_callback(lambda delivery: None)
        producer.flush()


def test_an_exception_in_the_block_still_sends_and_wins(
    fake: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError), Producer(fake, linger_ms=10_000) as producer:
        _send_and_fail(producer, b"kept")
    assert values_of(fake, "events") == [b"kept"]
    fake.faults.append(PartitionPoisonedError("disk failed"))
    with pytest.raises(ZeroDivisionError), Producer(fake, linger_ms=10_000) as producer:
        _send_and_fail(producer, b"lost")
    assert "disk failed" in caplog.text


def _send_and_fail(producer: Producer[bytes, bytes], value: bytes) -> None:
    producer.send("events", value)
    raise ZeroDivisionError


def test_a_closed_producer_refuses(backend: Backend) -> None:
    producer: Producer[bytes, bytes] = Producer(backend)
    delivery = producer.send("events", b"v")
    producer.close()
    producer.close()
    assert delivery.result(0).offset == 0
    for call in (
        lambda: producer.send("events", b"v"),
        lambda: producer.send("events", b"v", timestamp_ms=1),
        lambda: producer.send_many("events", [(None, b"v")]),
        producer.flush,
    ):
        with pytest.raises(ClientClosedError):
            call()


def test_flush_and_close_say_when_time_is_over(fake: FakeBackend) -> None:
    producer: Producer[bytes, bytes] = Producer(fake, linger_ms=0)
    fake.gate.clear()
    producer.send("events", b"v")
    assert fake.entered.acquire(timeout=60)
    with pytest.raises(DeliveryTimeoutError, match="1 records have no outcome"):
        producer.flush(timeout_s=0.01)
    with pytest.raises(DeliveryTimeoutError, match="close"):
        producer.close(timeout_s=0.01)
    fake.gate.set()
    until(lambda: values_of(fake, "events") == [b"v"], "the record that close left behind")
