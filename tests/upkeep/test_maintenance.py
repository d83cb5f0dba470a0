"""Retention, compaction and expiry do not depend on which process is there: before a close, and by ``maintain``."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import CorruptBatchError, InvalidArgumentError, ReadOnlyStoreError, UnknownTopicError
from logstore.log.cleaning.cleaning import Cleaning
from logstore.ownership.locks import MemoryLocks
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.upkeep.test_cleaner import Desk

SMALL = {"segment.bytes": "1024", "file.delete.delay.ms": "0"}
BY_TIME = SMALL | {"retention.ms": "60000"}
BY_SIZE = SMALL | {"retention.bytes": "4000"}
COMPACT = SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


class Moments:
    """A disk and a clock; each ``with`` is a process of its own that lives for a moment."""

    def __init__(self, **settings: Any) -> None:
        self.desk = Desk()
        self.settings = settings
        self.clock = self.desk.clock

    def open(self, mode: str = "rw", **settings: Any) -> LogStore:
        store = self.desk.open(mode, **(self.settings | settings))
        store._cleaning.kit.make = Cleaning
        return store

    def fill(self, topic: str, rows: int = 30) -> None:
        with self.open() as store:
            log = store.partition(topic, 0)
            for number in range(rows):
                log.append([(b"k%d" % (number % 5), b"%03d" % number + b"." * 150)])

    def files(self, topic: str) -> list[str]:
        return [name for name in self.desk.fs.listdir(f"/s/{topic}-0") if name.endswith(".log")]

    def size(self, topic: str) -> int:
        """Bytes of all its segments."""
        return sum(self.desk.fs.stat(f"/s/{topic}-0/{name}").size for name in self.files(topic))


def starts(store: LogStore, topic: str = "t") -> int:
    return store.partition(topic, 0).log_start_offset


@pytest.mark.parametrize(("config", "left"), [(BY_TIME, 30), (BY_SIZE, 24)])
def test_topics_of_short_lived_writers_are_retained(config: dict[str, str], left: int) -> None:
    moments = Moments()
    with moments.open() as store:
        store.create_topic("t", 1, config)
    for _ in range(5):
        moments.clock.advance(100_000)
        moments.fill("t")
    with moments.open("r") as store:
        assert len(list(store.partition("t", 0).records(starts(store)))) <= left + 6
        assert starts(store) >= 150 - left - 6
    assert len(moments.files("t")) <= left // 5 + 2


def test_topics_of_short_lived_writers_are_compacted() -> None:
    moments = Moments()
    with moments.open() as store:
        store.create_topic("t", 1, COMPACT)
    for _ in range(5):
        moments.clock.advance(1000)
        moments.fill("t")
    with moments.open("r") as store:
        found = [(record.key, record.offset) for record in store.partition("t", 0).records(0)]
        assert len(found) < 15
        assert dict(found) == {b"k%d" % key: 145 + key for key in range(5)}


@pytest.mark.parametrize("config", [BY_TIME, BY_SIZE, COMPACT])
def test_a_process_that_only_reads_or_commits_looks_after_topics_that_no_process_owns(
    config: dict[str, str],
) -> None:
    moments = Moments(maintenance_s=0)
    with moments.open() as store:
        store.create_topic("t", 1, config)
        store.create_topic("other", 1, {})
    moments.fill("t")
    before = moments.size("t")
    moments.clock.advance(100_000)
    with moments.open(maintenance_s=0.5) as store:
        store.commit_offsets("g", {TopicPartition("other", 0): OffsetAndMetadata(0)})
    moments.clock.advance(2000)  # what was seen of the clock once is believed from here on
    with moments.open(maintenance_s=0.5) as store:
        assert not store.metrics()["logstore_owned_topics"]
    assert moments.size("t") < before * 0.9
    with moments.open() as store:  # its lock was given back
        store.partition("t", 0).append([(b"k", b"v")])


def test_zero_seconds_are_no_maintenance_and_an_interrupted_block_ends_at_once() -> None:
    moments = Moments(maintenance_s=0)
    with moments.open() as store:
        store.create_topic("t", 1, COMPACT)
    moments.fill("t")
    before = moments.files("t")
    with pytest.raises(KeyboardInterrupt), moments.open(maintenance_s=9):
        raise KeyboardInterrupt
    assert moments.files("t") == before
    with pytest.raises(InvalidArgumentError, match="maintenance_s"):
        moments.open(maintenance_s="x")


def test_a_topic_that_another_process_owns_is_left_to_it() -> None:
    moments = Moments(maintenance_s=0)
    with moments.open() as owner:
        owner.create_topic("t", 1, COMPACT)
        moments.desk.fill(owner, "mine", COMPACT)
        before = moments.files("mine")
        with moments.open() as other:
            report = other.maintain()
        assert moments.files("mine") == before
        (row,) = [row for row in report.topics if row.topic == "mine"]
        assert row.owner is not None
        assert f"pid {os.getpid()}" in row.owner
        assert report.is_complete


def test_a_cleaning_that_cannot_be_done_in_time_is_not_begun_before_a_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    moments = Moments(maintenance_s=0)
    with moments.open() as store:
        store.create_topic("t", 1, COMPACT)
    moments.fill("t")
    before = moments.size("t")
    with caplog.at_level(logging.INFO):
        moments.open(maintenance_s=1e-6).close()
    assert moments.size("t") == before
    assert "`logstore maintain` has time" in caplog.text
    with moments.open() as store:
        assert store.maintain().is_complete
    assert moments.size("t") < before


def test_a_report_says_what_was_done_to_each_topic(caplog: pytest.LogCaptureFixture) -> None:
    moments = Moments(maintenance_s=0)
    with moments.open() as store:
        for name, config in (("compacts", COMPACT), ("retains", BY_SIZE), ("keeps", {})):
            store.create_topic(name, 1, config)
    for name in ("compacts", "retains", "keeps"):
        moments.fill(name)
    with caplog.at_level(logging.INFO), moments.open() as store:
        report = store.maintain()
        rows = {row.topic: row for row in report.topics}
        assert rows["retains"].retired_segments > 0 < rows["retains"].retired_bytes
        (done,) = rows["compacts"].compacted
        assert (done.records_before, done.rounds) == (28, 1)
        assert done.records_after < 10
        assert rows["keeps"].is_idle
        assert (report.is_complete, report.by_time) == (True, False)
        assert store.maintain(["retains"]).topics[0].is_idle
        assert [row.topic for row in store.maintain(["retains"]).topics] == ["retains"]
        assert not store.metrics()["logstore_owned_topics"]
    assert "retains-0: retention removed offsets 0 to" in caplog.text
    assert "beyond retention.bytes=4000" in caplog.text
    assert "compacts-0: compacted up to offset" in caplog.text


def test_time_that_is_up_is_told_and_the_rest_is_whole() -> None:
    moments = Moments(maintenance_s=0)
    with moments.open() as store:
        store.create_topic("t", 1, COMPACT)
    moments.fill("t")

    class Slow(Cleaning):
        def step(self, budget_s: float) -> Any:
            moments.clock.advance(1000)
            return super().step(-1.0) if moments.clock.monotonic_s() > 1e9 else None

    with moments.open() as store:
        store._cleaning.kit.make = Slow
        report = store.maintain(time_limit_s=10)
        assert [(row.topic, row.left) for row in report.topics] == [("t", "time")]
        assert not report.is_complete
        store._cleaning.kit.make = Cleaning
        assert store.maintain(time_limit_s=10).is_complete
    assert [name for name in moments.desk.fs.listdir("/s/t-0") if name.endswith(".cleaned")] == []


@pytest.mark.parametrize("owner", ["no process", "this process"])
def test_a_topic_that_another_process_waits_for_is_given_up_between_two_slices(owner: str) -> None:
    moments = Moments(maintenance_s=0)
    with moments.open() as store:
        store.create_topic("t", 1, COMPACT)
        slot = store._registry.get("t").entry.lock_slot
    moments.fill("t")
    waiting = MemoryLocks(moments.desk.table, clock=moments.clock)
    slices: list[bool] = []

    class Slow(Cleaning):
        def step(self, budget_s: float) -> Any:
            del budget_s
            moments.clock.advance(10)
            if len(slices) == 5:
                assert waiting.try_turn(slot)
            slices.append(waiting.try_acquire(slot))
            return None

    with moments.open() as store:
        if owner == "this process":
            store.partition("t", 0).append([(b"k", b"v")])
        store._cleaning.kit.make = Slow
        report = store.maintain(time_limit_s=60)
        assert not any(slices)
        assert 5 < len(slices) < 60, "it goes on without a process that waits, and not for long with one"
        assert [(row.topic, row.left) for row in report.topics] == [("t", "another process waits for it")]
        assert waiting.try_acquire(slot)
        waiting.end_turn(slot)
        waiting.release(slot)
        store._cleaning.kit.make = Cleaning
        assert store.maintain(time_limit_s=10).is_complete
    assert [name for name in moments.desk.fs.listdir("/s/t-0") if name.endswith(".cleaned")] == []


def test_what_fails_for_one_topic_is_in_its_row_and_the_others_are_done() -> None:
    moments = Moments(maintenance_s=0)
    with moments.open() as store:
        for name in ("bad", "good"):
            store.create_topic(name, 1, COMPACT)
    for name in ("bad", "good"):
        moments.fill(name)

    def make(log: Any, *more: Any) -> Cleaning:
        if log.where == "bad-0":
            raise CorruptBatchError("x.log at byte 7: bad", path="x", position=7)
        return Cleaning(log, *more)

    with moments.open() as store:
        store._cleaning.kit.make = make
        for _ in range(2):
            rows = {row.topic: row for row in store.maintain().topics}
            assert "byte 7" in str(rows["bad"].error), "each call tries again"
        assert rows["good"].error is None
    assert moments.size("good") < moments.size("bad")


def test_offsets_expire_where_no_process_stays() -> None:
    moments = Moments(offsets_retention_s=60.0)
    place = TopicPartition("t", 0)
    with moments.open() as store:
        store.create_topic("t", 1, {})
        store.commit_offsets("g", {place: OffsetAndMetadata(0)})
        store.partition("t", 0).append([(None, b"v")])
    for _ in range(3):
        moments.clock.advance(700_000)
        moments.open().close()
    with moments.open("r") as store:
        assert store.committed_offsets("g") == {}
    with moments.open() as store:
        store.commit_offsets("g", {place: OffsetAndMetadata(0)})
        moments.clock.advance(100_000)
        assert store.maintain().expired_offsets == 1


def test_an_internal_topic_is_compacted_where_no_process_stays() -> None:
    moments = Moments()
    with moments.open() as store:
        store.create_topic("t", 1, {})
        store.partition("t", 0).append([(None, b"v")])
    sizes = []
    for turn in range(6):
        with moments.open() as store:
            for _ in range(50):
                store.commit_offsets(
                    "g", {TopicPartition("t", 0): OffsetAndMetadata(turn % 2, metadata="m" * 1000)}
                )
        sizes.append(moments.size("__consumer_offsets"))
        moments.clock.advance(8 * 86_400_000)
    assert max(sizes[2:]) < 3 * sizes[0], "not all that was ever written is there"
    with moments.open("r") as store:
        assert store.committed_offsets("g")[TopicPartition("t", 0)].offset == 1


def test_retired_files_go_after_their_delay_whichever_process_comes(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", maintenance_s=9) as store:
        store.create_topic("t", 1, BY_SIZE | {"file.delete.delay.ms": "60000"})
        for number in range(30):
            store.partition("t", 0).append([(None, b"%03d" % number + b"." * 150)])
    folder = tmp_path / "s" / "t-0"

    def retired() -> list[str]:
        return [path.name for path in folder.iterdir() if path.name.endswith(".deleted")]

    assert len(retired()) > 5
    with logstore.open(tmp_path / "s") as store:
        store.maintain()
    assert len(retired()) > 5, "their time has not come"
    seconds = folder.stat().st_mtime - 61
    os.utime(folder, (seconds, seconds))
    logstore.open(tmp_path / "s", maintenance_s=9).close()
    assert retired() == []


def test_who_may_not_and_what_is_refused() -> None:
    moments = Moments()
    with moments.open() as store:
        store.create_topic("t", 1, {})
        with pytest.raises(UnknownTopicError):
            store.maintain(["nope"])
        for wrong in ("t", [1], 7):
            with pytest.raises(InvalidArgumentError, match="topics="):
                store.maintain(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="time_limit_s"):
            store.maintain(time_limit_s="x")  # type: ignore[arg-type]
    with moments.open(mode="r") as store, pytest.raises(ReadOnlyStoreError):
        store.maintain()
