"""Offsets of the embedded backend, committed and listed, against the logs of another store on the directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.errors import InvalidArgumentError, UnknownPartitionError, UnknownTopicError
from logstore.log.bounds import Bounds
from logstore.log.observed_log import ObservedLog
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition

PLACE = TopicPartition("t", 0)


def commit(store: LogStore, offset: int, place: TopicPartition = PLACE) -> None:
    store.commit_offsets("g", {place: OffsetAndMetadata(offset)})


def fill(store: LogStore, end: int) -> None:
    log = store.partition("t", 0)
    while log.log_end_offset < end:
        log.append([(None, b"x")])


def test_how_far_a_group_may_commit_grows_with_the_log_of_another_store(tmp_path: Path) -> None:
    """And begins anew with a topic that was made anew."""
    with LogStore(tmp_path) as writer, LogStore(tmp_path) as store:
        for ends in ((0, 1, 5), (0, 2, 3)):
            writer.create_topic("t")
            for end in ends:
                fill(writer, end)
                for offset in (end, 0, end):
                    commit(store, offset)
                    assert store.committed_offsets("g") == {PLACE: OffsetAndMetadata(offset)}
                with pytest.raises(InvalidArgumentError, match=f"offset {end + 1} of t-0: its end is {end}"):
                    commit(store, end + 1)
            with pytest.raises(UnknownPartitionError):
                commit(store, 0, TopicPartition("t", 1))
            writer.delete_topic("t")
        with pytest.raises(UnknownTopicError):
            commit(store, 0)


def test_an_end_is_looked_at_again_only_for_an_offset_past_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    bounds = ObservedLog.bounds

    def counted(log: ObservedLog) -> Bounds:
        looks.append(log.where)
        return bounds(log)

    with LogStore(tmp_path) as writer, LogStore(tmp_path) as store:
        writer.create_topic("t")
        fill(writer, 5)
        commit(store, 5)
        monkeypatch.setattr(ObservedLog, "bounds", counted)
        for offset in (4, 5, 0):
            commit(store, offset)
        assert looks == []
        fill(writer, 6)
        commit(store, 6)
        assert looks == ["t-0"]


def test_offsets_are_listed_of_partitions_that_another_store_just_added(tmp_path: Path) -> None:
    with LogStore(tmp_path) as writer, LogStore(tmp_path) as store:
        writer.create_topic("t")
        fill(writer, 3)
        with store.consumer("t") as consumer:
            assert consumer.end_offsets([PLACE]) == {PLACE: 3}
            writer.admin.add_partitions("t", 3)
            added = [PLACE, TopicPartition("t", 2), TopicPartition("t", 1)]
            assert consumer.end_offsets(added) == dict(zip(added, (3, 0, 0), strict=True))
            writer.delete_topic("t")
            with pytest.raises(UnknownTopicError):
                consumer.end_offsets(added)
