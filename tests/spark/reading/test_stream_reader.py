"""The streaming reader without a session: called as Spark's driver calls it."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

import logstore
from logstore.errors import DataLossError, InvalidGroupError, TopicLockedError
from logstore.format.batch import encode_batch
from logstore.seams.clock import ManualClock
from logstore.types import OffsetAndMetadata
from spark_connector.reading.offsets import StreamOffset
from spark_connector.reading.stream_reader import LogStoreStreamReader
from tests.spark.sources import TOPIC, ends_of, fill, offsets_of, place, places_of, rows, stream_reader

EARLIEST = {"startingOffsets": "earliest"}
ALL = ReadAllAvailable()


def offsets(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def run(reader: LogStoreStreamReader, start: dict[str, Any], most: int = 100) -> list[dict[str, Any]]:
    """The ends of triggers until nothing is new; each is read, and nothing twice."""
    ends = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        ends.append(end)
        start = end
        assert len(ends) <= most
    return ends


def read(reader: LogStoreStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    return places_of(rows(reader, reader.partitions(start, end)))


def epoch_moved(path: Path) -> None:
    """The next owner comes after a crash: a higher leader epoch."""
    store = logstore.open(path)
    store.partition(TOPIC, 0).append([(None, b"x")])
    store.abandon()
    fill(path, [1])


def test_where_a_new_query_begins(tmp_path: Path) -> None:
    fill(tmp_path, [5, 3])
    assert ends_of(stream_reader(tmp_path).initialOffset()) == {0: 5, 1: 3}
    assert ends_of(stream_reader(tmp_path, **EARLIEST).initialOffset()) == {0: 0, 1: 0}
    given = '{"flights":{"0":2,"1":-1}}'
    assert ends_of(stream_reader(tmp_path, startingOffsets=given).initialOffset()) == {0: 2, 1: 3}
    late = {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"}
    assert ends_of(stream_reader(tmp_path, **late).initialOffset()) == {0: 5, 1: 3}


def test_a_position_keeps_its_text_until_it_moves(tmp_path: Path) -> None:
    fill(tmp_path, [5])
    reader = stream_reader(tmp_path, **EARLIEST)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    epoch_moved(tmp_path)
    moved = reader.latestOffset(end, ALL)
    assert ends_of(moved) == {0: 7}
    with logstore.open(tmp_path) as store:
        store.partition(TOPIC, 0).flush()
    assert json.dumps(reader.latestOffset(moved, ALL)) == json.dumps(moved)


def test_triggers_take_what_is_new(tmp_path: Path) -> None:
    fill(tmp_path, [2, 1])
    reader = stream_reader(tmp_path, **EARLIEST)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == offsets(0, 0, 2) + offsets(1, 0, 1)
    assert reader.partitions(end, end) == []
    fill(tmp_path, [0, 2])
    following = reader.latestOffset(end, ALL)
    assert read(reader, end, following) == offsets(1, 1, 3)
    assert read(reader, end, following) == offsets(1, 1, 3)  # a batch that is run again
    assert reader.reportLatestOffset() == following


def test_a_copy_for_the_tasks_is_pickled(tmp_path: Path) -> None:
    fill(tmp_path, [3])
    reader = stream_reader(tmp_path, **EARLIEST)
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, ALL))
    copy, tasks = pickle.loads(pickle.dumps((reader, tasks)))
    assert places_of(rows(copy, tasks)) == offsets(0, 0, 3)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "2"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "2"}, ReadMinRows(2)),
        ({"maxBytesPerTrigger": "9"}, ReadMaxBytes(9)),
    ],
    ids=str,
)
def test_the_limit_that_spark_is_told(tmp_path: Path, options: dict[str, str], limit: Any) -> None:
    fill(tmp_path, [1])
    assert stream_reader(tmp_path, **options).getDefaultReadLimit() == limit


def test_most_offsets_of_a_trigger(tmp_path: Path) -> None:
    fill(tmp_path, [90, 10])
    reader = stream_reader(tmp_path, maxOffsetsPerTrigger="10", **EARLIEST)
    start = reader.initialOffset()
    ends = run(reader, start)
    assert ends_of(ends[0]) == {0: 9, 1: 1}
    assert len(ends) == 10
    assert ends_of(ends[-1]) == {0: 90, 1: 10}
    assert ends_of(reader.latestOffset(start, ALL)) == {0: 90, 1: 10}  # Trigger.Once: no limit counts


def test_most_bytes_of_a_trigger(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC, partitions=2)
        for partition, count in enumerate((20, 2)):
            for _ in range(count):
                store.partition(TOPIC, partition).append([(None, b"v" * 930)], acks=1)
            store.partition(TOPIC, partition).flush()
    reader = stream_reader(tmp_path, maxBytesPerTrigger="5100", **EARLIEST)
    ends = run(reader, reader.initialOffset())
    totals = [0, *(sum(ends_of(end).values()) for end in ends)]
    steps = [after - before for before, after in pairwise(totals)]
    assert sum(steps) == 22
    assert all(1 <= step <= 5 for step in steps)  # a batch takes a little over 1,000 bytes
    assert len(steps) <= 7
    tiny = stream_reader(tmp_path, maxBytesPerTrigger="1", **EARLIEST)
    first = tiny.latestOffset(tiny.initialOffset(), tiny.getDefaultReadLimit())
    assert ends_of(first) == {0: 1, 1: 1}  # a first batch always comes


def test_least_offsets_of_a_trigger(tmp_path: Path) -> None:
    fill(tmp_path, [3])
    clock = ManualClock()
    options = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "10s", **EARLIEST}
    reader = stream_reader(tmp_path, clock, **options)
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == start
    clock.advance(9_999)
    assert reader.latestOffset(start, limit) == start
    clock.advance(1)
    end = reader.latestOffset(start, limit)
    assert ends_of(end) == {0: 3}
    clock.advance(5_000)
    fill(tmp_path, [4])
    assert reader.latestOffset(end, limit) == end
    fill(tmp_path, [1])
    assert ends_of(reader.latestOffset(end, limit)) == {0: 8}


def test_available_now_ends_at_the_ends_of_its_beginning(tmp_path: Path) -> None:
    fill(tmp_path, [5, 5])
    options = {"maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "4", **EARLIEST}
    reader = stream_reader(tmp_path, **options)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(tmp_path, [5, 5])
    with logstore.open(tmp_path) as store:
        store.admin.add_partitions(TOPIC, 3, allow_keyed=True)
    ends = run(reader, start)
    assert ends_of(ends[-1]) == {0: 5, 1: 5}
    assert len(ends) == 3  # 4, 4 and the 2 that are left: fewer than the least, but no more come
    assert ends_of(reader.reportLatestOffset()) == {0: 10, 1: 10, 2: 0}
    again = stream_reader(tmp_path, **options)
    again.prepareForTriggerAvailableNow()
    assert ends_of(run(again, ends[-1])[-1]) == {0: 10, 1: 10, 2: 0}


def test_new_topics_and_partitions_are_read_from_their_start(tmp_path: Path) -> None:
    fill(tmp_path, [2])
    reader = stream_reader(tmp_path, subscribePattern="fl.*|other")
    start = reader.initialOffset()
    with logstore.open(tmp_path) as store:
        store.admin.add_partitions(TOPIC, 2, allow_keyed=True)
        store.partition(TOPIC, 1).append([(None, b"new")] * 3)
    fill(tmp_path, [4], topic="other")
    end = reader.latestOffset(start, ALL)
    table = rows(reader, reader.partitions(start, end))
    names = ("topic", "partition", "offset")
    found = zip(*(table[name].to_pylist() for name in names), strict=True)
    assert sorted(found) == [(TOPIC, 1, n) for n in range(3)] + [("other", 0, n) for n in range(4)]


# --- data loss ---


def both(path: Path, **options: str) -> tuple[LogStoreStreamReader, LogStoreStreamReader]:
    strict = stream_reader(path, **options)
    return strict, stream_reader(path, failOnDataLoss="false", **options)


def test_records_deleted_before_they_were_read(tmp_path: Path) -> None:
    fill(tmp_path, [10])
    strict, lenient = both(tmp_path, **EARLIEST)
    start = offsets_of(tmp_path, p0=2)
    planned = strict.latestOffset(start, ALL)
    with logstore.open(tmp_path) as store:
        store.delete_records(TOPIC, {0: 6})
    for call in (lambda: strict.latestOffset(start, ALL), lambda: strict.partitions(start, planned)):
        with pytest.raises(DataLossError, match="offsets 2 to 5 are gone"):
            call()
    end = lenient.latestOffset(start, ALL)
    assert read(lenient, start, end) == offsets(0, 6, 10)


def test_markers_and_aborted_records_are_no_loss(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC)
        log = store.partition(TOPIC, 0)
        batch = encode_batch(
            [(None, b"x")] * 5, now_ms=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        log.append_batch(batch)
        strict = stream_reader(tmp_path, **EARLIEST)
        start = strict.initialOffset()
        assert strict.latestOffset(start, ALL) == start  # open: nothing is stable yet
        log.end_transaction(7, 0, commit=False)
        end = strict.latestOffset(start, ALL)
        assert ends_of(end) == {0: 6}
        assert read(strict, start, end) == []
        assert strict.latestOffset(end, ALL) == end


def test_compactions_gaps_are_no_loss(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC, config={"cleanup.policy": "compact"})
        log = store.partition(TOPIC, 0)
        for number in range(10):
            log.append([(b"k%d" % (number % 2), b"%d" % number)])
        store.admin.compact(TOPIC, roll=True)
    reader = stream_reader(tmp_path, maxOffsetsPerTrigger="3", **EARLIEST)
    start = reader.initialOffset()
    ends = [start, *run(reader, start)]
    found = [row for one, two in pairwise(ends) for row in read(reader, one, two)]
    assert found == [(0, 8), (0, 9)]


def test_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    """Its offsets are other records, also when there are as many as before."""
    fill(tmp_path, [5])
    strict, lenient = both(tmp_path, **EARLIEST)
    start = strict.initialOffset()
    planned = strict.latestOffset(start, ALL)
    with logstore.open(tmp_path) as store:
        store.delete_topic(TOPIC)
    fill(tmp_path, [8])
    with pytest.raises(DataLossError, match="deleted and made anew"):
        strict.latestOffset(planned, ALL)
    with pytest.raises(DataLossError, match="deleted and made anew before its batch was read"):
        strict.partitions(start, planned)
    end = lenient.latestOffset(planned, ALL)
    assert read(lenient, planned, end) == offsets(0, 0, 8)


def test_a_topic_that_is_gone(tmp_path: Path) -> None:
    fill(tmp_path, [5])
    fill(tmp_path, [1], topic="flying")
    strict, lenient = both(tmp_path, subscribePattern="fl.*", **EARLIEST)
    start = strict.initialOffset()
    planned = strict.latestOffset(start, ALL)
    with logstore.open(tmp_path) as store:
        store.delete_topic(TOPIC)
    with pytest.raises(DataLossError, match="flights-0 is gone; it was read up to 5"):
        strict.latestOffset(planned, ALL)
    with pytest.raises(DataLossError, match="gone before its batch was read"):
        strict.partitions(start, planned)
    assert set(StreamOffset.from_json(lenient.latestOffset(planned, ALL)).ids) == {"flying"}
    assert read(lenient, start, planned) == [(0, 0)]


def test_what_a_crash_took_back_is_loss(tmp_path: Path) -> None:
    """A position of an epoch that ended before it: other records are there now under the same numbers."""
    fill(tmp_path, [4])
    epoch_moved(tmp_path)  # epoch 1 begins at offset 5
    fill(tmp_path, [6])
    reached = offsets_of(tmp_path, p0=8)  # under epoch 0
    strict, lenient = both(tmp_path, **EARLIEST)
    with pytest.raises(DataLossError, match="epoch 0, which ends at 5"):
        strict.latestOffset(reached, ALL)
    with pytest.raises(DataLossError, match="epoch 0, which ends at 5"):
        strict.partitions(offsets_of(tmp_path, p0=2), reached)
    end = lenient.latestOffset(reached, ALL)
    assert read(lenient, reached, end) == offsets(0, 5, 12)
    assert StreamOffset.from_json(end).places[place(0)].epoch == 1


# --- progress ---


def committed(path: Path, group: str = "spark") -> dict[int, OffsetAndMetadata]:
    with logstore.open(path, mode="r") as store:
        return {at.partition: row for at, row in store.committed_offsets(group).items()}


def test_what_is_finished_is_committed_when_the_next_trigger_is_asked_for(tmp_path: Path) -> None:
    fill(tmp_path, [5])
    options = {"commit.group": "spark", "maxOffsetsPerTrigger": "3", **EARLIEST}
    reader = stream_reader(tmp_path, **options)
    start = reader.initialOffset()
    assert committed(tmp_path) == {}
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(start, limit)
    assert committed(tmp_path)[0].offset == 0
    second = reader.latestOffset(first, limit)
    assert committed(tmp_path)[0] == OffsetAndMetadata(3, 0, "spark")
    assert reader.latestOffset(second, limit) == second  # nothing more: the last batch's is committed, too
    assert committed(tmp_path)[0].offset == 5
    with logstore.open(tmp_path, mode="r") as store:
        assert store.admin.describe_group("spark").lag == 0
    fill(tmp_path, [2])
    third = reader.latestOffset(second, limit)
    again = stream_reader(tmp_path, **options)  # stopped between two triggers, and started again
    assert again.latestOffset(third, limit) == third
    assert committed(tmp_path)[0].offset == 7


def test_commit_of_spark_commits_as_well(tmp_path: Path) -> None:
    fill(tmp_path, [5])
    reader = stream_reader(tmp_path, **{"commit.group": "spark"})
    reader.commit(offsets_of(tmp_path, p0=4))
    assert committed(tmp_path)[0].offset == 4


def test_without_a_group_nothing_is_written(tmp_path: Path) -> None:
    fill(tmp_path, [5])
    reader = stream_reader(tmp_path, **EARLIEST)
    run(reader, reader.initialOffset())
    with logstore.open(tmp_path, mode="r") as store:
        assert store.list_topics(internal=True) == [TOPIC]


def test_who_is_in_the_way_only_delays_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, [5])
    reader = stream_reader(tmp_path, **{"commit.group": "spark"})
    real = logstore.LogStore.commit_offsets

    def busy(self: object, group: str, offsets: object) -> None:
        raise TopicLockedError("somebody has the lock")

    monkeypatch.setattr(logstore.LogStore, "commit_offsets", busy)
    reader.commit(offsets_of(tmp_path, p0=4))
    assert "progress is not committed to group 'spark' this time: somebody has the lock" in caplog.text
    assert committed(tmp_path) == {}
    monkeypatch.setattr(logstore.LogStore, "commit_offsets", real)
    reader.commit(offsets_of(tmp_path, p0=4))
    assert committed(tmp_path)[0].offset == 4


def test_what_was_lost_is_not_committed(tmp_path: Path) -> None:
    """A topic that is gone, and one that was made anew and is shorter: the others' progress goes on."""
    for topic in (TOPIC, "flying", "fly"):
        fill(tmp_path, [5], topic=topic)
    options = {"subscribePattern": "fl.*", "commit.group": "spark", "failOnDataLoss": "false", **EARLIEST}
    reader = stream_reader(tmp_path, **options)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    with logstore.open(tmp_path) as store:
        store.delete_topic(TOPIC)
        store.delete_topic("flying")
    fill(tmp_path, [2], topic="flying")
    after = reader.latestOffset(end, ALL)
    reader.commit(end)
    with logstore.open(tmp_path, mode="r") as opened:
        assert {at.topic: row.offset for at, row in opened.committed_offsets("spark").items()} == {"fly": 5}
    reader.latestOffset(after, ALL)
    with logstore.open(tmp_path, mode="r") as opened:
        found = {at.topic: row.offset for at, row in opened.committed_offsets("spark").items()}
    assert found == {"fly": 5, "flying": 2}


def test_a_group_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, [1])
    reader = stream_reader(tmp_path, **{"commit.group": "x" * 300})
    with pytest.raises(InvalidGroupError):
        reader.commit(offsets_of(tmp_path, p0=1))
