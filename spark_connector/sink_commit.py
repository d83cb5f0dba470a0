"""What the driver does with staged batches: one transaction a batch of a query, which is in once, or not at all.

The transactional id ``spark-<query id>`` is opened first, which finishes or aborts what a killed driver left; then
the query's counter says which batch is next. That number is committed to the group ``spark-sink-<query id>`` in
the transaction of the batch's records, so that a batch is in exactly when the counter is past it; the newest batches'
marks stand beside the number, so that another batch under an old number is noticed. Neither expires.

Nothing is held between two commits: the store is opened for one and closed after it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, cast

import logstore
from logstore import LogStore, Producer, TopicPartition
from logstore.api.backend import Backend
from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import BatchChangedError, DiskFullError, StorageError, TopicLockedError
from logstore.types import COUNTER_TOPIC, Acks, OffsetAndMetadata
from spark_connector.batch_marks import BatchMarks, Mark, mark_of
from spark_connector.sink_options import SinkOptions
from spark_connector.staging import Receipt, StagedBatch, Staging

logger = logging.getLogger("logstore.spark")

COUNTER: Final = TopicPartition(COUNTER_TOPIC, 0)
_TRANSACTION_MS: Final = 15 * 60 * 1000  # nothing else happens in it than appending what is there already
_BUFFER_BYTES: Final = 64 << 20
_CHANGED: Final = (
    "nothing of it was written. Begin a new query with a checkpoint of its own, from the offsets that are not in yet "
    "(startingOffsets); or go on with changedBatch=append, which writes some rows twice, or changedBatch=skip, which "
    "leaves out those that were not in"
)
_ROOM: Final = "free space on the store's disk and start the query again: it writes this batch again, once"


def sink_group(query: str) -> str:
    """The group that holds the query's counter: the number of the batch that is next."""
    return f"spark-sink-{query}"


class FullDiskFails:
    """A store's backend as the sink sees it: a full disk is an error at once. A producer would try again for as long as
    ``delivery_timeout_ms``, which has to allow for the whole batch here; Spark's query shall stop and say why."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def as_backend(self) -> Backend:
        """For ``Producer``: every other call is the store's."""
        return cast(Backend, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def produce(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> list[ProduceResult]:
        return [_final(result) for result in self._backend.produce(items, acks, timeout_s)]


def _final(result: ProduceResult) -> ProduceResult:
    error = result.error
    if not isinstance(error, DiskFullError):
        return result
    return result._replace(error=StorageError(error.message, hint=_ROOM))


class SinkCommit:
    """Appends what was staged to the store of these options."""

    def __init__(self, options: SinkOptions, staging: Staging) -> None:
        self._options = options
        self._staging = staging

    def once(self, query: str, batch_id: int, receipts: Collection[Receipt]) -> bool:
        """Batch ``batch_id`` of the query, unless it is in: then False. Errors: ``BatchChangedError`` (its number is in
        with other rows), ``StorageError`` (as of a full disk: at once), ``TopicLockedError``,
        ``ProducerBusyError`` (another process has the topics, or the query), ``DamagedStoreError``, those of appends:
        nothing of the batch is to be seen then, but after ``OutcomeUnknownError``, when it may be; the query, started
        anew, finds out."""
        mark = mark_of((receipt.content for receipt in receipts), self._options.checkpoint, batch_id)
        with self._open() as store, self._producer(store, f"spark-{query}") as producer:
            group = sink_group(query)
            committed = store.committed_offsets(group).get(COUNTER, OffsetAndMetadata(0))
            marks = BatchMarks.decode(committed.metadata)
            if committed.offset > batch_id and self._is_in(query, batch_id, marks, mark):
                logger.info("batch %d of query %s is in already, up to %d", batch_id, query, committed.offset)
                return False
            if committed.offset < batch_id:
                logger.warning(
                    "batches %d to %d of query %s were never written to %s: an older copy of the store, or another one",
                    committed.offset,
                    batch_id - 1,
                    query,
                    self._options.path,
                )
            self._prepare(store, receipts)
            counter = OffsetAndMetadata(
                max(committed.offset, batch_id + 1), metadata=marks.with_batch(batch_id, mark).encode()
            )
            with producer.transaction() as tx:
                for staged in self._batches(receipts):
                    tx.send_batch(*staged)
                tx.commit_offsets(group, {COUNTER: counter})
        return True

    def _is_in(self, query: str, batch_id: int, marks: BatchMarks, mark: Mark) -> bool:
        """Whether a batch that the counter is past is the one that was written. ``BatchChangedError``, or what option
        ``changedBatch`` says, for another one under its number."""
        known = marks.marks.get(batch_id)
        if known is not None and known.is_of(mark):
            return True
        if not marks.marks:
            logger.warning(
                "batch %d of query %s is skipped: its number was written by a version that kept no marks of batches",
                batch_id,
                query,
            )
            return True
        had = "which rows it had is not known any more" if known is None else f"with {known.rows} rows"
        text = (
            f"batch {batch_id} of query {query} was written before, {had}, and comes again with {mark.rows} other "
            "ones: the checkpoint has lost its newest files, or is an older copy"
        )
        if self._options.changed_batch == "error":
            raise BatchChangedError(text, hint=_CHANGED)
        logger.warning("%s; changedBatch=%s", text, self._options.changed_batch)
        return self._options.changed_batch == "skip"

    def together(self, run: str, receipts: Collection[Receipt]) -> None:
        """A batch write: all of it or nothing. Its id is used once, and expires."""
        if not receipts:
            return
        with self._open() as store, self._producer(store, f"once-spark-{run}") as producer:
            self._prepare(store, receipts)
            with producer.transaction() as tx:
                for staged in self._batches(receipts):
                    tx.send_batch(*staged)

    def plainly(self, receipts: Collection[Receipt]) -> None:
        """At least once: after an error a part may be in, and comes again with the retry."""
        if not receipts:
            return
        with self._open() as store:
            self._prepare(store, receipts)
            with Producer[bytes, bytes](
                FullDiskFails(store.backend).as_backend(),
                delivery_timeout_ms=_TRANSACTION_MS,
                buffer_bytes=_BUFFER_BYTES,
            ) as producer:
                for staged in self._batches(receipts):
                    producer.send_batch(*staged)

    def _open(self) -> LogStore:
        return logstore.open(self._options.path, lock_timeout_s=self._options.lock_timeout_s, threads=False)

    def _producer(self, store: LogStore, transactional_id: str) -> Producer[bytes, bytes]:
        return Producer(
            FullDiskFails(store.backend).as_backend(),
            transactional_id=transactional_id,
            transaction_timeout_ms=_TRANSACTION_MS,
            delivery_timeout_ms=_TRANSACTION_MS,
            buffer_bytes=_BUFFER_BYTES,
        )

    def _prepare(self, store: LogStore, receipts: Collection[Receipt]) -> None:
        """Whatever can be refused is refused before anything is appended. Topics are taken in the order of their
        names, so that two queries never wait for each other."""
        for receipt in receipts:
            self._staging.check(receipt)
        for topic in sorted({topic for receipt in receipts for topic in receipt.topics}):
            try:
                store.pin(topic)
            except TopicLockedError as error:
                raise TopicLockedError(
                    error.message,
                    hint="let its holder release it (store.release(topic), store.close(); an idle one does after "
                    "10 s), or raise option lockTimeout; started anew, the query writes this batch again",
                ) from error

    def _batches(self, receipts: Collection[Receipt]) -> Iterator[StagedBatch]:
        for receipt in receipts:
            yield from self._staging.read(receipt)
