"""The Python API in hostile hands: every wrong argument is a named error in one line, and harms nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import pytest

import logstore
from logstore.arguments import directory, partition_place, seconds, whole
from logstore.errors import (
    InvalidArgumentError,
    InvariantError,
    LogStoreError,
    OffsetOutOfRangeError,
    ReadOnlyStoreError,
    RecordTypeError,
)
from logstore.format.batch import encode_batch
from logstore.types import OffsetAndMetadata, TopicPartition

ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        float("nan"),
        2**63,
        -(2**70),
        "",
        "x",
        "half \ud800",
        b"",
        b"x",
        bytearray(b"x"),
    ),
    *(memoryview(b"x"), [], [1], (), ("t", 0), {}, {"a": 1}, object(), numpy.int64(3), numpy.array([1])),
    *(
        datetime.fromisoformat("2020-01-01"),
        datetime.max.replace(tzinfo=UTC),
        re.compile("x"),
        ValueError("x"),
        range(3),
    ),
)
PLACE = TopicPartition("t", 0)
PRODUCER: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
MARKER: dict[str, Any] = {"producer_id": 2, "producer_epoch": 0, "commit": True, "coordinator_epoch": 0}


@pytest.fixture(scope="module")
def store() -> Iterator[logstore.LogStore]:
    with logstore.open(":memory:") as store:
        store.create_topic("t", partitions=2)
        store.create_topic("c", config={"cleanup.policy": "compact,delete"})
        for topic in ("t", "c"):
            store.partition(topic, 0).append([(b"k", b"v")] * 3)
        yield store


def sent(store: logstore.LogStore, *arguments: Any, **settings: Any) -> object:
    with store.producer() as producer:
        return producer.send(*arguments, **settings).result(timeout_s=60)


def sent_many(store: logstore.LogStore, *arguments: Any, **settings: Any) -> object:
    with store.producer() as producer:
        return producer.send_many(*arguments, **settings).result(timeout_s=60)


def produced(store: logstore.LogStore, **settings: Any) -> object:
    with store.producer(**settings) as producer:
        return producer.send("t", b"v", key=b"k").result(timeout_s=60)


def consumed(store: logstore.LogStore, topics: Any = "t", **settings: Any) -> object:
    with store.consumer(topics, until_end=True, **settings) as consumer:
        return consumer.poll(max_records=1, timeout_s=0)


def asked(store: logstore.LogStore, ask: Callable[[logstore.Consumer[Any, Any]], object]) -> object:
    with store.consumer("t", group="g", until_end=True) as consumer:
        return ask(consumer)


def refusal(call: Callable[[], object]) -> str:
    """What the named error said; empty when there was none. Any other error is raised."""
    try:
        call()
    except InvariantError:
        raise
    except LogStoreError as error:
        return str(error)
    return ""


CALLS: dict[str, Callable[[logstore.LogStore, Any], object]] = {
    "create_topic name": lambda store, odd: store.create_topic(odd),
    "create_topic partitions": lambda store, odd: store.create_topic("t", partitions=odd),
    "create_topic config": lambda store, odd: store.create_topic("t", config=odd),
    "create_topic setting": lambda store, odd: store.create_topic("t", config={"segment.bytes": odd}),
    "delete_topic": lambda store, odd: store.delete_topic([odd]),
    "describe_topic": lambda store, odd: store.describe_topic(odd),
    "topic": lambda store, odd: store.topic(odd),
    "release": lambda store, odd: store.release(odd),
    "partition topic": lambda store, odd: store.partition(odd, 0),
    "partition number": lambda store, odd: store.partition("t", odd),
    "alter name": lambda store, odd: store.admin.alter_topic(odd, {}),
    "alter config": lambda store, odd: store.admin.alter_topic("t", odd),
    "alter setting": lambda store, odd: store.admin.alter_topic("t", {"flush.ms": odd}),
    "add_partitions": lambda store, odd: store.admin.add_partitions("t", odd),
    "compact topic": lambda store, odd: store.admin.compact(odd),
    "compact partition": lambda store, odd: store.admin.compact("c", odd),
    "compact roll": lambda store, odd: store.admin.compact("c", roll=odd),
    "compact progress": lambda store, odd: store.admin.compact("c", on_progress=odd),
    "erase topic": lambda store, odd: store.admin.erase_keys(odd, [b"absent"]),
    "erase keys": lambda store, odd: store.admin.erase_keys("c", odd),
    "erase key": lambda store, odd: store.admin.erase_keys("c", [odd]),
    "delete_records topic": lambda store, odd: store.delete_records(odd, 0),
    "delete_records before": lambda store, odd: store.delete_records("c", odd),
    "delete_records offset": lambda store, odd: store.delete_records("c", {0: odd}),
    "delete_producer": lambda store, odd: store.admin.delete_producer(odd),
    "describe_group": lambda store, odd: store.admin.describe_group(odd),
    "delete_group": lambda store, odd: store.admin.delete_group(odd),
    "seek_group name": lambda store, odd: store.admin.seek_group(odd, "earliest", topics=["t"], dry_run=True),
    "seek_group to": lambda store, odd: store.admin.seek_group("g", odd, topics=["t"], dry_run=True),
    "seek_group topics": lambda store, odd: store.admin.seek_group("g", "earliest", topics=odd, dry_run=True),
    "commit group": lambda store, odd: store.commit_offsets(odd, {PLACE: OffsetAndMetadata(1)}),
    "commit offsets": lambda store, odd: store.commit_offsets("g", odd),
    "commit position": lambda store, odd: store.commit_offsets("g", {PLACE: odd}),
    "commit offset": lambda store, odd: store.commit_offsets("g", {PLACE: OffsetAndMetadata(odd)}),
    "commit epoch": lambda store, odd: store.commit_offsets("g", {PLACE: OffsetAndMetadata(1, odd)}),
    "commit metadata": lambda store, odd: store.commit_offsets("g", {PLACE: OffsetAndMetadata(1, 0, odd)}),
    "committed_offsets": lambda store, odd: store.committed_offsets(odd),
    "append rows": lambda store, odd: store.partition("t", 0).append(odd),
    "append row": lambda store, odd: store.partition("t", 0).append([odd]),
    "append key": lambda store, odd: store.partition("t", 0).append([(odd, b"")]),
    "append headers": lambda store, odd: store.partition("t", 0).append([(b"", b"", odd)]),
    "append header name": lambda store, odd: store.partition("t", 0).append([(b"", b"", [(odd, b"")])]),
    "append time": lambda store, odd: store.partition("t", 0).append([(b"", b"", [], odd)]),
    "append acks": lambda store, odd: store.partition("t", 0).append([(b"", b"")], acks=odd),
    "append expected": lambda store, odd: store.partition("t", 0).append([(b"", b"")], expected_offset=odd),
    "append_batch": lambda store, odd: store.partition("t", 0).append_batch(odd),
    **{
        f"batch {name}": lambda store, odd, name=name: store.partition("t", 0).append_batch(  # type: ignore[misc]
            encode_batch([(b"", b"")], now_ms=1, **{**PRODUCER, name: odd})
        )
        for name in ("producer_id", "producer_epoch", "base_sequence", "base_offset", "leader_epoch")
    },
    **{
        f"marker {name}": lambda store, odd, name=name: store.partition("c", 0).end_transaction(  # type: ignore[misc]
            **{**MARKER, name: odd}
        )
        for name in ("producer_id", "producer_epoch", "commit", "coordinator_epoch")
    },
    "read offset": lambda store, odd: store.partition("t", 0).read(odd),
    "read isolation": lambda store, odd: store.partition("t", 0).read(0, isolation=odd),
    "fetch bytes": lambda store, odd: store.partition("t", 0).fetch(0, odd, "read_committed"),
    "fetch epoch": lambda store, odd: store.partition("t", 0).fetch(0, 1, "read_committed", odd),
    "fetch end": lambda store, odd: store.partition("t", 0).fetch(0, 1, "read_committed", end=odd),
    "records reverse": lambda store, odd: list(store.partition("t", 0).records(0, reverse=odd)),
    "records isolation": lambda store, odd: list(store.partition("t", 0).records(0, isolation=odd)),
    "records start": lambda store, odd: list(store.partition("t", 0).records(odd)),
    "records end": lambda store, odd: list(store.partition("t", 0).records(0, odd)),
    "to_arrow": lambda store, odd: store.partition("t", 0).to_arrow(odd),
    "offset_for_timestamp": lambda store, odd: store.partition("t", 0).offset_for_timestamp(odd),
    "send topic": lambda store, odd: sent(store, odd, b"v"),
    "send value": lambda store, odd: sent(store, "t", odd),
    "send key": lambda store, odd: sent(store, "t", b"", key=odd),
    "send headers": lambda store, odd: sent(store, "t", b"", headers=odd),
    "send header": lambda store, odd: sent(store, "t", b"", headers=[odd]),
    "send header name": lambda store, odd: sent(store, "t", b"", headers=[(odd, b"")]),
    "send time": lambda store, odd: sent(store, "t", b"", timestamp_ms=odd),
    "send partition": lambda store, odd: sent(store, "t", b"", partition=odd),
    "send_many rows": lambda store, odd: sent_many(store, "t", odd),
    "send_many row": lambda store, odd: sent_many(store, "t", [odd]),
    "send_many header name": lambda store, odd: sent_many(store, "t", [(None, b"", [(odd, b"")])]),
    **{
        f"producer {name}": lambda store, odd, name=name: produced(store, **{name: odd})  # type: ignore[misc]
        for name in ("acks", "name", "compression", "linger_ms", "batch_bytes", "buffer_bytes", "partitioner")
    },
    "producer serializer": lambda store, odd: produced(store, key_serializer=odd),
    "consumer topics": lambda store, odd: consumed(store, odd),
    "consumer partition": lambda store, odd: consumed(store, [("t", odd)]),
    **{
        f"consumer {name}": lambda store, odd, name=name: consumed(store, **{name: odd})  # type: ignore[misc]
        for name in ("group", "start", "isolation", "on_reset", "on_poison", "fetch_max_bytes", "on_assigned")
    },
    "poll records": lambda store, odd: asked(store, lambda consumer: consumer.poll(odd, 0)),
    "poll time": lambda store, odd: asked(store, lambda consumer: consumer.poll(1, odd)),
    "seek topic": lambda store, odd: asked(store, lambda consumer: consumer.seek(odd, 0, 0)),
    "seek offset": lambda store, odd: asked(store, lambda consumer: consumer.seek("t", 0, odd)),
    "seek time": lambda store, odd: asked(store, lambda consumer: consumer.seek_to_timestamp(odd)),
    "pause": lambda store, odd: asked(store, lambda consumer: consumer.pause(odd)),
    "position": lambda store, odd: asked(store, lambda consumer: consumer.position("t", odd)),
    "consumer commit": lambda store, odd: asked(store, lambda consumer: consumer.commit(odd)),
    "end_offsets": lambda store, odd: asked(store, lambda consumer: consumer.end_offsets(odd)),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_odd_argument_is_taken_or_refused_by_name(store: logstore.LogStore, name: str) -> None:
    """Never a TypeError from deep inside, whose message would speak of our variables."""
    told = [refusal(lambda odd=odd: CALLS[name](store, odd)) for odd in ODD]  # type: ignore[misc]
    assert any(told)
    assert not [text for text in told if "\n" in text or len(text) > 1000]


def test_nothing_of_it_harmed_the_store(store: logstore.LogStore) -> None:
    log = store.partition("t", 0)
    before = log.log_end_offset
    log.append([(None, b"still good")])
    assert next(log.records(before)).value == b"still good"


@pytest.mark.parametrize(
    "setting",
    [
        *("lock_timeout_s", "lock_idle_release_s", "retention_check_s", "mode_bits", "max_open_files"),
        *("tail_cache_bytes", "cleaner_duty", "cleaner_key_map_bytes"),
    ],
)
def test_odd_settings_of_a_store(setting: str, tmp_path: Path) -> None:
    for odd in ODD:
        told = refusal(lambda odd=odd: logstore.open(tmp_path / "store", **{setting: odd}).close())  # type: ignore[misc]
        assert setting in told or not told


@pytest.mark.parametrize("path", [None, "", 7, b"", "nul\0", "half \ud800", [], object()])
def test_a_path_that_is_none(path: Any) -> None:
    """An empty path once meant the current directory."""
    with pytest.raises(InvalidArgumentError, match="it is a directory's path"):
        logstore.open(path)


def test_whole_numbers_of_any_kind() -> None:
    assert whole(numpy.int64(7), "n") == 7
    for wrong in (True, 7.0, "7", None, -1, 2**63):
        with pytest.raises(InvalidArgumentError, match="it is a whole number from 0"):
            whole(wrong, "n")


def test_seconds_that_no_clock_can_add() -> None:
    assert seconds(10**400) == 1e9
    assert seconds(-(10**400)) == 0.0
    with pytest.raises(InvalidArgumentError):
        seconds(float("nan"))


def test_places_and_paths() -> None:
    assert partition_place(("t", numpy.int64(1))) == PLACE._replace(partition=1)
    assert directory(b"/a") == "/a"
    with pytest.raises(InvalidArgumentError, match=r"\(topic, partition\) tuple"):
        partition_place(("t", 0, 1))


@pytest.mark.parametrize("start", [99, 2**63 - 1])
def test_a_start_past_the_end_is_told_under_until_end_too(store: logstore.LogStore, start: int) -> None:
    """It once looked like a topic that was read to its end."""
    with (
        store.consumer([("t", 1)], start=start, until_end=True) as consumer,
        pytest.raises(OffsetOutOfRangeError, match=f"offset {start} is outside"),
    ):
        consumer.poll(timeout_s=5)
    with store.consumer([("t", 1)], start=start, until_end=True, on_reset="earliest") as consumer:
        assert [record.offset for record in consumer] == list(range(store.partition("t", 1).high_watermark))


def test_half_a_surrogate_pair_in_a_header(store: logstore.LogStore) -> None:
    with store.producer() as producer:
        with pytest.raises(RecordTypeError, match="header"):
            producer.send("t", b"", headers=[("\ud800", b"")])
        with pytest.raises(RecordTypeError, match="row 0"):
            producer.send_many("t", [(None, b"", [("\ud800", b"")])])


@pytest.mark.parametrize(
    ("name", "far"), [("producer_id", 2**63), ("producer_epoch", 2**15), ("coordinator_epoch", 2**31)]
)
def test_a_marker_whose_numbers_no_batch_can_hold(store: logstore.LogStore, name: str, far: int) -> None:
    log = store.partition("c", 0)
    before = log.bounds()
    with pytest.raises(InvalidArgumentError, match=f"{name}={far} "):
        log.end_transaction(**{**MARKER, name: far})
    assert log.bounds() == before


def test_what_is_to_become_of_a_transaction_is_said_by_a_bool(store: logstore.LogStore) -> None:
    """commit="no" once committed."""
    with pytest.raises(InvalidArgumentError, match="commit='no'"):
        store.partition("c", 0).end_transaction(2, 0, commit="no")  # type: ignore[arg-type]


def test_a_group_of_deliveries_tells_what_is_in_when_some_failed(store: logstore.LogStore) -> None:
    store.create_topic("narrow", partitions=2, config={"message.timestamp.after.max.ms": "1000"})
    far = 2**50
    with store.producer() as producer:
        good = producer.send_many("narrow", [(None, b"v")] * 4, partition=0)
        assert [(one.start, one.end_exclusive) for one in good.result()] == [(0, 4)]
        bad = producer.send_many("narrow", [(None, b"v", (), far)], partition=1)
        with pytest.raises(LogStoreError):
            bad.result()
        assert bad.landed() == []
        assert good.landed() == good.result()


def test_a_reader_sees_who_owns_and_who_consumes(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        store.partition("t", 0).append([(None, b"v")])
        with logstore.open(tmp_path, mode="r") as reader, store.consumer("t", group="g") as consumer:
            consumer.poll()
            consumer.commit()
            owner = reader.describe_topic("t").owner
            assert str(owner).startswith("pid ")
            (group,) = reader.admin.list_groups()
            assert [member.client[:4] for member in group.members] == ["pid "]
            store.release("t")
            consumer.close()
            assert reader.describe_topic("t").owner is None
            assert reader.admin.list_groups()[0].members == ()
            with pytest.raises(ReadOnlyStoreError):
                reader.admin.delete_group("g")
