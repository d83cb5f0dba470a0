"""Staging and committing without Spark: what a batch comes to through retries, kills, damage and other owners."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import logstore
from logstore.client.partitioner import murmur2_partition
from logstore.errors import (
    DamagedStoreError,
    DiskFullError,
    InvalidArgumentError,
    InvalidRecordError,
    OutcomeUnknownError,
    RecordTooLargeError,
    StorageError,
    StoreNotFoundError,
    TopicLockedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.format.batch import iter_headers
from logstore.seams.fs import OsFile
from spark_connector.settings.sink_options import SinkOptions, parse_sink
from spark_connector.source import LogStoreDataSource
from spark_connector.writing.sink_commit import COUNTER, SinkCommit, sink_group
from spark_connector.writing.staging import Attempt, Receipt, Staging
from spark_connector.writing.writer import LogStoreStreamWriter, LogStoreWriter, Staged, TaskSink, check_sink
from tests.house import ROOT
from tests.spark.killed_driver import DEAD, POINTS

OUT = "out"
QUERY = "0f6ac0c5-0000-4000-8000-000000000001"
VALUE = StructType([StructField("value", BinaryType())])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with logstore.open(tmp_path) as store:
        store.create_topic(OUT, partitions=2)
        store.create_topic("other")
    return tmp_path


def options(root: Path, **given: str) -> SinkOptions:
    return parse_sink({"path": str(root), "topic": OUT, "lockTimeout": "200ms", **given}).options


def rows(*values: str, **columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([value.encode() for value in values]), **columns})


def stage(
    root: Path, *batches: pa.RecordBatch, batch_id: int = 0, task: int = 0, attempt: int = 0, **given: str
) -> Receipt:
    made = TaskSink(options(root, **given)).stage(batches, Attempt(QUERY, batch_id, task, attempt))
    assert made.receipt is not None
    return made.receipt


def commit(root: Path, **given: str) -> SinkCommit:
    return SinkCommit(options(root, **given), Staging(str(root)))


def values(root: Path, topic: str = OUT, isolation: Any = "read_committed") -> list[str]:
    with (
        logstore.open(root, mode="r") as store,
        store.consumer(topic, isolation=isolation, until_end=True) as consumer,
    ):
        return sorted(record.value.decode() for batch in consumer.batches() for record in batch)


def next_batch(root: Path) -> int | None:
    with logstore.open(root, mode="r") as store:
        at = store.committed_offsets(sink_group(QUERY)).get(COUNTER)
        return None if at is None else at.offset


def staged(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".staging").iterdir())


# --- tasks ---


def test_rows_go_where_the_topics_partitioner_says(tmp_path: Path) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic(OUT, partitions=5, config={"partitioner": "murmur2", "compression.type": "gzip"})
    keys = [b"key %d" % number for number in range(50)]
    batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(keys)})
    receipt = stage(tmp_path, batch)
    found: Counter[int] = Counter()
    for topic, partition, data in Staging(str(tmp_path)).read(receipt):
        ((_, header),) = iter_headers(data)
        assert (topic, header.codec) == (OUT, "gzip")
        found[partition] += header.records_count
    assert found == Counter(murmur2_partition(key, 5) for key in keys)


NO_TOPIC = pa.array([None], pa.string())


@pytest.mark.parametrize(
    ("bad", "topic", "error"),
    [
        (rows("x", partition=[2]), OUT, UnknownPartitionError),
        (rows("x", partition=[-1]), OUT, UnknownPartitionError),
        (rows("x" * (2 << 20)), OUT, RecordTooLargeError),
        (rows("x", topic=["nope"]), None, UnknownTopicError),
        (rows("x", topic=NO_TOPIC), None, InvalidRecordError),
    ],
    ids=["partition", "negative", "size", "topic", "no topic"],
)
def test_a_task_that_fails_leaves_no_file(
    root: Path, bad: pa.RecordBatch, topic: str | None, error: type[Exception]
) -> None:
    sink = TaskSink(replace(options(root), topic=topic))
    with pytest.raises(error):
        sink.stage([rows("good", topic=["other"]), bad], Attempt(QUERY, 0, 0, 0))
    assert staged(root) == []


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("bad", "row"),
    [
        (rows("v"), (None, b"v")),
        (rows("v" * (2 << 20), key=[b"k"]), (b"k", b"v" * (2 << 20))),
        (
            rows("v", key=[b"k"], headers=pa.array([[{"key": None, "value": b"1"}]], HEADERS)),
            (b"k", b"v", [(None, b"1")]),
        ),
    ],
    ids=["no key", "size", "header without a name"],
)
def test_the_sink_refuses_what_a_producer_refuses(root: Path, bad: pa.RecordBatch, row: Any) -> None:
    with logstore.open(root) as store:
        store.create_topic("compacted", config={"cleanup.policy": "compact"})
        with store.producer() as producer, pytest.raises(logstore.LogStoreError) as theirs:
            producer.send_many("compacted", [row])
    with pytest.raises(logstore.LogStoreError) as ours:
        TaskSink(options(root, topic="compacted")).stage([bad], Attempt(QUERY, 0, 0, 0))
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))
    assert staged(root) == []


def test_a_task_without_rows_has_a_message_and_no_file(root: Path) -> None:
    made = TaskSink(options(root)).stage([], Attempt(QUERY, 0, 0, 0))
    assert made == Staged(QUERY, None)
    assert pickle.loads(pickle.dumps(made)) == made
    assert staged(root) == []


# --- exactly once ---


class Full:
    """A disk on which files whose path holds ``part`` take ``writes`` more writes, and none while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, part: str = f"/{OUT}-", writes: int = 0) -> None:
        self.full = True
        self._left = writes
        real = OsFile.pwritev

        def pwritev(file: OsFile, parts: Any, offset: int) -> int:
            if self.full and part in file.path:
                if self._left <= 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                self._left -= 1
            return real(file, parts, offset)

        monkeypatch.setattr(OsFile, "pwritev", pwritev)


@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("part", [f"/{OUT}-", "/__transaction_state", "/__consumer_offsets", "/topics.json"])
def test_a_disk_that_becomes_full_at_any_write_of_a_commit(
    root: Path, monkeypatch: pytest.MonkeyPatch, part: str, writes: int
) -> None:
    """An error within seconds, or none; and the batch once, when it comes again."""
    assert commit(root).once(QUERY, 0, [stage(root, rows("a"))])
    receipts = [stage(root, rows("b", "c", partition=[0, 1]), batch_id=1)]
    disk = Full(monkeypatch, part, writes)
    begin_s = time.monotonic()
    with contextlib.suppress(StorageError, DiskFullError, OutcomeUnknownError):
        commit(root).once(QUERY, 1, receipts)
    assert time.monotonic() - begin_s < 60
    disk.full = False
    commit(root).once(QUERY, 1, receipts)
    assert (values(root), next_batch(root)) == (["a", "b", "c"], 2)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_full_disk_fails_the_commit_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    receipts = [stage(root, rows("a", "b"), delivery=delivery)]
    sink = commit(root, delivery=delivery)
    disk = Full(monkeypatch)
    begin_s = time.monotonic()
    with pytest.raises(StorageError, match=r"No space left.*free space"):
        sink.once(QUERY, 0, receipts) if delivery == "exactly_once" else sink.plainly(receipts)
    if delivery == "exactly_once":
        with pytest.raises(StorageError, match="No space left"):
            sink.together("run", receipts)
    assert time.monotonic() - begin_s < 60
    disk.full = False
    assert (values(root), next_batch(root)) == ([], None)
    if delivery == "exactly_once":
        assert sink.once(QUERY, 0, receipts)
    else:
        sink.plainly(receipts)
    assert values(root) == ["a", "b"]


def test_two_queries_into_the_same_topics_at_once(root: Path) -> None:
    """Each takes the topics in the order of their names, whatever order its files have."""
    batches = 4

    def run(query: str, topics: list[str]) -> None:
        for batch_id in range(batches):
            receipts = []
            for topic in topics:
                sink = TaskSink(options(root, topic=topic))
                made = sink.stage([rows(f"{query} {batch_id}")], Attempt(query, batch_id, 0, 0))
                assert made.receipt is not None
                receipts.append(made.receipt)
            assert commit(root, lockTimeout="30s").once(query, batch_id, receipts)

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run, "a", [OUT, "other"]), pool.submit(run, "b", ["other", OUT])]
        for done in both:
            done.result(timeout=60)
    expected = sorted(f"{query} {batch_id}" for query in "ab" for batch_id in range(batches))
    assert values(root) == values(root, "other") == expected


def test_only_reported_attempts_count(root: Path) -> None:
    lost = stage(root, rows("a"), attempt=0)
    told = stage(root, rows("a"), attempt=1)
    commit(root).once(QUERY, 0, [told])
    assert values(root) == ["a"]
    assert lost.name in staged(root)


@pytest.mark.parametrize("damage", ["gone", "short", "flipped"])
def test_a_damaged_file_leaves_nothing_to_be_seen(root: Path, damage: str) -> None:
    good, bad = stage(root, rows("a")), stage(root, rows("b"), task=1)
    path = root / ".staging" / bad.name
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:-1] if damage == "short" else whole[:-1] + b"!")
    with pytest.raises(DamagedStoreError):
        commit(root).once(QUERY, 0, [good, bad])
    assert (values(root), next_batch(root)) == ([], None)
    path.write_bytes(whole)
    assert commit(root).once(QUERY, 0, [good, bad])
    assert (values(root), next_batch(root)) == (["a", "b"], 1)


def test_what_a_killed_driver_left_open_is_aborted_first(root: Path) -> None:
    store = logstore.open(root, threads=False)
    producer = store.producer(transactional_id=f"spark-{QUERY}")
    tx = producer.begin()
    tx.send(OUT, b"half").result(timeout_s=60)
    store.abandon()  # as a kill leaves it
    assert values(root, isolation="read_uncommitted") == ["half"]
    assert commit(root).once(QUERY, 0, [stage(root, rows("a"))])
    assert values(root) == ["a"]


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_leaves_all_or_nothing_and_the_retry_the_rest(root: Path, point: str) -> None:
    """Before the decision nothing is in; from it on all is, and the batch that Spark runs again is skipped."""
    receipt = stage(root, rows("a", "b", partition=[0, 1]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.killed_driver", str(root), point, QUERY],
        input=json.dumps(receipt),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        timeout=60,
    )
    assert done.returncode == DEAD
    assert values(root, isolation="read_uncommitted") == ["a", "b"]
    assert values(root) == (["a", "b"] if point == "marked" else [])
    again = stage(root, rows("a", "b", partition=[0, 1]), attempt=1)
    assert commit(root).once(QUERY, 0, [again]) == (point == "open")
    assert (values(root), next_batch(root)) == (["a", "b"], 1)


def test_a_topic_that_another_owns_is_named_and_nothing_is_left(root: Path) -> None:
    receipt = stage(root, rows("a"))
    with logstore.open(root) as other:
        other.pin(OUT)
        with pytest.raises(
            TopicLockedError, match=r"topic .*out.* is locked by .*; waited 0\.\d s.*lockTimeout"
        ):
            commit(root).once(QUERY, 0, [receipt])
    assert (values(root), next_batch(root)) == ([], None)
    assert commit(root).once(QUERY, 0, [receipt])


def test_the_counter_and_the_id_never_expire(root: Path) -> None:
    """Both names have the prefix that the coordinators spare."""
    from logstore.groups.coordinator import EXEMPT_PREFIX as GROUPS
    from logstore.transactions.coordinator import EXEMPT_PREFIX as IDS

    commit(root).once(QUERY, 0, [stage(root, rows("a"))])
    with logstore.open(root, mode="r") as store:
        (group,) = store.admin.list_groups()
        (transaction,) = store.backend.list_transactions()
    assert group.group.startswith(GROUPS)
    assert transaction.transactional_id.startswith(IDS)


# --- the other ways ---


def test_a_batch_write_is_all_or_nothing_and_keeps_no_counter(root: Path) -> None:
    good, bad = stage(root, rows("a")), stage(root, rows("b"), task=1)
    path = root / ".staging" / bad.name
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedStoreError):
        commit(root).together("run", [good, bad])
    assert values(root) == []
    commit(root).together("run", [good])
    commit(root).together("run", [])
    with logstore.open(root, mode="r") as store:
        assert store.admin.list_groups() == []
        (transaction,) = store.backend.list_transactions()
        assert not transaction.transactional_id.startswith("spark-")  # it expires
    assert values(root) == ["a"]


def test_at_least_once_appends_plainly(root: Path) -> None:
    receipt = stage(root, rows("a", "b"), delivery="at_least_once")
    for _ in range(2):
        commit(root).plainly([receipt])
    commit(root).plainly([])
    assert values(root) == ["a", "a", "b", "b"]
    with logstore.open(root, mode="r") as store:
        assert list(store.backend.list_transactions()) == []


# --- the writers, as Spark calls them ---


def test_the_stream_writer_commits_skips_aborts_and_sweeps(root: Path) -> None:
    writer = LogStoreStreamWriter(options(root), VALUE)
    stage(root, rows("z"), attempt=8)  # of an attempt that Spark does not report
    keep = stage(root, rows("later"), batch_id=1)
    first = Staged(QUERY, stage(root, rows("a")))
    writer.commit([first, Staged(QUERY, None)], 0)
    assert staged(root) == [keep.name]
    pickle.loads(pickle.dumps(writer)).commit([Staged(QUERY, stage(root, rows("a")))], 0)
    assert (values(root), staged(root)) == (["a"], [keep.name])
    writer.commit([], 0)
    writer.abort([None], 1)
    assert staged(root) == [keep.name]
    writer.abort([Staged(QUERY, keep), None], 1)
    assert (values(root), staged(root), next_batch(root)) == (["a"], [], 1)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_the_batch_writer_commits_and_sweeps(root: Path, delivery: str) -> None:
    writer = LogStoreWriter(options(root, delivery=delivery), VALUE)
    run = writer._run
    made = TaskSink(options(root)).stage([rows("a")], Attempt(run, 0, 0, 0))
    TaskSink(options(root)).stage([rows("a")], Attempt(run, 0, 0, 1))
    writer.commit([made])
    assert (values(root), staged(root)) == (["a"], [])
    TaskSink(options(root)).stage([rows("b")], Attempt(run, 0, 0, 2))
    writer.abort([None])
    assert (values(root), staged(root)) == (["a"], [])
    with pytest.raises(InvalidArgumentError, match="outside of a task"):
        writer.write(iter(()))


def test_what_the_driver_refuses(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnknownTopicError):
        check_sink(options(root, topic="nope"), VALUE)
    with pytest.raises(StoreNotFoundError):
        check_sink(options(tmp_path / "nothing"), VALUE)
    with pytest.raises(InvalidArgumentError, match="no column value"):
        check_sink(options(root), StructType([StructField("key", StringType())]))
    commit(root).once(QUERY, 0, [stage(root, rows("a"))])
    more = StructType([*VALUE, StructField("more", StringType())])
    with caplog.at_level("WARNING"):
        check_sink(options(root), more)
        check_sink(options(root), more)
    assert [record.message for record in caplog.records] == [
        "columns that are no field of a record are not written: more"
    ]
    with pytest.raises(InvalidArgumentError, match="is internal"):
        check_sink(options(root, topic="__consumer_offsets"), VALUE)


@pytest.mark.parametrize(
    ("given", "overwrite", "error", "text"),
    [
        ({}, False, InvalidArgumentError, "neither option topic nor a column topic"),
        ({"topic": "nope"}, False, UnknownTopicError, "nope"),
        ({"topics": OUT}, False, InvalidArgumentError, r"did you mean topic\?"),
        ({"topic": OUT}, True, InvalidArgumentError, "mode overwrite: records are appended"),
    ],
    ids=["no topic", "unknown topic", "unknown option", "overwrite"],
)
def test_the_source_refuses_writers(
    root: Path, given: dict[str, str], overwrite: bool, error: type[Exception], text: str
) -> None:
    source = LogStoreDataSource({"path": str(root), **given})
    with pytest.raises(error, match=text):
        source.writer(VALUE, overwrite)
    if not overwrite:
        with pytest.raises(error, match=text):
            source.streamWriter(VALUE, overwrite)


def test_the_source_makes_writers(root: Path) -> None:
    source = LogStoreDataSource({"path": str(root), "topic": OUT, "checkpointLocation": "/ckpt"})
    assert isinstance(source.writer(VALUE, False), LogStoreWriter)
    assert isinstance(source.streamWriter(VALUE, True), LogStoreStreamWriter)  # outputMode complete
