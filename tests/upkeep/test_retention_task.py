"""Retention and delete-records in a whole store: what goes, when, and what a crash or a reader makes of it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import logstore
from logstore.errors import InvalidArgumentError, OffsetOutOfRangeError, ReadOnlyStoreError
from logstore.ownership.live import MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem

SMALL = {"segment.bytes": "2000"}


class Desk:
    """A store on a disk and a clock that the test moves."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.clock = ManualClock()
        self.live = MemoryLive()
        self.table = LockTable()

    def open(self, mode: str = "rw") -> logstore.LogStore:
        return logstore.LogStore(
            "/s",
            mode,  # type: ignore[arg-type]
            fs=self.fs,
            clock=self.clock,
            live=self.live,
            locks=MemoryLocks(self.table, clock=self.clock),
            threads=False,
            lock_idle_release_s=1e9,
        )

    def passes(self, store: logstore.LogStore, count: int = 2) -> None:
        for _ in range(count):
            self.clock.advance(31_000)
            store.step()

    def names(self, ending: str) -> list[str]:
        return sorted(name for name in self.fs.listdir("/s/t-0") if name.endswith(ending))


def filled(desk: Desk, config: dict[str, str], records: int = 60) -> logstore.LogStore:
    store = desk.open()
    store.create_topic("t", 1, SMALL | config)
    log = store.partition("t", 0)
    for number in range(records):
        log.append([(None, b"%03d" % number + b"x" * 97)])
    return store


def values(store: logstore.LogStore) -> list[int]:
    log = store.partition("t", 0)
    return [int(record.value[:3]) for record in log.records(log.log_start_offset)]


def test_by_size_the_oldest_segments_go_and_the_rest_is_whole() -> None:
    desk = Desk()
    with filled(desk, {"retention.bytes": "5000"}) as store:
        log = store.partition("t", 0)
        store.step()
        description = log.describe()
        assert 0 < log.log_start_offset < 60
        assert description.size_bytes >= 5000 > description.size_bytes - 2000
        assert values(store) == list(range(log.log_start_offset, 60))


def test_by_time_all_goes_once_the_clock_was_seen_to_go_on_and_appends_go_on() -> None:
    desk = Desk()
    with filled(desk, {"retention.ms": "100000"}) as store:
        log = store.partition("t", 0)
        desk.clock.jump_wall(500_000)
        store.step()
        assert log.log_start_offset == 0, "the clock has jumped since the store was opened"
        desk.clock.jump_wall(-500_000)
        desk.clock.advance(500_000)
        store.step()
        assert (log.log_start_offset, log.log_end_offset) == (60, 60)
        assert log.append([(None, b"060")]).offset == 60
        assert values(store) == [60]


@pytest.mark.parametrize("timestamp_ms", [-1, -86_400_000])
def test_records_from_before_1970_age_by_their_files(tmp_path: Path, timestamp_ms: int) -> None:
    clock = ManualClock()
    with logstore.LogStore(tmp_path, clock=clock, threads=False) as store:
        store.create_topic("t", 1, SMALL | {"retention.ms": "100000", "file.delete.delay.ms": "0"})
        log = store.partition("t", 0)
        for number in range(60):
            log.append([(None, b"%03d" % number + b"x" * 97, (), timestamp_ms)])
        log.flush()
        files = sorted((tmp_path / "t-0").glob("*.log"))
        assert len(files) > 4
        for file in files:
            old = file in files[:3] or file == files[4]
            os.utime(file, ns=(0, (clock.wall_ms() - 200_000 * old) * 1_000_000))
        for _ in range(2):
            clock.advance(31_000)
            store.step()
        assert log.log_start_offset == int(files[3].stem), "the front's, up to one that is not due"
        assert len(values(store)) == 60 - log.log_start_offset
        clock.advance(100_000)
        for _ in range(2):
            clock.advance(31_000)
            store.step()
        assert values(store) == [], "the idle active segment too"


def test_without_a_clock_in_the_file_system_they_stay() -> None:
    desk = Desk()
    with filled(desk, {"retention.ms": "100000"}, records=0) as store:
        for number in range(60):
            store.partition("t", 0).append([(None, b"%03d" % number + b"x" * 97, (), -1)])
        desk.clock.advance(500_000)
        desk.passes(store, 3)
        assert values(store) == list(range(60))


def test_a_clock_that_jumps_deletes_nothing_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    with filled(desk, {"retention.ms": "100000"}) as store:
        store.step()
        desk.clock.jump_wall(10**10)
        with caplog.at_level(logging.ERROR):
            desk.passes(store, 5)
        assert values(store) == list(range(60))
        assert "jumped" in caplog.text
        assert store.metrics()["logstore_clock_jump_ms"] == 10**10
        desk.clock.jump_wall(-(10**10))
        desk.passes(store, 5)
        assert values(store) == [], "back where it should be, it is believed again"


def test_files_go_in_two_steps() -> None:
    desk = Desk()
    with filled(desk, {"retention.bytes": "5000", "file.delete.delay.ms": "90000"}) as store:
        store.step()
        retired = desk.names(".deleted")
        assert retired
        assert not any(name.removesuffix(".deleted") in desk.names("") for name in retired)
        desk.passes(store, 2)
        assert desk.names(".deleted") == retired
        desk.passes(store, 1)
        assert desk.names(".deleted") == []


def test_what_a_crash_left_half_removed_is_swept_by_the_next_owner() -> None:
    desk = Desk()
    store = filled(desk, {"retention.bytes": "5000"})
    store.step()
    start = store.partition("t", 0).log_start_offset
    store.abandon()
    desk.fs = desk.fs.process_crash()
    with desk.open() as again:
        log = again.partition("t", 0)
        log.append([(None, b"060")])
        assert desk.names(".deleted") == []
        assert log.log_start_offset == start
        assert values(again) == list(range(start, 61))


def test_a_store_that_owns_nothing_retires_for_an_owner_that_left() -> None:
    desk = Desk()
    filled(desk, {"retention.bytes": "5000"}).close()
    with desk.open() as other:
        other.step()
        assert other.partition("t", 0).log_start_offset > 0


def test_an_owned_topic_is_left_to_its_owner() -> None:
    desk = Desk()
    with filled(desk, {"retention.bytes": "5000"}) as owner, desk.open() as other:
        other.step()
        assert owner.partition("t", 0).log_start_offset == 0
        assert not other.metrics()["logstore_owned_topics"]


def test_a_reader_beside_it_gets_whole_answers_or_the_lost_range() -> None:
    desk = Desk()
    with filled(desk, {"retention.bytes": "5000"}) as store, desk.open("r") as reader:
        seen = reader.partition("t", 0)
        assert next(seen.records(0)).offset == 0
        store.step()
        start = seen.log_start_offset
        assert start > 0
        with pytest.raises(OffsetOutOfRangeError, match=f"offsets 0 to {start - 1} are gone") as caught:
            seen.records(0)
        assert caught.value.log_start_offset == start
        assert [record.offset for record in seen.records(start)] == list(range(start, 60))


def test_deleted_records_are_gone_at_once_and_after_a_restart() -> None:
    desk = Desk()
    store = filled(desk, {})
    assert store.delete_records("t", {0: 17}) == {("t", 0): 17}
    assert values(store) == list(range(17, 60))
    store.abandon()
    desk.fs, desk.live = next(desk.fs.crash_states(1)), MemoryLive()
    desk.clock.reboot("boot-1")
    with desk.open() as again:
        assert again.partition("t", 0).log_start_offset == 17
        again.partition("t", 0).append([(None, b"060")])
        again.step()
        assert values(again) == list(range(17, 61))
        assert again.delete_records("t", -1) == {("t", 0): 61}
        assert values(again) == []


def test_deleting_never_goes_back_and_never_past_the_high_watermark() -> None:
    desk = Desk()
    with filled(desk, {}) as store:
        store.delete_records("t", 30)
        assert store.delete_records("t", 10) == {("t", 0): 30}
        with pytest.raises(OffsetOutOfRangeError, match="the high watermark is 60"):
            store.delete_records("t", 61)
        with pytest.raises(InvalidArgumentError, match="before -5"):
            store.delete_records("t", -5)
        assert store.partition("t", 0).log_start_offset == 30
    with desk.open("r") as reader, pytest.raises(ReadOnlyStoreError):
        reader.delete_records("t", 40)
