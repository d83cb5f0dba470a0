"""The sender: takes batches that are ready to the backend, from its own thread or from a caller's.

Who waits for an open batch sends it at once in the own thread if no flight of that partition is out: one
durable record then costs no change of threads. If a flight is out, the row travels with the next one, which
the sender's thread takes for everybody who came meanwhile: many threads share one sync, with no lingering.
The steps (``step``, ``drive``, ``finish``) can be driven without the thread.

Where the backend has pipelines and much waits, the thread sends several flights before the first one is back, and
lands them in their order; the other threads leave it to it then.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue

from logstore.api.backend import Backend
from logstore.api.pipelines import Pipelining
from logstore.api.records import ProduceItem, ProduceResult
from logstore.client.producer.accumulator import FLIGHT_GRACE_S, Accumulator
from logstore.client.producer.flight_path import FlightPath
from logstore.client.producer.flights import Flights
from logstore.client.producer.gates import release_all
from logstore.client.producer.pending import Identity, PartitionQueue, PendingBatch
from logstore.client.producer.sequences import Sequences
from logstore.errors import DiskFullError, FatalError, ForkedStoreError, LogStoreError, OutcomeUnknownError
from logstore.format.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    as_produced,
)
from logstore.seams.clock import Clock

logger = logging.getLogger(__name__)

# Between two batches of a busy producer the thread naps rather than sleeps, so that opening a batch need
# not wake it; this is the shortest nap.
_SHORTEST_NAP_S = 0.001
_SHORTEST_RELEASE_S = 1.0  # to give a lease up in order, also after a close that took all its time
_TOLD_AFTER_S = 1.0  # how long a full disk is waited for without a word


class Sender(FlightPath):
    """``sequences``: None for a producer that is not idempotent."""

    def __init__(
        self, backend: Backend, accumulator: Accumulator, clock: Clock, sequences: Sequences | None = None
    ) -> None:
        self._settings = accumulator.settings
        # The next flight must not go before it is known that the one before is in: without sequences a broker can
        # tell that at once only if it need not wait for a sync.
        in_order = sequences is not None or accumulator.settings.acks != "all"
        offers = backend if isinstance(backend, Pipelining) else None
        self._most_bytes = None if offers is None else offers.produce_limit()
        pipeline = None if offers is None or not in_order else offers.produce_pipeline()
        flights = None if pipeline is None else Flights(pipeline)
        super().__init__(backend, accumulator, clock, sequences, flights, FLIGHT_GRACE_S)
        self._thread: threading.Thread | None = None
        # A queue made for use in destructors: its put() needs no lock that a collected producer may hold.
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._wakes_at_s = -inf  # when the thread looks again; -inf: it is awake or not there
        self._release_by_s = inf  # until when the end of the lease may wait for other processes
        self._seen_batches = 0
        accumulator.driver = self

    # --- the thread ---

    def notice(self, queue: PartitionQueue, now_s: float) -> None:
        """A batch of ``queue`` was opened or closed (lock held): the thread must look in time for it."""
        if self._thread is None:
            self._start()
        ready_s = now_s
        if queue.open is not None and not queue.closed:
            ready_s = queue.open.created_s + self._settings.linger_s
        if ready_s < self._wakes_at_s:
            self._wakes_at_s = -inf
            self._signals.put(None)

    def wake(self) -> None:
        self._signals.put(None)

    def start(self) -> None:
        """Have the thread now, so that it is there to let go of a name when the producer is dropped."""
        with self._accumulator.lock:
            self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="logstore-sender", daemon=True)
        self._thread.start()

    def stop(self, release_by_s: float = inf) -> None:
        """Let the thread end once nothing is left to send. Needs no lock: a destructor may call it."""
        self._release_by_s = release_by_s
        self._stopping = True
        self._accumulator.draining = True
        self._signals.put(None)

    def join(self) -> None:
        thread = self._thread
        if thread is None:
            self._release()
        elif thread is not threading.current_thread():
            thread.join()

    def _release(self) -> None:
        if self._sequences is not None:
            left_s = min(self._release_by_s - self.clock.monotonic_s(), self._settings.delivery_timeout_s)
            try:
                with self._backend.limit_waits(max(left_s, _SHORTEST_RELEASE_S)):
                    self._sequences.release()
            except LogStoreError:
                logger.exception("a producer could not give up its name")

    def _run(self) -> None:
        try:
            self._step_until_stopped()
        finally:
            if self._flights is not None:
                self._flights.rest()
            self._release()

    def _step_until_stopped(self) -> None:
        while True:
            wait_s = self.step()
            if wait_s == 0:
                continue
            if self._stopping and wait_s is None:
                return
            with suppress(Empty):  # time is up: look again
                self._signals.get(timeout=None if wait_s is None else max(wait_s, 0.0001))

    def step(self) -> float | None:
        """Send all that is ready. Seconds until there may be more: 0 if something was sent or is back, None for "not
        before ``notice`` is called"."""
        accumulator, flights = self._accumulator, self._flights
        batches: Sequence[PendingBatch] = ()
        wait_s: float | None = 0
        with accumulator.lock:
            self._wakes_at_s = -inf
            now_s = self.clock.monotonic_s()
            late = accumulator.expire(now_s)
            piped = flights is not None and accumulator.is_deep(now_s, stacking=bool(flights))
            if not flights or (piped and flights.has_room):
                batches = accumulator.take_ready(now_s, self._most_bytes, stacks=piped)
            if not batches and not flights:
                wait_s = self._nap(accumulator.next_event_s(now_s), now_s)
        self.announce(late)
        if batches and not piped:
            self._fly(batches, None)
        elif flights is not None:
            if batches:
                self._begin(batches, flights)
            elif flights:
                self._land_oldest(flights)
            elif wait_s is None:
                flights.rest()
        return wait_s

    def _nap(self, event_s: float | None, now_s: float) -> float | None:
        """How long the thread may wait (lock held): while batches keep coming no longer than the linger."""
        opened = self._accumulator.opened
        if opened != self._seen_batches and not self._stopping:
            self._seen_batches = opened
            nap_end_s = now_s + max(self._settings.linger_s, _SHORTEST_NAP_S)
            event_s = nap_end_s if event_s is None else min(event_s, nap_end_s)
        self._wakes_at_s = inf if event_s is None else event_s
        return None if event_s is None else max(event_s - now_s, 0.0001)

    # --- flights ---

    def _fly_in_steps(
        self, batches: Sequence[PendingBatch], timeout_s: float | None, now_s: float | None
    ) -> None:
        """See ``_fly``: whatever the batches are."""
        taken = batches
        try:
            refusal = None
            sequences = self._sequences
            if sequences is not None and not (
                # One new batch whose numbers are at hand has them now.
                len(batches) == 1 and batches[0].base_sequence < 0 and sequences.assign_at_once(batches[0])
            ):
                with self._backend.limit_waits(self._left_s(batches, timeout_s, now_s)):
                    batches, refusal = self._number(sequences, batches)
                now_s = None  # numbering may have taken its time
            if refusal is None:
                results = self._produce(batches, timeout_s, now_s)
            else:
                results = [ProduceResult(-1, error=refusal)] * len(batches)
        except BaseException as error:
            self._cut_short(taken, error)
            raise
        self._land(batches, results)

    def _cut_short(self, taken: Sequence[PendingBatch], error: BaseException) -> None:
        """An interrupt in a caller's thread: how far the backend got is not known."""
        queues = dict.fromkeys(batch.queue for batch in taken)
        batches = [batch for queue in queues for batch in queue.flights[-1]]
        self._land(batches, [ProduceResult(-1, error=_unknown(batches, error))] * len(batches))

    def _number(
        self, sequences: Sequences, batches: Sequence[PendingBatch]
    ) -> tuple[Sequence[PendingBatch], LogStoreError | None]:
        """Sequences for batches that fly for the first time. Gives those that fly now, nearly always all, and
        the error that keeps them from it."""
        at = 0
        try:
            sequences.prepare(batches)
            while at < len(batches):
                batch = batches[at]
                if batch.base_sequence < 0:
                    room = sequences.assign(batch)
                    if room < batch.count:
                        batches = self._shorten(batches, batch, room)
                        continue
                at += 1
        except LogStoreError as error:
            return batches, error
        except Exception as error:
            logger.exception("numbering batches failed with an error that is not the store's")
            return batches, FatalError(f"batches could not be numbered: {error!r}")
        return batches, None

    def _shorten(self, batches: Sequence[PendingBatch], batch: PendingBatch, rows: int) -> list[PendingBatch]:
        """The flight without what passes the last sequence of an id."""
        queue = batch.queue
        with self._accumulator.lock:
            first = self._accumulator.shorten(queue, batch, rows)
        self.announce((batch,))  # its waiters wait for the parts
        stay = [first if other is batch else other for other in batches]
        return [other for other in stay if other.queue is not queue or other in queue.flights[-1]]

    def _produce(
        self, batches: Sequence[PendingBatch], timeout_s: float | None, now_s: float | None
    ) -> list[ProduceResult]:
        asked = False
        try:
            items = self._encode(batches)
            asked = True
            left_s = self._left_s(batches, timeout_s, now_s)
            results = self._backend.produce(items, self._settings.acks, left_s)
        except Exception as error:  # noqa: BLE001 - deliveries carry it
            return self._failed(batches, error, asked)
        return results if len(results) == len(batches) else _as_many(results, batches)

    def _failed(
        self, batches: Sequence[PendingBatch], error: Exception, doubtful: bool
    ) -> list[ProduceResult]:
        """The results where the whole call failed. ``doubtful``: whatever it did, it did not say."""
        if isinstance(error, LogStoreError):
            return [ProduceResult(-1, error=error, doubtful=doubtful)] * len(batches)
        # No named error: a bug below. It must not end the thread and leave deliveries waiting.
        logger.error("produce failed with an error that is not the store's", exc_info=error)
        return [ProduceResult(-1, error=_unknown(batches, error))] * len(batches)

    def _begin(self, batches: Sequence[PendingBatch], flights: Flights) -> None:
        """Encode batches that were taken, and send them without waiting for the answer."""
        refusal: LogStoreError | None = None
        if self._sequences is not None:
            with self._backend.limit_waits(self._left_s(batches, None, None)):
                batches, refusal = self._number(self._sequences, batches)
        if refusal is None:
            try:
                items = self._encode(batches)
                flights.begin(batches, items, self._settings.acks, self._left_s(batches, None, None))
                return
            except LogStoreError as error:
                refusal = error
            except Exception as error:
                logger.exception("produce failed with an error that is not the store's")
                refusal = _unknown(batches, error)
        flights.refuse(batches, refusal)

    def _land_oldest(self, flights: Flights) -> None:
        """Wait for the flight that was begun first, and land it."""
        batches, pending = flights.oldest()
        try:
            results = _as_many(pending.results(), batches)
        except Exception as error:  # noqa: BLE001 - deliveries carry it
            results = self._failed(batches, error, True)
        self._land(batches, results)

    def _left_s(self, batches: Sequence[PendingBatch], timeout_s: float | None, now_s: float | None) -> float:
        """How long the flight may wait for what other processes hold."""
        if now_s is None:
            now_s = self.clock.monotonic_s()
        if len(batches) == 1:
            left_s = batches[0].deadline_s - now_s
        else:
            left_s = min([batch.deadline_s for batch in batches]) - now_s
        if timeout_s is not None and timeout_s < left_s:
            left_s = timeout_s
        return max(0.001, left_s)

    def _encode(self, batches: Sequence[PendingBatch]) -> list[ProduceItem]:
        items = []
        for batch in batches:
            encoded = batch.encoded
            if encoded is None:
                if batch.now_ms < 0:
                    batch.now_ms = self.clock.wall_ms()
                route = batch.queue.route
                encoded, batch.header = _encoded(batch, route.codec)
                if len(encoded) > route.max_message_bytes and route.codec != "none" and not batch.ready:
                    # What does not compress grows a little; plain it fits, as send() has seen to.
                    encoded, batch.header = _encoded(batch, "none")
                batch.encoded = encoded
            items.append(ProduceItem(batch.queue.topic, batch.queue.partition, encoded, batch.header))
        return items

    def _land(self, batches: Sequence[PendingBatch], results: Sequence[ProduceResult]) -> None:
        if len(results) != len(batches):
            results = _as_many(list(results), batches)
        accumulator = self._accumulator
        done: list[PendingBatch] = []
        more = self._stopping
        # Only errors ask for the time: retries are due later, and not for ever.
        now_s = 0.0
        for result in results:
            if result.error is not None:
                now_s = self.clock.monotonic_s()
                if isinstance(result.error, DiskFullError):
                    self._tell_of_full_disk(batches, result.error, now_s)
        with accumulator.lock:
            accumulator.counters.produce_calls += 1
            start = 0
            while start < len(batches):
                queue = batches[start].queue
                end = start + len(queue.flights[0])  # the batches of a flight stand together
                done += accumulator.land(queue, results[start:end], now_s)
                start = end
                more = more or bool(queue.closed) or (queue.open is not None and queue.open.wanted)
        if more:
            self._wake_for_more()
        self.announce(done)

    def _wake_for_more(self) -> None:
        """More is ready, or the thread is to stop: tell it, unless it is the caller."""
        if threading.current_thread() is not self._thread:
            self.wake()

    def _tell_of_full_disk(self, batches: Sequence[PendingBatch], error: DiskFullError, now_s: float) -> None:
        for batch in batches:
            if batch.full_told or batch.full_since_s < 0 or now_s - batch.full_since_s < _TOLD_AFTER_S:
                continue
            batch.full_told = True
            left_s = min(batch.deadline_s, batch.full_since_s + self._settings.disk_full_timeout_s) - now_s
            logger.warning(
                "%d records to %s-%d wait for room on a full disk, for %.0f s more: %s",
                batch.count,
                batch.queue.topic,
                batch.queue.partition,
                max(left_s, 0.0),
                error.message,
            )

    def announce(self, batches: Iterable[PendingBatch]) -> None:
        """Let waiters go on and call callbacks, outside the lock."""
        for batch in batches:
            # All at once rather than one waking the next: those who wake last would miss the next flight.
            if batch.gates is not None:
                release_all(batch.gates)
                batch.gates = None
        for batch in batches:
            for _, callback in batch.callbacks or ():
                try:
                    callback()
                except Exception:
                    logger.exception(
                        "a delivery callback for %s-%s failed", batch.queue.topic, batch.queue.partition
                    )
            batch.callbacks = None

    # --- waiting ---

    def _drive(
        self, batch: PendingBatch, index: int, timeout_s: float | None
    ) -> tuple[PendingBatch, int] | None:
        """See ``Driver``. ForkedStoreError in a forked child."""
        if os.getpid() != self.pid:
            self.check_process()
        accumulator = self._accumulator
        now_s = self.clock.monotonic_s()
        end_s = None if timeout_s is None else now_s + timeout_s
        while True:
            with accumulator.lock:
                if batch.parts is not None:
                    batch, index = batch.locate(index)
                if batch.done:
                    return batch, index
                flight = self._take_wanted(batch, now_s)
                gate = None if flight else _gate_of(batch)
            left_s = None if end_s is None else end_s - now_s
            if gate is None:
                self._fly(flight, left_s, now_s)
                if batch.landed:
                    return batch, index
            elif left_s is not None and left_s <= 0:
                return None
            else:
                self._pass_gate(batch, gate, left_s, now_s)
            now_s = self.clock.monotonic_s()

    def _pass_gate(
        self, batch: PendingBatch, gate: threading.Lock, left_s: float | None, now_s: float
    ) -> None:
        """Wait until the batch has landed, is late, or time is up."""
        if not batch.queue.flights:
            self.wake()  # something else is in front, or a retry is due: the thread's work
            with self._accumulator.lock:
                if self._thread is None:
                    self._start()
        late_s = max(0.0001, batch.deadline_s + FLIGHT_GRACE_S - now_s)
        if not gate.acquire(timeout=late_s if left_s is None else min(late_s, max(left_s, 0))):
            self.expire()

    def finish(self, batches: Iterable[PendingBatch], timeout_s: float | None) -> bool:
        """See ``Driver``."""
        self.check_process()
        waiting = list(batches)
        accumulator = self._accumulator
        end_s = None if timeout_s is None else self.clock.monotonic_s() + timeout_s
        while waiting:
            with accumulator.lock:
                waiting = [leaf for batch in waiting for leaf in batch.leaves() if not leaf.done]
                now_s = self.clock.monotonic_s()
                for batch in waiting:
                    batch.wanted = True
                taken = self._take_ready(now_s)
            left_s = None if end_s is None else end_s - now_s
            if taken:
                self._fly(taken, left_s)
            elif waiting and self.drive(waiting[0], 0, left_s) is None:
                return False
        return True

    def hurry(self, batch: PendingBatch) -> None:
        """See ``Driver``. ForkedStoreError in a forked child."""
        self.check_process()
        with self._accumulator.lock:
            for leaf in batch.leaves():
                leaf.wanted = True
            if self._thread is None:
                self._start()
        self.wake()

    def attach(self, batch: PendingBatch, index: int, callback: Callable[[], object]) -> bool:
        """See ``Driver``."""
        with self._accumulator.lock:
            batch, index = batch.locate(index)
            if batch.done:
                return False
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append((index, callback))
            return True

    def help(self, timeout_s: float) -> bool:
        """Send what is ready from the caller's thread. False: nothing was."""
        with self._accumulator.lock:
            taken = self._take_ready(self.clock.monotonic_s())
        if taken:
            self._fly(taken, timeout_s)
        return bool(taken)

    def _take_wanted(self, batch: PendingBatch, now_s: float) -> tuple[PendingBatch, ...]:
        """The flight that takes ``batch`` for the caller who waits for it (lock held), if it is the caller's."""
        if self._flights is not None and self._accumulator.is_deep(now_s):
            batch.wanted = True
            return ()
        return self._accumulator.take_wanted(batch, now_s)

    def _take_ready(self, now_s: float) -> list[PendingBatch]:
        """What is ready for a caller's thread (lock held): where much is, that is the pipeline's."""
        if self._flights is not None and self._accumulator.is_deep(now_s):
            return []
        return self._accumulator.take_ready(now_s, self._most_bytes)

    def expire(self) -> None:
        """Fail what is past its delivery timeout."""
        with self._accumulator.lock:
            late = self._accumulator.expire(self.clock.monotonic_s())
        self.announce(late)

    # --- fork ---

    def check_process(self) -> None:
        if os.getpid() != self.pid:
            raise ForkedStoreError("this producer was made before os.fork(), in the parent process")


def _encoded(batch: PendingBatch, codec: str) -> tuple[bytes, BatchHeader | None]:
    identity = batch.identity
    if batch.ready is not None:
        stands_for = identity if identity is not None else Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return as_produced(
            batch.ready,
            producer_id=stands_for.producer_id,
            epoch=stands_for.epoch,
            base_sequence=batch.base_sequence,
            transactional=stands_for.transactional,
        ), None
    if identity is None:
        return batch.rows.encode(batch.now_ms, codec)
    return batch.rows.encode(
        batch.now_ms,
        codec,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=batch.base_sequence,
        transactional=identity.transactional,
    )


def _gate_of(batch: PendingBatch) -> threading.Lock:
    """A lock that is released once ``batch`` is done, for one waiter. The accumulator's lock is held."""
    gate = threading.Lock()
    gate.acquire()
    if batch.gates is None:
        batch.gates = []
    batch.gates.append(gate)
    return gate


def _as_many(results: list[ProduceResult], batches: Sequence[PendingBatch]) -> list[ProduceResult]:
    if len(results) == len(batches):
        return results
    wrong = FatalError(f"the store answered {len(results)} of {len(batches)} batches")
    return [ProduceResult(-1, error=wrong)] * len(batches)


def _unknown(batches: Sequence[PendingBatch], cause: BaseException) -> OutcomeUnknownError:
    where = ", ".join(sorted({f"{batch.queue.topic}-{batch.queue.partition}" for batch in batches})[:3])
    return OutcomeUnknownError(
        f"sending to {where} was cut short by {cause!r}: the records may be in or not",
        hint="read the end of the partition to see",
    )
