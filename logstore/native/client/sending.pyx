"""A record on its way from ``send`` into an open batch: the compiled twin of ``client/producer/send_path.py`` and of
``Delivery``.

Batches, queues and routes are ``pending.pyx``'s; their fields are guarded by the accumulator's lock, which ``SendPath``
takes once a record.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from posix.unistd cimport getpid

from logstore.native.client.flights cimport FlightPath
from logstore.native.client.hashing cimport POSITIVE, murmur3_of
from logstore.native.client.pending cimport Gate, OpenBatch, OpenQueue, ProducerBuffer, QuickRoute, SendLock
from logstore.native.format.record_writing cimport Py_None, list_item, tuple_item
from logstore.native.format.row_buffer cimport Linked
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef enum:
    HEADER_SIZE = 61
    RECORD_OVERHEAD = 23  # format/rows.py says what it is made of
    ROWS_AHEAD = 16  # so many rows before it is looked at a row is asked of the memory
    CACHE_LINE = 64
    RESERVE_SHARE = 64  # accumulator.py says of what
    ROOMS_AHEAD = 8  # a new batch has room for so many calls like the one that opens it


cdef double LONGEST_S = 1e6  # of a wait that is told to the operating system
cdef object _OffsetRange = None
cdef object _PendingBatch = None
cdef object _outcomes = None
cdef object _measured_headers = None
cdef object _function_or_none = None
cdef object _partial = None


cdef int _import() except -1:
    """Asked for late: what defines them imports this module."""
    global _OffsetRange, _PendingBatch, _outcomes, _measured_headers, _function_or_none, _partial
    if _partial is None:
        from functools import partial

        from logstore.arguments import function_or_none
        from logstore.client.producer import outcomes
        from logstore.client.producer.pending import PendingBatch
        from logstore.format.rows import measured_headers
        from logstore.types import OffsetRange

        _OffsetRange, _PendingBatch = OffsetRange, PendingBatch
        _outcomes, _measured_headers, _function_or_none = outcomes, measured_headers, function_or_none
        _partial = partial
    return 0


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Delivery:
    """One record's outcome. May be shared by threads."""

    # Not followed by the garbage collector: millions are kept, and none is in a cycle once its batch is done (see
    # PendingBatch.fail), which every batch is some day.
    cdef public OpenBatch _batch
    cdef public Py_ssize_t _index

    def __init__(self, OpenBatch batch not None, Py_ssize_t index):
        self._batch = batch
        self._index = index

    def done(self):
        """Whether there is an outcome, good or bad. Never waits."""
        cdef OpenBatch batch = self._batch
        if batch.parts is None:
            return batch.done
        return batch.locate(self._index)[0].done

    def result(self, timeout_s=None):
        """Where the record is; sends its batch now if that is still open.

        Raises the record's error if it failed, and DeliveryTimeoutError if there is no outcome within
        ``timeout_s`` (the record stays on its way). Without a timeout the producer's
        ``delivery_timeout_ms`` bounds the wait.
        """
        cdef OpenBatch batch = self._batch
        cdef object left_s = None
        _import()
        if not batch.done and batch.parts is None and is_plain(timeout_s):
            left_s = waited(batch, timeout_s)
            driver = batch.driver
            if isinstance(driver, FlightPath) and not batch.done and batch.parts is None:
                brought_s = (<FlightPath>driver).brought(batch, timeout_s if left_s is None else left_s)
                if timeout_s is not None:
                    left_s = brought_s
            if driver is not None and not batch.done and batch.parts is None:
                if driver.drive(batch, self._index, timeout_s if left_s is None else left_s) is None:
                    left_s = 0.0
        if batch.done and batch.parts is None and batch.error is None:
            return batch.metadata(self._index)
        return _outcomes.metadata_of(batch, self._index, timeout_s, left_s)

    def exception(self, timeout_s=None):
        """The record's error, None if it is in. Waits like ``result``."""
        _import()
        return _outcomes.error_of(self._batch, self._index, timeout_s)

    def add_callback(self, callback):
        """Have ``callback(delivery)`` called once there is an outcome: now if there is one, else by the
        thread that brings it. It should be quick; what it raises is logged. A callback counts as having
        been told of an error."""
        _import()
        _function_or_none(callback, "callback")
        _outcomes.call_back(self._batch, self._index, _partial(callback, self))

    def __await__(self):
        """``await delivery`` in a coroutine of asyncio: as ``result``, without holding up the event loop.

        A task that is cancelled meanwhile gives up waiting and nothing else: the record stays on its way, the
        delivery may be awaited or asked again.
        """
        _import()
        return _outcomes.awaited(self._batch, self._index)

    def __repr__(self):
        _import()
        return _outcomes.described(self._batch, self._index)


cdef inline bint is_plain(timeout_s):
    """Whether it is no timeout, or one that needs no look from Python's side."""
    return timeout_s is None or ((type(timeout_s) is int or type(timeout_s) is float) and 0 < timeout_s <= LONGEST_S)


cdef object waited(OpenBatch batch, timeout_s):
    """Where a flight of the batch's partition is out: wait for it, as ``Sender.drive`` does, and give the seconds that
    are left of the timeout. None: nothing was waited for, or there is no timeout."""
    cdef OpenQueue queue = batch.queue
    cdef FlightPath driver
    cdef SendLock lock
    cdef Gate gate
    cdef double left_s = LONGEST_S, late_s, began_s
    found = batch.driver
    if not queue.flights or not isinstance(found, FlightPath):
        return None
    driver = <FlightPath>found
    if driver.pid != getpid():
        return None
    if timeout_s is not None:
        left_s = timeout_s
    lock = driver.lock
    gate = Gate()
    lock.take()
    try:
        if batch.done or batch.parts is not None or not queue.flights:
            return None
        batch.wanted = True
        if batch.gates is None:
            batch.gates = []
        batch.gates.append(gate)
    finally:
        lock.give()
    clock = driver.clock
    began_s = clock.monotonic_s()
    late_s = max(batch.deadline_s + driver.grace_s - began_s, 0.0001)
    if not gate.passed(clock, min(late_s, left_s)):
        driver.expire()
    return None if timeout_s is None else max(left_s - (<double>clock.monotonic_s() - began_s), 0)


cdef inline Delivery _delivery(OpenBatch batch, Py_ssize_t index):
    cdef Delivery made = Delivery.__new__(Delivery)
    made._batch = batch
    made._index = index
    return made


@cython.final
cdef class Piece:
    cdef public OpenBatch batch
    cdef public Py_ssize_t start
    cdef public Py_ssize_t count

    def __init__(self, OpenBatch batch not None, Py_ssize_t start, Py_ssize_t count):
        self.batch = batch
        self.start = start
        self.count = count


def landed_ranges(list pieces not None):
    """The ranges of records that are all in, each with the batch that took it. None: some are not, or not so."""
    cdef Piece piece
    cdef OpenQueue queue = None
    cdef long long base, start = -1, end = -1
    cdef Py_ssize_t before = -1, place
    cdef bint ordered = True
    cdef list found = []
    for each in pieces:
        piece = <Piece?>each
        if not piece.batch.done or piece.batch.parts is not None or piece.batch.error is not None:
            return None
        place = piece.batch.queue.partition
        ordered = ordered and place >= before
        before = place
    _import()
    for each in pieces if ordered else sorted(pieces, key=_partition_of):
        piece = <Piece>each
        if piece.batch.queue is not queue:
            if queue is not None:
                found.append(tuple.__new__(_OffsetRange, (queue.topic, queue.partition, start, end)))
            queue, start, end = piece.batch.queue, -1, -1
        base = piece.batch.base_offset
        if base < 0:
            continue
        base += piece.start
        if base != end:
            if end >= 0:
                found.append(tuple.__new__(_OffsetRange, (queue.topic, queue.partition, start, end)))
            start = base
        end = base + piece.count
    if queue is not None:
        found.append(tuple.__new__(_OffsetRange, (queue.topic, queue.partition, start, end)))
    return found


def _partition_of(Piece piece not None):
    return piece.batch.queue.partition


cdef struct Bin:
    # The rows of one partition; ``total``: the size of the last batch that they make.
    Py_ssize_t first, last, total


cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define LOGSTORE_PREFETCH(address) __builtin_prefetch(address)
    #else
    #define LOGSTORE_PREFETCH(address) ((void)0)
    #endif
    """
    void LOGSTORE_PREFETCH(const void* address) noexcept


cdef Py_ssize_t sorted_in(
    QuickRoute route, PyObject* rows, Py_ssize_t count, bint keyed, bint given, Py_ssize_t cap, Linked* links,
    Bin* bins, Py_ssize_t bins_count,
) except -2:
    """Put the rows into the bins of their partitions; the bytes of the batches that they make. -1: some row is not
    plain, or is for the slow path for another reason."""
    cdef Py_ssize_t number, size, at, needed = 0
    cdef PyObject* row
    cdef PyObject* key
    cdef PyObject* value
    cdef Bin* found
    for at in range(bins_count):
        bins[at].first = -1
        bins[at].total = HEADER_SIZE
    for number in range(count):
        # What a row refers to is rarely in the processor's caches: it comes while the rows before are looked at. Here
        # and not in a function, which the compiler would take for one without an effect.
        if number + ROWS_AHEAD < count:
            row = list_item(rows, number + ROWS_AHEAD)
            if PyTuple_CheckExact(<object>row) and PyTuple_GET_SIZE(<object>row) == 2:
                LOGSTORE_PREFETCH(tuple_item(row, 0))
                LOGSTORE_PREFETCH(tuple_item(row, 1))
                LOGSTORE_PREFETCH(<const char*>tuple_item(row, 1) + CACHE_LINE)
                LOGSTORE_PREFETCH(<const char*>tuple_item(row, 1) + 2 * CACHE_LINE)
        row = list_item(rows, number)
        if not PyTuple_CheckExact(<object>row) or PyTuple_GET_SIZE(<object>row) != 2:
            return -1
        key, value, size = tuple_item(row, 0), tuple_item(row, 1), RECORD_OVERHEAD
        if value != Py_None:
            if not PyBytes_CheckExact(<object>value):
                return -1
            size += PyBytes_GET_SIZE(<object>value)
        at = 0
        if key == Py_None:
            if keyed or route.compacts:
                return -1
        else:
            if not (keyed or given) or not PyBytes_CheckExact(<object>key):
                return -1
            size += PyBytes_GET_SIZE(<object>key)
            if keyed and route.murmur3:
                at = <uint32_t>(
                    murmur3_of(<const uint8_t*>PyBytes_AS_STRING(<object>key), PyBytes_GET_SIZE(<object>key), 0)
                    & POSITIVE
                ) % <uint32_t>bins_count
            elif keyed:
                at = route.choose(<object>key)
                if not 0 <= at < bins_count:
                    return -1
        if size > cap - HEADER_SIZE:
            return -1  # it goes alone
        found = &bins[at]
        links[number].size, links[number].next = size, -1
        if found.first < 0:
            found.first = number
        else:
            links[found.last].next = number
        found.last = number
        if found.total + size > cap:
            needed += found.total
            found.total = HEADER_SIZE
        found.total += size
    for at in range(bins_count):
        if bins[at].first >= 0:
            needed += bins[at].total
    return needed


def queue_rows(
    accumulator, notice, QuickRoute route not None, rows, place, Py_ssize_t cap, Py_ssize_t most_bytes, now_s
):
    """The quick path of ``send_many``: see client/producer/send_path.py."""
    cdef Py_ssize_t number, end, total, needed, start, held, at, count, bins_count = 1
    cdef bint keyed = False
    cdef Linked* links
    cdef Bin* bins
    cdef PyObject* row
    cdef OpenQueue queue
    cdef OpenBatch batch
    cdef Piece piece
    cdef list taken, pieces = []
    if type(rows) is not list or not rows or not route.queues:
        return None
    taken = rows[:]  # opening a batch may run other code, which may change the list
    count = PyList_GET_SIZE(taken)
    if place is None and type(taken[0]) is tuple and len(<tuple>taken[0]) == 2 and (<tuple>taken[0])[0] is not None:
        keyed = True
        bins_count = PyList_GET_SIZE(route.queues)
    links = <Linked*>PyMem_Malloc(count * sizeof(Linked) + bins_count * sizeof(Bin))
    if links is NULL:
        raise MemoryError()
    bins = <Bin*>(links + count)
    try:
        needed = sorted_in(
            route, <PyObject*>taken, count, keyed, place is not None, cap, links, bins, bins_count
        )
        if needed < 0 or needed > most_bytes:
            return None
        spare = accumulator.spare_bytes(needed, bins_count)
        if spare is None:
            return None
        for at in range(bins_count):
            number = bins[at].first
            while number >= 0:
                end, total, held = number, HEADER_SIZE, 0
                while end >= 0 and total + links[end].size <= cap:
                    total += links[end].size
                    held += 1
                    end = links[end].next
                if keyed:
                    queue = <OpenQueue?>route.queues[at]
                elif place is not None:
                    queue = <OpenQueue?>route.queues[place]
                else:
                    queue = route.sticky
                    if queue.open is not None and queue.open.size + total > queue.open.room:
                        queue = <OpenQueue?>accumulator.sticky_queue_for_chunk(route, total, False)
                batch = queue.open
                if batch is None or batch.size + total > batch.room:
                    batch = <OpenBatch?>accumulator.batch_for(queue, total, False, now_s, spare)
                start = batch.rows.count
                if not start and held > 1:
                    batch.rows.make_room(max(total, min(batch.room, total * ROOMS_AHEAD)) - HEADER_SIZE)
                batch.rows.put_linked(<PyObject*>taken, links, number, end, total - HEADER_SIZE)
                number = end
                batch.size += total
                piece = Piece.__new__(Piece)
                piece.batch, piece.start, piece.count = batch, start, held
                pieces.append(piece)
                if not start:  # opened, and perhaps another one closed
                    notice(queue, now_s)
        return pieces
    finally:
        PyMem_Free(links)


def open_for(accumulator, OpenQueue queue not None, row, Py_ssize_t row_bytes, Py_ssize_t alone, double now_s):
    """Put a plain row into the open batch, or open one: see client/producer/send_path.py."""
    cdef ProducerBuffer buffer
    cdef OpenBatch batch
    cdef Py_ssize_t cap, size = HEADER_SIZE + RECORD_OVERHEAD + row_bytes
    if _PendingBatch is None:
        _import()
    settings = accumulator.settings
    cap = min(<Py_ssize_t>settings.batch_bytes, queue.route.max_message_bytes)
    if queue.open is not None or size > cap:
        return accumulator.append(queue, row, row_bytes, alone, False, now_s)
    buffer = accumulator.buffer
    if buffer.held_bytes + size > buffer.limit_bytes:
        return None
    batch = <OpenBatch?>_PendingBatch(
        queue, accumulator.driver, cap, now_s, now_s + <double>settings.delivery_timeout_s
    )
    batch.rows.append(row)
    batch.size = size
    batch.reserved = max(size, min(cap, (buffer.limit_bytes - buffer.held_bytes) // RESERVE_SHARE))
    batch.room = batch.reserved
    accumulator.opened += 1
    accumulator.active[queue] = None
    buffer.held_bytes += batch.reserved
    queue.open = batch
    return batch, 0


cdef class SendPath:
    cdef public dict _quick_routes
    cdef SendLock lock

    @classmethod
    def __class_getitem__(cls, types):
        return cls

    @property
    def _lock(self):
        return self.lock

    def _set_lock(self, SendLock lock not None):
        self.lock = lock

    def send(self, topic, value=None, *, key=None, headers=None, timestamp_ms=None, partition=None):
        """Queue one record; the delivery tells what became of it.

        Errors, raised at once with nothing queued: RecordTypeError, RecordTooLargeError,
        InvalidTimestampError, UnknownTopicError, UnknownPartitionError, BufferFullError, ClientClosedError,
        ForkedStoreError. Timestamps default to the time the batch leaves.
        """
        cdef Py_ssize_t size
        if (
            type(value) is bytes
            and (key is None or type(key) is bytes)
            and partition is None
            and timestamp_ms is None
        ):
            size = PyBytes_GET_SIZE(value) + RECORD_OVERHEAD
            if key is not None:
                size += PyBytes_GET_SIZE(key)
            if headers is None or not headers:
                checked = None
            else:
                _import()
                checked, more = _measured_headers(headers, topic)
                size += more
            self.lock.take()
            try:
                delivery = self.queued(topic, key, value, checked, size)
                if delivery is not None:
                    return delivery
            except (KeyError, TypeError):
                pass  # a topic not met before, or one whose partition is not chosen here
            finally:
                self.lock.give()
        return self._send_slowly(topic, value, key, headers, timestamp_ms, partition)

    cdef object queued(self, topic, key, value, headers, Py_ssize_t size):
        """The delivery of a row of ``size`` bytes, None if the slow path is due; the lock is held."""
        cdef QuickRoute route = <QuickRoute?>self._quick_routes[topic]
        cdef OpenQueue queue
        cdef Py_ssize_t place
        if key is None:
            if route.compacts:
                return None  # a key is due: refused by the slow path
            queue = route.sticky
        else:
            if route.murmur3:
                place = murmur3_of(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), 0) & POSITIVE
                place %= len(route.queues)
            else:
                place = route.choose(key)
            queue = <OpenQueue?>route.queues[place]
        cdef OpenBatch batch = queue.open
        if batch is not None and batch.size + size <= batch.room:
            place = batch.rows.put(
                <PyObject*>key, <PyObject*>value, NULL if headers is None else <PyObject*>headers
            )
            batch.size += size
            return _delivery(batch, place)
        row = (key, value) if headers is None else (key, value, headers)
        return self._open_quickly(route, queue, row, size - RECORD_OVERHEAD)

    def send_now(self, topic, value=None, *, key=None):
        """``send`` for a caller that must not wait. None, with nothing queued, where ``send`` might: at a full buffer,
        for a topic not met before, with serializers."""
        cdef Py_ssize_t size
        if type(value) is not bytes or not (key is None or type(key) is bytes) or type(topic) is not str:
            return None
        size = PyBytes_GET_SIZE(value) + RECORD_OVERHEAD
        if key is not None:
            size += PyBytes_GET_SIZE(key)
        self.lock.take()
        try:
            return self.queued(topic, key, value, None, size) if topic in self._quick_routes else None
        finally:
            self.lock.give()
