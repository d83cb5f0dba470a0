"""Transactions of a producer: all of it or nothing, what may be called when, and what each failure comes to."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from logstore.api.records import ProduceItem, ProduceResult
from logstore.client.consumer.consumer import Consumer
from logstore.client.producer.producer import Producer
from logstore.errors import (
    ClientClosedError,
    CorruptBatchError,
    DiskFullError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    LogStoreError,
    OutcomeUnknownError,
    ProducerFencedError,
    RecordTooLargeError,
    RecordTypeError,
    TransactionAbortedError,
    TransactionStateError,
    UnknownPartitionError,
)
from logstore.format.batch import HEADER_SIZE, encode_batch, iter_headers, pack_batch, read_header
from logstore.types import COUNTER_TOPIC, OffsetAndMetadata, TopicPartition
from tests.client.conftest import AnyStore
from tests.client.records import fetched, until


@pytest.fixture
def store(empty_store: AnyStore) -> AnyStore:
    empty_store.create_topic("in", partitions=2)
    empty_store.create_topic("out", partitions=3)
    return empty_store


@pytest.fixture
def producer(store: AnyStore) -> Iterator[Producer[Any, Any]]:
    with store.producer(transactional_id="copy") as made:
        yield made


def values(store: AnyStore, topic: str = "out", isolation: Any = "read_committed") -> list[bytes]:
    with store.consumer(topic, isolation=isolation, until_end=True) as consumer:
        return sorted(record.value for records in consumer.batches() for record in records)


def headers(store: AnyStore, topic: str, partition: int) -> list[Any]:
    return [header for _, header in iter_headers(fetched(store.backend, topic, partition).batches)]


def fill(store: AnyStore, count: int = 10) -> None:
    with store.producer() as plain:
        for number in range(count):
            plain.send("in", b"%d" % number, partition=number % 2)


# --- all or none ---


def test_a_block_that_ends_well_commits_all_partitions_at_once(
    store: AnyStore, producer: Producer[Any, Any]
) -> None:
    with producer.transaction() as tx:
        for partition in range(3):
            tx.send("out", b"%d" % partition, partition=partition).result()
        assert values(store) == []
        assert values(store, isolation="read_uncommitted") == [b"0", b"1", b"2"]
    assert values(store) == [b"0", b"1", b"2"]
    for partition in range(3):
        data, marker = headers(store, "out", partition)
        assert (data.is_transactional, data.is_control, data.base_sequence) == (True, False, 0)
        assert (marker.is_control, marker.producer_epoch) == (True, data.producer_epoch + 1)


def test_a_block_that_raises_aborts_and_the_error_goes_on(
    store: AnyStore, producer: Producer[Any, Any]
) -> None:
    waiting = []

    def block() -> None:
        with producer.transaction() as tx:
            tx.send("out", b"lost", partition=0).result()
            waiting.append(tx.send("out", b"never sent", partition=1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    with pytest.raises(TransactionAbortedError):
        waiting[0].result()
    with producer.transaction() as tx:
        tx.send("out", b"kept", partition=0)
    assert values(store) == [b"kept"]
    assert b"never sent" not in values(store, isolation="read_uncommitted")


def test_sequences_begin_again_and_the_epoch_goes_up_with_each_transaction(
    store: AnyStore, producer: Producer[Any, Any]
) -> None:
    for _ in range(3):
        with producer.transaction() as tx:
            tx.send("out", b"a", partition=0).result()
            tx.send("out", b"b", partition=0).result()
    data = [header for header in headers(store, "out", 0) if not header.is_control]
    assert [header.base_sequence for header in data] == [0, 1] * 3
    epochs = [header.producer_epoch for header in data]
    assert epochs == [epochs[0], epochs[0], epochs[0] + 1, epochs[0] + 1, epochs[0] + 2, epochs[0] + 2]


def test_an_empty_transaction_is_nothing(store: AnyStore, producer: Producer[Any, Any]) -> None:
    for _ in range(3):
        with producer.transaction():
            pass
    producer.begin()
    producer.abort()
    assert [summary.state for summary in store.backend.list_transactions()] == ["EMPTY"]


def test_begin_and_commit_without_a_block(store: AnyStore, producer: Producer[Any, Any]) -> None:
    tx = producer.begin()
    producer.send_many("out", [(None, b"%d" % number) for number in range(500)])
    tx.send("out", b"x")
    producer.commit()
    assert len(values(store)) == 501
    tx = producer.begin()
    tx.send("out", b"gone")
    tx.abort()
    assert len(values(store)) == 501


def test_many_threads_share_a_transaction(store: AnyStore, producer: Producer[Any, Any]) -> None:
    with producer.transaction() as tx:
        threads = [
            threading.Thread(
                target=lambda at: [tx.send("out", b"%d-%d" % (at, n)).result() for n in range(20)], args=(at,)
            )
            for at in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(values(store)) == 80


# --- what may be called when ---


def test_calls_out_of_turn_are_refused_and_change_nothing(
    store: AnyStore, producer: Producer[Any, Any]
) -> None:
    outside = (
        lambda: producer.send("out", b"x"),
        lambda: producer.send("out", b"x", key=b"k", timestamp_ms=1),
        lambda: producer.send_many("out", [(None, b"x")]),
        lambda: producer.send_batch("out", 0, encode_batch([(None, b"x")], now_ms=1)),
        producer.commit,
        producer.abort,
    )
    for call in outside:
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            call()
    with producer.transaction() as tx:
        tx.send("out", b"in")
        with pytest.raises(TransactionStateError, match="is open"):
            producer.begin()
        with pytest.raises(TransactionStateError, match="is open"), producer.transaction():
            raise AssertionError("it must not begin")
        with pytest.raises(TransactionStateError, match="begun already"):
            tx.begin()
    for call in (tx.commit, tx.abort, lambda: tx.send("out", b"late"), tx.begin):
        with pytest.raises(TransactionStateError):
            call()
    with producer.transaction(), pytest.raises(TransactionStateError, match="not open"):
        tx.send("out", b"into the next one")
    assert values(store) == [b"in"]


def test_a_transaction_ended_in_its_block_is_not_ended_again(
    store: AnyStore, producer: Producer[Any, Any]
) -> None:
    with producer.transaction() as tx:
        tx.send("out", b"kept")
        tx.commit()
    with producer.transaction() as tx:
        tx.send("out", b"dropped")
        tx.abort()

    def block() -> None:
        with producer.transaction() as tx:
            tx.send("out", b"kept, too")
            tx.commit()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert values(store) == [b"kept", b"kept, too"]


def test_settings_that_do_not_go_together(store: AnyStore) -> None:
    wrong: list[dict[str, Any]] = [
        {"acks": 1},
        {"idempotence": False},
        {"name": "import"},
        {"transaction_timeout_ms": 0},
        {"transaction_timeout_ms": "soon"},
        {"transaction_timeout_ms": 2**31},
    ]
    for settings in wrong:
        with pytest.raises(InvalidArgumentError):
            store.producer(transactional_id="x", **settings)
    for unfit in ("", 7, b"x"):
        with pytest.raises(LogStoreError):
            store.producer(transactional_id=unfit)
    with store.producer() as plain:
        assert plain.transactional_id is None
        for call in (plain.transaction, plain.begin, plain.commit, plain.abort):
            with pytest.raises(InvalidArgumentError, match="transactional id"):
                call()


def test_a_closed_producer_has_aborted_what_was_open(store: AnyStore) -> None:
    made = store.producer(transactional_id="t")
    tx = made.begin()
    tx.send("out", b"x").result()
    made.close()
    for call in (made.begin, lambda: tx.send("out", b"y")):
        with pytest.raises((ClientClosedError, TransactionStateError)):
            call()
    assert values(store) == []
    assert store.backend.list_transactions()[0].state == "COMPLETE_ABORT"
    with store.producer(transactional_id="t") as again, again.transaction() as tx:
        tx.send("out", b"z")
    assert values(store) == [b"z"]


def test_a_producer_that_nobody_closed_lets_go_of_its_id(store: AnyStore) -> None:
    made = store.producer(transactional_id="t")
    tx = made.begin()
    tx.send("out", b"x").result()
    sender = made._sender
    del made, tx
    gc.collect()
    sender.join()
    assert store.backend.list_transactions()[0].state == "COMPLETE_ABORT"


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize(
    "empty_store", ["embedded"], indirect=True
)  # interrupted between the engine's two steps
def test_a_commit_that_was_interrupted_is_asked_for_and_never_aborted(
    store: AnyStore, producer: Producer[Any, Any], monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    lease: Any = producer._transactions.lease  # type: ignore[union-attr]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    producer.begin().send("out", b"a").result()
    with monkeypatch.context() as patched:
        patched.setattr(lease, "_finish" if decided else "_decide", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.commit()
    with pytest.raises(TransactionStateError, match="not known"):
        producer.abort()
    if decided:
        with pytest.raises(TransactionStateError, match="committed already"):
            lease.end(commit=False)
    producer.commit()
    assert values(store) == [b"a"]
    with producer.transaction() as tx:
        tx.send("out", b"b")
    assert values(store) == [b"a", b"b"]


def test_closing_the_store_aborts_too(store: AnyStore) -> None:
    tx = store.producer(transactional_id="t").begin()
    tx.send("out", b"x").result()
    store.close()


# --- deliveries that fail ---


class Refusing:
    """A backend whose ``produce`` gives an error where the test says."""

    def __init__(self, backend: Any) -> None:
        self.inner = backend
        self.errors: list[LogStoreError | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def produce(self, items: list[ProduceItem], acks: Any, timeout_s: float) -> list[ProduceResult]:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            return [ProduceResult(-1, error=error)] * len(items)
        return self.inner.produce(items, acks, timeout_s)


def test_a_failed_delivery_keeps_the_transaction_from_being_committed(store: AnyStore) -> None:
    backend = Refusing(store.backend)
    with Producer(backend, transactional_id="t") as made:

        def block() -> None:
            with made.transaction() as tx:
                backend.errors = [InvalidTimestampError("too old")]
                tx.send("out", b"bad", partition=0)

        with pytest.raises(InvalidTimestampError) as caught:
            block()
        assert "abort" in "".join(caught.value.__notes__)
        tx = made.begin()
        backend.errors = [InvalidTimestampError("too old")]
        with pytest.raises(InvalidTimestampError):
            tx.send("out", b"bad", partition=0).result()
        with pytest.raises(InvalidTimestampError):  # what comes after it would leave a gap
            tx.send("out", b"after", partition=1)
        with pytest.raises(InvalidTimestampError):
            tx.commit()
        with pytest.raises(TransactionStateError, match="abort it"):
            tx.commit()
        tx.abort()
        with made.transaction() as tx:
            tx.send("out", b"good", partition=0)
    assert values(store) == [b"good"]


def test_a_retry_keeps_its_sequence_and_is_in_once(store: AnyStore) -> None:
    backend = Refusing(store.backend)
    with Producer(backend, transactional_id="t") as made, made.transaction() as tx:
        backend.errors = [DiskFullError("full"), DiskFullError("still")]
        tx.send_many("out", [(None, b"a"), (None, b"b")], partition=0).result()
    assert values(store) == [b"a", b"b"]
    assert made.metrics()["retries_total"] == 2


def test_a_delivery_of_unknown_outcome_is_aborted_with_the_rest(store: AnyStore) -> None:
    backend = Refusing(store.backend)
    with Producer(backend, transactional_id="t") as made:

        def block() -> None:
            with made.transaction() as tx:
                backend.errors = [OutcomeUnknownError("the disk said nothing")]
                tx.send("out", b"perhaps", partition=0)

        with pytest.raises(OutcomeUnknownError):
            block()
        with made.transaction() as tx:
            tx.send("out", b"sure", partition=0)
    assert values(store) == [b"sure"]


# --- offsets ---


def copy_once(consumer: Consumer[Any, Any], producer: Producer[Any, Any], fail: bool = False) -> int:
    with producer.transaction(rewind=consumer) as tx:
        records = consumer.poll(4, timeout_s=0)
        for record in records:
            tx.send("out", record.value, partition=record.partition)
        tx.send_offsets(consumer)
        if fail:
            raise ZeroDivisionError
        return len(records)


def test_offsets_and_records_count_together(store: AnyStore, producer: Producer[Any, Any]) -> None:
    fill(store)
    with store.consumer("in", group="g") as consumer:
        done, turns = 0, 0
        while done < 10:
            turns += 1
            before = store.committed_offsets("g")
            if turns % 2:
                with pytest.raises(ZeroDivisionError):
                    copy_once(consumer, producer, fail=True)
                assert store.committed_offsets("g") == before
            else:
                done += copy_once(consumer, producer)
                assert sum(point.offset for point in store.committed_offsets("g").values()) == done
    assert values(store) == sorted(b"%d" % number for number in range(10))


def test_pending_offsets_are_not_committed_ones(store: AnyStore, producer: Producer[Any, Any]) -> None:
    place = TopicPartition("in", 0)
    fill(store)
    with producer.transaction() as tx:
        tx.commit_offsets("g", {place: 3})
        assert place not in store.committed_offsets("g")
        tx.commit_offsets("g", {place: OffsetAndMetadata(4, -1, "later")})
    assert store.committed_offsets("g")[place].offset == 4
    tx = producer.begin()
    tx.commit_offsets("g", {place: 1})
    tx.abort()
    assert store.committed_offsets("g")[place].offset == 4


def test_offsets_that_cannot_be(store: AnyStore, producer: Producer[Any, Any]) -> None:
    fill(store)
    with store.consumer("in") as groupless:
        with pytest.raises(InvalidArgumentError, match="group"):
            producer.transaction(rewind=groupless)
        tx = producer.begin()
        with pytest.raises(InvalidArgumentError, match="group"):
            tx.send_offsets(groupless)
    with pytest.raises(LogStoreError, match="in-0"):
        tx.commit_offsets("g", {TopicPartition("in", 0): 99})
    tx.send("out", b"still fine")
    tx.commit()
    assert values(store) == [b"still fine"]


def test_a_counter_counts_with_its_transaction(store: AnyStore, producer: Producer[Any, Any]) -> None:
    """A number of the caller's, which is no position in any log: no end that it could pass, no lag."""
    counter = TopicPartition(COUNTER_TOPIC, 0)
    with producer.transaction() as tx:
        tx.commit_offsets("job", {counter: 1 << 40})
        assert store.committed_offsets("job") == {}
    assert store.committed_offsets("job") == {counter: OffsetAndMetadata(1 << 40)}
    with producer.transaction() as tx:
        tx.commit_offsets("job", {counter: 7})
        tx.abort()
    store.commit_offsets("job", {counter: OffsetAndMetadata((1 << 40) + 1)})
    assert store.committed_offsets("job")[counter].offset == (1 << 40) + 1
    assert store.admin.describe_group("job").partitions == ()
    assert store.admin.seek_group("job", "latest") == []
    with pytest.raises(InvalidTopicError):
        store.create_topic(COUNTER_TOPIC)


def test_a_rewind_without_a_commit_goes_back_to_the_start(
    store: AnyStore, producer: Producer[Any, Any]
) -> None:
    fill(store)
    with store.consumer("in", group="g") as consumer:

        def block() -> None:
            with producer.transaction(rewind=consumer):
                assert len(consumer.poll(100, timeout_s=0)) == 7
                raise ZeroDivisionError

        assert len(consumer.poll(3, timeout_s=0)) == 3
        with pytest.raises(ZeroDivisionError):
            block()
        assert len(consumer.poll(100, timeout_s=0)) == 10


# --- who has the id ---


def test_a_newer_producer_fences_the_older(store: AnyStore) -> None:
    older = store.producer(transactional_id="t")
    tx = older.begin()
    tx.send("out", b"old").result()
    with store.producer(transactional_id="t") as newer:
        assert values(store) == []
        with pytest.raises(ProducerFencedError):
            tx.send("out", b"zombie", partition=1).result()
        with pytest.raises(ProducerFencedError):
            tx.commit()
        for call in (older.begin, older.abort, older.commit):
            with pytest.raises(ProducerFencedError):
                call()
        with newer.transaction() as fresh:
            fresh.send("out", b"new")
    older.close()
    assert values(store) == [b"new"]


def test_a_zombie_in_a_block_says_so(store: AnyStore) -> None:
    older = store.producer(transactional_id="t")

    def block() -> None:
        with older.transaction() as tx:
            tx.send("out", b"old").result()
            store.producer(transactional_id="t").close()

    with pytest.raises(ProducerFencedError):
        block()
    older.close()
    assert values(store) == []


# --- ready batches ---


def test_batches_are_taken_over_as_they_are(store: AnyStore, producer: Producer[Any, Any]) -> None:
    rows = [(b"k", b"%d" % number, [("h", b"v")]) for number in range(100)]
    zipped = encode_batch(
        rows, now_ms=1_700_000_000_000, codec="gzip", producer_id=9, producer_epoch=1, base_sequence=7
    )
    plain = encode_batch([(None, b"last")], now_ms=1_700_000_000_001)
    with producer.transaction() as tx:
        placed = tx.send_batch("out", 1, memoryview(zipped + plain)).result()
        tx.send("out", b"beside", partition=1)
    assert [tuple(found) for found in placed] == [("out", 1, 0, 101)]
    first, second, third, marker = headers(store, "out", 1)
    assert (first.codec, first.records_count, first.base_sequence) == ("gzip", 100, 0)
    assert (second.base_sequence, third.base_sequence, marker.is_control) == (100, 101, True)
    assert first.is_transactional
    assert first.producer_id == third.producer_id != 9
    with store.consumer([("out", 1)], until_end=True) as consumer:
        read = list(consumer)
    assert [record.value for record in read[:100]] == [row[1] for row in rows]
    assert read[0].headers == (("h", b"v"),)
    assert read[0].timestamp_ms == 1_700_000_000_000


def test_what_a_fetch_gave_is_sent_on_without_its_markers(
    store: AnyStore, producer: Producer[Any, Any]
) -> None:
    with producer.transaction() as tx:
        tx.send("in", b"a", partition=0)
    found = fetched(store.backend, "in", 0, "read_committed").batches
    with producer.transaction() as tx:
        tx.send_batch("out", 0, found)
    assert values(store) == [b"a"]
    with store.producer() as plain:
        assert len(plain.send_batch("out", 2, found)) == 1
    with store.producer(acks=1) as weak:
        weak.send_batch("out", 2, found)
    until(lambda: values(store) == [b"a"] * 3, "what was not waited for is shown")
    assert [header.producer_id < 0 for header in headers(store, "out", 2)] == [False, True]


def test_batches_that_cannot_be(store: AnyStore, producer: Producer[Any, Any]) -> None:
    good = encode_batch([(None, b"x")], now_ms=1)
    bad = bytearray(good)
    bad[-1] ^= 1
    gap = bytearray(encode_batch([(None, b"x"), (None, b"y")], now_ms=1))
    gapped = read_header(gap)._replace(last_offset_delta=5)
    tx = producer.begin()
    wrong: list[tuple[type[LogStoreError], Any]] = [
        (CorruptBatchError, bytes(bad)),
        (CorruptBatchError, good[:-1]),
        (InvalidRecordError, b""),
        (RecordTypeError, "text"),
        (RecordTypeError, [good]),
        (InvalidRecordError, pack_batch(gapped, bytes(gap)[HEADER_SIZE:])),
        (RecordTooLargeError, encode_batch([(None, b"." * 2_000_000)], now_ms=1)),
    ]
    for error, buffer in wrong:
        with pytest.raises(error):
            tx.send_batch("out", 0, buffer)
        with pytest.raises(error):
            tx.send_batch(
                "out", 0, buffer if not isinstance(buffer, bytes) else good + buffer if buffer else buffer
            )
    for partition in (3, -1, "0"):
        with pytest.raises((UnknownPartitionError, InvalidArgumentError)):
            tx.send_batch("out", partition, good)  # type: ignore[arg-type]
    tx.commit()
    assert values(store, isolation="read_uncommitted") == []
    with store.producer(name="n") as named, pytest.raises(InvalidArgumentError, match="named"):
        named.send_batch("out", 0, good)


def test_many_batches_pass_a_small_buffer(store: AnyStore) -> None:
    batch = encode_batch([(None, b"." * 1000)] * 20, now_ms=1_700_000_000_000)
    with store.producer(transactional_id="t", buffer_bytes=70_000) as made, made.transaction() as tx:
        assert len(tx.send_batch("out", 0, batch * 50)) == 1000
        tx.send_batch("out", 1, encode_batch([(None, b"." * 90_000)], now_ms=1_700_000_000_000))
    assert len(values(store)) == 1001
