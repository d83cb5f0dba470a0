"""A store whose partitions are replicated, seen from above: the same records, and never one that is not committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logstore
from logstore.format.batch import encode_batch
from logstore.log.append_validation import split_checked
from logstore.store import LogStore
from tests.log.logs import NOW_MS, values
from tests.partition.replicated import ReplicatedPartition


@pytest.fixture
def store() -> Iterator[LogStore]:
    with logstore.open(":memory:") as opened:
        opened._context.make_partition = ReplicatedPartition
        opened.create_topic("t")
        yield opened


def replicas(store: LogStore) -> ReplicatedPartition:
    found = store._registry.get("t").partition(0)
    assert isinstance(found, ReplicatedPartition)
    return found


def test_nothing_is_seen_before_the_commit_index_covers_it(store: LogStore) -> None:
    partition, seen = replicas(store), store.partition("t", 0)
    pending = []
    for number in range(12):
        batches = split_checked(encode_batch([(None, b"%d" % number)], now_ms=NOW_MS), "t-0")
        append = partition.append(batches)
        pending.append(append)
        assert append.done == (seen.high_watermark >= append.next_offset)
        for log in partition.logs:
            assert b"nobody may see this" not in values(log, 0, log.bounds().high_watermark)
    told: list[object] = []
    pending[-1].then(told.append)
    assert told == [None]
    assert partition.most_uncommitted > 0, "the script left some to be committed later"
    assert partition.truncations >= 2, "and had a follower cut off what it had synced"
    partition.check()
    assert [record.value for record in seen.records(0)] == [b"%d" % number for number in range(12)]


def test_clients_cannot_tell(store: LogStore) -> None:
    with store.producer() as producer, store.producer(transactional_id="till") as till:
        sent = [producer.send("t", b"%d" % number) for number in range(9)]
        assert [one.result(timeout_s=60).offset for one in sent] == list(range(9))
        for commits in (True, False):
            till.begin()
            till.send("t", b"in one" if commits else b"in none").result(timeout_s=60)
            till.commit() if commits else till.abort()
    with store.consumer("t", group="g", until_end=True) as consumer:
        assert [record.value for record in consumer] == [*(b"%d" % number for number in range(9)), b"in one"]
        consumer.commit()
    assert store.delete_records("t", {0: 4}) is not None
    assert store.partition("t", 0).log_start_offset == 4
    replicas(store).check()
