"""The flights of batches, from the thread that takes them to their outcomes: the compiled twin of
``client/producer/flight_path.py``.

Batches are numbered, encoded, given to the backend and landed here where that is all there is to it: rows, not compressed,
sent for the first time, by a producer whose numbers are at hand, and in at the first try. The lone batch of a caller who
waits for it is taken here, too. Whatever else there may be is left to ``Sender``, step by step: before a batch is taken,
before any is numbered, or when the backend's answer is there. No signal handler runs in between but in calls of Python's,
so that none of the steps is half done when one raises.
"""

from posix.unistd cimport getpid

from logstore.native.client.pending cimport OpenBatch, OpenQueue, let_through
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef double LEAST_S = 0.001  # of a wait for what other processes hold
cdef long long SEQUENCE_MASK = 0x7FFFFFFF

cdef enum:  # places in a ``ProduceResult``
    BASE_OFFSET_AT = 0
    APPEND_TIME_AT = 1
    ERROR_AT = 2

cdef object _ProduceItem = None
cdef object _ProduceResult = None


cdef int _import() except -1:
    """Asked for late: what defines it imports this module."""
    global _ProduceItem, _ProduceResult
    from logstore.api.records import ProduceItem, ProduceResult

    _ProduceItem, _ProduceResult = ProduceItem, ProduceResult
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
        if self._flights is not None or not batches:
            self._fly_in_steps(batches, timeout_s, now_s)
            return
        began_s = self.clock.monotonic_s() if now_s is None else now_s
        if len(batches) == 1:
            self.flown(<OpenBatch?>batches[0], tuple(batches), timeout_s, began_s)
        else:
            self.flown_together(tuple(batches), timeout_s, began_s)

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
        cdef double left_s = batch.deadline_s - now_s
        cdef bint asked = False
        try:
            item = self.item_of(batch)
            asked = True
            if timeout_s is not None:
                left_s = min(left_s, <double>timeout_s)
            return self._backend.produce([item], self.acks, max(left_s, LEAST_S))
        except Exception as error:
            return self._failed(flight, error, asked)

    cdef object item_of(self, OpenBatch batch):
        """What the backend is given of the batch, which is encoded now."""
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
        return tuple.__new__(_ProduceItem, (batch.queue.topic, batch.queue.partition, encoded, header, None))

    cdef bint landed(self, OpenBatch batch, results) except -1:
        """The flight is back, and the batch is in. False, with nothing done: there is more to it."""
        cdef OpenQueue queue = batch.queue
        cdef bint more
        if not are_in(results, 1):
            return False
        result = (<list>results)[0]
        self.lock.take()
        try:
            if (
                batch.done or batch.doubtful or batch.timestamped or queue.held_up or queue.renumbers or queue.spent
                or queue.again or len(queue.flights) != 1 or self._accumulator.stopped is not None
            ):
                return False
            queue.flights.popleft()
            self.counters.produce_calls += 1
            self.resolved(batch, <tuple>result)
            queue.stacks = False
            more = self.settled(queue) or self._stopping
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

    # --- several batches ---

    cdef int flown_together(self, tuple flight, timeout_s, double now_s) except -1:
        """``flown`` of several batches."""
        if not self.numbered_together(flight):
            self._fly_in_steps(flight, timeout_s, now_s)
            return 0
        try:
            results = self.produced_together(flight, timeout_s, now_s)
        except BaseException as error:
            self._cut_short(flight, error)
            raise
        if not self.landed_together(flight, results):
            self._land(flight, results)
        return 0

    cdef bint numbered_together(self, tuple flight) except -1:
        """``numbered`` of all. False, with none of them numbered: not all are new and plain, or numbers are not at hand."""
        cdef OpenBatch batch
        cdef OpenQueue queue
        identity = None if self._sequences is None else self._sequences.identity
        if identity is None and self._sequences is not None:
            return False
        for each in flight:
            batch = <OpenBatch?>each
            queue = batch.queue
            if (
                batch.encoded is not None or batch.ready is not None or queue.route.codec != "none"
                or batch.base_sequence >= 0 or identity is not None and (identity is not queue.identity or queue.spent)
            ):
                return False
        if identity is not None:
            for each in flight:
                self.numbered(<OpenBatch>each)
        return True

    cdef object produced_together(self, tuple flight, timeout_s, double now_s):
        """``produced`` of all."""
        cdef list items = []
        cdef OpenBatch batch
        cdef double deadline_s = (<OpenBatch>flight[0]).deadline_s, left_s
        cdef bint asked = False
        try:
            for each in flight:
                batch = <OpenBatch>each
                deadline_s = min(deadline_s, batch.deadline_s)
                items.append(self.item_of(batch))
            asked = True
            left_s = deadline_s - now_s
            if timeout_s is not None:
                left_s = min(left_s, <double>timeout_s)
            return self._backend.produce(items, self.acks, max(left_s, LEAST_S))
        except Exception as error:
            return self._failed(flight, error, asked)

    cdef bint landed_together(self, tuple flight, results) except -1:
        """``landed`` of all; False, with nothing done: there is more to one of them."""
        cdef OpenBatch batch
        cdef OpenQueue queue
        cdef Py_ssize_t number = 0
        cdef bint more = self._stopping, called = False
        if not are_in(results, len(flight)):
            return False
        self.lock.take()
        try:
            if self._accumulator.stopped is not None or not lands_plainly(flight):
                return False
            self.counters.produce_calls += 1
            while number < len(flight):
                queue = (<OpenBatch>flight[number]).queue
                for each in <tuple>queue.flights.popleft():
                    batch = <OpenBatch>each
                    self.resolved(batch, <tuple>(<list>results)[number])
                    called = called or batch.callbacks is not None
                    number += 1
                queue.stacks = False
                more = self.settled(queue) or more
        finally:
            self.lock.give()
        for each in flight:
            batch = <OpenBatch>each
            if batch.gates is not None:
                let_through(batch.gates)
                batch.gates = None
        if more:
            self._wake_for_more()
        if called:
            self.announce(flight)
        return True

    cdef int resolved(self, OpenBatch batch, tuple result) except -1:
        """The batch is in; the lock is held."""
        self.counters.records += batch.count
        self.counters.batches += 1
        self.counters.produced_bytes += len(<bytes?>batch.encoded)
        # Before anybody can see the outcome: who has it and drops the producer must leave nothing "held".
        self.buffer.given_back(batch.reserved)
        batch.reserved = 0
        batch.resolved(result[BASE_OFFSET_AT], result[APPEND_TIME_AT])
        return 0

    cdef bint settled(self, OpenQueue queue) except -1:
        """The queue's flight has landed: whether more of it is due at once. The lock is held."""
        if queue.closed:
            return True
        if queue.open is not None:
            return queue.open.wanted
        self.active.pop(queue, None)
        queue.route.moved_on(queue)
        return False


cdef bint are_in(results, Py_ssize_t count) except -1:
    """Whether so many results say that a batch is in."""
    if type(results) is not list or len(<list>results) != count:
        return False
    for result in <list>results:
        if type(result) is not _ProduceResult or (<tuple>result)[ERROR_AT] is not None:
            return False
    return True


cdef bint lands_plainly(tuple flight) except -1:
    """Whether the queues of the batches have nothing under way but these, and nothing has happened to any meanwhile."""
    cdef OpenBatch batch
    cdef OpenQueue queue
    cdef Py_ssize_t number = 0
    while number < len(flight):
        queue = (<OpenBatch>flight[number]).queue
        if queue.held_up or queue.renumbers or queue.spent or queue.again or len(queue.flights) != 1:
            return False
        for each in <tuple?>queue.flights[0]:
            if number == len(flight) or flight[number] is not each:
                return False
            batch = <OpenBatch>each
            if batch.done or batch.doubtful or batch.timestamped:
                return False
            number += 1
    return True
