"""How a table's maps are brought up to date: fetches, their faults, and what may have been missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from logstore.api.records import FetchRequest, FetchResult
from logstore.client.table import feed as table_feed
from logstore.client.table.feed import Maps, TableFeed, cleaned_to
from logstore.errors import CorruptBatchError, SegmentVanishedError
from logstore.format.batch import encode_batch, read_header
from logstore.log.cleaning.compaction import emptied
from logstore.seams.clock import ManualClock
from logstore.types import (
    CleaningProgress,
    PartitionCompaction,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from tests.client.fake_backend import FakeBackend

PLACE = TopicPartition("t", 0)
DAY_MS = 86_400_000


class Desk:
    """A feed over a fake backend, with its maps."""

    def __init__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self.backend, self.clock = FakeBackend(), ManualClock()
        self.backend.create_topic("t", partitions, {"cleanup.policy": "compact", **(config or {})})
        self.feed = TableFeed(self.backend, "t", "read_committed", self.clock)
        self.maps: Maps = {at: self.feed.fresh() for at in range(partitions)}

    def put(self, *rows: tuple[bytes, bytes | None], partition: int = 0) -> None:
        self.backend.log("t", partition).append(encode_batch(rows, now_ms=1))

    def empty(self, number: int) -> None:
        """A cleaning takes all records of the batch of this number in the log."""
        log = self.backend.log("t", 0)
        log.batches[number] = emptied(read_header(log.batches[number]))

    def catch_up(self, ends: Mapping[int, int] | None = None) -> dict[bytes, bytes]:
        self.feed.catch_up(self.maps, ends)
        return {key: entry[1] for held in self.maps.values() for key, entry in held.entries.items()}


def test_many_partitions_and_few_bytes_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_feed, "_CALL_BYTES", 100)
    monkeypatch.setattr(table_feed, "_FETCH_BYTES", 60)
    desk = Desk(partitions=7)
    rows = [(b"%d" % number, b"v" * 30) for number in range(70)]
    for number, row in enumerate(rows):
        desk.put(row, partition=number % 7)
    assert desk.catch_up() == dict(rows)
    fetches = desk.backend.fetches
    desk.catch_up()
    assert desk.backend.fetches == fetches + 1, "nothing new costs one call for all"


def test_it_stops_at_the_end_of_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that never rests does not keep a reader busy for ever."""
    monkeypatch.setattr(table_feed, "_FETCH_BYTES", 1)
    desk = Desk()
    for number in range(3):
        desk.put((b"%d" % number, b"v"))
    fetch = desk.backend.fetch

    def fetch_and_write(requests: Sequence[FetchRequest], **settings: Any) -> list[FetchResult]:
        results = fetch(requests, **settings)
        desk.put((b"more", b"v"))
        return results

    desk.backend.fetch = fetch_and_write  # type: ignore[method-assign]
    assert set(desk.catch_up()) == {b"0", b"1", b"2"}


def test_a_backend_that_brings_nothing_is_not_asked_for_ever() -> None:
    desk = Desk()
    desk.put((b"a", b"1"))

    def fetch(requests: Sequence[FetchRequest], **settings: Any) -> list[FetchResult]:
        return [FetchResult("t", 0, b"", request.offset, 0, 5, 5) for request in requests]

    desk.backend.fetch = fetch  # type: ignore[method-assign]
    assert desk.catch_up() == {}


def test_errors_that_pass_are_tried_again_and_others_told() -> None:
    desk = Desk()
    desk.put((b"a", b"1"))
    desk.backend.fetch_faults[PLACE].extend([SegmentVanishedError("gone")] * 4)
    assert desk.catch_up() == {b"a": b"1"}
    desk.put((b"b", b"2"))
    desk.backend.fetch_faults[PLACE].extend([SegmentVanishedError("gone")] * 5)
    with pytest.raises(SegmentVanishedError):
        desk.catch_up()
    desk.backend.fetch_faults[PLACE].append(CorruptBatchError("damaged"))
    with pytest.raises(CorruptBatchError):
        desk.catch_up()
    assert desk.catch_up() == {b"a": b"1", b"b": b"2"}
    assert desk.feed.rebuilds == 0


def test_a_tombstone_that_may_have_been_missed(caplog: pytest.LogCaptureFixture) -> None:
    for away_ms, rebuilds in ((DAY_MS - 1, 0), (DAY_MS, 1), (-1, 1)):
        desk = Desk()
        desk.put((b"a", b"1"))
        desk.put((b"b", b"1"))
        assert desk.catch_up() == {b"a": b"1", b"b": b"1"}
        desk.clock.jump_wall(away_ms)
        assert desk.catch_up() == {b"a": b"1", b"b": b"1"}, "nothing is new, so nothing was missed"
        desk.clock.jump_wall(-away_ms)
        desk.maps[0].complete_ms = desk.clock.wall_ms()
        desk.put((b"a", None))
        desk.empty(2)
        desk.empty(0)
        desk.clock.jump_wall(away_ms)
        assert desk.catch_up() == ({b"b": b"1"} if rebuilds else {b"a": b"1", b"b": b"1"})
        assert desk.feed.rebuilds == rebuilds


def test_the_time_that_tombstones_stay_is_the_topics() -> None:
    desk = Desk(config={"delete.retention.ms": "50"})
    for number in range(3):
        desk.put((b"a", b"%d" % number))
        desk.put((b"b", b"%d" % number))
        desk.empty(2 * number)
        desk.catch_up()
        desk.clock.advance(49 + number)
    assert desk.feed.rebuilds == 1
    desk.backend.alter_topic("t", {"delete.retention.ms": None})
    desk.put((b"a", b"9"))
    desk.empty(6)
    desk.catch_up()
    assert desk.feed.rebuilds == 1


def test_to_given_ends_and_no_further() -> None:
    desk = Desk()
    desk.put((b"a", b"1"), (b"b", b"1"))
    desk.put((b"a", b"2"))
    assert desk.catch_up({0: 1}) == {b"a": b"1"}
    assert (desk.maps[0].position, desk.maps[0].absent) == (1, 0)
    assert desk.catch_up({0: 2}) == {b"a": b"1", b"b": b"1"}


def test_how_far_compaction_was_is_known_or_not() -> None:
    def described(compaction: PartitionCompaction | None) -> TopicDescription:
        row = PartitionDescription(
            partition=0,
            log_start_offset=0,
            high_watermark=9,
            last_stable_offset=9,
            log_end_offset=9,
            leader_epoch=0,
            segments=1,
            size_bytes=1,
            compaction=compaction,
        )
        return TopicDescription(name="t", topic_id="id", internal=False, partitions=(row,))

    idle = PartitionCompaction(cleaner_point=5, dirty_bytes=0, dirty_ratio=0)
    busy = PartitionCompaction(
        cleaner_point=5, dirty_bytes=0, dirty_ratio=0, running=CleaningProgress("swap", 1, 2)
    )
    assert [cleaned_to(described(found), 0) for found in (idle, busy, None)] == [5, None, None]
    assert cleaned_to(described(idle), 1) is None
