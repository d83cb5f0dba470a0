"""How far a group may commit: what was seen of an end spares a look, and never lets an offset pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.errors import InvalidArgumentError, UnknownPartitionError, UnknownTopicError
from logstore.log.log_offsets import LogOffsets
from logstore.log.read_only_log import ReadOnlyLog
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition

PLACE = TopicPartition("t", 0)


def commit(store: LogStore, offset: int, place: TopicPartition = PLACE) -> None:
    store.commit_offsets("g", {place: OffsetAndMetadata(offset)})


def fill(store: LogStore, end: int) -> None:
    log = store.partition("t", 0)
    while log.log_end_offset < end:
        log.append([(None, b"x")])


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions of other stores whose ends are looked at from now on."""
    looks: list[str] = []
    bounds = ReadOnlyLog.bounds

    def counted(log: ReadOnlyLog) -> LogOffsets:
        looks.append(log.where)
        return bounds(log)

    monkeypatch.setattr(ReadOnlyLog, "bounds", counted)
    return looks


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
    with LogStore(tmp_path) as writer, LogStore(tmp_path) as store:
        writer.create_topic("t")
        fill(writer, 5)
        commit(store, 5)
        looks = count_looks(monkeypatch)
        for offset in (4, 5, 0):
            commit(store, offset)
        assert looks == []
        fill(writer, 6)
        commit(store, 6)
        assert looks == ["t-0"]


def test_an_end_that_a_crash_may_take_back_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LogStore(tmp_path) as writer, LogStore(tmp_path) as store:
        writer.create_topic("t", config={"visible.after": "append"})
        writer.partition("t", 0).append([(None, b"x")] * 5, acks=1)
        commit(store, 5)
        looks = count_looks(monkeypatch)
        for _ in "12":
            commit(store, 5)
        assert looks == ["t-0"] * 2


def test_offsets_in_a_transaction_are_held_against_the_same_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LogStore(tmp_path) as writer, LogStore(tmp_path) as store:
        writer.create_topic("t")
        fill(writer, 5)
        commit(store, 2)  # from here on it is known where the partition ends
        with store.consumer("t", group="g") as consumer, store.producer(transactional_id="copy") as producer:
            records = consumer.poll(20)
            assert [record.offset for record in records] == [2, 3, 4]
            with producer.transaction() as tx:
                looks = count_looks(monkeypatch)
                tx.send_offsets(consumer)
                assert "t-0" not in looks
        assert store.committed_offsets("g")[PLACE].offset == 5
