"""What the driver does with staged batches: one transaction a batch of a query, which is in once, or not at all.

The transactional id ``spark-<query id>`` is opened first, which finishes or aborts what a killed driver left; then
the query's counter says which batch is next (``batch_counter.py``), and goes on in the transaction of the batch's
records.

Nothing is locked between two commits of a directory's topics that another process waits for (``held_store.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeAlias, cast

import logstore
from logstore import LogStore, Producer
from logstore.api.backend import Backend
from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import DiskFullError, StorageError, TopicLockedError
from logstore.types import Acks
from spark_connector.settings.sink_options import SinkOptions
from spark_connector.writing.batch_counter import COUNTER, next_counter, sink_group
from spark_connector.writing.batch_marks import mark_of
from spark_connector.writing.staging import Receipt, StagedBatch, Staging

OpensStore: TypeAlias = Callable[[str, float], AbstractContextManager[LogStore]]
"""From a directory and a ``lock_timeout_s``; a block that fails closes the store."""

_TRANSACTION_MS: Final = 15 * 60 * 1000  # nothing else happens in it than appending what is there already
_BUFFER_BYTES: Final = 16 << 20  # memory that is used again, rather than fresh
_ROOM: Final = "free space on the store's disk and start the query again: it writes this batch again, once"


def opened_once(path: str, lock_timeout_s: float) -> AbstractContextManager[LogStore]:
    """Opened for the block, and closed after it."""
    return logstore.open(path, lock_timeout_s=lock_timeout_s, threads=False)


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
    """Appends what was staged to the store of these options. ``opened``: gives the store, open for writing."""

    def __init__(self, options: SinkOptions, staging: Staging, opened: OpensStore = opened_once) -> None:
        self._options = options
        self._staging = staging
        self._opened = opened

    def once(self, query: str, batch_id: int, receipts: Collection[Receipt]) -> bool:
        """Batch ``batch_id`` of the query, unless it is in: then False. Errors: ``BatchChangedError`` (its number is in
        with other rows), ``StorageError`` (as of a full disk: at once), ``TopicLockedError``,
        ``ProducerBusyError`` (another process has the topics, or the query), ``DamagedStoreError``, those of appends:
        nothing of the batch is to be seen then, but after ``OutcomeUnknownError``, when it may be; the query, started
        anew, finds out."""
        mark = mark_of((receipt.content for receipt in receipts), self._options.checkpoint, batch_id)
        with self._open() as store, self._producer(store, f"spark-{query}") as producer:
            group = sink_group(query)
            committed = store.committed_offsets(group)
            counter = next_counter(self._options, query, batch_id, mark, committed)
            if counter is None:
                return False
            with self._owning(store, receipts), producer.transaction() as tx:
                for staged in self._batches(receipts):
                    tx.send_batch(*staged)
                tx.commit_offsets(group, {COUNTER: counter})
        return True

    def together(self, run: str, receipts: Collection[Receipt]) -> None:
        """A batch write: all of it or nothing. Its id is used once, and expires."""
        if not receipts:
            return
        with (
            self._open() as store,
            self._producer(store, f"once-spark-{run}") as producer,
            self._owning(store, receipts),
            producer.transaction() as tx,
        ):
            for staged in self._batches(receipts):
                tx.send_batch(*staged)

    def plainly(self, receipts: Collection[Receipt]) -> None:
        """At least once: after an error a part may be in, and comes again with the retry."""
        if not receipts:
            return
        with (
            self._open() as store,
            self._owning(store, receipts),
            Producer[bytes, bytes](
                FullDiskFails(store.backend).as_backend(),
                delivery_timeout_ms=_TRANSACTION_MS,
                buffer_bytes=_BUFFER_BYTES,
            ) as producer,
        ):
            for staged in self._batches(receipts):
                producer.send_batch(*staged)

    def _open(self) -> AbstractContextManager[LogStore]:
        return self._opened(self._options.path, self._options.lock_timeout_s)

    def _producer(self, store: LogStore, transactional_id: str) -> Producer[bytes, bytes]:
        return Producer(
            FullDiskFails(store.backend).as_backend(),
            transactional_id=transactional_id,
            transaction_timeout_ms=_TRANSACTION_MS,
            delivery_timeout_ms=_TRANSACTION_MS,
            buffer_bytes=_BUFFER_BYTES,
        )

    @contextmanager
    def _owning(self, store: LogStore, receipts: Collection[Receipt]) -> Iterator[None]:
        """The topics are owned inside. Whatever can be refused is refused before anything is appended. Topics are
        taken in the order of their names, so that two queries never wait for each other."""
        for receipt in receipts:
            self._staging.check(receipt)
        topics = sorted({topic for receipt in receipts for topic in receipt.topics})
        for topic in topics:
            try:
                store.pin(topic)
            except TopicLockedError as error:
                raise TopicLockedError(
                    error.message,
                    hint="let its holder release it (store.release(topic), store.close(); an idle one does after "
                    "10 s), or raise option lockTimeout; started anew, the query writes this batch again",
                ) from error
        yield
        for topic in topics:
            store.unpin(topic)  # after an error the store is closed

    def _batches(self, receipts: Collection[Receipt]) -> Iterator[StagedBatch]:
        for receipt in receipts:
            yield from self._staging.read(receipt)
