"""``PendingBatch``: rows on their way to one partition, and what became of them; ``PartitionQueue``: a partition's.

A delivery is a view (batch, index) on it. Fields of the way there are guarded by the accumulator's lock; the
outcome is written once, ``done`` last, and read without a lock. Sizes are in bytes and are an upper bound of
what ``format.batch.encode_batch`` makes of the rows without compression: an append is never refused for a
size that this file let pass.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from logstore.errors import LogStoreError
from logstore.format.batch import HEADER_SIZE, BatchHeader
from logstore.format.row_buffer import RowBuffer
from logstore.format.rows import RECORD_OVERHEAD, TIMESTAMP_OVERHEAD
from logstore.native import compiled
from logstore.types import Buffer


class Identity(NamedTuple):
    """What a batch of an idempotent producer travels under."""

    producer_id: int
    epoch: int
    transactional: bool = False


class Releasable(Protocol):
    """What a waiter sleeps on: a lock that is held until then."""

    def release(self) -> None: ...


class Driver(Protocol):
    """What brings a batch to its outcome when a caller waits for it."""

    def drive(
        self, batch: PendingBatch, index: int, timeout_s: float | None
    ) -> tuple[PendingBatch, int] | None:
        """Send the batch now, or wait for whoever sends it. Gives the batch that the row at ``index`` went
        with (see ``locate``) once it is done, and the index there; None: ``timeout_s`` is over."""
        ...

    def finish(self, batches: Iterable[PendingBatch], timeout_s: float | None) -> bool:
        """The same for several batches at once, with shared calls of the backend. False: time is over."""
        ...

    def hurry(self, batch: PendingBatch) -> None:
        """Have the batch sent by the producer's thread, without lingering. Never waits."""
        ...

    def attach(self, batch: PendingBatch, index: int, callback: Callable[[], object]) -> bool:
        """Have ``callback`` called when the row's batch is done. False: it is done already."""
        ...


@compiled("client.pending")
class OpenBatch:
    """The fields of a batch: compiled, so that ``send``, a flight and deliveries touch them without a step of Python.

    ``rows``, ``size`` and ``room`` are guarded by the accumulator's lock. ``room``: up to this size the quick path
    adds rows, which reckons ``RECORD_OVERHEAD`` a row; -1 in a batch with timestamps, and in one that is closed.
    ``done`` is written once, with that lock held, after every other field of the outcome, and read without it;
    ``parts``: a refused batch cut in two. ``wanted``: a caller waits for the
    outcome, so that the batch does not linger; ``gates``: one for each thread that waits, released when it is done;
    ``timestamps``: one per row once done, None if all carry ``timestamp_ms``."""

    # Defaults live on the class: a batch of one record is made for each durable send, so each field set
    # counts.
    room = 0
    done = wanted = False
    parts: tuple[PendingBatch, PendingBatch] | None = None
    gates: list[Releasable] | None = None
    error: LogStoreError | None = None
    base_offset = timestamp_ms = -1
    timestamps: list[int] | None = None
    count = 0  # of rows, once the batch is closed
    reserved = 0  # what the batch holds of buffer_bytes
    overhead = RECORD_OVERHEAD
    timestamped = False
    attempts = 0
    full_since_s = -1.0  # when the disk was first too full for it; -1: it never was
    full_told = False
    refusal: LogStoreError | None = None  # what the last attempt came to
    encoded: bytes | None = None
    header: BatchHeader | None = None  # of ``encoded``, if it was made here from rows
    ready: Buffer | None = None  # the records came as a batch: only its head is written anew
    identity: Identity | None = None  # of an idempotent producer, from the first flight on
    base_sequence = -1  # with it; kept for retries
    doubtful = False  # a call with it failed as a whole: it may be in although nothing said so
    now_ms = -1  # the time of rows without one: when the batch was first encoded
    observed = False  # a caller has been told of the error
    callbacks: list[tuple[int, Callable[[], object]]] | None = None  # with the row's index

    def __init__(
        self, queue: PartitionQueue, driver: Driver | None, cap: int, created_s: float, deadline_s: float
    ) -> None:
        self.rows = RowBuffer()
        self.size = HEADER_SIZE
        self.queue = queue
        self.driver = driver
        self.cap = cap  # the batch is closed before the row that would pass this
        self.created_s = created_s
        self.deadline_s = deadline_s

    def resolve(self, base_offset: int, append_time_ms: int) -> None:
        """The batch is in: fill the outcome and let go of the rows. The accumulator's lock is held."""
        if self.timestamped and append_time_ms < 0:
            now_ms = self.now_ms
            self.timestamps = [
                row[3] if len(row) == 4 and row[3] is not None else now_ms for row in self.rows
            ]
        self.base_offset = base_offset
        self.timestamp_ms = append_time_ms if append_time_ms >= 0 else self.now_ms
        self._finish()

    def _finish(self) -> None:
        self.rows = RowBuffer()
        self.encoded = self.ready = self.header = None
        self.done = True
        self.driver = None


class PendingBatch(OpenBatch):
    """See the module, and ``OpenBatch`` for the fields."""

    __slots__ = ()

    def size_with(self, row_bytes: int, timestamped: bool) -> int:
        """The batch's size once a row of ``row_bytes`` (see ``row_bytes``) is in it."""
        if timestamped and not self.timestamped:
            overhead = RECORD_OVERHEAD + TIMESTAMP_OVERHEAD
            return self.size + TIMESTAMP_OVERHEAD * len(self.rows) + row_bytes + overhead
        return self.size + row_bytes + self.overhead

    def add(self, row: Any, size: int, timestamped: bool) -> int:
        """Append a row; ``size``: from ``size_with``. Gives the row's index."""
        rows = self.rows
        rows.append(row)
        self.size = size
        if timestamped:
            self.mark_timestamped()
        return len(rows) - 1

    def mark_timestamped(self) -> None:
        self.timestamped = True
        self.room = -1
        self.overhead = RECORD_OVERHEAD + TIMESTAMP_OVERHEAD

    @property
    def landed(self) -> bool:
        """Done, and not because it was cut in two. Needs no lock."""
        return self.done and self.parts is None

    def locate(self, index: int) -> tuple[PendingBatch, int]:
        """The batch that the row at ``index`` went with, and its index there."""
        if self.parts is None:
            return self, index
        batch: PendingBatch = self
        while batch.parts is not None:
            left, right = batch.parts
            if index < left.count:
                batch = left
            else:
                index -= left.count
                batch = right
        return batch, index

    def leaves(self) -> list[PendingBatch]:
        """The batches that this one's rows went with, in order: itself unless it was cut."""
        if self.parts is None:
            return [self]
        left, right = self.parts
        return left.leaves() + right.leaves()

    def timestamp_of(self, index: int) -> int:
        return self.timestamp_ms if self.timestamps is None else self.timestamps[index]

    def forget_sequence(self) -> None:
        """It was never stored, and what was before it is not either: it is numbered anew when it flies."""
        self.encoded = self.header = None
        self.identity = None
        self.base_sequence = -1

    def fail(self, error: LogStoreError) -> None:
        """The batch is not in (or that is not known): all its rows share the error. The lock is held."""
        # A copy, which has no traceback: frames hold deliveries, and a compiled delivery is not followed by the
        # garbage collector, so that none may be in a cycle once its batch is done.
        self.error = copy.copy(error)
        self._finish()


class Route(Protocol):
    """What batches on their way need of their topic (``route.TopicRoute``)."""

    name: str
    topic_id: str
    max_message_bytes: int
    codec: str

    def move_on(self, queue: PartitionQueue) -> None: ...


@compiled("client.pending")
class OpenQueue:
    """The fields of a partition's queue, compiled as those of ``OpenBatch``. ``open``: the batch that takes rows,
    ``closed``: those before it, ``flights``: the batches in the backend's hands now, by flight, the oldest first; all
    guarded by the accumulator's lock.

    ``stacks``: behind the last flight another one may go before it is back. Where a batch of a flight fails, those
    that flew behind it are ``held_up``: what is to go again waits in ``again`` until all flights are back, so that it
    goes in order; ``renumbers``: with new sequences.
    ``identity``, ``next_sequence``, ``numbered_topic``: see ``sequences.py``, the flight's holder alone touches
    them. ``spent``: a batch with a sequence has failed, so the next one needs an identity other than this.
    """

    __slots__ = (
        "again",
        "closed",
        "flights",
        "held_up",
        "identity",
        "next_sequence",
        "numbered_topic",
        "open",
        "partition",
        "renumbers",
        "retry_at_s",
        "route",
        "spent",
        "stacks",
        "topic",
    )

    def __init__(self, route: Route, topic: str, partition: int) -> None:
        self.open: PendingBatch | None = None
        self.route = route
        self.topic = topic
        self.partition = partition
        self.flights: deque[tuple[PendingBatch, ...]] = deque()
        self.closed: deque[PendingBatch] = deque()
        self.stacks = False
        self.again: list[PendingBatch] = []
        self.held_up = self.renumbers = False
        self.retry_at_s = 0.0
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.numbered_topic = ""
        self.spent = False


class PartitionQueue(OpenQueue):
    """The batches of one partition. See ``OpenQueue`` for the fields."""

    __slots__ = ()

    def __init__(self, route: Route, partition: int) -> None:
        super().__init__(route, route.name, partition)

    def head(self) -> PendingBatch | None:
        """The next batch to fly."""
        return self.closed[0] if self.closed else self.open

    def batches(self) -> Iterator[PendingBatch]:
        """All that are not done, in order but for what is to go again."""
        yield from self.again
        for flight in self.flights:
            yield from flight
        yield from self.closed
        if self.open is not None:
            yield self.open
