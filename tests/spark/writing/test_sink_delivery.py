"""What a batch comes to, on a directory and at brokers: once, whatever comes again, in whatever order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import BatchChangedError
from logstore.types import OffsetAndMetadata
from rpc.testing.broker import BrokerForTests
from spark_connector import connection
from spark_connector.held_store import held_store
from spark_connector.writing.batch_counter import COUNTER, sink_group
from tests.spark.writing.sink_worlds import (
    OUT,
    QUERY,
    BrokerWorld,
    DirectoryWorld,
    SinkWorld,
    next_batch,
    opened,
    rows,
    transactions,
    values,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerForTests]:
    broker = BrokerForTests(tmp_path_factory.mktemp("broker") / "data")
    yield broker
    connection.forget_stores()
    broker.close()
    BrokerForTests.end_spares()


@pytest.fixture(params=["directory", "held directory", "brokers"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkWorld]:
    found: SinkWorld
    if request.param == "directory":
        with logstore.open(tmp_path / "store"):
            found = DirectoryWorld(tmp_path / "store")
    elif request.param == "held directory":
        with logstore.open(tmp_path / "store"):
            found = DirectoryWorld(tmp_path / "store", held_store)
    else:
        found = BrokerWorld(request.getfixturevalue("broker"))
    with opened(found) as store:
        for name in store.list_topics():
            store.delete_topic(name)
        for group in store.admin.list_groups():
            store.admin.delete_group(group.group)
        store.create_topic(OUT, partitions=2)
        store.create_topic("other")
    yield found
    if isinstance(found, BrokerWorld):
        found.store.close()


def test_a_batch_is_in_once_across_topics(world: SinkWorld) -> None:
    first = world.write(rows("a", "b"), rows("c"))
    second = world.write(rows("d"), task=1, topic="other")
    assert values(world) == []
    assert world.once(0, [first, second])
    assert (values(world), values(world, "other"), next_batch(world)) == (["a", "b", "c"], ["d"], 1)
    again = [
        world.write(rows("c", "b", "a"), attempt=9),
        world.write(rows("d"), task=1, attempt=9, topic="other"),
    ]
    assert not world.once(0, again)
    assert (values(world), next_batch(world)) == (["a", "b", "c"], 1)
    assert world.once(1, [])  # a batch without rows counts, too
    assert world.once(2, [world.write(rows("e"), batch_id=2)])
    assert (values(world), next_batch(world)) == (["a", "b", "c", "e"], 3)
    assert not [one for one in transactions(world).values() if one.state in ("ONGOING", "PREPARED")]


def test_another_batch_under_an_old_number_is_an_error_and_never_skipped(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Also several behind the newest: an older checkpoint was put back, with another limit."""
    for number, values_in in enumerate(["ab", "cd", "ef"]):
        assert world.once(number, [world.write(rows(*values_in), batch_id=number)])

    def wider() -> list[object]:
        return [world.write(rows("c", "d", "e", "f"), batch_id=1, attempt=1)]

    with pytest.raises(
        BatchChangedError, match=r"batch 1 .*with 2 rows, and comes again with 4.*changedBatch"
    ):
        world.once(1, wider())
    with pytest.raises(BatchChangedError, match=r"batch 2 .* comes again with 0 other ones"):
        world.once(2, [])
    assert (values(world), next_batch(world)) == (list("abcdef"), 3)
    for number, values_in in enumerate(["ba", "dc", "fe"]):
        assert not world.once(number, [world.write(rows(*values_in), batch_id=number, attempt=2)])
    with caplog.at_level("WARNING"):
        assert not world.once(1, wider(), changedBatch="skip")
    assert "changedBatch=skip" in caplog.text
    assert (values(world), next_batch(world)) == (list("abcdef"), 3)
    assert world.once(1, wider(), changedBatch="append")
    assert (values(world), next_batch(world)) == (sorted("abcdef" + "cdef"), 3)
    assert not world.once(1, wider())  # it is the one of that number now


def test_the_same_offsets_are_the_same_batch_whatever_its_rows(world: SinkWorld, tmp_path: Path) -> None:
    """A query with a random column, killed between its commit and Spark's note of it."""
    (tmp_path / "ckpt" / "offsets").mkdir(parents=True)
    planned = tmp_path / "ckpt" / "offsets" / "0"
    given = {"checkpointLocation": (tmp_path / "ckpt").as_uri()}
    planned.write_text('v1\n{"batchTimestampMs":1}\n{"t":{"0":5}}', "utf-8")
    assert world.once(0, [world.write(rows("0.123"))], **given)
    planned.write_text('v1\n{"batchTimestampMs":2}\n{"t":{"0":5}}', "utf-8")
    assert not world.once(0, [world.write(rows("0.456"), attempt=1)], **given)
    planned.write_text('v1\n{"batchTimestampMs":2}\n{"t":{"0":9}}', "utf-8")
    with pytest.raises(BatchChangedError):
        world.once(0, [world.write(rows("0.789"), attempt=2)], **given)
    assert values(world) == ["0.123"]


def test_a_counter_without_marks_skips_as_it_did(world: SinkWorld, caplog: pytest.LogCaptureFixture) -> None:
    """A store of a version that kept none; and one whose checkpoint is ahead of it."""
    with opened(world) as store:
        store.commit_offsets(sink_group(QUERY), {COUNTER: OffsetAndMetadata(3)})
    with caplog.at_level("WARNING"):
        assert not world.once(2, [world.write(rows("x"), batch_id=2)])
        assert "kept no marks" in caplog.text
        assert world.once(5, [world.write(rows("y"), batch_id=5)])
    assert "batches 3 to 4 of query" in caplog.text
    assert (values(world), next_batch(world)) == (["y"], 6)
    with pytest.raises(BatchChangedError, match="not known any more"):
        world.once(2, [world.write(rows("x"), batch_id=2, attempt=1)])


def test_queries_do_not_know_each_other(world: SinkWorld) -> None:
    other = QUERY.replace("1", "2")
    theirs = world.write(rows("b"), query=other)
    assert world.once(0, [world.write(rows("a"))])
    assert world.once(0, [theirs], query=other)
    assert values(world) == ["a", "b"]


def test_only_reported_attempts_count(world: SinkWorld) -> None:
    """Two of one partition came to their end, as under speculation; the driver heard of one."""
    lost = world.write(rows("a"), attempt=0)
    told = world.write(rows("a"), attempt=1)
    assert lost != told
    world.once(0, [told])
    assert values(world) == ["a"]
    assert next_batch(world) == 1


def test_a_batch_write_is_all_or_nothing_and_keeps_no_counter(world: SinkWorld) -> None:
    one, two = world.write_run("run", rows("a")), world.write_run("run", rows("b"), task=1)
    assert values(world) == []
    world.together("run", [one, two])
    world.together("empty", [])
    assert values(world) == ["a", "b"]
    with opened(world) as store:
        assert store.admin.list_groups() == []
    from logstore.transactions.coordinator import EXEMPT_PREFIX, EXPIRING_PREFIX

    for one in transactions(world).values():
        name = one.transactional_id
        expires = not name.startswith(EXEMPT_PREFIX) or name.startswith(EXPIRING_PREFIX)
        assert expires or one.coordinator is not None or "0f6ac0c5" in name, "it is forgotten in time"
