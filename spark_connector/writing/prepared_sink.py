"""``PreparedSink``: tasks that send their rows to brokers themselves, and a driver that decides which of them count.

Each attempt of a task writes in a transaction of its own, ``spark-<query id>-<partition>-<attempt>``, straight into the
partitions, and prepares it: durable, and not to be seen. Its handle travels to the driver, through Spark. There
``spark-<query id>`` commits those of the attempts that Spark reports, and the batch's number, by one record; whatever
else was written for that id is aborted (attempts that lost, tasks of batches that failed).

A batch write has no query; its coordinator is ``spark-once-<a random id>``, used once and forgotten. Ids of tasks are
used again by the next batch, so that a query has as many as it has partitions and attempts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from logstore import PreparedTransaction, Producer
from logstore.errors import LogStoreError, OutcomeUnknownError
from spark_connector.connection import client_of
from spark_connector.settings.sink_options import SinkOptions
from spark_connector.writing.batch_counter import COUNTER, next_counter, sink_group
from spark_connector.writing.batch_marks import Content, mark_of
from spark_connector.writing.sink_batches import SinkBatches

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("logstore.spark")

_DECISION_MS: Final = 60_000  # of the driver's own transaction, which holds one offset
_TRIES: Final = 3  # to learn what became of a commit that got no answer


def query_coordinator(query: str) -> str:
    """The transactional id that decides a streaming query's batches."""
    return f"spark-{query}"


def write_coordinator(run: str) -> str:
    """The transactional id that decides a batch write; it expires."""
    return f"spark-once-{run}"


class Task(NamedTuple):
    """Whose rows they are. ``run``: a streaming query's id, or a batch write's own; ``attempt``: from 0, of this
    partition in its stage."""

    run: str
    coordinator: str
    partition: int
    attempt: int

    @property
    def transactional_id(self) -> str:
        return f"{self.coordinator}-{self.partition}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task hands to the driver. ``prepared`` None: it had no rows."""

    run: str
    prepared: PreparedTransaction | None
    content: Content


class PreparedSink:
    """One write. Picklable; errors of its methods are those of sending and of transactions."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    # --- in a task ---

    def write(self, batches: Iterable[pa.RecordBatch], task: Task) -> Written:
        """Durable, and undecided, when it returns. An error aborts; so does the end of the process, when the broker
        has not heard of it for its ``lease_timeout_s``."""
        options, backend = self._options, client_of(self._options.target).backend
        made = SinkBatches(backend, options)
        encoded = (one for batch in batches for one in made.of(batch))
        first = next(encoded, None)
        if first is None:
            return Written(task.run, None, Content())
        with (
            _closing(
                Producer[bytes, bytes](
                    backend,
                    transactional_id=task.transactional_id,
                    transaction_coordinator=task.coordinator,
                    transaction_timeout_ms=int(options.transaction_timeout_s * 1000),
                )
            ) as producer,
            producer.transaction() as tx,
        ):
            for one in chain([first], encoded):
                tx.send_batch(*one)
            return Written(task.run, tx.prepare(), made.content)

    # --- on the driver ---

    def once(self, query: str, batch_id: int, written: Collection[Written]) -> bool:
        """Batch ``batch_id`` of the query, unless it is in: then False. ``BatchChangedError``: its number is in with
        other rows; ``TransactionStateError``: a task's transaction was ended meanwhile. Nothing of the batch is to be
        seen then, but after ``OutcomeUnknownError``, when it may be; the query, started anew, finds out."""
        for _ in range(_TRIES - 1):
            try:
                return self._once(query, batch_id, written)
            except OutcomeUnknownError as error:
                # Opened again, the id's commit is finished if it was decided; else the tasks' transactions still wait.
                logger.warning(
                    "whether batch %d of query %s is in is asked again: %s", batch_id, query, error
                )
        return self._once(query, batch_id, written)

    def _once(self, query: str, batch_id: int, written: Collection[Written]) -> bool:
        mark = mark_of((one.content for one in written), self._options.checkpoint, batch_id)
        store, group = client_of(self._options.target), sink_group(query)
        with _closing(self._deciding(query_coordinator(query))) as producer, producer.transaction() as tx:
            committed = store.backend.committed_offsets(group)
            counter = next_counter(self._options, query, batch_id, mark, committed)
            if counter is None:
                tx.abort()  # of what the tasks wrote again
                return False
            tx.commit_offsets(group, {COUNTER: counter})
            _commit(producer, _handles(written))
        return True

    def together(self, run: str, written: Collection[Written]) -> None:
        """A batch write: all of it or nothing. Errors as ``once``."""
        handles = _handles(written)
        if not handles:
            return
        with _closing(self._deciding(write_coordinator(run))) as producer, producer.transaction():
            _commit(producer, handles)

    def abort(self, coordinator: str) -> None:
        """Nothing that was written for this id, and is not committed, counts."""
        with _closing(self._deciding(coordinator, keep=False)):
            pass  # the opening aborts

    def _deciding(self, coordinator: str, *, keep: bool = True) -> Producer[bytes, bytes]:
        return Producer(
            client_of(self._options.target).backend,
            transactional_id=coordinator,
            transaction_timeout_ms=_DECISION_MS,
            keep_prepared=keep,
        )


@contextmanager
def _closing(producer: Producer[bytes, bytes]) -> Iterator[Producer[bytes, bytes]]:
    """What is prepared or committed is, also where the broker is gone when its producer is closed."""
    try:
        yield producer
    finally:
        try:
            producer.close()
        except LogStoreError as error:
            logger.warning(
                "transactional id %r is let go of by its lease's end: %s", producer.transactional_id, error
            )


def _commit(producer: Producer[bytes, bytes], handles: list[PreparedTransaction]) -> None:
    """OutcomeUnknownError where the broker cannot be asked any more, e.g. since it was started anew."""
    try:
        producer.commit(prepared=handles)
    except OutcomeUnknownError as unknown:
        try:
            producer.commit()  # asks
        except LogStoreError as error:
            raise unknown from error


def _handles(written: Collection[Written]) -> list[PreparedTransaction]:
    return [one.prepared for one in written if one.prepared is not None]
