"""The writers: tasks stage encoded batches, ``commit`` on the driver appends them, ``abort`` forgets them. At brokers
tasks write in transactions that ``commit`` decides (``prepared_sink.py``), or just write (``direct_sink.py``).

Methods of one writer run in different processes: it is made where the write is planned, once more for each commit
of a stream, and its pickled copies write in the tasks. So it has options and columns, and nothing that is open; what
stays open between a stream's commits is the process's (``held_store.py``).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from logstore.errors import InvalidArgumentError, InvariantError
from spark_connector.connection import client_of, store_at
from spark_connector.held_store import held_store
from spark_connector.notices import notice
from spark_connector.settings.sink_options import SinkOptions
from spark_connector.worker_heap import settle_worker
from spark_connector.writing.direct_sink import DirectSink
from spark_connector.writing.prepared_sink import (
    PreparedSink,
    Task,
    Written,
    query_coordinator,
    write_coordinator,
)
from spark_connector.writing.sink_batches import SinkBatches
from spark_connector.writing.sink_commit import SinkCommit
from spark_connector.writing.sink_rows import check_columns
from spark_connector.writing.staging import Attempt, Receipt, Staging

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("logstore.spark")

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task hands to the driver. ``run``: the query's id; ``receipt`` None: it had no rows."""

    run: str
    receipt: Receipt | None


class TaskSink:
    """One write as its tasks know it. Picklable."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def staging(self) -> Staging:
        return Staging(self._options.path)

    def stage(self, batches: Iterable[pa.RecordBatch], attempt: Attempt) -> Staged:
        """Rows into a file. Errors, after which there is none: ``UnknownTopicError``, ``UnknownPartitionError``,
        ``InvalidRecordError``, ``RecordTooLargeError``, ``InvalidTimestampError``, ``StorageError``."""
        file = self.staging().create(attempt)
        try:
            made = SinkBatches(store_at(self._options.path).backend, self._options)
            for batch in batches:
                for encoded in made.of(batch):
                    file.append(encoded)
            if made.content.rows:
                return Staged(attempt.run, file.finish(made.content))
        except BaseException:
            file.discard()
            raise
        file.discard()
        return Staged(attempt.run, None)


def check_sink(options: SinkOptions, schema: StructType) -> None:
    """On the driver, before a task runs: ``InvalidArgumentError`` for columns, ``UnknownTopicError``,
    ``StoreNotFoundError``."""
    settle_worker()
    unwritten = check_columns(schema, options.topic)
    if unwritten:
        notice(f"columns that are no field of a record are not written: {', '.join(unwritten)}")
    backend = client_of(options.target).backend
    if options.topic is not None and backend.topic(options.topic).internal:
        raise InvalidArgumentError(
            f"topic {options.topic!r} is internal: it is not written by clients", hint="choose another topic"
        )


def _receipts(messages: Sequence[WriterCommitMessage | None]) -> tuple[list[str], list[Receipt]]:
    """The ids of the runs (one, if any task came to its end) and what they staged, in the order of the tasks."""
    told = [message for message in messages if isinstance(message, Staged | Written)]
    receipts = [message.receipt for message in told if isinstance(message, Staged)]
    return sorted({message.run for message in told}), [one for one in receipts if one is not None]


class LogStoreWriter(DataSourceArrowWriter):
    """``df.write.format("logstore").mode("append")``: all rows, or none of them, once the job has ended."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_sink(options, schema)
        self._options = options
        self._sink = TaskSink(options)
        self._run = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._options.target.brokers:
            return _sent(self._options, self._run, write_coordinator(self._run), iterator)
        context = _context()
        attempt = Attempt(self._run, 0, context.partitionId(), context.taskAttemptId())
        return self._sink.stage(iterator, attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.target.brokers:
            if self._options.delivery == "exactly_once":
                PreparedSink(self._options).together(self._run, _written(messages))
            return
        _, receipts = _receipts(messages)
        staging = self._sink.staging()
        commit = SinkCommit(self._options, staging)
        if self._options.delivery == "exactly_once":
            commit.together(self._run, receipts)
        else:
            commit.plainly(receipts)
        staging.sweep(self._run, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        if not self._options.target.brokers:
            self._sink.staging().sweep(self._run, 0)
        elif self._options.delivery == "exactly_once":
            PreparedSink(self._options).abort(write_coordinator(self._run))


class LogStoreStreamWriter(DataSourceStreamArrowWriter):
    """``writeStream.format("logstore")``: each batch of the query once."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_sink(options, schema)
        self._options = options
        self._sink = TaskSink(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query = context.getLocalProperty(QUERY_PROPERTY)
        batch_id = context.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch_id is None:
            raise InvalidArgumentError(
                "the task does not know which batch of which query it writes for",
                hint="write a stream with writeStream, and a DataFrame (in foreachBatch, too) with write",
            )
        if self._options.target.brokers:
            return _sent(self._options, query, query_coordinator(query), iterator)
        attempt = Attempt(query, int(batch_id), context.partitionId(), context.taskAttemptId())
        return self._sink.stage(iterator, attempt)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        runs, receipts = _receipts(messages)
        if not runs:
            logger.info("batch %d had no task: there is nothing to commit", batchId)
            return
        if len(runs) > 1:
            raise InvariantError(f"one batch was written for the queries {', '.join(runs)}")
        if self._options.target.brokers:
            if self._options.delivery == "exactly_once":
                PreparedSink(self._options).once(runs[0], batchId, _written(messages))
            return
        staging = self._sink.staging()
        commit = SinkCommit(self._options, staging, held_store)
        if self._options.delivery == "exactly_once":
            commit.once(runs[0], batchId, receipts)
        else:
            commit.plainly(receipts)
        staging.sweep(runs[0], batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Without a message nobody knows the query: what its tasks left ends with its next batch."""
        runs, _ = _receipts(messages)
        for run in runs:
            if not self._options.target.brokers:
                self._sink.staging().sweep(run, batchId)
            elif self._options.delivery == "exactly_once":
                PreparedSink(self._options).abort(query_coordinator(run))


def _sent(
    options: SinkOptions, run: str, coordinator: str, batches: Iterable[pa.RecordBatch]
) -> WriterCommitMessage:
    """A task's rows, at the brokers: for the driver to commit, or done."""
    if options.delivery == "exactly_once":
        context = _context()
        task = Task(run, coordinator, context.partitionId(), context.attemptNumber())
        return PreparedSink(options).write(batches, task)
    DirectSink(options).send(batches)
    return Staged(run, None)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _context() -> TaskContext:
    settle_worker()
    context = TaskContext.get()
    if context is None:
        raise InvalidArgumentError("write() was called outside of a task of Spark", hint="Spark calls it")
    return context
