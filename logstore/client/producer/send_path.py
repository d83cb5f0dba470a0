"""``SendPath``: the quick path of ``send``, bytes into an open batch; ``queue_rows``: that of ``send_many``.

Every step counts here; whatever is unusual (a wrong type too) is left to the slow path.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from logstore.client.partitioner import POSITIVE, chunks_by_key, murmur3_hash
from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.delivery import Delivery, Piece
from logstore.client.producer.pending import PartitionQueue, PendingBatch
from logstore.client.producer.route import TopicRoute
from logstore.format.batch import HEADER_SIZE
from logstore.format.rows import RECORD_OVERHEAD, CheckedRows, cut, measured_headers, plain_rows, row_sizes
from logstore.native import compiled
from logstore.types import Headers, K, V


@compiled("client.sending")
def queue_rows(
    accumulator: Accumulator,
    notice: Callable[[PartitionQueue, float], None],
    route: TopicRoute,
    rows: Any,
    place: int | None,
    cap: int,
    most_bytes: int,
    now_s: float,
) -> list[Piece] | None:
    """The quick path of ``send_many``, with the accumulator's lock held: all of a list of plain (key, value) rows into
    the batches that ``cut`` and ``extend`` put them into, of at most ``cap`` bytes each and ``most_bytes`` in all.
    ``place``: the partition of all; None: as the topic's partitioner says, which goes by the key. ``notice`` is told of
    batches that are opened.

    None, with nothing queued: no room, or rows that the slow path must look at.
    """
    plain = plain_rows(rows)
    if (
        plain is None
        or (place is None and plain.some_keys and plain.null_keys)
        or (route.compacts and plain.null_keys)
        or plain.largest + HEADER_SIZE + RECORD_OVERHEAD > cap
    ):
        return None
    dealt: list[Any]
    if place is None and plain.some_keys:
        count, limit = len(route.queues), route.max_message_bytes
        dealt = chunks_by_key(route.partitioner, rows, plain.sizes, count, False, cap, limit)
    else:
        sizes = plain.sizes
        if sizes is None:
            sizes = row_sizes(CheckedRows(rows, True, plain.null_keys, plain.some_keys, False), rows)
        dealt = [cut(rows, sizes, False, cap, cap)]
    plan = [(number, chunk) for number, found in enumerate(dealt) for chunk in found]
    needed = sum(chunk.size for _, chunk in plan)
    spare = None if needed > most_bytes else accumulator.spare_bytes(needed, len(dealt))
    if spare is None:
        return None
    pieces = []
    for number, chunk in plan:
        if place is not None:
            queue = route.queues[place]
        elif plain.some_keys:
            queue = route.queues[number]
        else:
            queue = accumulator.sticky_queue_for_chunk(route, chunk.size, False)
        batch, start = accumulator.extend(queue, chunk.rows, chunk.size, False, now_s, spare)
        pieces.append(Piece(batch, start, len(chunk.rows)))
        if not start:  # opened, and perhaps another one closed
            notice(queue, now_s)
    return pieces


@compiled("client.sending")
def open_for(
    accumulator: Accumulator, queue: PartitionQueue, row: object, row_bytes: int, alone: int, now_s: float
) -> tuple[PendingBatch, int] | None:
    """``Accumulator.append`` of a row without a timestamp, which mostly opens a batch."""
    return accumulator.append(queue, row, row_bytes, alone, False, now_s)


@compiled("client.sending")
class SendPath(Generic[K, V]):
    """``send``, and ``send_now`` that never waits; a producer brings the slow path.

    ``_quick_routes``: topics whose partition may be chosen here. They are emptied when the producer is closed or its
    transaction ends, so that no record needs a question for it. Batches, queues and routes are guarded by the lock that
    ``_set_lock`` names, the accumulator's.
    """

    _quick_routes: dict[str, TopicRoute]
    _lock: threading.Lock

    if TYPE_CHECKING:

        def _send_slowly(
            self,
            topic: str,
            value: Any,
            key: Any,
            headers: Headers | None,
            timestamp_ms: int | None,
            partition: int | None,
        ) -> Delivery: ...
        def _open_quickly(
            self, route: TopicRoute, queue: PartitionQueue, row: Any, size: int
        ) -> Delivery | None: ...

    def _set_lock(self, lock: threading.Lock) -> None:
        # acquire() and release() bound once cost half of what a `with` costs (0.12 us against 0.25).
        self._lock = lock
        self._acquire = lock.acquire
        self._release = lock.release

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Queue one record; the delivery tells what became of it.

        Errors, raised at once with nothing queued: RecordTypeError, RecordTooLargeError,
        InvalidTimestampError, UnknownTopicError, UnknownPartitionError, BufferFullError, ClientClosedError,
        ForkedStoreError. Timestamps default to the time the batch leaves.
        """
        content: Any = value
        name: Any = key
        if (
            content.__class__ is bytes
            and (name is None or name.__class__ is bytes)
            and partition is None
            and timestamp_ms is None
        ):
            size = len(content) + RECORD_OVERHEAD
            if name is not None:
                size += len(name)
            row: Any = (name, content)
            if headers:
                checked, more = measured_headers(headers, topic)
                row = (name, content, checked)
                size += more
            self._acquire()
            try:
                route = self._quick_routes[topic]
                if name is None:
                    if route.compacts:
                        raise KeyError(topic)  # a key is due: refused by the slow path
                    queue = route.sticky
                elif route.murmur3:
                    queues = route.queues
                    queue = queues[(murmur3_hash(name, 0) & POSITIVE) % len(queues)]
                else:
                    queue = route.queues[route.choose(name)]
                batch = queue.open
                if batch is not None:
                    total = batch.size + size
                    if total <= batch.room:
                        rows = batch.rows
                        rows.append(row)
                        batch.size = total
                        return Delivery(batch, len(rows) - 1)
                delivery = self._open_quickly(route, queue, row, size - RECORD_OVERHEAD)
                if delivery is not None:
                    return delivery
            except (KeyError, TypeError):
                pass  # a topic not met before, or one whose partition is not chosen here
            finally:
                self._release()
        return self._send_slowly(topic, value, key, headers, timestamp_ms, partition)

    def send_now(self, topic: str, value: V | None = None, *, key: K | None = None) -> Delivery | None:
        """``send`` for a caller that must not wait. None, with nothing queued, where ``send`` might: at a full buffer,
        for a topic not met before, with serializers."""
        content: Any = value
        name: Any = key
        if content.__class__ is not bytes or not (name is None or name.__class__ is bytes):
            return None
        if topic.__class__ is not str:
            return None
        size = len(content) + (0 if name is None else len(name))
        with self._lock:
            route = self._quick_routes.get(topic)
            if route is None or (name is None and route.compacts):
                return None
            queue = route.sticky if name is None else route.queues[route.choose(name)]
            batch = queue.open
            if batch is not None and batch.size + size + RECORD_OVERHEAD <= batch.room:
                batch.rows.append((name, content))
                batch.size += size + RECORD_OVERHEAD
                return Delivery(batch, len(batch.rows) - 1)
            return self._open_quickly(route, queue, (name, content), size)
