# cython: nonecheck=True
"""The flight of a lone batch, from the caller who waits for it to its outcome: the compiled twin of
``client/producer/flight_path.py``.

A batch is taken, numbered, encoded, given to the backend and landed here where that is all there is to it: rows in one open
batch, not compressed, sent for the first time, by a producer whose numbers are at hand, and in at the first try. Whatever
else there may be is left to ``Sender``, step by step: before the batch is taken, before it is numbered, or when
the backend's answer is there. No signal handler runs in between but in calls of Python's, so that none of the steps is
half done when one raises.
"""

from posix.unistd cimport getpid

from logstore.native.client.pending cimport OpenBatch, OpenQueue, let_through
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef double LEAST_S = 0.001  # of a wait for what other processes hold
cdef long long SEQUENCE_MASK = 0x7FFFFFFF
cdef object _ProduceItem = None


cdef int _import() except -1:
    """Asked for late: what defines it imports this module."""
    global _ProduceItem
    from logstore.api.records import ProduceItem

    _ProduceItem = ProduceItem
    return 0


cdef class FlightPath:
    """Brings batches to their outcomes; a sender brings the steps for whatever is not quick."""

    def __init__(self, backend, accumulator, clock, sequences, flights, double grace_s):
        self._backend, self._accumulator = backend, accumulator
        self.clock, self._sequences, self._flights = clock, sequences, flights
        self.lock, self.grace_s = accumulator.lock, grace_s
        self.pid = getpid()
        self.acks = accumulator.settings.acks
        self.buffer, self.counters, self.active = accumulator.buffer, accumulator.counters, accumulator.active
        _import()

    def drive(self, batch, index, timeout_s):
        """See ``Driver``. ForkedStoreError in a forked child."""
        cdef OpenBatch driven = <OpenBatch?>batch
        cdef double left_s = self.brought(driven, timeout_s)
        if driven.done and driven.parts is None:
            return batch, index
        return self._drive(batch, index, None if timeout_s is None else left_s)

    cdef double brought(self, OpenBatch batch, timeout_s) except? -2:
        """Send the batch if that is quick; gives the seconds that are left, 0 without a timeout."""
        cdef double now_s, left_s = 0 if timeout_s is None else timeout_s
        if self._flights is not None or batch.done or self.pid != getpid():
            return left_s
        now_s = self.clock.monotonic_s()
        if not self.taken(batch, now_s):
            return left_s
        self.flown(batch, (<tuple>batch.queue.flights[-1]), timeout_s, now_s)
        if timeout_s is not None and not batch.done:
            left_s -= <double>self.clock.monotonic_s() - now_s
        return left_s

    cdef bint taken(self, OpenBatch batch, double now_s) except -1:
        """Let the batch fly for the caller who waits for it; False: it is not its turn, or other steps are due."""
        cdef OpenQueue queue = batch.queue
        cdef Py_ssize_t spare_bytes
        self.lock.take()
        try:
            if queue.open is not batch or batch.parts is not None or queue.retry_at_s > now_s:
                return False
            if queue.flights or queue.closed:
                return False
            queue.flights.append((batch,))
            batch.wanted = True
            batch.count = batch.rows.count
            batch.room = -1
            spare_bytes = batch.reserved - batch.size
            batch.reserved = batch.size
            queue.open = None
            queue.stacks = False
            self.buffer.given_back(spare_bytes)
            return True
        finally:
            self.lock.give()

    def _fly(self, batches, timeout_s, now_s=None):
        """Encode, produce and land batches that were taken; those of one queue stand together. ``now_s``: the
        time if it has just been asked."""
        if len(batches) != 1 or self._flights is not None:
            self._fly_in_steps(batches, timeout_s, now_s)
            return
        self.flown(
            <OpenBatch?>batches[0], tuple(batches), timeout_s, self.clock.monotonic_s() if now_s is None else now_s
        )

    cdef int flown(self, OpenBatch batch, tuple flight, timeout_s, double now_s) except -1:
        """Bring a flight of one batch to its end."""
        if batch.encoded is not None or batch.ready is not None or batch.queue.route.codec != "none":
            self._fly_in_steps(flight, timeout_s, now_s)
            return 0
        if not self.numbered(batch):
            self._fly_in_steps(flight, timeout_s, now_s)
            return 0
        try:
            results = self.produced(batch, flight, timeout_s, now_s)
        except BaseException as error:
            self._cut_short(flight, error)
            raise
        if not self.landed(batch, results):
            self._land(flight, results)
        return 0

    cdef bint numbered(self, OpenBatch batch) except -1:
        """Give the batch its numbers, if it needs some: see ``Sequences.assign_at_once``. False: they are not at hand."""
        cdef OpenQueue queue = batch.queue
        cdef long long number
        if batch.base_sequence >= 0:
            return False
        if self._sequences is None:
            return True
        identity = self._sequences.identity
        if identity is None or identity is not queue.identity or queue.spent:
            return False
        number = queue.next_sequence
        queue.next_sequence = (number + batch.count) & SEQUENCE_MASK
        batch.identity = identity
        batch.base_sequence = number
        return True

    cdef object produced(self, OpenBatch batch, tuple flight, timeout_s, double now_s):
        """The backend's results, or those that stand for its error."""
        cdef OpenQueue queue = batch.queue
        cdef double left_s = batch.deadline_s - now_s
        cdef bint asked = False
        try:
            if batch.now_ms < 0:
                batch.now_ms = self.clock.wall_ms()
            if batch.identity is None:
                encoded, header = batch.rows.encode(batch.now_ms)
            else:
                producer_id, epoch, transactional = batch.identity
                encoded, header = batch.rows.encode(
                    batch.now_ms, "none", producer_id, epoch, batch.base_sequence, transactional
                )
            batch.encoded, batch.header = encoded, header
            item = tuple.__new__(_ProduceItem, (queue.topic, queue.partition, encoded, header, None))
            asked = True
            if timeout_s is not None:
                left_s = min(left_s, <double>timeout_s)
            return self._backend.produce([item], self.acks, max(left_s, LEAST_S))
        except Exception as error:
            return self._failed(flight, error, asked)

    cdef bint landed(self, OpenBatch batch, results) except -1:
        """The flight is back, and the batch is in. False, with nothing done: there is more to it."""
        cdef OpenQueue queue = batch.queue
        cdef bint more
        if type(results) is not list or len(<list>results) != 1:
            return False
        result = (<list>results)[0]
        if result.error is not None:
            return False
        self.lock.take()
        try:
            if (
                batch.done or batch.doubtful or batch.timestamped or queue.held_up or queue.renumbers or queue.spent
                or queue.again or len(queue.flights) != 1 or self._accumulator.stopped is not None
            ):
                return False
            queue.flights.popleft()
            self.counters.produce_calls += 1
            self.counters.records += batch.count
            self.counters.batches += 1
            self.counters.produced_bytes += len(<bytes?>batch.encoded)
            # Before anybody can see the outcome: who has it and drops the producer must leave nothing "held".
            self.buffer.given_back(batch.reserved)
            batch.reserved = 0
            batch.resolved(result.base_offset, result.append_time_ms)
            queue.stacks = False
            more = self._stopping
            if queue.closed:
                more = True
            elif queue.open is not None:
                more = more or queue.open.wanted
            else:
                self.active.pop(queue, None)
                queue.route.moved_on(queue)
        finally:
            self.lock.give()
        if batch.gates is not None:
            let_through(batch.gates)
            batch.gates = None
        if more:
            self._wake_for_more()
        if batch.callbacks is not None:
            self.announce((batch,))
        return True
