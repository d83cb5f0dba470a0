"""Long work as a handle: progress that is polled, an end, an error, and a cancelling in its midst."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logstore
from logstore.api.operations import Operation
from logstore.embedded.operation import EmbeddedOperation
from logstore.errors import InvalidArgumentError, OperationCancelledError, StorageError
from logstore.store import LogStore
from logstore.types import CleaningProgress, CompactedPartition, TopicPartition
from logstore.upkeep.compactor import Steps

PLACE = TopicPartition("t", 0)


def work(ended: list[str], error: BaseException | None = None) -> Steps[int]:
    try:
        for number in range(3):
            yield PLACE, CleaningProgress("write", number, 3)
        if error is not None:
            raise error
        return 7
    finally:
        ended.append("ended")


def test_progress_is_polled_to_the_result() -> None:
    ended: list[str] = []
    operation = EmbeddedOperation("work", work(ended))
    assert operation.state() == (False, {})
    seen = []
    while not operation.wait(1.0):
        seen.append(operation.state().progress[PLACE].bytes_done)
    assert (seen, ended) == ([0, 1, 2], ["ended"])
    assert operation.state().done
    assert operation.result() == operation.result() == 7
    operation.cancel()  # too late: nothing of it changes
    assert operation.result() == 7


def test_an_error_is_the_result() -> None:
    operation = EmbeddedOperation("work", work([], StorageError("the disk is gone")))
    for _ in range(2):
        with pytest.raises(StorageError, match="the disk is gone"):
            operation.result()
    assert operation.wait(0)


def test_an_interrupt_goes_on_and_ends_the_work() -> None:
    ended: list[str] = []
    operation = EmbeddedOperation("work", work(ended, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        operation.result()
    assert ended == ["ended"]
    with pytest.raises(OperationCancelledError):
        operation.result()


@pytest.mark.parametrize("steps", [0, 2])
def test_cancelled_before_its_end(steps: int) -> None:
    ended: list[str] = []
    operation = EmbeddedOperation("cleaning t", work(ended))
    for _ in range(steps):
        operation.wait(1.0)
    operation.cancel()
    assert operation.wait(0)
    assert ended == (["ended"] if steps else [])
    with pytest.raises(OperationCancelledError, match="cleaning t was cancelled"):
        operation.result()


@pytest.fixture
def store() -> Iterator[LogStore]:
    with logstore.open(":memory:") as store:
        store.create_topic("t", partitions=2, config={"cleanup.policy": "compact"})
        with store.producer() as producer:
            for partition in range(2):
                producer.send_many("t", [(b"k", b"%d" % n) for n in range(5000)], partition=partition)
        yield store


def start(store: LogStore) -> Operation[list[CompactedPartition]]:
    return store.backend.start_compaction("t", None, roll=True)


def test_a_cancelled_compaction_leaves_the_topic_to_the_next(store: LogStore) -> None:
    operation = start(store)
    operation.wait(1.0)
    operation.cancel()
    assert [row.records_after for row in start(store).result()] == [1, 1]
    with store.consumer("t", until_end=True) as consumer:
        assert [record.value for record in consumer] == [b"4999", b"4999"]


def test_a_callback_that_raises_cancels(store: LogStore) -> None:
    def tell(place: TopicPartition, progress: CleaningProgress) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        store.admin.compact("t", roll=True, on_progress=tell)
    assert [row.records_after for row in store.admin.compact("t", roll=True)] == [1, 1]


def test_arguments_are_checked_at_the_start(store: LogStore) -> None:
    store.create_topic("plain")
    with pytest.raises(InvalidArgumentError, match="does not compact"):
        store.backend.start_compaction("plain", None, roll=False)
    with pytest.raises(InvalidArgumentError):
        store.backend.start_erasure("t", [])
