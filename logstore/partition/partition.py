"""``Partition``: one partition as the rest of the engine sees it, whoever keeps its records and says what is committed.

Everybody who writes records goes through ``append`` or ``append_marker``: producers, importers, ``store.partition()``,
transactions, administrators, coordinators. They return a ``PendingAppend`` at once: the records have their offsets,
and what was asked for (``acks``) is told later, by a callback (``then``) or by a blocking wait (``wait_all``) that lets
several appends share one sync. Readers ask for a ``LogReader``, read up to its high watermark, and wait for more by a
callback (``when_more``), so that a thousand waiting fetches cost no thread.

``LocalPartition`` is the embedded one. A replicated one keeps its records in ``ReplicaLog``s, truncates and installs
snapshots there, and nothing above can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from logstore.config import TopicConfig
from logstore.errors import LogStoreError
from logstore.log.append_validation import CheckedBatch
from logstore.log.epochs import Epochs
from logstore.log.log_offsets import LogOffsets
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.segments.segment import Chunk
from logstore.log.segments.segment_list import Back, SegmentList
from logstore.types import Acks, Buffer

Answer = TypeVar("Answer")
Cancel: TypeAlias = Callable[[], None]
"""End a wait that is not wanted any more; it may have been told already."""
Told: TypeAlias = Callable[[LogStoreError | None], None]
"""Called once, from any thread, when an append is decided: None, or why it failed. Must not wait for anything."""


class LogReader(Protocol):
    """Where records are read right now: a log of this process, or files that another one writes. Any thread.

    ``read``, ``read_back`` and ``aborted`` give whole batches and transactions of what ``bounds`` shows, and may raise
    ``OSError``, ``SegmentVanishedError``, ``CorruptBatchError``; ``look`` calls with one list of segments.
    """

    where: str

    @property
    def gapless(self) -> bool:
        """Whether batches follow each other without gaps: only a Kafka broker's compaction leaves some."""
        ...

    @property
    def segments(self) -> SegmentList: ...
    def bounds(self) -> LogOffsets: ...
    def epoch_table(self) -> Epochs: ...
    def refresh(self) -> None:
        """List the segments again, where another process may have changed them."""
        ...

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None: ...
    def read_back(self, end_offset: int) -> Back | None: ...
    def aborted(
        self, start_offset: int, end_offset: int, data: Buffer | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions that may have data in [start_offset, end_offset). ``data``: the batches there, if
        they are at hand; nothing has to be looked up for those that are of no transaction."""
        ...

    def look(self, read: Callable[[SegmentList], Answer]) -> Answer: ...


class PendingAppend(Protocol):
    """An append whose records have offsets [base_offset, next_offset), to be decided: every one has to be waited for,
    by ``wait_all`` or by ``then``, since the partition cannot change hands meanwhile.

    ``append_time_ms``: what LogAppendTime stamped on the records, else -1; ``error``: why it failed, once it is
    ``done``.
    """

    base_offset: int
    next_offset: int
    append_time_ms: int
    done: bool
    error: LogStoreError | None

    def then(self, tell: Told) -> None:
        """``tell`` is called when the append is decided; at once if it is."""
        ...

    def wait_with(self, others: Sequence[PendingAppend]) -> None:
        """Block until this one, which is among ``others``, is decided, and those of them that can share its wait."""
        ...


class PartitionWriter(Protocol):
    """The way of records into a partition. ``where``: "topic-partition", for messages."""

    topic: str
    partition: int
    where: str

    @property
    def config(self) -> TopicConfig: ...

    def append(
        self,
        batches: Sequence[CheckedBatch],
        acks: Acks = "all",
        *,
        expected_offset: int | None = None,
        now_ms: int | None = None,
        until_s: float | None = None,
    ) -> PendingAppend:
        """As leader, under the term in which this node leads: check, give offsets, write. ``acks``: "all" is decided
        when the records are committed, 1 and 0 at once. ``expected_offset``: only if the log ends there.
        ``until_s``: of the monotonic clock, how long a topic that another process owns is waited for at the most.

        Errors of the checks and of ``OwnedLog.append``; ``TopicLockedError`` where another process owns the topic,
        ``FencedLeaderEpochError`` where another node leads. Nothing is appended then.
        """
        ...

    def append_marker(
        self, marker: Marker, *, once: bool = False, open_since: int = -1, wait: bool = True
    ) -> PendingAppend:
        """End a producer's transaction, with ``acks="all"``. ``once``: where the log knows the producer under the
        marker's epoch or a newer one, the marker is there, and what is awaited is that it is committed; else
        ``ProducerFencedError``. ``open_since``: see ``OwnedLog.append_marker``. ``wait=False``: ``TopicLockedError`` at
        once where another process owns the topic."""
        ...

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]:
        """What the partition knows of these producers, all of it committed."""
        ...


class Partition(PartitionWriter, Protocol):
    """Any thread."""

    def flush(self) -> None:
        """Block until all that was appended here is committed. Errors as those of an append."""
        ...

    def delete_records(self, before_offset: int) -> int:
        """Move the log start offset up to ``before_offset``, at most to the high watermark, durably; the new one."""
        ...

    def reader(self, *, looked: bool = False) -> LogReader:
        """What to read from right now. ``looked``: the caller has just seen the catalogue."""
        ...

    def when_more(self, tell: Callable[[], None], *, poll: bool = True) -> Cancel | None:
        """``tell`` is called once, from any thread, when readers may see more than when this was called, or never
        will: look again, then wait again. It must not wait for anything. ``poll=False``: None where only looking
        again and again would tell, since another process writes; the caller does so itself."""
        ...


@runtime_checkable
class SendsOn(Protocol):
    """A partition whose appends go on to other nodes."""

    def together(self) -> AbstractContextManager[None]:
        """What the same thread appends within goes on at its end, as one. Nothing else comes in between; what is
        appended within must not be waited for before."""
        ...


def wait_all(appends: Sequence[PendingAppend]) -> None:
    """Block until all are decided; ``error`` of each says how. Those that can share a sync do."""
    for append in appends:
        if not append.done:
            append.wait_with(appends)


def result_of(append: PendingAppend) -> PendingAppend:
    """The append, once it is decided. Raises its error."""
    if not append.done:
        append.wait_with((append,))
    if append.error is not None:
        raise append.error
    return append
