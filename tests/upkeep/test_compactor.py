"""Compaction by hand: all that is dirty, now, and what stands in its way."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import (
    CorruptBatchError,
    InvalidArgumentError,
    StoreClosedError,
    TopicLockedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.log.cleaning.cleaning import Cleaning
from logstore.log.cleaning.key_offsets import ENTRY_BYTES
from logstore.types import CompactedPartition
from tests.engines import PlainCleaning
from tests.upkeep.test_cleaner import COMPACT, Desk, compaction


def test_it_cleans_what_is_dirty_and_says_what_it_did() -> None:
    desk = Desk()
    with desk.filled() as store:
        store.admin.alter_topic("t", {"min.cleanable.dirty.ratio": "1", "min.compaction.lag.ms": "0"})
        told: list[Any] = []
        (row,) = store.admin.compact("t", on_progress=lambda place, at: told.append((place, at.phase)))
        assert (row.partition, row.records_before, row.records_after, row.segments_after) == (0, 10, 4, 1)
        assert row.cleaned_to == desk.point() == compaction(store).cleaner_point > 0
        assert told == [(("t", 0), "write")] * 3
        assert {budget for _, budget in desk.diary.slices} == {0.05}, "at full speed"
        ends = [request.end_offset for _, request in desk.diary.made]
        (again,) = store.admin.compact("t", 0)
        assert again.cleaned_to == row.cleaned_to, "one look for tombstones that came of age"
        assert [request.end_offset for _, request in desk.diary.made] == ends * 2


def test_the_active_segment_is_closed_only_if_asked() -> None:
    desk = Desk()
    with desk.open() as store:
        desk.fill(store, "t", rows=3)
        assert store.admin.compact("t") == [CompactedPartition(partition=0, cleaned_to=0)]
        assert desk.diary.made == []
        assert store.admin.compact("t", roll=True)[0].cleaned_to == 3


def test_a_full_key_map_is_gone_on_with() -> None:
    desk = Desk()
    with desk.filled() as store:
        desk.diary.fields = {"cleaned_to": 13}

        def later() -> None:
            if len(desk.diary.made) == 2:
                desk.diary.fields = {}

        desk.diary.during = later
        (row,) = store.admin.compact("t")
        assert [request.start_offset for _, request in desk.diary.made] == [0, 13]
        assert row.cleaned_to == desk.diary.made[1][1].end_offset


def test_a_quarantined_partition_is_tried_at_once_and_a_failure_is_told() -> None:
    desk = Desk()
    desk.diary.error = CorruptBatchError("bad", path="p", position=1)
    with desk.filled() as store:
        desk.run(store, 100)
        assert compaction(store).error is not None
        with pytest.raises(CorruptBatchError, match="bad"):
            store.admin.compact("t")
        assert compaction(store).error is not None
        desk.diary.error = None
        store.admin.compact("t")
        assert compaction(store).error is None


def test_the_background_makes_way_and_another_call_is_refused() -> None:
    desk = Desk()
    desk.diary.steps = 10**6
    with desk.filled() as store:
        desk.run(store, 50)
        assert store.metrics()["logstore_cleaning_running"] == 1
        desk.diary.steps = 3
        refused: list[str] = []

        def meanwhile() -> None:
            store.step()  # the background: it begins nothing here
            with pytest.raises(TopicLockedError) as caught:
                store.admin.compact("t")
            refused.append(caught.value.message)

        desk.diary.during = meanwhile
        store.admin.compact("t")
        assert "another call" in refused[0]
        assert len(desk.diary.made) == 2
        assert desk.diary.cancelled == 1


def test_who_cannot_be_compacted() -> None:
    desk = Desk()
    with desk.filled() as store, desk.open(lock_timeout_s=0.0) as other:
        store.create_topic("plain")
        for arguments, error, message in (
            (("nope",), UnknownTopicError, "nope"),
            (("t", 7), UnknownPartitionError, "not 7"),
            (("t", -1), InvalidArgumentError, "partition=-1"),
            (("plain",), InvalidArgumentError, "does not compact"),
        ):
            with pytest.raises(error, match=message):
                store.admin.compact(*arguments)
        with pytest.raises(InvalidArgumentError, match="roll=1"):
            store.admin.compact("t", roll=1)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="on_progress=5"):
            store.admin.compact("t", on_progress=5)  # type: ignore[arg-type]
        with pytest.raises(TopicLockedError, match="topic 't'"):
            other.admin.compact("t")
        store.create_topic("empty", 2, COMPACT)
        assert [row.cleaned_to for row in store.admin.compact("empty")] == [0, 0]


def test_a_store_that_closes_ends_it() -> None:
    desk = Desk()
    store = desk.filled()

    def closing() -> None:
        store._context.closed = True

    desk.diary.during = closing
    with pytest.raises(StoreClosedError):
        store.admin.compact("t")
    assert desk.diary.cancelled == 1
    store._context.closed = False
    store.close()


def test_files_are_written_anew_and_what_is_kept_is_the_last_of_each_key() -> None:
    desk = Desk()
    with desk.filled() as store:
        store._cleaning.kit.make = PlainCleaning
        (row,) = store.admin.compact("t", roll=True)
        assert (row.records_before, row.records_after) == (60, 7)
        assert row.bytes_after < row.bytes_before
        assert store.describe_topic("t").partitions[0].size_bytes == row.bytes_after


def test_a_report_of_several_rounds_is_what_happened_to_the_partition() -> None:
    desk = Desk()
    keys = (1 << 16) // (ENTRY_BYTES + 7) // 100 * 150  # half as many again as the map holds
    with desk.open(cleaner_key_map_bytes=1 << 16) as store:
        store._cleaning.kit.make = Cleaning
        store.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "20000"})
        partition = store.partition("t", 0)
        for value in (b"old", b"new", None):
            rows = [(b"k%06d" % number, value) for number in range(keys if value else 100)]
            for first in range(0, len(rows), 100):
                partition.append(rows[first : first + 100])
        before = list(partition.records(0))
        sizes = sum(segment.size_bytes for segment in partition.segments())
        (row,) = store.admin.compact("t", roll=True)
        after = list(partition.records(0))
        assert row.rounds > 1
        assert (row.records_before, row.records_after) == (len(before), len(after)) == (2 * keys + 100, keys)
        assert (row.bytes_before, row.bytes_after) == (sizes, sum(s.size_bytes for s in partition.segments()))
        assert (row.tombstones, row.removed_tombstones) == (100, 0)
        desk.clock.advance(2 * 86_400_000)
        (row,) = store.admin.compact("t")
        assert (row.rounds, row.records_before, row.records_after) == (1, keys, keys - 100)
        assert (row.tombstones, row.removed_tombstones) == (0, 100)
