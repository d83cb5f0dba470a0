"""A batch on its way to one partition, its queue, and what guards them: the compiled twins of ``OpenBatch`` and ``OpenQueue``
(``client/producer/pending.py``), ``QuickRoute``, ``ProducerBuffer``, ``Counters``, ``send_lock`` and ``release_all``.

The accumulator's lock, a ``SendLock``, guards all fields but those of the outcome: ``done`` is written with it held, after
the rest of the outcome, and read without. What only a flight touches is its holder's: see ``pending.py``. Nothing here
counts on the interpreter's lock.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
)

from collections import deque as _deque
from threading import Lock as _Lock

from logstore.native.format.row_buffer cimport RowBuffer
from logstore.native.format.varints cimport fingerprint

cdef extern from "pythread.h":
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int intr_flag) nogil

FINGERPRINT = fingerprint()

cdef enum:
    HEADER_SIZE = 61
    RECORD_OVERHEAD = 23  # format/rows.py says what it is made of

cdef object _RecordMetadata = None


cdef int _import() except -1:
    """Asked for late: what defines it imports this module."""
    global _RecordMetadata
    if _RecordMetadata is None:
        from logstore.types import RecordMetadata

        _RecordMetadata = RecordMetadata
    return 0


cdef class OpenBatch:
    def __init__(self, OpenQueue queue, driver, Py_ssize_t cap, double created_s, double deadline_s):
        self.rows = RowBuffer.__new__(RowBuffer)
        self.size = HEADER_SIZE
        self.cap = cap
        self.overhead = RECORD_OVERHEAD
        self.queue = queue
        self.driver = driver
        self.created_s = created_s
        self.deadline_s = deadline_s
        self.full_since_s = -1.0
        self.base_sequence = -1
        self.base_offset = self.timestamp_ms = self.now_ms = -1

    def resolve(self, base_offset, append_time_ms):
        """The batch is in: fill the outcome and let go of the rows. The accumulator's lock is held."""
        self.resolved(base_offset, append_time_ms)

    cdef int resolved(self, base_offset, append_time_ms) except -1:
        cdef bint stamped = append_time_ms >= 0
        if self.timestamped and not stamped:
            now_ms = self.now_ms
            self.timestamps = [
                row[3] if len(row) == 4 and row[3] is not None else now_ms for row in self.rows
            ]
        self.base_offset = base_offset
        self.timestamp_ms = append_time_ms if stamped else self.now_ms
        self.finish()
        return 0

    def _finish(self):
        self.finish()

    cdef int finish(self) except -1:
        self.rows = RowBuffer.__new__(RowBuffer)
        self.encoded = self.ready = self.header = None
        self.done = True
        self.driver = None
        return 0

    cdef object metadata(self, Py_ssize_t index):
        """Of a batch that is in."""
        if _RecordMetadata is None:
            _import()
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp_ms = self.timestamp_ms if self.timestamps is None else self.timestamps[index]
        return tuple.__new__(_RecordMetadata, (self.queue.topic, self.queue.partition, offset, timestamp_ms))


cdef class OpenQueue:
    def __init__(self, QuickRoute route not None, topic, partition):
        self.route = route
        self.topic = topic
        self.partition = partition
        self.flights = _deque()
        self.closed = _deque()
        self.again = []
        self.next_sequence = 0
        self.numbered_topic = ""


@cython.final
cdef class ProducerBuffer:
    """``limit_bytes``: ``buffer.memory``; ``held_bytes``: what batches hold of it."""

    def __init__(self, Py_ssize_t limit_bytes, Counters counters not None):
        self.limit_bytes = limit_bytes
        self.waiters = _deque()
        self.counters = counters

    @property
    def free_bytes(self):
        return self.limit_bytes - self.held_bytes

    def has_room_for(self, Py_ssize_t needed_bytes):
        return self.held_bytes + needed_bytes <= self.limit_bytes

    def hold(self, Py_ssize_t more_bytes):
        self.held_bytes += more_bytes

    def give_back(self, Py_ssize_t released_bytes):
        """All who wait look again."""
        self.given_back(released_bytes)

    cdef int given_back(self, Py_ssize_t released_bytes) except -1:
        self.held_bytes -= released_bytes
        if released_bytes and self.waiters:
            for waiter in self.waiters:
                waiter.release()
            self.waiters.clear()
        return 0

    @property
    def is_waited_for(self):
        return bool(self.waiters)

    def join_queue(self):
        """A lock that is released when bytes come back. While a caller waits for that, no open batch lingers."""
        gate = _Lock()
        gate.acquire()
        self.waiters.append(gate)
        (<Counters>self.counters).waits_for_room += 1
        return gate

    def leave_queue(self, gate):
        if gate in self.waiters:
            self.waiters.remove(gate)


@cython.final
cdef class Gate:
    """A lock that is held from the first, for one waiter, and released when there is an outcome."""

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError()
        PyThread_acquire_lock(self.lock, NOWAIT_LOCK)

    def __dealloc__(self):
        if self.lock is not NULL:
            PyThread_free_lock(self.lock)

    cdef bint passed(self, clock, double left_s) except -1:
        """Wait until it is released; False: ``left_s`` are over."""
        cdef PyLockStatus status
        cdef double end_s = <double>clock.monotonic_s() + left_s
        cdef long long microseconds
        while True:
            microseconds = <long long>(left_s * 1e6)
            with nogil:
                status = PyThread_acquire_lock_timed(self.lock, microseconds, 1)
            if status == PY_LOCK_ACQUIRED:
                return True
            if status == PY_LOCK_FAILURE:
                return False
            PyErr_CheckSignals()  # a signal cut the wait short; its handler may raise
            left_s = max(end_s - <double>clock.monotonic_s(), 0)


def release_all(list gates):
    """Let all waiters of a batch go on."""
    let_through(gates)


cdef int let_through(list gates) except -1:
    for gate in gates:
        if type(gate) is Gate:
            PyThread_release_lock((<Gate>gate).lock)
        else:
            gate.release()
    return 0


cdef class QuickRoute:
    def __init__(self, bint compacts, bint murmur3, choose, Py_ssize_t max_message_bytes, codec):
        self.compacts = compacts
        self.murmur3 = murmur3
        self.choose = choose
        self.max_message_bytes = max_message_bytes
        self.codec = codec
        self.queues = []

    def move_on(self, OpenQueue queue):
        """Null keys leave ``queue`` for the next partition, if that is where they were going."""
        self.moved_on(queue)

    cdef int moved_on(self, OpenQueue queue) except -1:
        if queue is self.sticky:
            self.sticky = self.queues[(<Py_ssize_t>queue.partition + 1) % len(self.queues)]
        return 0


@cython.final
cdef class Counters:
    """Totals since the producer was made; written with the lock held."""


cdef class SendLock:
    """A ``threading.Lock`` that compiled code takes without a call of Python's: ``take`` and ``give``."""

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.lock is not NULL:
            if self.held:
                PyThread_release_lock(self.lock)
            PyThread_free_lock(self.lock)

    cdef int take(self) except -1:
        cdef PyLockStatus status
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            while True:
                with nogil:
                    status = PyThread_acquire_lock_timed(self.lock, -1, 1)
                if status == PY_LOCK_ACQUIRED:
                    break
                PyErr_CheckSignals()  # a signal cut the wait short; its handler may raise
        self.held = True
        return 0

    cdef int give(self) except -1:
        if not self.held:
            raise RuntimeError("release unlocked lock")
        self.held = False
        PyThread_release_lock(self.lock)
        return 0

    def acquire(self, bint blocking=True):
        if blocking:
            self.take()
        elif PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            self.held = True
        else:
            return False
        return True

    def release(self):
        self.give()

    def locked(self):
        return self.held

    def __enter__(self):
        self.take()
        return True

    def __exit__(self, kind, error, trace):
        self.give()


def send_lock():
    """The accumulator's lock."""
    return SendLock()
