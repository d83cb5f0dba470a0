"""Several real processes on one directory: writers, readers, kills, locks, commits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.api.groups import JoinRequest
from logstore.errors import ForkedStoreError, TopicLockedError
from logstore.store import LogStore
from logstore.types import TopicPartition
from tests.worker_process import PATIENCE_S, Worker


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.dispose()


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = str(tmp_path / "store")
    with LogStore(path) as store:
        store.create_topic("a", config={"segment.bytes": "3000", "index.interval.bytes": "500"})
        store.create_topic("b", config={"segment.bytes": "3000", "flush.ms": "20"})
    return path


def start(workers: list[Worker], *arguments: object) -> Worker:
    worker = Worker(*arguments)
    workers.append(worker)
    return worker


def test_two_writers_of_two_topics_with_readers_beside_them(root: str, workers: list[Worker]) -> None:
    """Through dozens of rolls each reader sees every record once, in order, never one that is not durable."""
    count = 1_200
    readers = [start(workers, "follow", root, topic, count) for topic in ("a", "b")]
    for reader in readers:
        reader.expect("ready")
    writers = [start(workers, "write", root, topic, count, 6) for topic in ("a", "b")]
    for writer in writers:
        writer.expect("closed")
        assert writer.finish() == 0
    for reader in readers:
        assert reader.expect("all") == f"all {count}"
        assert reader.finish() == 0
    with LogStore(root, "r") as store:
        for topic in ("a", "b"):
            assert store.partition(topic, 0).describe().segments >= 9
            assert store.partition(topic, 0).high_watermark == count


def test_a_writer_killed_with_a_batch_in_flight_loses_nothing_it_acknowledged(
    root: str, workers: list[Worker]
) -> None:
    """Counted from the log itself: every acknowledged record at its offset, in order, at most one more."""
    with LogStore(root) as store:
        store.create_topic("k", config={"segment.bytes": "100000"})
    acked = -1
    epoch = -1
    for cycle in range(6):
        writer = start(workers, "write_until_killed", root, "k")
        ready = int(writer.expect("ready").split()[1])
        assert ready >= acked + 1
        wanted = 25 + 9 * cycle
        for _ in range(wanted):
            acked = int(writer.expect("acked").split()[1])
        writer.kill()
        while (line := writer.next()) is not None:
            acked = int(line.split()[1])
        with LogStore(root, "r") as beside:  # before anything was recovered
            shown = beside.partition("k", 0).high_watermark
            assert acked + 1 <= shown <= acked + 2
        with LogStore(root) as store:
            log = store.partition("k", 0)
            store.pin("k")  # recovers it: a batch that was in flight may be in, acknowledged or not
            log.append([(None, b"%d after the kill" % log.log_end_offset)])
            values = [record.value for record in log.records(0)]
            assert len(values) >= acked + 2
            assert [int(value.split(b" ")[0]) for value in values] == list(range(len(values)))
            assert log.leader_epoch > epoch
            epoch = log.leader_epoch
            acked = len(values) - 1
            assert store.recovery_report[0].end_offset == len(values) - 1
    assert epoch >= 5


def test_a_second_writer_is_told_who_holds_the_topic(root: str, workers: list[Worker]) -> None:
    owner = start(workers, "own", root, "a")
    owner.expect("owned")
    with LogStore(root, lock_timeout_s=0.2) as store:
        log = store.partition("a", 0)
        with pytest.raises(
            TopicLockedError, match=f"topic 'a' is locked by pid {owner.process.pid} on "
        ) as caught:
            log.append([(None, b"x")])
        assert caught.value.retriable
        assert "lock_timeout_s" in str(caught.value)
        described = store.describe_topic("a")
        assert described.owner is not None
        assert f"pid {owner.process.pid}" in described.owner
        assert [record.value for record in log.records(0)] == [b"mine"]
        store.partition("b", 0).append([(None, b"x")])  # another topic is free
        assert owner.finish() == 0
        assert log.append([(None, b"x")]).offset == 1
        assert store.recovery_report == ()


def test_a_killed_owners_topic_is_free(root: str, workers: list[Worker]) -> None:
    owner = start(workers, "own", root, "a")
    owner.expect("owned")
    owner.kill()
    with LogStore(root, lock_timeout_s=PATIENCE_S) as store:
        assert store.partition("a", 0).append([(None, b"x")]).offset == 1
        (report,) = store.recovery_report
        assert (report.topic, report.partition, report.end_offset, report.cut_bytes) == ("a", 0, 1, 0)
        assert report.leader_epoch == 1


def test_readers_go_on_while_a_thread_waits_for_the_topic(root: str, workers: list[Worker]) -> None:
    owner = start(workers, "own", root, "a")
    owner.expect("owned")
    with LogStore(root, lock_timeout_s=600) as store:
        log = store.partition("a", 0)
        placed: list[int] = []
        waiting = threading.Thread(target=lambda: placed.append(log.append([(None, b"x")]).offset))
        waiting.start()
        deadline = time.monotonic() + 1
        reads = 0
        while reads <= 20 or time.monotonic() < deadline:
            assert [record.value for record in log.records(0)] == [b"mine"]
            assert store.partition("a", 0).high_watermark == 1
            reads += 1
        assert waiting.is_alive()
        assert owner.finish() == 0
        waiting.join(PATIENCE_S)
        assert placed == [1]


def test_commits_from_two_processes_are_all_kept(root: str, workers: list[Worker]) -> None:
    with LogStore(root) as store:
        store.partition("a", 0).append([(None, b"x")] * 60)
        store.release("a")
    committers = [start(workers, "commit", root, "a", group, 50) for group in ("g1", "g2", "g3")]
    for committer in committers:
        committer.expect("closed")
        assert committer.finish() == 0
    for mode in ("r", "rw"):
        with LogStore(root, mode) as store:
            for group in ("g1", "g2", "g3"):
                found = store.committed_offsets(group)
                assert found == {TopicPartition("a", 0): (50, 0, f"by {group}")}
            assert store.partition("__consumer_offsets", 0).high_watermark == 150
            assert store.recovery_report == ()


def test_a_committer_killed_half_way_leaves_whole_commits(root: str, workers: list[Worker]) -> None:
    with LogStore(root) as store:
        store.partition("a", 0).append([(None, b"x")] * 5_000, acks="all")
    for group in ("g1", "g2", "g3"):
        committer = start(workers, "commit_until_killed", root, "a", group, 5_000)
        committer.expect("ready")
        place = TopicPartition("a", 0)
        with LogStore(root, "r") as beside:
            deadline = time.monotonic() + PATIENCE_S
            while (seen := beside.committed_offsets(group).get(place)) is None or seen.offset <= 5:
                assert time.monotonic() < deadline
                time.sleep(0.002)
        committer.kill()
        with LogStore(root) as store:
            found = store.committed_offsets(group)[place]
            assert found.offset >= seen.offset
            store.commit_offsets("other", {place: found})
            assert store.committed_offsets("other")[place] == found


def test_two_processes_that_want_each_others_topics_come_through(root: str, workers: list[Worker]) -> None:
    pair = [start(workers, "take_turns", root, *order, 30) for order in (("a", "b"), ("b", "a"))]
    for worker in pair:
        worker.expect("closed")
        assert worker.finish() == 0
    with LogStore(root, "r") as store:
        for topic in ("a", "b"):
            values = [int(record.value) for record in store.partition(topic, 0).records(0)]
            assert sorted(values) == sorted(2 * list(range(30)))
        assert store.partition("a", 0).leader_epoch == 0


def test_changed_settings_and_partitions_reach_the_owner(root: str, workers: list[Worker]) -> None:
    owner = start(workers, "obey", root, "a")
    owner.expect("owned")
    with LogStore(root) as store:
        store.admin.add_partitions("a", 2)
        store.admin.alter_topic("a", {"max.message.bytes": "5000"})
    assert owner.expect("changed") == "changed 5000 0"
    assert owner.finish() == 0


def test_a_topic_deleted_and_made_anew_elsewhere_is_not_mixed_up(root: str, workers: list[Worker]) -> None:
    with LogStore(root) as mine, LogStore(root) as other:
        log = mine.partition("a", 0)
        for number in range(60):
            log.append([(None, b"old %d" % number + b"." * 100)])
        mine.release("a")
        assert len(list(other.partition("a", 0).records(0))) == 60  # its pool knows the files now
        mine.delete_topic("a")
        mine.create_topic("a")
        mine.partition("a", 0).append([(None, b"new")])
        assert [record.value for record in other.partition("a", 0).records(0)] == [b"new"]
        assert other.partition("a", 0).log_start_offset == 0
        mine.release("a")
        assert other.partition("a", 0).append([(None, b"more")]).offset == 1


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(root: str) -> None:
    with LogStore(root) as store:
        log = store.partition("a", 0)
        log.append([(None, b"before")])
        backend = store.backend
        parts: list[object] = [
            lambda: log.append([(None, b"child")]),
            lambda: log.read(0),
            lambda: log.high_watermark,
            log.flush,
            log.describe,
            lambda: store.partition("a", 0),
            lambda: store.create_topic("c"),
            store.list_topics,
            lambda: store.committed_offsets("g"),
            lambda: store.release("a"),
            lambda: store.producer(),
            lambda: store.consumer("a"),
            lambda: store.__enter__(),
            lambda: backend.join_group("g", JoinRequest(topics=frozenset("t"))),
            store.step,
        ]
        child = os.fork()
        if child == 0:
            refused = 0
            for part in parts:
                try:
                    part()  # type: ignore[operator]
                except ForkedStoreError:
                    refused += 1
                except BaseException:  # noqa: BLE001 - a child of the test runner must not run on
                    os._exit(100)
            store.close()  # nothing to do, and no error
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == len(parts)
        assert log.append([(None, b"after")]).offset == 1
        with pytest.raises(TopicLockedError), LogStore(root, lock_timeout_s=0) as second:
            second.partition("a", 0).append([(None, b"x")])
    with LogStore(root) as store:
        assert store.partition("a", 0).append([(None, b"x")]).offset == 2
        assert store.recovery_report == ()
