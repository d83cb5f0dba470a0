"""The consumer over the fake and over the embedded store."""

from __future__ import annotations

import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from logstore.api.backend import Backend
from logstore.client.consumer.consumer import Consumer
from logstore.client.producer.producer import Producer
from logstore.errors import (
    ClientClosedError,
    ConsumerThreadError,
    CorruptBatchError,
    DataLossError,
    InvalidArgumentError,
    NoCommittedOffsetError,
    OffsetOutOfRangeError,
    PoisonRecordError,
    SegmentVanishedError,
    UnknownPartitionError,
    UnknownTopicError,
    WakeupError,
)
from logstore.seams.clock import ManualClock
from logstore.types import OffsetAndMetadata, Record, TopicPartition
from tests.client.fake_backend import FakeBackend

T0_MS = 1_700_000_000_000


def fill(backend: Backend, topic: str = "events", count: int = 10, partition: int = 0, base: int = 0) -> None:
    """Values b"0", b"1", ... a second apart, in batches of about four."""
    rows = [(b"k", b"%d" % n, None, T0_MS + 1000 * n) for n in range(base, base + count)]
    with Producer(backend, batch_bytes=220) as producer:
        producer.send_many(topic, rows, partition=partition).result(60)


def take(consumer: Consumer[Any, Any], count: int) -> list[bytes]:
    """The next values, by as many polls as it takes."""
    values: list[bytes] = []
    while len(values) < count:
        values += [record.value for record in consumer.poll(count - len(values), timeout_s=60)]
    return values


def numbers(*spans: range) -> list[bytes]:
    return [b"%d" % number for span in spans for number in span]


# --- poll ---


def test_poll_hands_out_slices_in_order(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events") as consumer:
        first = consumer.poll(3)
        assert [record.value for record in first] == numbers(range(3))
        assert first[0] == Record("events", 0, 0, T0_MS, b"k", b"0", ())
        assert consumer.position("events", 0) == 3
        assert take(consumer, 7) == numbers(range(3, 10))
        assert consumer.poll(timeout_s=0) == []
        fill(backend, count=2, base=10)
        assert take(consumer, 2) == numbers(range(10, 12))
        assert consumer.metrics()["records_consumed_total"] == 12


def test_poll_waits_for_what_comes(backend: Backend) -> None:
    with Consumer(backend, "events") as consumer:
        later = threading.Timer(0.05, fill, args=(backend,), kwargs={"count": 1})
        later.start()
        assert [record.value for record in consumer.poll(timeout_s=60)] == [b"0"]
        later.join()


def test_poll_gathers_from_partitions_fairly(backend: Backend) -> None:
    for partition in range(4):
        fill(backend, "flights", 100, partition)
    with Consumer(backend, "flights") as consumer:
        turns: list[int] = []
        for _ in range(8):
            found = consumer.poll(20)
            assert len({record.partition for record in found}) == 1
            turns.append(found[0].partition)
        leaders = set(backend.topic("flights").leaders)
        for number, partition in enumerate(
            turns
        ):  # each leader's come in when it has answered; then all take turns
            others = len({*turns[:number], partition}) - 1
            assert partition not in turns[max(number - others, 0) : number], turns
        if len(leaders) <= 1:
            assert Counter(turns) == {0: 2, 1: 2, 2: 2, 3: 2}
        rest = 0
        while rest < 240:
            found = consumer.poll(1000)
            assert len(leaders) > 1 or len(found) == 240
            rest += len(found)
        assert rest == 240


def test_a_backlog_does_not_hold_up_the_others(fake: FakeBackend) -> None:
    clock = ManualClock()
    fill(fake, "flights", 300, 0)
    with Consumer(fake, "flights", clock=clock) as consumer:
        assert {record.partition for record in consumer.poll(10)} == {0}
        fill(fake, "flights", 5, 2)
        clock.advance(20)
        seen = {record.partition for _ in range(2) for record in consumer.poll(10)}
        assert seen == {0, 2}


def test_what_is_handed_out_is_the_callers(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events") as consumer:
        consumer.poll(100).clear()
        assert consumer.position("events", 0) == 10
        consumer.seek("events", 0, 0)
        consumer.poll(4).clear()
        assert take(consumer, 6) == numbers(range(4, 10))


def test_batches_yield_polls_and_stop_at_the_end(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events", until_end=True) as consumer:
        assert [len(batch) for batch in consumer.batches(max_records=4)] == [4, 4, 2]
        assert list(consumer.batches()) == []
    with Consumer(backend, "events") as consumer:
        batches = consumer.batches(timeout_s=0)
        assert len(next(batches)) == 10
        assert next(batches) == []


# --- until_end ---


def test_until_end_stops_where_the_end_was_at_the_start(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events", until_end=True, group="g") as consumer:
        fill(backend, count=5, base=10)
        assert [record.value for record in consumer] == numbers(range(10))
        assert consumer.poll(timeout_s=30) == []
        assert consumer.position("events", 0) == 10
        consumer.commit()
    with Consumer(backend, "events", until_end=True, group="g") as consumer:
        assert [record.value for record in consumer] == numbers(range(10, 15))


def test_until_end_of_nothing(backend: Backend) -> None:
    with Consumer(backend, "flights", until_end=True) as consumer:
        assert list(consumer) == []
        assert consumer.poll(timeout_s=30) == []


# --- iteration ---


def test_iteration_counts_what_the_loop_has_seen(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events", group="g", until_end=True) as consumer:
        for record in consumer:
            assert consumer.position("events", 0) == record.offset + 1
            if record.offset == 3:
                consumer.commit()
            if record.offset == 5:
                break
        committed = consumer.committed("events", 0)
        assert committed is not None
        assert committed.offset == 4
        assert consumer.lag() == {TopicPartition("events", 0): 4}
        assert [record.value for record in consumer] == numbers(range(6, 10))


def test_the_loops_body_may_seek_poll_and_pause(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events", until_end=True) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.value)
            if seen == numbers(range(3)):
                consumer.seek("events", 0, 7)
            if record.value == b"7":
                assert [other.value for other in consumer.poll(1)] == [b"8"]
            if record.value == b"9":
                consumer.pause()
        assert seen == [b"0", b"1", b"2", b"7", b"9"]


# --- where to start ---


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        ("latest", 10),
        (4, 4),
        (datetime.fromtimestamp(T0_MS / 1000 + 2.5, UTC), 3),
        (datetime(2100, 1, 1, tzinfo=UTC), 10),
    ],
)
def test_start(backend: Backend, start: Any, first: int) -> None:
    fill(backend)
    with Consumer(backend, "events", start=start) as consumer:
        assert consumer.position("events", 0) == first
        fill(backend, count=1, base=10)
        assert take(consumer, 11 - first) == numbers(range(first, 11))


def test_start_applies_only_without_a_committed_offset(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events", group="g", start=4) as consumer:
        assert take(consumer, 2) == numbers(range(4, 6))
        consumer.commit()
    with Consumer(backend, "events", group="g", start="latest") as consumer:
        assert take(consumer, 1) == [b"6"]
    with Consumer(backend, "events", group="g", start="committed") as consumer:
        assert take(consumer, 1) == [b"6"]
    with pytest.raises(NoCommittedOffsetError, match=r"events-0"):
        Consumer(backend, "events", group="new", start="committed")
    with Consumer(backend, "events", group="new") as consumer:  # the failed one let go of the group
        assert consumer.committed("events", 0) is None


@pytest.mark.parametrize("start", ["newest", -1, 1.5, None, True])
def test_a_start_that_is_none(fake: FakeBackend, start: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="start="):
        Consumer(fake, "events", start=start)


def test_a_datetime_needs_a_time_zone(fake: FakeBackend) -> None:
    with pytest.raises(InvalidArgumentError, match="time zone"):
        Consumer(fake, "events", start=datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused


# --- what to read ---


def test_topics_by_name_list_pattern_and_partition(backend: Backend) -> None:
    backend.create_topic("flights-late", 1, {})
    for topics, count in (
        ("flights", 4),
        (["events", "flights", "events"], 5),
        (re.compile("flights.*"), 5),
        (re.compile("flights"), 4),
        ([("flights", 2), ("events", 0)], 2),
    ):
        with Consumer(backend, topics) as consumer:
            assert len(consumer.assignment()) == count


@pytest.mark.parametrize(
    ("topics", "error"),
    [
        ("nowhere", UnknownTopicError),
        (["events", "nowhere"], UnknownTopicError),
        ([("events", 1)], UnknownPartitionError),
        ([("nowhere", 0)], UnknownTopicError),
        ([], InvalidArgumentError),
        (7, InvalidArgumentError),
        ([("events", 0), "events"], InvalidArgumentError),
        ([("events", "0")], InvalidArgumentError),
    ],
)
def test_topics_that_cannot_be_read(backend: Backend, topics: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Consumer(backend, topics)


def test_new_partitions_and_topics_are_read_from_their_beginning(backend: Backend) -> None:
    told: list[list[TopicPartition]] = []
    with Consumer(
        backend, re.compile("flights.*"), start="latest", on_assigned=lambda new: told.append(list(new))
    ) as consumer:
        assert consumer.poll(timeout_s=0) == []
        backend.add_partitions("flights", 5, allow_keyed=True)
        fill(backend, "flights", 3, 4)
        backend.create_topic("flights-late", 1, {})
        fill(backend, "flights-late", 2)
        seen: Counter[str] = Counter()
        while seen.total() < 5:
            seen.update(record.topic for record in consumer.poll(10, timeout_s=60))
        assert seen == {"flights": 3, "flights-late": 2}
    new = [partition for group in told[1:] for partition in group]
    assert told[0] == [TopicPartition("flights", partition) for partition in range(4)]
    assert new == [TopicPartition("flights", 4), TopicPartition("flights-late", 0)]


def test_a_pattern_may_match_nothing_yet(backend: Backend) -> None:
    with Consumer(backend, re.compile("later"), fetch_max_wait_ms=5) as consumer:
        assert consumer.poll(timeout_s=0.01) == []
        backend.create_topic("later", 1, {})
        fill(backend, "later", 1)
        assert take(consumer, 1) == [b"0"]


def test_a_deleted_topic_is_told_once_and_the_others_go_on(backend: Backend) -> None:
    fill(backend)
    fill(backend, "flights", 2)
    lost: list[TopicPartition] = []
    with Consumer(backend, ["events", "flights"], on_lost=lost.extend) as consumer:
        take(consumer, 12)
        backend.delete_topic("events")
        with pytest.raises(UnknownTopicError, match="'events'"):
            consumer.poll(timeout_s=0)
        assert lost == [TopicPartition("events", 0)]
        fill(backend, "flights", 1, base=2)
        assert take(consumer, 1) == [b"2"]
        backend.create_topic("events", 1, {})
        fill(backend, count=2, base=50)
        assert take(consumer, 2) == [b"50", b"51"]


def test_a_topic_made_anew_is_another_log(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events", group="g") as consumer:
        take(consumer, 2)
        consumer.commit()
        take(consumer, 8)
        backend.delete_topic("events")
        backend.create_topic("events", 1, {})
        fill(backend, count=3, base=70)
        assert take(consumer, 3) == [b"70", b"71", b"72"]


# --- positions ---


def test_seek_pause_resume(backend: Backend) -> None:
    for partition in range(2):
        fill(backend, "flights", 10, partition)
    with Consumer(backend, [("flights", 0), ("flights", 1)]) as consumer:
        begun = consumer.poll(2)[0].partition  # whichever's leader is the first to answer
        other = 1 - begun
        consumer.pause([("flights", begun)])
        assert {record.partition for record in consumer.poll(100)} == {other}
        assert consumer.poll(timeout_s=0) == []
        consumer.resume()
        assert take(consumer, 8) == numbers(range(2, 10))
        consumer.seek("flights", 1, 7)
        assert take(consumer, 3) == numbers(range(7, 10))
        consumer.seek("flights", 1, "earliest")
        assert consumer.position("flights", 1) == 0
        consumer.seek("flights", 1, "latest")
        assert consumer.position("flights", 1) == 10
        consumer.seek_to_timestamp(T0_MS + 4500)
        assert [consumer.position("flights", partition) for partition in (0, 1)] == [5, 5]
        consumer.seek_to_timestamp(datetime(2100, 1, 1, tzinfo=UTC), [("flights", 0)])
        assert [consumer.position("flights", partition) for partition in (0, 1)] == [10, 5]
        with pytest.raises(InvalidArgumentError, match="does not read flights-3"):
            consumer.seek("flights", 3, 0)
        with pytest.raises(InvalidArgumentError, match="seek to -1"):
            consumer.seek("flights", 0, -1)


def test_offsets_and_lag(backend: Backend) -> None:
    fill(backend, "flights", 10, 1)
    first, second = TopicPartition("flights", 0), TopicPartition("flights", 1)
    with Consumer(backend, [first, second]) as consumer:
        take(consumer, 4)
        assert consumer.beginning_offsets() == {first: 0, second: 0}
        assert consumer.end_offsets() == {first: 0, second: 10}
        assert consumer.end_offsets([("flights", 3)]) == {TopicPartition("flights", 3): 0}
        assert consumer.lag() == {first: 0, second: 6}
        found = consumer.offsets_for_times(T0_MS + 2001)
        assert (found[first].offset, found[second].offset) == (None, 3)
        assert found[second].timestamp_ms == T0_MS + 3000


# --- positions that are gone ---


def test_out_of_range_is_an_error_until_seek(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events", start=50) as consumer:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                consumer.poll(timeout_s=0)
        assert consumer.position("events", 0) == 50
        consumer.seek("events", 0, 8)
        assert take(consumer, 2) == [b"8", b"9"]


@pytest.mark.parametrize(("on_reset", "first"), [("earliest", 0), ("latest", 10)])
def test_on_reset(backend: Backend, on_reset: Any, first: int, caplog: pytest.LogCaptureFixture) -> None:
    fill(backend)
    with Consumer(backend, "events", start=50, on_reset=on_reset) as consumer:
        consumer.poll(1, timeout_s=0)
        assert f"on_reset={on_reset} goes to offset {first}" in caplog.text
        fill(backend, count=1, base=10)
        assert take(consumer, 1) == [b"%d" % first]


def test_data_loss_is_raised_until_seek(fake: FakeBackend) -> None:
    fill(fake)
    log = fake.log("events", 0)
    boundary = log.starts[1]
    with Consumer(fake, "events", group="g") as consumer:
        take(consumer, 10)
        consumer.commit()
        log.truncate(boundary)
        fill(fake, count=30, base=500)  # other records under the same numbers
        for _ in range(2):
            with pytest.raises(DataLossError) as caught:
                consumer.poll(timeout_s=0)
            assert (caught.value.lost_from, caught.value.position) == (boundary, 10)
    with Consumer(fake, "events", group="g", on_reset="earliest") as consumer:  # the commit kept the epoch
        with pytest.raises(DataLossError):
            consumer.poll(timeout_s=0)
        consumer.seek("events", 0, boundary)
        assert take(consumer, 30) == numbers(range(500, 530))


def test_an_error_in_one_partition_leaves_the_others(fake: FakeBackend) -> None:
    fill(fake, "flights", 5, 0)
    fill(fake, "flights", 5, 1)
    batches = fake.log("flights", 0).batches
    batches[0] = batches[0][:-1] + b"\xff"
    with Consumer(fake, [("flights", 0), ("flights", 1)]) as consumer:
        with pytest.raises(CorruptBatchError):
            consumer.poll()
        assert take(consumer, 5) == numbers(range(5))
        with pytest.raises(CorruptBatchError):
            consumer.poll(timeout_s=0)
        assert consumer.position("flights", 0) == 0


def test_an_error_that_passes_is_waited_out_or_told(fake: FakeBackend) -> None:
    fill(fake)
    faults = fake.fetch_faults[TopicPartition("events", 0)]
    with Consumer(fake, "events") as consumer:
        faults.extend([SegmentVanishedError("merged away")] * 3)
        assert take(consumer, 10) == numbers(range(10))
        faults.append(SegmentVanishedError("merged away"))
        with pytest.raises(SegmentVanishedError):
            consumer.poll(timeout_s=0)


# --- groups ---


def test_commit_covers_what_was_handed_out(backend: Backend) -> None:
    fill(backend)
    with Consumer(backend, "events", group="g") as consumer:
        take(consumer, 4)
        consumer.commit()
        take(consumer, 3)
    with Consumer(backend, "events", group="g") as consumer:
        assert take(consumer, 1) == [b"4"]
        consumer.commit({TopicPartition("events", 0): 9})
    with Consumer(backend, "events", group="g") as consumer:
        consumer.commit({TopicPartition("events", 0): OffsetAndMetadata(2, -1, "by hand")})
        assert consumer.committed("events", 0) == OffsetAndMetadata(2, -1, "by hand")
        assert take(consumer, 1) == [b"9"]
        with pytest.raises(InvalidArgumentError):
            consumer.commit({TopicPartition("events", 0): 99})
    with (
        Consumer(backend, "events") as consumer,
        pytest.raises(InvalidArgumentError, match="without a group"),
    ):
        consumer.commit()


def test_the_same_position_is_not_committed_twice(fake: FakeBackend) -> None:
    fill(fake)
    with Consumer(fake, "events", group="g") as consumer:
        consumer.commit()
        consumer.commit()
        take(consumer, 1)
        consumer.commit()
    assert [next(iter(offsets.values())).offset for offsets in fake.commits] == [0, 1]


def test_automatic_commits_cover_earlier_polls(fake: FakeBackend) -> None:
    clock = ManualClock()
    fill(fake)
    where = TopicPartition("events", 0)
    with Consumer(fake, "events", group="g", auto_commit_interval_ms=5000, clock=clock) as consumer:
        take(consumer, 4)
        clock.advance(4999)
        consumer.poll(2)
        assert fake.committed_offsets("g") == {}
        clock.advance(1)
        consumer.poll(2)
        assert fake.committed_offsets("g")[where].offset == 6
    assert fake.committed_offsets("g")[where].offset == 8


def test_revoked_is_told_at_close(backend: Backend) -> None:
    told: list[TopicPartition] = []
    with Consumer(backend, "events", on_revoked=told.extend):
        assert told == []
    assert told == [TopicPartition("events", 0)]


# --- deserializers ---


def number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)


def test_deserializers_and_poison_raised_in_its_place(backend: Backend) -> None:
    with Producer(backend) as producer:
        producer.send_many("events", [(b"k", value) for value in (b"1", b"2", b"bad", b"4", None)])
    consumer: Consumer[str, int]
    with Consumer(
        backend, "events", key_deserializer=lambda raw: (raw or b"").decode(), value_deserializer=number
    ) as consumer:
        assert [(record.key, record.value) for record in consumer.poll()] == [("k", 1), ("k", 2)]
        for _ in range(2):
            with pytest.raises(PoisonRecordError) as caught:
                consumer.poll()
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("events", 0, 2)
        assert consumer.position("events", 0) == 2
        consumer.seek("events", 0, 3)
        assert [record.value for record in consumer.poll()] == [4, None]


def test_poison_skipped_or_given_to_a_hook(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    with Producer(backend) as producer:
        producer.send_many("events", [(None, value) for value in (b"bad", b"2", b"bad", b"4", b"bad")])
    with Consumer(backend, "events", value_deserializer=number, on_poison="skip", until_end=True) as consumer:
        assert [record.value for record in consumer.poll()] == [2, 4]
        assert consumer.position("events", 0) == 5
        assert consumer.metrics()["records_poisoned_total"] == 3
    assert caplog.text.count("could not be deserialized") == 3
    hooked: list[tuple[int, bytes, str]] = []

    def hook(record: Record, error: Exception) -> None:
        hooked.append((record.offset, record.value, type(error).__name__))

    with Consumer(backend, "events", value_deserializer=number, on_poison=hook, until_end=True) as consumer:
        seen = [(record.value, consumer.position("events", 0)) for record in consumer]
        assert seen == [(2, 2), (4, 5)]
    assert hooked == [(0, b"bad", "ValueError"), (2, b"bad", "ValueError"), (4, b"bad", "ValueError")]
    with pytest.raises(InvalidArgumentError, match="on_poison='dead-letters'"):
        Consumer(backend, "events", on_poison="dead-letters")  # type: ignore[arg-type]


# --- threads ---


def in_thread(call: Any) -> Any:
    """What ``call`` gives, or the error it raises, in a thread that ends before this returns."""
    with ThreadPoolExecutor(1, thread_name_prefix="other") as pool:
        outcome = pool.submit(call)
        return outcome.exception(60) or outcome.result()


def test_a_consumer_belongs_to_one_thread(backend: Backend) -> None:
    fill(backend)
    consumer: Consumer[Any, Any] = Consumer(backend, "events")
    assert len(in_thread(lambda: consumer.poll(1))) == 1
    assert len(consumer.poll(1)) == 1  # the other thread has ended
    for call in (lambda: consumer.poll(), lambda: consumer.close(), lambda: consumer.position("events", 0)):
        error = in_thread(call)
        assert isinstance(error, ConsumerThreadError)
        assert "'other_0'" in str(error)
    consumer.close()


def test_wakeup_ends_a_waiting_poll(backend: Backend) -> None:
    with Consumer(backend, "events") as consumer:
        threading.Timer(0.05, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_s=30)
        assert consumer.poll(timeout_s=0) == []
        consumer.wakeup()
        with pytest.raises(WakeupError):
            next(iter(consumer))
        consumer.pause()
        threading.Timer(0.05, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_s=30)


def test_a_waiting_poll_does_not_spin(fake: FakeBackend) -> None:
    with Consumer(fake, "events", fetch_max_wait_ms=20) as consumer:
        assert consumer.poll(timeout_s=0.1) == []
        assert 1 <= fake.fetches <= 12
        before = fake.fetches
        consumer.pause()
        assert consumer.poll(timeout_s=0.05) == []
        assert fake.fetches == before


def test_a_closed_consumer_refuses(backend: Backend) -> None:
    consumer: Consumer[Any, Any] = Consumer(backend, "events", group="g")
    consumer.close()
    consumer.close()
    for call in (
        consumer.poll,
        consumer.commit,
        consumer.lag,
        consumer.assignment,
        lambda: next(iter(consumer)),
    ):
        with pytest.raises(ClientClosedError):
            call()


@pytest.mark.parametrize(
    "settings",
    [
        {"isolation": "serializable"},
        {"on_reset": "oldest"},
        {"fetch_max_bytes": 0},
        {"fetch_min_bytes": "1"},
        {"auto_commit_interval_ms": 100},
        {"start": "committed"},
    ],
)
def test_settings_are_checked(fake: FakeBackend, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(settings))):
        Consumer(fake, "events", **settings)
    with Consumer(fake, "events") as consumer, pytest.raises(InvalidArgumentError, match="max_records"):
        consumer.poll(0)
