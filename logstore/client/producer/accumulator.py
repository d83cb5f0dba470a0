"""The accumulator: open and closed batches by partition, and what is ready to go.

No thread, no call to a backend and no clock here: every method takes the time and changes state, so that a
test or a simulator can drive it step by step. All methods want ``lock`` held unless they say otherwise.
A batch goes open -> closed -> flying -> done; a failed flight that may be tried again puts it back in front
of the closed ones. Per partition one flight at a time, or several of a pipeline (``logstore.api.pipelines``), which
come back in order; nothing new flies behind a failed one. So rows arrive in the order they were sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any

from logstore.api.records import ProduceResult
from logstore.client.producer.buffer import ProducerBuffer
from logstore.client.producer.counters import Counters
from logstore.client.producer.delivery_errors import doubt_error, refused_in_doubt_error, timeout_error
from logstore.client.producer.pending import Driver, PartitionQueue, PendingBatch
from logstore.client.producer.route import TopicRoute
from logstore.client.producer.send_lock import send_lock
from logstore.client.producer.settings import ProducerSettings
from logstore.errors import (
    DeliveryTimeoutError,
    DiskFullError,
    DuplicateSequenceError,
    InvalidRecordError,
    InvalidTimestampError,
    LogStoreError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RetriableError,
)
from logstore.format.batch import BatchHeader
from logstore.format.row_buffer import RowBuffer
from logstore.invariants import invariant
from logstore.types import Buffer

# A flight takes at most this much of one partition: enough that handing work between threads (up to 5 ms
# for the interpreter's lock) costs little, little enough that memory comes back steadily.
FLIGHT_BYTES = 4 << 20
# From so much waiting on, flights go through a pipeline, and further ones behind them: less is better sent at once, by
# the thread that waits for it, or together with what comes meanwhile.
DEEP_BYTES = 1 << 20
# An open batch holds at first up to one in this many of the buffer's free bytes, then doubles as it needs.
RESERVE_SHARE = 64
RETRY_FIRST_S = 0.02
RETRY_MOST_S = 1.0
# A flight that is still out this long after its time is given up on, so that no caller waits for ever.
FLIGHT_GRACE_S = 1.0
# Failed batches whose deliveries were not asked, kept for flush() and close() to report.
UNREPORTED_KEPT = 100

# A batch refused for one of its records: cut it, so that only the record that is wrong fails.
ONE_RECORD_ERRORS = (InvalidRecordError, InvalidTimestampError, RecordTooLargeError)
# The batch may be in: sending it again could put it in twice.
UNKNOWN_OUTCOMES = (OutcomeUnknownError, DeliveryTimeoutError)


class Accumulator:
    def __init__(self, settings: ProducerSettings) -> None:
        self.settings = settings
        self.deep_bytes = DEEP_BYTES
        self.lock = send_lock()
        self.driver: Driver | None = None  # the sender, which every batch hands to those who wait for it
        self.active: dict[PartitionQueue, None] = {}  # those with batches that are not done
        self.opened = 0  # batches ever opened
        self.draining = False  # flush or close: no batch lingers
        self.counters = Counters()
        self.buffer = ProducerBuffer(settings.buffer_bytes, self.counters)
        self.failed: deque[PendingBatch] = deque(maxlen=UNREPORTED_KEPT)
        # True of a named producer or a transaction: what it sends next would leave a gap.
        self.stops_at_failure = False
        self.stopped: LogStoreError | None = None  # ... and this is where it did

    # --- rows in ---

    def append(
        self, queue: PartitionQueue, row: object, row_bytes: int, alone: int, timestamped: bool, now_s: float
    ) -> tuple[PendingBatch, int] | None:
        """Put a row into the open batch, or close that and open the next. None: no room, wait and retry.

        ``row_bytes``, ``alone``: see ``pending.row_bytes`` and ``pending.alone_bytes``; the caller has seen
        to it that ``alone`` passes neither the topic's limit nor the buffer.
        """
        batch = queue.open
        if batch is not None:
            size = batch.size_with(row_bytes, timestamped)
            if size <= batch.cap:
                if size > batch.reserved and not self._grow(batch, size):
                    return None
                return batch, batch.add(row, size, timestamped)
            self.close_open(queue, full=True)
        batch = self._open(queue, row_bytes, alone, timestamped, now_s)
        if batch is None:
            return None
        size = min(batch.size_with(row_bytes, timestamped), batch.cap)
        return batch, batch.add(row, size, timestamped)

    def _open(
        self, queue: PartitionQueue, row_bytes: int, alone: int, timestamped: bool, now_s: float
    ) -> PendingBatch | None:
        cap = min(self.settings.batch_bytes, queue.route.max_message_bytes)
        deadline_s = now_s + self.settings.delivery_timeout_s
        batch = PendingBatch(queue, self.driver, cap, now_s, deadline_s)
        size = batch.size_with(row_bytes, timestamped)
        if size > cap:
            # Larger than a batch should be, or so near the limit that only the exact size tells: it goes
            # alone, and its cap is what keeps company out.
            limit = min(queue.route.max_message_bytes, self.settings.buffer_bytes)
            batch.cap = size = max(alone, min(size, limit))
        if not self.buffer.has_room_for(size):
            return None
        self._reserve(batch, max(size, min(batch.cap, self.buffer.free_bytes // RESERVE_SHARE)))
        self._set_open(queue, batch)
        return batch

    def _set_open(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        queue.open = batch
        self.active[queue] = None
        self.opened += 1

    def _grow(self, batch: PendingBatch, size: int) -> bool:
        more = min(batch.cap, max(size, 2 * batch.reserved)) - batch.reserved
        if not self.buffer.has_room_for(more):
            more = size - batch.reserved
            if not self.buffer.has_room_for(more):
                return False
        self._reserve(batch, more)
        return True

    def _reserve(self, batch: PendingBatch, more: int) -> None:
        self.buffer.hold(more)
        batch.reserved += more
        batch.room = -1 if batch.timestamped else min(batch.cap, batch.reserved)

    def extend(
        self,
        queue: PartitionQueue,
        rows: list[Any],
        size: int,
        timestamped: bool,
        now_s: float,
        spare: int = 0,
    ) -> tuple[PendingBatch, int]:
        """Put rows that fit one batch of their own, as ``bulk`` cuts them, behind what is there: into the
        open batch if all of them fit, else into a new one. The caller has checked ``buffer.has_room_for(size)``;
        ``size`` is that of a batch with just these rows. Gives the batch and the first row's index."""
        batch = self.batch_for(queue, size, timestamped, now_s, spare)
        start = len(batch.rows)
        batch.rows.extend(rows)
        batch.size += size
        return batch, start

    def batch_for(
        self, queue: PartitionQueue, size: int, timestamped: bool, now_s: float, spare: int = 0
    ) -> PendingBatch:
        """The open batch that rows go into which make a batch of ``size`` bytes: as ``extend`` says. It holds as much
        of the buffer as it has with them, and up to ``spare`` more; its ``size`` is still without them."""
        batch = queue.open
        if batch is not None:
            if _takes(batch, size, timestamped):
                due = batch.size + size
                if due > batch.reserved:
                    self._reserve(batch, min(batch.cap, due + spare) - batch.reserved)
                return batch
            self.close_open(queue, full=True)
        cap = min(self.settings.batch_bytes, queue.route.max_message_bytes)
        deadline_s = now_s + self.settings.delivery_timeout_s
        batch = PendingBatch(queue, self.driver, max(cap, size), now_s, deadline_s)
        self._set_open(queue, batch)
        batch.size = 0  # that of the rows counts the header
        if timestamped:
            batch.mark_timestamped()
        self._reserve(batch, min(batch.cap, size + spare))
        return batch

    def spare_bytes(self, needed: int, batches: int) -> int | None:
        """What each of so many new batches may hold of the buffer beyond the ``needed`` bytes of all; None: these have
        no room."""
        free = self.buffer.free_bytes - needed
        return None if free < 0 else free // max(RESERVE_SHARE, batches)

    def enqueue(
        self, queue: PartitionQueue, ready: Buffer, header: BatchHeader, now_s: float
    ) -> PendingBatch:
        """Put a batch that is ready behind what is there; the caller has checked that the buffer has room for it."""
        self.close_open(queue)
        deadline_s = now_s + self.settings.delivery_timeout_s
        batch = PendingBatch(queue, self.driver, header.size, now_s, deadline_s)
        batch.ready = ready
        batch.count = header.records_count
        batch.now_ms = header.max_timestamp
        batch.size = header.size
        self._reserve(batch, header.size)
        batch.room = -1
        queue.closed.append(batch)
        self.active[queue] = None
        self.opened += 1
        return batch

    def sticky_queue_for_chunk(self, route: TopicRoute, size: int, timestamped: bool) -> PartitionQueue:
        """The same for the rows of an ``extend``."""
        batch = route.sticky.open
        if batch is not None and not _takes(batch, size, timestamped):
            self.close_open(route.sticky, full=True)
        return route.sticky

    def sticky_queue(self, route: TopicRoute, row_bytes: int, timestamped: bool) -> PartitionQueue:
        """Where a row without a key goes: on with the batch under way, or to the next partition."""
        queue = route.sticky
        batch = queue.open
        if batch is not None and batch.size_with(row_bytes, timestamped) > batch.cap:
            self.close_open(queue, full=True)
        return route.sticky

    def close_open(self, queue: PartitionQueue, *, full: bool = False) -> None:
        """No row joins the open batch any more; what it held of the buffer and did not need goes back."""
        batch = queue.open
        if batch is None:
            return
        batch.count = len(batch.rows)
        batch.room = -1
        self.buffer.give_back(batch.reserved - batch.size)
        batch.reserved = batch.size
        queue.open = None
        queue.closed.append(batch)
        if full:
            queue.route.move_on(queue)

    # --- batches out ---

    def is_ready(self, queue: PartitionQueue, now_s: float, *, stacking: bool = False) -> bool:
        """Whether the queue's head may fly now; ``stacking``: behind flights of a pipeline that are not back yet."""
        if queue.flights and not (stacking and queue.stacks and not (queue.held_up or queue.spent)):
            return False
        if queue.retry_at_s > now_s:
            return False
        return bool(queue.closed) or self._is_open_ready(queue, now_s)

    def is_deep(self, now_s: float, *, stacking: bool = False) -> bool:
        """Whether so much is ready that it is worth a pipeline. What is to be compressed is not: that is the longer
        work, and callers that wait share it."""
        ready_bytes = 0
        for queue in self.active:
            if queue.route.codec == "none" and self.is_ready(queue, now_s, stacking=stacking):
                for batch in queue.closed:
                    ready_bytes += batch.size
                    if ready_bytes >= self.deep_bytes:
                        return True
        return False

    def _is_open_ready(self, queue: PartitionQueue, now_s: float) -> bool:
        batch = queue.open
        return batch is not None and (
            batch.wanted
            or self.draining
            or self.buffer.is_waited_for
            or now_s >= batch.created_s + self.settings.linger_s
        )

    def take(
        self, queue: PartitionQueue, now_s: float, most_bytes: int = FLIGHT_BYTES, *, stacks: bool = False
    ) -> tuple[PendingBatch, ...]:
        """Let a ready queue's batches fly: up to ``most_bytes`` of closed ones and, if ready, the open one."""
        invariant(queue.stacks or not queue.flights, "one flight at a time per partition, but in a pipeline")
        # One found ready for the sake of a waiter for room may not be so now: closing another one gave room back.
        if not queue.closed or self._is_open_ready(queue, now_s):
            self.close_open(queue)
        closed = queue.closed
        flying = [closed.popleft()]
        total = flying[0].size
        # A batch that failed before flies alone: if it fails again, nothing behind it was even tried.
        alone = flying[0].attempts > 0
        while closed and not alone and total + closed[0].size <= most_bytes:
            total += closed[0].size
            flying.append(closed.popleft())
        queue.flights.append(flight := tuple(flying))
        queue.stacks = stacks and not alone
        return flight

    def take_wanted(self, batch: PendingBatch, now_s: float) -> tuple[PendingBatch, ...]:
        """The flight that takes ``batch``, whose outcome a caller waits for; empty: it is not its turn."""
        batch.wanted = True
        queue = batch.queue
        if queue.flights or queue.retry_at_s > now_s or queue.head() is not batch:
            return ()
        return self.take(queue, now_s)

    def take_ready(
        self, now_s: float, most_bytes: int | None = None, *, stacks: bool = False
    ) -> list[PendingBatch]:
        """All batches that are ready, of all partitions, for one call of the backend: up to ``most_bytes``, those of
        partitions with nothing under way first. ``stacks``: they go through a pipeline."""
        ready = [queue for queue in self.active if self.is_ready(queue, now_s, stacking=stacks)]
        share = FLIGHT_BYTES
        if most_bytes is not None and ready:
            share = min(share, most_bytes // len(ready))
            ready.sort(key=_flights)
        taken: list[PendingBatch] = []
        total = 0
        for queue in ready:
            flight = self.take(queue, now_s, share, stacks=stacks)
            taken += flight
            if most_bytes is not None:
                total += sum(batch.size for batch in flight)
                if total >= most_bytes:
                    break
        return taken

    def next_event_s(self, now_s: float) -> float | None:
        """When something becomes ready or late by itself; None: nothing will."""
        soonest: float | None = None
        for queue in self.active:
            head = queue.flights[0][0] if queue.flights else queue.head()
            if head is None:
                continue
            event_s = head.deadline_s
            if queue.flights:
                event_s += FLIGHT_GRACE_S
                if head.done:
                    continue
            elif queue.closed or self.is_ready(queue, now_s):
                event_s = min(event_s, max(queue.retry_at_s, now_s))
            else:
                event_s = min(event_s, max(queue.retry_at_s, head.created_s + self.settings.linger_s))
            soonest = event_s if soonest is None else min(soonest, event_s)
        return soonest

    # --- outcomes ---

    def land(
        self, queue: PartitionQueue, results: Sequence[ProduceResult], now_s: float
    ) -> list[PendingBatch]:
        """The queue's oldest flight is back, with a result for each batch. Gives the batches that are done.

        A backend tries nothing of a partition behind a batch that failed, so what is behind goes again, once all
        flights are back. What is in all the same, or may be, is never sent twice.
        """
        done: list[PendingBatch] = []
        again, held_up = queue.again, queue.held_up
        for batch, result in zip(queue.flights.popleft(), results, strict=True):
            if batch.done:
                continue  # given up on while it flew: the answer comes too late
            error = result.error
            doubtful_before = batch.doubtful
            batch.doubtful = doubtful_before or result.doubtful
            tried_before = batch.attempts > 0 or batch.doubtful
            repeated = isinstance(error, DuplicateSequenceError) and tried_before and not held_up
            if error is None or repeated:
                self._succeed(batch, result)  # a duplicate is in, too, if its place is not known any more
                done.append(batch)
                held_up = held_up or error is not None  # what is behind it was not tried, as with every error
                continue
            if held_up and not isinstance(error, UNKNOWN_OUTCOMES):
                again.append(batch)
                continue
            batch.attempts += 1
            cuts = batch.count > 1 and batch.ready is None and not doubtful_before
            if cuts and isinstance(error, ONE_RECORD_ERRORS):
                if batch.base_sequence >= 0:
                    queue.renumbers, queue.next_sequence = True, self._number_of(queue, batch)
                again += self._cut(batch, batch.count // 2)
                done.append(batch)  # its waiters go on to wait for the parts
                held_up = True
            elif error.retriable and self.stopped is None and now_s < self._gives_up_s(batch, error, now_s):
                self.counters.retries += 1
                batch.refusal = error
                queue.retry_at_s = now_s + _pause_s(batch.attempts, error)
                again.append(batch)
                held_up = True
            else:
                if error.retriable and now_s >= batch.deadline_s:
                    batch.refusal = error
                    error = timeout_error(queue, batch, self.settings, flying=False)
                self.fail(batch, error, doubtful=doubtful_before)
                done.append(batch)
                held_up = True
        queue.held_up = held_up
        if not queue.flights:
            done += self._land_last(queue)
        self._settle(queue)
        return done + self.stop_waiting() if self.stopped is not None else done

    def _land_last(self, queue: PartitionQueue) -> list[PendingBatch]:
        """Nothing of the queue flies any more: what is to go again is its head. Gives the batches that are done."""
        queue.closed.extendleft(reversed(queue.again))
        queue.again = []
        renumbers = queue.renumbers or queue.spent or self.stopped is not None
        queue.held_up = queue.renumbers = queue.stacks = False
        return self._renumber(queue) if renumbers else []

    def _gives_up_s(self, batch: PendingBatch, error: LogStoreError, now_s: float) -> float:
        """Until when it is tried again. A full disk may be waited for less long than other things."""
        if not isinstance(error, DiskFullError):
            return batch.deadline_s
        if batch.full_since_s < 0:
            batch.full_since_s = now_s
        return min(batch.deadline_s, batch.full_since_s + self.settings.disk_full_timeout_s)

    def shorten(self, queue: PartitionQueue, batch: PendingBatch, rows: int) -> PendingBatch:
        """Cut a batch that is about to fly after so many of its rows; the rest, and what flies behind it, goes
        back. Gives the part that flies; the batch itself is done, its waiters wait for the parts."""
        flight = queue.flights[-1]
        place = flight.index(batch)
        behind = flight[place + 1 :]
        first, rest = self._cut(batch, rows)
        queue.flights[-1] = (*flight[:place], first)
        queue.closed.extendleft(reversed((rest, *behind)))
        return first

    def _number_of(self, queue: PartitionQueue, batch: PendingBatch) -> int:
        """``next_sequence`` as it was before ``batch`` took its own (a named one's has more bits)."""
        if not self.stops_at_failure:
            return batch.base_sequence
        return queue.next_sequence - ((queue.next_sequence - batch.base_sequence) & 0x7FFFFFFF)

    def _renumber(self, queue: PartitionQueue) -> list[PendingBatch]:
        """A batch with a sequence is not in and never will be: those behind it, which were not tried, get new
        ones. One that may be in cannot go again under another sequence. Gives those that are done."""
        if self.stopped is not None:
            return self._fail_waiting(queue, self.stopped)
        done = []
        for batch in [batch for batch in queue.closed if batch.base_sequence >= 0]:
            if queue.spent and batch.doubtful:
                queue.closed.remove(batch)
                self.fail(batch, doubt_error(queue, batch))
                done.append(batch)
            else:
                batch.forget_sequence()
        return done

    def _fail_waiting(self, queue: PartitionQueue, error: LogStoreError) -> list[PendingBatch]:
        self.close_open(queue)
        done = list(queue.closed)
        queue.closed.clear()
        for batch in done:
            self.fail(batch, error, doubtful=batch.doubtful)
        return done

    def stop_waiting(self) -> list[PendingBatch]:
        """``stopped`` is set: nothing that waits may go out any more. Gives what is done."""
        done: list[PendingBatch] = []
        if self.stopped is not None:
            for queue in list(self.active):
                done += self._fail_waiting(queue, self.stopped)
                self._settle(queue)
        return done

    def _cut(self, batch: PendingBatch, middle: int) -> list[PendingBatch]:
        """Two batches in its place, the first of ``middle`` rows; the buffer's share stays the same."""
        parts = []
        for rows in (batch.rows.part(0, middle), batch.rows.part(middle, batch.count)):
            part = PendingBatch(batch.queue, batch.driver, batch.cap, batch.created_s, batch.deadline_s)
            part.rows = rows
            part.count = len(rows)
            part.size = part.reserved = batch.reserved * len(rows) // batch.count
            part.room = -1
            part.attempts = 1
            part.now_ms = batch.now_ms
            part.wanted = True
            if batch.timestamped:
                part.mark_timestamped()
            parts.append(part)
        self.buffer.give_back(batch.reserved - parts[0].reserved - parts[1].reserved)
        batch.reserved = 0
        batch.parts = (parts[0], parts[1])
        batch.rows = RowBuffer()
        batch.encoded = batch.header = None
        for index, callback in batch.callbacks or ():
            part, place = batch.locate(index)
            part.callbacks = [*(part.callbacks or ()), (place, callback)]
        batch.callbacks = None
        return parts

    def fail(self, batch: PendingBatch, error: LogStoreError, *, doubtful: bool = False) -> None:
        """The batch is done, with ``error``. ``doubtful``: an earlier attempt may have put its records in."""
        if batch.base_sequence >= 0:
            batch.queue.spent = True
        if self.stops_at_failure and self.stopped is None:
            self.stopped = error
        self.counters.failed_records += batch.count
        self.failed.append(batch)
        self.buffer.give_back(batch.reserved)
        batch.reserved = 0
        if doubtful and not isinstance(error, UNKNOWN_OUTCOMES):
            error = refused_in_doubt_error(batch, error)
        batch.fail(error)

    def expire(self, now_s: float) -> list[PendingBatch]:
        """Fail what is past its delivery timeout; gives those batches. Flights have a grace."""
        late: list[PendingBatch] = []
        for queue in list(self.active):
            for batch in chain.from_iterable(queue.flights):
                if not batch.done and now_s >= batch.deadline_s + FLIGHT_GRACE_S:
                    self.fail(batch, timeout_error(queue, batch, self.settings, flying=True))
                    late.append(batch)
            head = queue.head()
            while head is not None and now_s >= head.deadline_s:
                if head is queue.open:
                    self.close_open(queue)
                queue.closed.popleft()
                queue.retry_at_s = now_s  # the back-off was the late batch's, not the next one's
                self.fail(head, timeout_error(queue, head, self.settings, flying=False))
                late.append(head)
                head = queue.head()
            if queue.spent and not queue.flights:
                late += self._renumber(queue)
            self._settle(queue)
        return late + self.stop_waiting()

    def _settle(self, queue: PartitionQueue) -> None:
        if queue.open is None and not queue.closed and not queue.flights:
            self.active.pop(queue, None)
            queue.route.move_on(queue)

    def _succeed(self, batch: PendingBatch, result: ProduceResult) -> None:
        counters = self.counters
        counters.records += batch.count
        counters.batches += 1
        if batch.encoded is not None:
            counters.produced_bytes += len(batch.encoded)
        # Before anybody can see the outcome: who has it and drops the producer must leave nothing "held".
        self.buffer.give_back(batch.reserved)
        batch.reserved = 0
        batch.resolve(result.base_offset, result.append_time_ms)

    def unfinished(self) -> list[PendingBatch]:
        """All batches that are not done, flying ones first per partition."""
        return [batch for queue in self.active for batch in queue.batches() if not batch.done]

    def take_unreported(self) -> list[PendingBatch]:
        """Failed batches of which no caller has been told; told now."""
        told = [batch for batch in self.failed if not batch.observed]
        self.failed.clear()
        for batch in told:
            batch.observed = True
        return told


def _flights(queue: PartitionQueue) -> int:
    return len(queue.flights)


def _takes(batch: PendingBatch, size: int, timestamped: bool) -> bool:
    """Whether rows of another batch of ``size`` bytes fit into this one."""
    return batch.timestamped == timestamped and batch.size + size <= batch.cap


def _pause_s(attempts: int, error: LogStoreError) -> float:
    """Seconds until a refused batch is tried again: longer each time, and no shorter than the error says."""
    told_ms = error.retry_after_ms if isinstance(error, RetriableError) else 0
    backoff_s: float = RETRY_FIRST_S * 2 ** min(attempts - 1, 10)
    return max(min(RETRY_MOST_S, backoff_s), told_ms / 1000)
