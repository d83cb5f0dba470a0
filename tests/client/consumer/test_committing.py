"""Blocks that commit what they worked through, and dead letters: durable before their offset can be."""

from __future__ import annotations

import pytest

from logstore.api.backend import Backend
from logstore.client.consumer.consumer import Consumer
from logstore.client.consumer.dead_letters import DeadLetters
from logstore.client.producer.producer import Producer
from logstore.errors import (
    InvalidArgumentError,
    RecordTooLargeError,
    SegmentVanishedError,
    StorageError,
    UnknownTopicError,
)
from logstore.types import Record, TopicPartition
from tests.client.fake_backend import FakeBackend
from tests.client.records import all_records

HERE = TopicPartition("events", 0)


def fill(backend: Backend, *values: bytes, topic: str = "events") -> None:
    with Producer(backend) as producer:
        producer.send_many(topic, [(b"k", value, [("h", b"1")]) for value in values], partition=0)


def number(raw: bytes | None) -> int:
    return int(raw or b"")


# --- committing ---


def test_what_a_block_worked_through_is_committed(backend: Backend) -> None:
    fill(backend, b"1", b"2", b"3")
    with Consumer(backend, "events", group="g") as consumer:
        records = consumer.poll(max_records=2)
        with consumer.committing(records):
            assert backend.committed_offsets("g") == {}
        assert backend.committed_offsets("g")[HERE].offset == 2
        with consumer.committing(consumer.poll()):
            pass
    assert backend.committed_offsets("g")[HERE].offset == 3


def test_an_error_goes_back_to_the_first_of_them(backend: Backend) -> None:
    fill(backend, b"1", b"2", b"3")
    fill(backend, b"4", topic="flights")
    with Consumer(backend, ["events", "flights"], group="g") as consumer:
        seen: list[Record] = []
        while len(seen) < 4:
            seen += consumer.poll()
        for _ in range(2):
            with pytest.raises(KeyError, match="work"), consumer.committing(seen[1:]):
                raise KeyError("work")
            assert backend.committed_offsets("g") == {}
        again: list[Record] = []
        while len(again) < 3:
            again += consumer.poll()
        assert sorted(again) == sorted(seen[1:])


def test_only_the_records_of_the_block_count(backend: Backend) -> None:
    fill(backend, b"1", b"2", b"3")
    with Consumer(backend, "events", group="g") as consumer:
        first, _second = consumer.poll(max_records=1), consumer.poll(max_records=1)
        with consumer.committing(first):
            pass
        assert backend.committed_offsets("g")[HERE].offset == 1
        assert consumer.position("events", 0) == 2
        with consumer.committing([]):
            pass
        assert backend.committed_offsets("g")[HERE].offset == 1


def test_committing_needs_a_group_and_records(backend: Backend) -> None:
    with (
        Consumer(backend, "events") as consumer,
        pytest.raises(InvalidArgumentError, match="without a group"),
        consumer.committing([]),
    ):
        pass
    with (
        Consumer(backend, "events", group="g") as consumer,
        pytest.raises(InvalidArgumentError, match="not about records"),
        consumer.committing([b"raw"]),  # type: ignore[list-item]
    ):
        pass


# --- dead letters ---


def facts(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def test_what_a_deserializer_refuses_is_kept_with_its_reason(backend: Backend) -> None:
    backend.create_topic("dead", 1, {})
    fill(backend, b"1", b"bad", b"3", b"worse")
    letters = DeadLetters("dead")
    with Consumer(
        backend, "events", group="g", value_deserializer=number, on_poison=letters, until_end=True
    ) as consumer:
        assert [record.value for record in consumer] == [1, 3]
        consumer.commit()
    assert backend.committed_offsets("g")[HERE].offset == 4
    one, two = all_records(backend, "dead")
    assert [(one.key, one.value), (two.key, two.value)] == [(b"k", b"bad"), (b"k", b"worse")]
    assert facts(one) == {
        "h": "1",
        "dead-letter.topic": "events",
        "dead-letter.partition": "0",
        "dead-letter.offset": "1",
        "dead-letter.timestamp": str(all_records(backend, "events")[1].timestamp_ms),
        "dead-letter.group": "g",
        "dead-letter.error": "builtins.ValueError",
        "dead-letter.message": "invalid literal for int() with base 10: b'bad'",
        "dead-letter.attempts": "1",
    }
    assert facts(two)["dead-letter.offset"] == "3"


def test_a_record_is_passed_only_once_its_letter_is_durable(fake: FakeBackend) -> None:
    fake.create_topic("dead", 1, {})
    fill(fake, b"1", b"bad", b"3")
    fake.faults.append(StorageError("the disk said no"))
    with Consumer(
        fake, "events", group="g", value_deserializer=number, on_poison=DeadLetters("dead")
    ) as consumer:
        with pytest.raises(StorageError, match="the disk said no"):
            consumer.poll()
        assert consumer.position("events", 0) == 0
        assert [record.value for record in consumer.poll()] == [1, 3]
    assert len(all_records(fake, "dead")) == 1


def test_the_program_may_give_a_record_up(backend: Backend) -> None:
    backend.create_topic("dead", 1, {})
    fill(backend, b"1", b"2")
    with Consumer(
        backend, "events", group="g", value_deserializer=number, on_poison=DeadLetters("dead")
    ) as consumer:
        records = consumer.poll()
        with consumer.committing(records):
            placed = consumer.dead_letter(records[1], ZeroDivisionError("no way"), attempts=3)
        assert (placed.topic, placed.offset) == ("dead", 0)
        with pytest.raises(InvalidArgumentError, match="attempts"):
            consumer.dead_letter(records[1], ValueError(), attempts=0)
    (letter,) = all_records(backend, "dead")
    assert letter.value == b"2"  # as it is in the log, not as the deserializer made it
    told = facts(letter)
    assert (told["dead-letter.error"], told["dead-letter.attempts"]) == ("builtins.ZeroDivisionError", "3")


def test_a_record_that_is_gone_cannot_become_a_letter(backend: Backend) -> None:
    backend.create_topic("dead", 1, {})
    fill(backend, b"1", b"2")
    with Consumer(backend, "events", on_poison=DeadLetters("dead")) as consumer:
        record = consumer.poll()[1]._replace(offset=2)
        with pytest.raises(SegmentVanishedError, match="offset 2 is not in the log"):
            consumer.dead_letter(record, ValueError())


def test_refusals(backend: Backend) -> None:
    with pytest.raises(UnknownTopicError, match="nowhere"):
        Consumer(backend, "events", on_poison=DeadLetters("nowhere"))
    for topic, timeout_s in (("", 1), (None, 1), ("dead", 0), ("dead", "1"), ("dead", True)):
        with pytest.raises(InvalidArgumentError):
            DeadLetters(topic, timeout_s)  # type: ignore[arg-type]
    fill(backend, b"1")
    with Consumer(backend, "events") as consumer, pytest.raises(InvalidArgumentError, match="DeadLetters"):
        consumer.dead_letter(consumer.poll()[0], ValueError())


def test_a_letter_that_does_not_fit_is_told(backend: Backend) -> None:
    backend.create_topic("dead", 1, {"max.message.bytes": "300"})
    fill(backend, b"x" * 250)
    with Consumer(backend, "events", value_deserializer=number, on_poison=DeadLetters("dead")) as consumer:
        with pytest.raises(RecordTooLargeError):
            consumer.poll()
        assert consumer.position("events", 0) == 0
