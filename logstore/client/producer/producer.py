"""``Producer``: from ``send`` to batches, over any ``Backend``."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic

from logstore.api.backend import Backend
from logstore.api.producers import ProducerLease
from logstore.arguments import function_or_none, seconds_or_none
from logstore.client.partitioner import Partitioner
from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.delivery import Delivery, DeliveryGroup, Piece
from logstore.client.producer.lifetime import unwatch, watch
from logstore.client.producer.outcomes import raisable
from logstore.client.producer.pending import PartitionQueue
from logstore.client.producer.route import TopicRoute
from logstore.client.producer.router import PlannedChunk, Router, closed_error
from logstore.client.producer.send_lock import send_lock
from logstore.client.producer.send_path import SendPath, open_for, queue_rows
from logstore.client.producer.sender import Sender
from logstore.client.producer.sequences import Sequences
from logstore.client.producer.settings import settings_of
from logstore.client.producer.transaction_sequences import TransactionSequences
from logstore.client.producer.transactional import DEFAULT_TIMEOUT_MS, Transactional, open_transactions
from logstore.client.serializers import SendRow, Serializer
from logstore.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    InvalidArgumentError,
    LogStoreError,
    RecordTypeError,
)
from logstore.format.batch import HEADER_SIZE
from logstore.format.rows import (
    RECORD_OVERHEAD,
    check_all_keyed,
    check_alone,
    check_headers,
    check_rows,
    check_sizes,
    check_timestamp,
    missing_key,
    row_bytes,
    row_sizes,
)
from logstore.seams.clock import Clock, SystemClock
from logstore.types import Acks, Headers, K, V

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0
_ALONE_MOST_BYTES = HEADER_SIZE + RECORD_OVERHEAD  # a batch of one row is at most this much larger than it


class Producer(SendPath[K, V], Transactional[K, V], Generic[K, V]):
    """Sends records in batches. May be shared by threads; belongs to the process that made it.

    ``acks``: "all" (durable), 1 (in the leader's log), 0 (do not wait, offsets are -1). ``compression``: a
    codec; None takes the topic's ``compression.type``. ``linger_ms``: how long an open batch waits for
    company; ``batch_bytes``: a batch is closed before it passes this (or the topic's max.message.bytes).
    ``buffer_bytes``: rows not yet delivered; at the bound ``send`` waits up to ``max_block_ms``, then raises
    BufferFullError. Every delivery resolves within ``delivery_timeout_ms``, with metadata or an error;
    ``disk_full_timeout_ms``: how long of that a full disk is waited for. None: all of it, with a warning after 1 s.
    ``partitioner``: (topic, key, value, partitions) -> partition, in place of the topic's own.
    Without serializers keys and values are ``bytes | None``.

    ``idempotence``: batches carry sequences, so that what is sent again is stored once. None: on under
    acks="all"; True with another acks is refused. A batch whose deliveries failed is never sent again: after
    OutcomeUnknownError it may be in. A duplicate so old that the log forgot its place gives offset -1.
    ``name``: a producer whose records are counted per partition for ever (``last_sequence``), so that an
    import that was killed goes on where it was. One live producer has the name (ProducerBusyError). It stops
    at the first batch that fails: every later ``send`` raises that error, as there would be a gap.
    ``transactional_id``: records go in transactions (``transaction``, ``begin``), each committed within
    ``transaction_timeout_ms`` or aborted. A newer producer of the id fences this one.
    ``transaction_coordinator``: another transactional id, whose commit decides what this producer's transactions
    ``prepare``; until then they wait, whatever becomes of this producer. ``keep_prepared``: what waits for this
    producer's own id is left to its next commit (``Transaction.commit``), or abort; else it is aborted at once.

    Per partition records arrive in the order they were sent, also across retries. Leave the ``with`` block
    or call ``close``: records that a producer still held when it was dropped are reported and sent late.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        acks: Acks = "all",
        name: str | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS,
        transaction_coordinator: str | None = None,
        keep_prepared: bool = False,
        compression: str | None = None,
        linger_ms: float = 5,
        batch_bytes: int = 65536,
        buffer_bytes: int = 32 << 20,
        max_block_ms: float = 60_000,
        delivery_timeout_ms: float = 120_000,
        disk_full_timeout_ms: float | None = None,
        idempotence: bool | None = None,
        partitioner: Partitioner | None = None,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings_of(
            acks=acks,
            compression=compression,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            disk_full_timeout_ms=disk_full_timeout_ms,
            idempotence=idempotence,
            name=name,
        )
        function_or_none(partitioner, "partitioner")
        function_or_none(key_serializer, "key_serializer")
        function_or_none(value_serializer, "value_serializer")
        self._backend = backend
        self._clock = clock or SystemClock()
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._accumulator = Accumulator(self._settings)
        self._lease = self._transactions = None
        sequences: Sequences | None = None
        sides = (transaction_coordinator, keep_prepared)
        lease = open_transactions(
            backend, transactional_id, transaction_timeout_ms, self._settings, name, *sides
        )
        if lease is not None:
            sequences = TransactionSequences(lease)
        elif self._settings.idempotence:
            self._lease = None if name is None else backend.init_producer(name)
            sequences = Sequences(lambda: backend.init_producer(None), self._lease)
            self._accumulator.stops_at_failure = name is not None
        self._sender = Sender(backend, self._accumulator, self._clock, sequences)
        self._router = Router(backend, self._accumulator, self._clock, partitioner)
        plain = key_serializer is None and value_serializer is None
        self._quick_routes = self._router.quick if plain else {}
        self._closed = False
        self._pid = os.getpid()
        self._set_lock(self._accumulator.lock)
        self._dropped = watch(self, self._sender, self._accumulator)
        if lease is not None:
            self._transactions = self._control(lease, sequences)
        if name is not None or lease is not None:
            self._sender.start()

    # --- names ---

    @property
    def name(self) -> str | None:
        return None if self._lease is None else self._lease.name

    def last_sequence(self, topic: str, partition: int) -> int:
        """How many records of this producer's name are in the partition, durably, whoever sent them under it:
        where to go on. 64 bits: it never begins again. Takes the topic.

        InvalidArgumentError without a name; UnknownTopicError, UnknownPartitionError, TopicLockedError.
        """
        return self._named("last_sequence").last_sequence(topic, partition)

    def spread(self, topic: str) -> int:
        """Over how many partitions an import under this name should deal its rows: as many as the topic had at
        the first call, so that partitions added since do not move rows. InvalidArgumentError without a name."""
        return self._named("spread").spread(topic)

    def _named(self, call: str) -> ProducerLease:
        self._check_usable()
        if self._lease is None:
            raise InvalidArgumentError(
                f"{call}(): this producer has no name, so nothing of it is remembered",
                hint='give it one: store.producer(name="import")',
            )
        return self._lease

    # --- sending ---

    def _open_quickly(self, route: TopicRoute, queue: PartitionQueue, row: Any, size: int) -> Delivery | None:
        """A plain row that needs a new batch or more of the buffer (lock held). None: the slow path's."""
        if size + _ALONE_MOST_BYTES > route.max_message_bytes:
            return None
        if route.version != self._backend.metadata_version():
            return None
        accumulator = self._accumulator
        if row[0] is None:
            queue = accumulator.sticky_queue(route, size, False)
        if accumulator.stopped is not None:
            return None
        now_s = self._clock.monotonic_s()
        placed = open_for(accumulator, queue, row, size, size + _ALONE_MOST_BYTES, now_s)
        if placed is None:
            return None
        self._sender.notice(queue, now_s)
        return Delivery(*placed)

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> Delivery:
        """Whatever the quick path leaves: serializers, timestamps, a new batch, a full buffer."""
        self._check_usable()
        route = self._router.route(topic)
        key, value = self._serialized(topic, key, value)
        who = f"a record for topic {topic!r}"
        if key is None and route.compacts:
            raise missing_key(who)
        checked = check_headers(headers, who) if headers else None
        row: Any = (key, value) if checked is None else (key, value, checked)
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms, who)
            row = (key, value, checked, timestamp_ms)
        alone = check_alone(who, row, *self._router.limit(route))
        size = row_bytes(key, value, checked)
        timestamped = timestamp_ms is not None
        chosen = self._router.partition_of(route, key, value, partition)
        end_s = self._clock.monotonic_s() + self._settings.max_block_s
        accumulator = self._accumulator
        while True:
            with self._lock:
                self._check_open()
                now_s = self._clock.monotonic_s()
                if chosen is None:
                    queue = accumulator.sticky_queue(route, size, timestamped)
                else:
                    queue = route.queues[chosen]
                placed = accumulator.append(queue, row, size, alone, timestamped, now_s)
                if placed is not None:
                    self._sender.notice(queue, now_s)
                    return Delivery(*placed)
                gate = accumulator.buffer.join_queue()
            self._await_room(gate, alone, end_s, "the record was not queued")

    def send_many(
        self, topic: str, rows: Iterable[SendRow[K, V]], *, partition: int | None = None
    ) -> DeliveryGroup:
        """Queue rows ``(key, value[, headers[, timestamp_ms]])``; much cheaper than a ``send`` for each.

        Types and sizes of all rows are checked before any is queued; errors as for ``send`` name the row's
        index. Rows of one partition keep their order. A call larger than a quarter of ``buffer_bytes`` is
        queued in parts, each when there is room: BufferFullError says how many rows were queued before.
        """
        self._check_usable()
        route = self._router.route(topic)
        if self._key_serializer is not None or self._value_serializer is not None:
            rows = [self._serialized_row(topic, row) for row in rows]
        pieces = self._queue_quickly(route, rows, partition)
        if pieces is not None:
            return DeliveryGroup(pieces)
        where = f"topic {topic!r}"
        checked = check_rows(where, rows)
        if route.compacts:
            check_all_keyed(where, checked)
        sizes = row_sizes(checked, checked.rows)
        check_sizes(where, checked, *self._router.limit(route), sizes)
        parts = self._router.parts(checked, sizes)
        pieces = []
        queued = 0
        for rows_of_part in parts:
            end = queued + len(rows_of_part)
            part = checked._replace(rows=rows_of_part)
            plan = self._router.plan(route, part, sizes[queued:end], partition)
            pieces += self._queue_plan(route, plan, checked.timestamped, (queued, len(checked.rows)))
            queued = end
        return DeliveryGroup(pieces)

    def _queue_quickly(self, route: TopicRoute, rows: Any, partition: int | None) -> list[Piece] | None:
        """Queue plain rows that there is room for in one go. None: the slow path's."""
        if partition is None:
            if not self._router.goes_by_key(route):
                return None
        elif type(partition) is not int or not 0 <= partition < len(route.queues):
            return None
        cap = min(self._settings.batch_bytes, route.max_message_bytes)
        most = self._settings.buffer_bytes // 4
        with self._lock:
            self._check_open()
            now_s = self._clock.monotonic_s()
            return queue_rows(
                self._accumulator, self._sender.notice, route, rows, partition, cap, most, now_s
            )

    def _queue_plan(
        self,
        route: TopicRoute,
        plan: list[PlannedChunk],
        timestamped: bool,
        queued_of: tuple[int, int],
    ) -> list[Piece]:
        """Queue all of the plan at once, when there is room for all of it."""
        needed = sum(chunk.size for _, chunk in plan)
        end_s = self._clock.monotonic_s() + self._settings.max_block_s
        accumulator = self._accumulator
        pieces: list[Piece] = []
        while True:
            with self._lock:
                self._check_open()
                # A part is a quarter of the buffer; many partitions' batch heads may take it past the bound,
                # and then it goes when there is nothing else.
                if accumulator.buffer.has_room_for(needed) or not accumulator.buffer.held_bytes:
                    now_s = self._clock.monotonic_s()
                    for chosen, chunk in plan:
                        if chosen is None:
                            queue = accumulator.sticky_queue_for_chunk(route, chunk.size, timestamped)
                        else:
                            queue = route.queues[chosen]
                        batch, start = accumulator.extend(queue, chunk.rows, chunk.size, timestamped, now_s)
                        pieces.append(Piece(batch, start, len(chunk.rows)))
                        if not start:  # opened, and perhaps another one closed
                            self._sender.notice(queue, now_s)
                    return pieces
                gate = accumulator.buffer.join_queue()
            self._await_room(gate, needed, end_s, f"{queued_of[0]} of {queued_of[1]} rows were queued")

    def _await_room(self, gate: threading.Lock, needed: int, end_s: float, outcome: str) -> None:
        """Help to send, or wait for ``gate``, which is released when something was delivered; the caller
        looks again. BufferFullError when ``end_s`` has come; ``outcome`` says what became of the rows."""
        settings = self._settings
        accumulator = self._accumulator
        try:
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise BufferFullError(
                    f"buffer_bytes={settings.buffer_bytes} had no room for {needed} bytes within "
                    f"max_block_ms={settings.max_block_s * 1000:g} ({accumulator.buffer.held_bytes} bytes wait "
                    f"for delivery): {outcome}"
                )
            if not self._sender.help(left_s):
                self._sender.wake()
                # Now and then the waiter looks for late batches itself: the thread may hang in the store.
                if not gate.acquire(timeout=min(left_s, _LOOK_AGAIN_S)):
                    self._sender.expire()
        finally:
            with self._lock:
                accumulator.buffer.leave_queue(gate)

    # --- serializers ---

    def _serialized(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        for name, content in (("key", key), ("value", value)):
            if content is not None and not isinstance(content, bytes):
                raise _wrong_type(topic, name, content)
        return key, value

    def _serialized_row(self, topic: str, row: Any) -> Any:
        if not isinstance(row, tuple | list) or len(row) < 2:
            return row  # check_rows names it
        return (*self._serialized(topic, row[0], row[1]), *row[2:])

    # --- the end ---

    def flush(self, timeout_s: float | None = None) -> None:
        """Send what is queued and wait until all of it has an outcome.

        Raises the first error of batches that failed and whose deliveries were not asked, each once;
        DeliveryTimeoutError if ``timeout_s`` is over first (records stay on their way).
        """
        self._check_usable()
        self._finish(seconds_or_none(timeout_s), "flush()")
        self._raise_unreported()

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the thread. Safe to call again. Errors as for ``flush``; the producer is closed
        all the same, and what was not sent within ``timeout_s`` goes on in the background."""
        if os.getpid() != self._pid:
            return  # the parent's records are the parent's to send
        timeout_s = seconds_or_none(timeout_s)
        limit_s = self._settings.delivery_timeout_s
        limit_s = limit_s if timeout_s is None else min(timeout_s, limit_s)
        end_s = self._clock.monotonic_s() + limit_s  # of waits for what other processes hold
        if self._transactions is not None:
            with self._backend.limit_waits(limit_s):
                self._transactions.close()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._router.forget()
            self._accumulator.draining = True
        unwatch(self, self._dropped)
        try:
            self._finish(timeout_s, "close()")
        except BaseException:
            self._sender.stop(end_s)
            raise
        self._sender.stop(end_s)
        self._sender.join()
        self._raise_unreported()

    def _finish(self, timeout_s: float | None, call: str) -> None:
        with self._lock:
            batches = self._accumulator.unfinished()
        if not self._sender.finish(batches, timeout_s):
            left = sum(len(batch.rows) for batch in batches if not batch.done)
            raise DeliveryTimeoutError(
                f"{call}: {left} records have no outcome after timeout_s={timeout_s}",
                hint="they are still on their way: wait longer, or find out why the store is slow",
            )

    def _raise_unreported(self) -> None:
        with self._lock:
            told = self._accumulator.take_unreported()
        if told:
            error = raisable(told[0])
            count = sum(batch.count for batch in told)
            error.add_note(
                f"{count} records in {len(told)} batches failed and their deliveries were not asked"
            )
            raise error

    def __enter__(self) -> Producer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush and close. While an exception leaves the block, errors of the close are logged."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except LogStoreError:
            logger.exception("closing a producer while %r leaves its block", error)

    def metrics(self) -> dict[str, int]:
        """Totals since the producer was made, and what waits now."""
        accumulator = self._accumulator
        with self._lock:
            counters = accumulator.counters
            return {
                "records_sent_total": counters.records,
                "batches_sent_total": counters.batches,
                "bytes_sent_total": counters.produced_bytes,
                "produce_calls_total": counters.produce_calls,
                "retries_total": counters.retries,
                "records_failed_total": counters.failed_records,
                "waits_for_room_total": counters.waits_for_room,
                "buffered_bytes": accumulator.buffer.held_bytes,
                "batches_waiting": len(accumulator.unfinished()),
            }

    def _check_usable(self) -> None:
        self._sender.check_process()
        if self._closed:
            raise closed_error()

    def _check_open(self) -> None:
        """The lock is held: nothing is queued that cannot go out."""
        if self._closed:
            raise closed_error()
        if self._transactions is not None:
            self._transactions.check_open()
        stopped = self._accumulator.stopped
        if stopped is not None:
            raise self._stop_error(stopped)

    def refuse_in_child(self) -> None:
        """After a fork, in the child: wait for no lock of the parent's, and refuse every call."""
        self._accumulator.lock = send_lock()
        self._set_lock(self._accumulator.lock)
        self._router.forget()
        self._dropped.detach()


def _wrong_type(topic: str, field: str, content: object) -> RecordTypeError:
    return RecordTypeError(f"a record for topic {topic!r}: the {field} is {type(content).__name__}")
