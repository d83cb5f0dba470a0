"""Tables: what they show, how they keep current, former states, and what they refuse."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.backend import Backend
from logstore.client.producer.producer import Producer
from logstore.client.table.table import KeyTable
from logstore.errors import (
    ClientClosedError,
    CompactedAwayError,
    DeliveryTimeoutError,
    InvalidArgumentError,
    NotCompactedError,
    OffsetOutOfRangeError,
    PoisonRecordError,
    RecordTypeError,
    StoreClosedError,
    TableTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.seams.clock import ManualClock
from tests.client.conftest import AnyStore
from tests.client.fake_backend import FakeBackend

COMPACT = {"cleanup.policy": "compact"}
MODES: list[dict[str, Any]] = [{}, {"max_memory_bytes": 1 << 20}]


@pytest.fixture
def store(empty_store: AnyStore) -> AnyStore:
    empty_store.create_topic("t", config=COMPACT)
    return empty_store


def put(backend: Backend, *rows: tuple[bytes, bytes | None], topic: str = "t", **settings: Any) -> None:
    with Producer[Any, Any](backend) as producer:
        producer.send_many(topic, rows, **settings)


# --- what it shows ---


@pytest.mark.parametrize("mode", MODES)
def test_latest_values_over_all_partitions(backend: Backend, mode: dict[str, Any]) -> None:
    backend.create_topic("t", 3, COMPACT)
    with KeyTable[bytes](backend, "t", **mode) as table:
        assert (len(table), dict(table), b"k1" in table, table.get(b"k1")) == (0, {}, False, None)
        put(backend, *[(b"k%d" % (number % 7), b"%d" % number) for number in range(30)])
        latest = {b"k%d" % (number % 7): b"%d" % number for number in range(30)}
        assert table == latest
        assert {**table} == latest
        assert sorted(table.values()) == sorted(latest.values())
        assert b"29" in table.values()
        assert sum(table.positions.values()) == 30
        put(backend, (b"k1", None), (b"k2", b"new"), (b"", b"an empty key is one"))
        assert b"k1" not in table
        with pytest.raises(KeyError):
            table[b"k1"]
        assert (table[b"k2"], table[b""], len(table)) == (b"new", b"an empty key is one", 7)


@pytest.mark.parametrize("mode", MODES)
def test_a_view_stays_as_it_was(store: AnyStore, mode: dict[str, Any]) -> None:
    put(store.backend, (b"a", b"1"), (b"b", b"2"))
    with store.table("t", **mode) as table:
        view = table.frozen()
        put(store.backend, (b"a", None), (b"c", b"3"))
        assert (dict(view.items()), len(view), list(view), b"c" in view) == (
            {b"a": b"1", b"b": b"2"},
            2,
            [b"a", b"b"],
            False,
        )
        assert (view.positions, view.place(b"b"), view[b"a"]) == ({0: 2}, (0, 1), b"1")
        assert table == {b"b": b"2", b"c": b"3"}


def test_values_are_made_by_the_deserializer(store: AnyStore) -> None:
    put(store.backend, (b"a", b'{"n": 1}'), (b"b", b"no json"))
    for mode in MODES:
        with store.table("t", value_deserializer=json.loads, **mode) as table:
            assert table[b"a"] == {"n": 1}
            for read in (lambda table=table: table[b"b"], lambda table=table: list(table.values())):
                with pytest.raises(PoisonRecordError) as caught:
                    read()
                assert (caught.value.partition, caught.value.offset) == (0, 1)


def test_a_key_in_several_partitions_counts_where_the_partitioner_looks(backend: Backend) -> None:
    backend.create_topic("t", 1, COMPACT)
    rows = [(b"k%d" % number, b"old") for number in range(20)]
    put(backend, *rows)
    for mode in MODES:
        with KeyTable[bytes](backend, "t", **mode) as table:
            assert table == dict(rows)
    backend.add_partitions("t", 3, allow_keyed=True)
    with (
        KeyTable[bytes](backend, "t") as table,
        KeyTable[bytes](backend, "t", max_memory_bytes=10_000) as lean,
    ):
        put(backend, *[(key, b"new") for key, _ in rows])
        for found in (table, lean, table.frozen()):
            assert (dict(found), len(found)) == (dict.fromkeys(dict(rows), b"new"), 20)
            assert list(found.values()) == [b"new"] * 20
            assert {found.place(key)[0] for key, _ in rows} == {0, 1, 2}
        put(backend, *[(key, b"new") for key, _ in rows], partition=1)
        assert len(table) == 20


def test_open_and_aborted_transactions_show_nothing(store: AnyStore) -> None:
    with (
        store.producer(transactional_id="x") as producer,
        store.table("t") as table,
        store.table("t", isolation="read_uncommitted") as all_of_it,
    ):
        producer.begin().send("t", b"1", key=b"a").result()
        assert (dict(table), dict(all_of_it)) == ({}, {b"a": b"1"})
        with pytest.raises(
            DeliveryTimeoutError, match="partition 0 up to offset 0: 0 did not come within 0 s"
        ):
            table.wait_for(0, 0, timeout_s=0)
        producer.abort()
        assert dict(table) == {}
        put(store.backend, (b"b", b"2"))
        assert (dict(table), dict(all_of_it)) == ({b"b": b"2"}, {b"a": b"1", b"b": b"2"})


# --- keeping current ---


def test_read_your_writes_from_another_thread(backend: Backend) -> None:
    backend.create_topic("t", 2, COMPACT)
    with (
        KeyTable[bytes](backend, "t", max_age_ms=3_600_000) as table,
        Producer[Any, Any](backend) as producer,
    ):
        thread = threading.Thread(target=table.wait_for, args=(1, 0), kwargs={"timeout_s": 30})
        thread.start()
        metadata = producer.send("t", b"v", key=b"k", partition=1).result(30)
        thread.join(30)
        assert not thread.is_alive()
        table.wait_for(metadata.partition, metadata.offset)
        assert table[b"k"] == b"v"
        with pytest.raises(UnknownPartitionError):
            table.wait_for(2, 0)


def test_close_ends_a_wait(backend: Backend) -> None:
    backend.create_topic("t", 1, COMPACT)
    table = KeyTable[bytes](backend, "t")
    errors: list[Exception] = []

    def wait() -> None:
        try:
            table.wait_for(0, 7, timeout_s=60)
        except ClientClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not table._waits:
        thread.join(0.001)
    table.close()
    thread.join(30)
    assert len(errors) == 1
    table.close()
    with pytest.raises(ClientClosedError, match="the table of 't' is closed"):
        table.get(b"k")


def test_max_age_spares_looks(fake: FakeBackend) -> None:
    fake.create_topic("t", 1, COMPACT)
    clock = ManualClock()
    with KeyTable[bytes](fake, "t", max_age_ms=50, clock=clock) as table:
        fetches = fake.fetches
        put(fake, (b"a", b"1"))
        assert (table.get(b"a"), fake.fetches) == (None, fetches)
        clock.advance(50)
        assert (table.get(b"a"), fake.fetches > fetches) == (b"1", True)
        put(fake, (b"a", b"2"))
        assert table[b"a"] == b"1"
        table.refresh()
        assert table[b"a"] == b"2"


def test_a_topic_deleted_and_made_anew_is_noticed(backend: Backend) -> None:
    backend.create_topic("t", 2, COMPACT)
    put(backend, (b"a", b"1"), (b"b", b"1"))
    with KeyTable[bytes](backend, "t") as table:
        backend.delete_topic("t")
        with pytest.raises(UnknownTopicError):
            table.get(b"a")
        backend.create_topic("t", 1, COMPACT)
        put(backend, (b"b", b"2"), (b"c", b"2"))
        assert (dict(table), table.positions) == ({b"b": b"2", b"c": b"2"}, {0: 2})


def test_records_that_a_crash_took_back_leave_the_table(fake: FakeBackend) -> None:
    fake.create_topic("t", 1, COMPACT)
    with KeyTable[bytes](fake, "t") as table:
        put(fake, (b"a", b"1"))
        put(fake, (b"a", b"2"), (b"b", b"2"))
        assert dict(table) == {b"a": b"2", b"b": b"2"}
        fake.log("t", 0).truncate(1)
        assert dict(table) == {b"a": b"1"}
        put(fake, (b"c", b"3"), (b"d", b"3"))
        assert dict(table) == {b"a": b"1", b"c": b"3", b"d": b"3"}
        fake.log("t", 0).truncate(1)
        put(fake, (b"e", b"4"), (b"f", b"4"))
        assert dict(table) == {b"a": b"1", b"e": b"4", b"f": b"4"}, "the log is as long as before"


@pytest.mark.parametrize("mode", MODES)
def test_what_retention_took_leaves_the_table(backend: Backend, mode: dict[str, Any]) -> None:
    backend.create_topic("t", 1, {"cleanup.policy": "compact,delete"})
    put(backend, (b"a", b"1"), (b"b", b"1"))
    with KeyTable[bytes](backend, "t", **mode) as table:
        assert len(table) == 2
        backend.delete_records({logstore.TopicPartition("t", 0): 1})
        assert dict(table) == {b"b": b"1"}
        put(backend, (b"c", b"1"), (b"d", b"1"))
        backend.delete_records({logstore.TopicPartition("t", 0): 3})
        assert dict(table) == {b"d": b"1"}


def test_an_erased_key(store: AnyStore) -> None:
    put(store.backend, (b"a", b"1"), (b"b", b"2"))
    with store.table("t") as kept, store.table("t", max_memory_bytes=1000) as lean:
        view = lean.frozen()
        store.admin.erase_keys("t", [b"a"])
        assert dict(lean.items()) == {b"b": b"2"}
        with pytest.raises(CompactedAwayError, match="has been removed since"):
            view[b"a"]
        with pytest.raises(CompactedAwayError):
            dict(view.items())
        assert lean.get(b"a") is None
        assert b"a" in kept
        kept.rebuild()
        assert dict(kept) == {b"b": b"2"}


# --- former states ---


def test_states_of_offsets_and_times(store: AnyStore) -> None:
    rows: list[Any] = [(b"a", b"1", None, 10_000), (b"b", b"2", None, 20_000), (b"a", None, None, 30_013)]
    put(store.backend, *rows)
    for mode in MODES:
        with store.table("t", **mode) as table:
            states: list[dict[bytes, bytes]] = [{}, {b"a": b"1"}, {b"a": b"1", b"b": b"2"}, {b"b": b"2"}]
            assert [dict(table.as_of(offset).items()) for offset in range(4)] == states
            moments = [datetime.fromtimestamp(second, UTC) for second in (9, 10, 30.012, 30.013, 99)]
            found = [dict(table.as_of(moment).items()) for moment in moments]
            assert found == [states[0], states[1], states[2], states[3], states[3]]
            assert table.as_of({0: 2}).positions == {0: 2}
            with pytest.raises(OffsetOutOfRangeError, match="t-0 has states from offset 0 to 3, not of 4"):
                table.as_of(4)


def test_what_is_compacted_away_is_told_with_how_far_back_is_exact(store: AnyStore) -> None:
    put(store.backend, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    store.admin.compact("t", roll=True)
    put(store.backend, (b"b", b"3"))
    with store.table("t") as table:
        with pytest.raises(
            CompactedAwayError, match="states of this partition are exact from offset 3 on"
        ) as told:
            table.as_of(2)
        assert (told.value.partition, told.value.offset, told.value.exact_from) == (0, 2, 3)
        assert dict(table.as_of(0)) == {}, "nothing is missing before it"
        assert dict(table.as_of(3)) == {b"a": b"2", b"b": b"1"}
        assert dict(table.as_of(4)) == {b"a": b"2", b"b": b"3"}


class _TwoLeaders:
    """A backend whose leader dies after it was read ``reads`` times: the next one has compacted nothing."""

    def __init__(self, first: Backend, second: Backend, reads: int) -> None:
        self.first, self.second, self.left = first, second, reads

    def __getattr__(self, name: str) -> Any:
        return getattr(self.first, name)

    def fetch(self, *of: Any, **more: Any) -> Any:
        self.left -= 1
        return (self.first if self.left >= 0 else self.second).fetch(*of, **more)

    def describe_topic(self, name: str) -> Any:
        if self.left > 0:
            return self.first.describe_topic(name)
        told = self.second.describe_topic(name)
        return replace(told, partitions=tuple(replace(row, leader_epoch=7) for row in told.partitions))


def test_a_state_is_not_exact_by_the_word_of_a_leader_that_was_not_read(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "1") as first, logstore.open(tmp_path / "2") as second:
        for one in (first, second):
            one.create_topic("t", config=COMPACT)
            put(one.backend, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        first.admin.compact("t", roll=True)
        for one in (first, second):
            put(one.backend, (b"b", b"3"))
        for reads in range(1, 6):
            backend: Any = _TwoLeaders(first.backend, second.backend, reads)
            with KeyTable[bytes](backend, "t") as table:
                backend.left = reads
                try:
                    state = dict(table.as_of(2))
                except CompactedAwayError:
                    continue  # by the leader that was read
                assert state == {b"a": b"1", b"b": b"1"}


def test_a_state_is_refused_where_leaders_change_each_time(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store.backend, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    store.admin.compact("t", roll=True)
    put(store.backend, (b"b", b"3"))
    terms = count(1)
    describe = store.backend.describe_topic

    def described(name: str) -> Any:
        told = describe(name)
        term = next(terms)
        return replace(told, partitions=tuple(replace(row, leader_epoch=term) for row in told.partitions))

    monkeypatch.setattr(store.backend, "describe_topic", described)
    with store.table("t") as table, pytest.raises(CompactedAwayError):
        table.as_of(3)


# --- bounds and refusals ---


def test_too_many_keys_for_the_memory(backend: Backend) -> None:
    backend.create_topic("t", 1, COMPACT)
    put(backend, *[(b"key-%04d" % number, b"v" * 100) for number in range(50)])
    with KeyTable[bytes](backend, "t", max_memory_bytes=100 * 128) as table:
        assert table.memory_bytes == 50 * 128
        assert table[b"key-0007"] == b"v" * 100
        put(backend, *[(b"key-%04d" % number, None) for number in range(50)])
        assert (len(table), table.memory_bytes) == (0, 0)
        put(backend, *[(b"key-%04d" % number, b"v") for number in range(120)])
        for _ in range(2):
            with pytest.raises(
                TableTooLargeError, match=r"120 keys so far, about 15,360 bytes; max_memory_bytes is"
            ):
                table.get(b"key-0001")
    with KeyTable[bytes](backend, "t") as table:
        assert table.memory_bytes is None


def test_a_topic_that_does_not_compact(backend: Backend) -> None:
    put(backend, (b"a", b"1"), (b"a", b"2"), topic="events")
    with Producer[Any, Any](backend) as producer:
        producer.send_many("events", [(None, b"no key"), (None, None), (b"b", b"3")])
    with pytest.raises(NotCompactedError, match="topic 'events' does not compact"):
        KeyTable(backend, "events")
    for mode in MODES:
        with KeyTable[bytes](backend, "events", any_policy=True, **mode) as table:
            assert (dict(table.items()), len(table)) == ({b"a": b"2", b"b": b"3"}, 2)


def test_wrong_arguments(store: AnyStore) -> None:
    for settings in (
        {"isolation": "none"},
        {"max_memory_bytes": 0},
        {"max_age_ms": "1"},
        {"value_deserializer": 3},
        {"snapshot": 5},
        {"snapshot": ""},
    ):
        with pytest.raises(InvalidArgumentError, match=next(iter(settings))):
            store.table("t", **settings)
    with store.table("t") as table:
        for when in (
            True,
            "x",
            None,
            {},
            {1: 0},
            {0: -1},
            {0: 0, 1: 0},
            datetime.fromisoformat("2020-01-01"),
        ):
            with pytest.raises(InvalidArgumentError):
                table.as_of(when)  # type: ignore[arg-type]
        for read in (table.__getitem__, table.__contains__, table.place, table.frozen().__getitem__):
            with pytest.raises(RecordTypeError, match="keys are bytes"):
                read("text")  # type: ignore[operator]
        for read in (table.place, table.frozen().place, table.frozen().__getitem__):
            with pytest.raises(KeyError):
                read(b"nobody")  # type: ignore[operator]
        with pytest.raises(InvalidArgumentError, match="pass snapshot=PATH"):
            table.save()
        assert repr(table) == "KeyTable('t', positions={0: 0})"
        assert repr(table.frozen()) == "TableView(0 keys, positions={0: 0})"


def test_a_store_closes_its_tables_and_they_save(tmp_path: Path) -> None:
    file = tmp_path / "t.snapshot"
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", config=COMPACT)
        table = topic.table(snapshot=file)
        store.partition("t", 0).append([(b"a", b"1")])
        assert table[b"a"] == b"1"
        assert not file.exists()
    written = file.read_bytes()
    with pytest.raises(ClientClosedError):
        table.get(b"a")
    with pytest.raises(StoreClosedError):
        topic.table()
    with logstore.open(tmp_path / "store", mode="r") as store:
        with store.topic("t").table(snapshot=file) as again:
            assert dict(again) == {b"a": b"1"}
        assert file.read_bytes() == written
