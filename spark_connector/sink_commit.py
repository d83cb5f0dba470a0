"""What the driver does with staged batches: one transaction a batch of a query, which is in once, or not at all.

The transactional id ``spark-<query id>`` is opened first, which finishes or aborts what a killed driver left; then
the query's counter says which batch is next. That number is committed to the group ``spark-sink-<query id>`` in
the transaction of the batch's records, so that a batch is in exactly when the counter is past it. Neither expires.

Nothing is held between two commits: the store is opened for one and closed after it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Final

import logstore
from logstore import LogStore, Producer, TopicPartition
from logstore.errors import TopicLockedError
from logstore.types import COUNTER_TOPIC
from spark_connector.sink_options import SinkOptions
from spark_connector.staging import Receipt, StagedBatch, Staging

logger = logging.getLogger("logstore.spark")

COUNTER: Final = TopicPartition(COUNTER_TOPIC, 0)
_TRANSACTION_MS: Final = 15 * 60 * 1000  # nothing else happens in it than appending what is there already
_BUFFER_BYTES: Final = 64 << 20


def sink_group(query: str) -> str:
    """The group that holds the query's counter: the number of the batch that is next."""
    return f"spark-sink-{query}"


class SinkCommit:
    """Appends what was staged to the store of these options."""

    def __init__(self, options: SinkOptions, staging: Staging) -> None:
        self._options = options
        self._staging = staging

    def once(self, query: str, batch_id: int, receipts: Collection[Receipt]) -> bool:
        """Batch ``batch_id`` of the query, unless it is in: then False. Errors: ``TopicLockedError``,
        ``ProducerBusyError`` (another process has the topics, or the query), ``DamagedStoreError``, those of appends:
        nothing of the batch is to be seen then, but after ``OutcomeUnknownError``, when it may be; the query, started
        anew, finds out."""
        with self._open() as store, self._producer(store, f"spark-{query}") as producer:
            group = sink_group(query)
            committed = store.committed_offsets(group).get(COUNTER)
            if committed is not None and committed.offset > batch_id:
                logger.info(
                    "batch %d of query %s is in already: the next one is %d",
                    batch_id,
                    query,
                    committed.offset,
                )
                return False
            self._prepare(store, receipts)
            with producer.transaction() as tx:
                for staged in self._batches(receipts):
                    tx.send_batch(*staged)
                tx.commit_offsets(group, {COUNTER: batch_id + 1})
        return True

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
            with store.producer(buffer_bytes=_BUFFER_BYTES, delivery_timeout_ms=_TRANSACTION_MS) as producer:
                for staged in self._batches(receipts):
                    producer.send_batch(*staged)

    def _open(self) -> LogStore:
        return logstore.open(self._options.path, lock_timeout_s=self._options.lock_timeout_s, threads=False)

    def _producer(self, store: LogStore, transactional_id: str) -> Producer[bytes, bytes]:
        return store.producer(
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
