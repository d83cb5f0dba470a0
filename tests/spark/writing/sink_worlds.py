"""A sink's tasks and driver without Spark, on a directory and at brokers: what a batch comes to is the same."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

import logstore
from logstore.api.transactions import TransactionSummary
from logstore.types import OffsetAndMetadata, TopicPartition
from rpc.testing.broker import BrokerForTests
from spark_connector.settings.sink_options import SinkOptions, parse_sink
from spark_connector.writing.batch_counter import COUNTER, sink_group
from spark_connector.writing.prepared_sink import (
    PreparedSink,
    Task,
    Written,
    query_coordinator,
    write_coordinator,
)
from spark_connector.writing.sink_commit import OpensStore, SinkCommit, opened_once
from spark_connector.writing.staging import Attempt, Receipt, Staging
from spark_connector.writing.writer import TaskSink

OUT = "out"
QUERY = "0f6ac0c5-0000-4000-8000-000000000001"


def rows(*values: str, **columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([value.encode() for value in values]), **columns})


class SinkWorld(Protocol):
    """``write``: a task's rows of a stream's batch, and what its driver gets; ``once``: commits what those give."""

    store: Any

    def options(self, **given: str) -> SinkOptions: ...
    def write(
        self,
        *batches: pa.RecordBatch,
        query: str = QUERY,
        batch_id: int = 0,
        task: int = 0,
        attempt: int = 0,
        **given: str,
    ) -> Any: ...
    def once(self, batch_id: int, told: Sequence[Any], query: str = QUERY, **given: str) -> bool: ...
    def write_run(self, run: str, *batches: pa.RecordBatch, task: int = 0) -> Any: ...
    def together(self, run: str, told: Sequence[Any]) -> None: ...


class DirectoryWorld:
    """``SinkWorld``. ``store_opened``: how a commit opens the store."""

    def __init__(self, root: Path, store_opened: OpensStore = opened_once) -> None:
        self.root = root
        self._store_opened = store_opened
        self.store = None  # another process's or a commit's turn comes between any two looks

    def options(self, **given: str) -> SinkOptions:
        return parse_sink({"path": str(self.root), "topic": OUT, "lockTimeout": "5s", **given}).options

    def write(
        self,
        *batches: pa.RecordBatch,
        query: str = QUERY,
        batch_id: int = 0,
        task: int = 0,
        attempt: int = 0,
        **given: str,
    ) -> Receipt:
        made = TaskSink(self.options(**given)).stage(batches, Attempt(query, batch_id, task, attempt))
        assert made.receipt is not None
        return made.receipt

    def once(self, batch_id: int, told: Sequence[Receipt], query: str = QUERY, **given: str) -> bool:
        sink = SinkCommit(self.options(**given), Staging(str(self.root)), self._store_opened)
        return sink.once(query, batch_id, told)

    def write_run(self, run: str, *batches: pa.RecordBatch, task: int = 0) -> Receipt:
        return self.write(*batches, query=run, task=task)

    def together(self, run: str, told: Sequence[Receipt]) -> None:
        SinkCommit(self.options(), Staging(str(self.root))).together(run, told)


class BrokerWorld:
    """``SinkWorld``."""

    def __init__(self, broker: BrokerForTests) -> None:
        self.broker = broker
        self.store = broker.connect()

    def options(self, **given: str) -> SinkOptions:
        return parse_sink({"bootstrap.servers": self.broker.address, "topic": OUT, **given}).options

    def sink(self, **given: str) -> PreparedSink:
        found: PreparedSink = pickle.loads(pickle.dumps(PreparedSink(self.options(**given))))
        return found

    def write(
        self,
        *batches: pa.RecordBatch,
        query: str = QUERY,
        batch_id: int = 0,
        task: int = 0,
        attempt: int = 0,
        **given: str,
    ) -> Written:
        made = self.sink(**given).write(batches, Task(query, query_coordinator(query), task, attempt))
        found: Written = pickle.loads(pickle.dumps(made))
        return found

    def once(self, batch_id: int, told: Sequence[Written], query: str = QUERY, **given: str) -> bool:
        return self.sink(**given).once(query, batch_id, told)

    def write_run(self, run: str, *batches: pa.RecordBatch, task: int = 0) -> Written:
        return self.sink().write(batches, Task(run, write_coordinator(run), task, 0))

    def together(self, run: str, told: Sequence[Written]) -> None:
        self.sink().together(run, told)

    def state_of(self, transactional_id: str) -> str:
        state: str = self.store.admin.describe_transaction(transactional_id).state
        return state


@contextmanager
def opened(world: SinkWorld) -> Iterator[Any]:
    """The world's store, for a moment."""
    if isinstance(world, DirectoryWorld):
        with logstore.open(world.root) as store:
            yield store
    else:
        yield world.store


def values(world: SinkWorld, topic: str = OUT, isolation: Any = "read_committed") -> list[str]:
    with opened(world) as store, store.consumer(topic, isolation=isolation, until_end=True) as consumer:
        return sorted(record.value.decode() for batch in consumer.batches() for record in batch)


def next_batch(world: SinkWorld, query: str = QUERY) -> int | None:
    with opened(world) as store:
        committed: Mapping[TopicPartition, OffsetAndMetadata] = store.committed_offsets(sink_group(query))
    at = committed.get(COUNTER)
    return None if at is None else at.offset


def transactions(world: SinkWorld) -> dict[str, TransactionSummary]:
    with opened(world) as store:
        return {one.transactional_id: one for one in store.admin.list_transactions()}
