"""The sink at brokers: tasks that die, lose or come again, drivers and brokers that die, how many ids that takes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from logstore import Producer
from logstore.client.producer.transaction import Phase
from logstore.errors import (
    InvalidArgumentError,
    LogStoreError,
    OutcomeUnknownError,
    RecordTooLargeError,
    TransactionStateError,
    TransactionTimedOutError,
    UnknownTopicError,
)
from rpc.testing.broker import BrokerForTests
from spark_connector import connection
from spark_connector.writing.prepared_sink import PreparedSink, Task, query_coordinator
from spark_connector.writing.writer import (
    BATCH_PROPERTY,
    QUERY_PROPERTY,
    LogStoreStreamWriter,
    LogStoreWriter,
)
from tests.house import ROOT
from tests.spark.killed_broker_driver import DEAD, POINTS
from tests.spark.writing.sink_worlds import OUT, QUERY, BrokerWorld, next_batch, rows, transactions, values

VALUE = StructType([StructField("value", BinaryType())])


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerWorld]:
    broker = BrokerForTests(tmp_path / "data", **getattr(request, "param", {}))
    try:
        found = BrokerWorld(broker)
        found.store.create_topic(OUT, 2)
        found.store.create_topic("other", 1)
        yield found
        found.store.close()
    finally:
        connection.forget_stores()
        broker.close()
        BrokerForTests.end_spares()


def until(met: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def settled(world: BrokerWorld) -> bool:
    return all(
        one.state in ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT") for one in transactions(world).values()
    )


def run(world: BrokerWorld, point: str, told: list[Any]) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.killed_broker_driver", world.broker.address, point],
        input=pickle.dumps(told),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    return done.returncode


# --- tasks ---


@pytest.mark.slow
@pytest.mark.parametrize("world", [{"lease_timeout_s": 5.0}], indirect=True)
def test_a_task_that_is_killed_holds_readers_up_until_its_broker_has_missed_it(world: BrokerWorld) -> None:
    told = world.write(rows("a"))
    assert run(world, "task", []) == DEAD
    assert values(world, isolation="read_uncommitted") == ["a", "half"]
    killed = f"spark-{QUERY}-7-0"
    until(lambda: world.state_of(killed) == "COMPLETE_ABORT")
    assert world.state_of(f"spark-{QUERY}-0-0") == "PREPARED", "that one's work is done"
    assert world.once(0, [told])
    assert values(world) == ["a"]
    assert settled(world)


def test_attempts_that_lost_end_with_the_batch_also_those_that_still_write(world: BrokerWorld) -> None:
    lost, won = world.write(rows("a")), world.write(rows("a"), attempt=1)
    entered, go_on = threading.Event(), threading.Event()
    failures: list[LogStoreError] = []

    def slowly() -> Iterator[Any]:
        yield rows("a")
        yield rows("b" * (600 << 10))  # sent at once: the first batches are in the log
        entered.set()
        assert go_on.wait(60)
        yield rows("late")

    def straggle() -> None:
        try:
            world.sink().write(slowly(), straggler)
        except LogStoreError as error:
            failures.append(error)

    straggler = Task(QUERY, query_coordinator(QUERY), 0, 2)
    beside = threading.Thread(target=straggle)
    beside.start()
    assert entered.wait(60)
    until(lambda: world.state_of(straggler.transactional_id) == "ONGOING")
    assert world.once(0, [won])
    assert values(world) == ["a"]
    assert world.state_of(f"spark-{QUERY}-0-0") == "COMPLETE_ABORT"
    assert world.state_of(straggler.transactional_id) == "COMPLETE_ABORT"
    go_on.set()
    beside.join(60)
    assert failures, "it cannot prepare any more"
    assert lost.prepared is not None
    assert values(world) == ["a"]
    assert settled(world)


def test_a_task_that_fails_leaves_nothing(world: BrokerWorld) -> None:
    with pytest.raises(RecordTooLargeError):
        world.sink().write([rows("good"), rows("x" * (2 << 20))], _task())
    by_column = PreparedSink(replace(world.options(), topic=None))
    with pytest.raises(UnknownTopicError):
        by_column.write([rows("good", topic=["other"]), rows("x", topic=["nope"])], _task())
    assert values(world) == values(world, "other") == []
    assert settled(world)
    empty = world.sink().write([], _task(9))
    assert empty.prepared is None
    assert f"spark-{QUERY}-9-0" not in transactions(world), "a task without rows opens nothing"


def _task(partition: int = 0) -> Task:
    return Task(QUERY, query_coordinator(QUERY), partition, 0)


def test_a_task_that_hangs_is_aborted_by_its_timeout(world: BrokerWorld) -> None:
    def hanging() -> Iterator[Any]:
        yield rows("a")
        yield rows("b" * (600 << 10))
        until(lambda: world.state_of(f"spark-{QUERY}-0-0") == "ONGOING")
        world.broker.advance_clock(100_000)
        until(lambda: world.state_of(f"spark-{QUERY}-0-0") == "COMPLETE_ABORT")
        yield rows("c")

    with pytest.raises((TransactionTimedOutError, LogStoreError)):
        world.sink(transactionTimeout="90s").write(hanging(), _task())
    assert settled(world)


# --- drivers and brokers ---


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_leaves_all_or_nothing_and_the_retry_the_rest(
    world: BrokerWorld, point: str
) -> None:
    told = [world.write(rows("a", "b", partition=[0, 1])), world.write(rows("c"), task=1)]
    assert run(world, point, told) == DEAD
    assert values(world) == (["a", "b", "c"] if point == "marked" else [])
    again = [
        world.write(rows("a", "b", partition=[0, 1]), attempt=1),
        world.write(rows("c"), task=1, attempt=1),
    ]
    assert world.once(0, again) == (point == "open")
    assert (values(world), next_batch(world)) == (["a", "b", "c"], 1)
    assert settled(world)


def test_a_driver_that_never_comes_back_is_followed_by_one_that_starts_the_query_anew(
    world: BrokerWorld,
) -> None:
    """What its tasks prepared waits for the next batch's commit, or for the broker's bound."""
    world.write(rows("of the dead"), task=5)
    assert world.once(0, [world.write(rows("a"))])
    assert values(world) == ["a"]
    assert settled(world)
    world.write(rows("of the dead"), query="dead")
    world.broker.advance_clock(25 * 3_600_000)
    until(lambda: world.state_of("spark-dead-0-0") == "COMPLETE_ABORT")


@pytest.mark.slow
def test_a_broker_that_is_killed_within_the_commit(world: BrokerWorld) -> None:
    for number in range(2):
        told = [world.write(rows(f"{number}-{task}"), task=task) for task in range(8)]
        done: list[object] = []

        def commit(number: int = number, told: list[Any] = told, done: list[object] = done) -> None:
            try:
                done.append(world.once(number, told))
            except LogStoreError as error:
                done.append(error)

        world.broker.slow_disk(0.1)
        beside = threading.Thread(target=commit)
        beside.start()
        until(lambda: f"spark-{QUERY}" in transactions(world))
        world.broker.kill()
        world.broker.restart()
        beside.join(120)
        (outcome,) = done
        if isinstance(outcome, LogStoreError):  # Spark runs the batch again
            again = [world.write(rows(f"{number}-{task}"), task=task, attempt=1) for task in range(8)]
            world.once(number, again)
        due = sorted(f"{batch}-{task}" for batch in range(number + 1) for task in range(8))
        assert values(world) == due
        assert next_batch(world) == number + 1


def test_a_commit_that_got_no_answer_is_asked_for_and_made_again(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is lost, and so are the questions, up to a number; some did their work."""
    commit = Producer.commit
    for number, (lost, arrived) in enumerate([(1, True), (1, False), (2, True), (3, True), (4, True)]):
        calls = 0

        def unanswered(
            self: Producer[Any, Any], *, prepared: Any = (), lost: int = lost, arrived: bool = arrived
        ) -> None:
            nonlocal calls
            calls += 1
            if calls > lost:
                commit(self, prepared=prepared)
                return
            control = self._transactions
            assert control is not None
            if arrived:
                commit(self, prepared=prepared)
            control._phase, control._deciding = Phase.DOUBTFUL, tuple(prepared) or control._deciding
            raise OutcomeUnknownError("no answer")

        told = [world.write(rows(f"{number}-{task}"), task=task) for task in range(2)]
        monkeypatch.setattr(Producer, "commit", unanswered)
        world.once(number, told)
        monkeypatch.setattr(Producer, "commit", commit)
        assert len(values(world)) == 2 * (number + 1)
        assert settled(world)


def test_a_driver_that_was_replaced_commits_nothing(world: BrokerWorld) -> None:
    old = world.write(rows("a"))
    new = world.write(
        rows("a")
    )  # the same partition and attempt, of the next driver's job: it fences the other
    with pytest.raises(TransactionStateError):
        world.once(0, [old])
    with pytest.raises(TransactionStateError, match=r"was aborted"):
        world.once(0, [new])  # the failed commit has aborted all
    assert world.once(0, [world.write(rows("a"))])
    assert values(world) == ["a"]


# --- how many ids ---


def test_a_long_stream_takes_no_more_ids_than_tasks(world: BrokerWorld) -> None:
    for number in range(12):
        assert world.once(number, [world.write(rows(f"{number}"), task=task) for task in range(2)])
    assert sorted(transactions(world)) == [f"spark-{QUERY}", f"spark-{QUERY}-0-0", f"spark-{QUERY}-1-0"]
    assert len(values(world)) == 24


# --- the writers, as Spark calls them ---


@pytest.fixture
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def become(partition: int = 0, attempt: int = 0, batch_id: int = 0) -> None:
        properties = {QUERY_PROPERTY: QUERY, BATCH_PROPERTY: str(batch_id)}
        context = SimpleNamespace(
            partitionId=lambda: partition,
            attemptNumber=lambda: attempt,
            taskAttemptId=lambda: 1000 + attempt,
            getLocalProperty=properties.get,
        )
        monkeypatch.setattr(TaskContext, "get", classmethod(lambda _: context))

    return become


def test_the_stream_writer_commits_skips_and_aborts(
    world: BrokerWorld, in_a_task: Callable[..., None]
) -> None:
    writer = LogStoreStreamWriter(world.options(), VALUE)
    in_a_task(batch_id=0)
    first = writer.write(iter([rows("a")]))
    in_a_task(partition=1)
    writer.commit([first, writer.write(iter([])), None], 0)
    in_a_task(attempt=1)
    writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([rows("a")]))], 0)
    assert (values(world), next_batch(world)) == (["a"], 1)
    in_a_task(batch_id=1)
    failed = writer.write(iter([rows("b")]))
    writer.abort([failed, None], 1)
    assert world.state_of(f"spark-{QUERY}-0-0") == "COMPLETE_ABORT"
    in_a_task(partition=3, batch_id=1)
    writer.write(iter([rows("c")]))
    writer.abort([None, None], 1)  # nobody knows the query
    assert world.state_of(f"spark-{QUERY}-3-0") == "PREPARED"
    in_a_task(batch_id=1)
    writer.commit([writer.write(iter([rows("b")]))], 1)
    assert world.state_of(f"spark-{QUERY}-3-0") == "COMPLETE_ABORT"
    assert (values(world), next_batch(world)) == (["a", "b"], 2)
    writer.commit([], 2)
    assert settled(world)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_the_batch_writer_commits_and_aborts(
    world: BrokerWorld, in_a_task: Callable[..., None], delivery: str
) -> None:
    writer = LogStoreWriter(world.options(delivery=delivery), VALUE)
    in_a_task()
    made = writer.write(iter([rows("a")]))
    assert values(world) == ([] if delivery == "exactly_once" else ["a"])
    writer.commit([made])
    assert values(world) == ["a"]
    writer = LogStoreWriter(world.options(delivery=delivery), VALUE)
    writer.write(iter([rows("b")]))
    writer.abort([None])
    assert values(world) == (["a"] if delivery == "exactly_once" else ["a", "b"])
    assert settled(world)


def test_a_writer_outside_of_a_task(world: BrokerWorld) -> None:
    for writer in (LogStoreWriter(world.options(), VALUE), LogStoreStreamWriter(world.options(), VALUE)):
        with pytest.raises(InvalidArgumentError, match="outside of a task"):
            writer.write(iter([rows("a")]))
