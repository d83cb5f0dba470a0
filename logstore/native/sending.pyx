# cython: nonecheck=True
"""A record on its way from ``send`` into an open batch: the compiled twin of ``client/producer/``'s ``send_path.py`` and
``send_lock.py``, of ``Delivery``, and of the classes that they touch without a step of Python.

What is guarded by what: ``rows``, ``size``, ``room``, ``wanted``, ``gates``, ``open``, ``queues``, ``flights`` and
``sticky`` by the accumulator's lock, a
``SendLock``, which ``SendPath`` takes once a record. ``done`` is written with it held, after the rest of the outcome,
and read without. Nothing here counts on the interpreter's lock.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from libc.stdint cimport uint8_t
from posix.unistd cimport getpid

from collections import deque as _deque

from logstore.native.hashing cimport POSITIVE, murmur3_of
from logstore.native.varints cimport fingerprint

cdef extern from "pythread.h":
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int intr_flag) nogil

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject* followed)

FINGERPRINT = fingerprint()

cdef enum:
    RECORD_OVERHEAD = 23  # format/rows.py says what it is made of


cdef double LONGEST_S = 1e6  # of a wait that is told to the operating system
cdef object _RecordMetadata = None
cdef object _outcomes = None
cdef object _measured_headers = None
cdef object _function_or_none = None
cdef object _partial = None


cdef int _import() except -1:
    """Asked for late: what defines them imports this module."""
    global _RecordMetadata, _outcomes, _measured_headers, _function_or_none, _partial
    if _partial is None:
        from functools import partial

        from logstore.arguments import function_or_none
        from logstore.client.producer import outcomes
        from logstore.format.rows import measured_headers
        from logstore.types import RecordMetadata

        _RecordMetadata = RecordMetadata
        _outcomes, _measured_headers, _function_or_none = outcomes, measured_headers, function_or_none
        _partial = partial
    return 0


cdef class OpenBatch:
    cdef public list rows
    cdef public Py_ssize_t size
    cdef public Py_ssize_t room
    cdef public bint done
    cdef public tuple parts
    cdef public OpenQueue queue
    cdef public object driver
    cdef public double deadline_s
    cdef public bint wanted
    cdef public list gates
    cdef public object error
    cdef public object base_offset
    cdef public object timestamp_ms
    cdef public list timestamps

    def __init__(self, OpenQueue queue, driver, double deadline_s, Py_ssize_t size):
        self.rows = []
        self.size = size
        self.queue = queue
        self.driver = driver
        self.deadline_s = deadline_s
        self.base_offset = self.timestamp_ms = -1

    cdef object metadata(self, Py_ssize_t index):
        """Of a batch that is in."""
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp_ms = self.timestamp_ms if self.timestamps is None else self.timestamps[index]
        return tuple.__new__(_RecordMetadata, (self.queue.topic, self.queue.partition, offset, timestamp_ms))


cdef class OpenQueue:
    cdef public OpenBatch open
    cdef public object flights
    cdef public object topic
    cdef public object partition

    def __init__(self, topic, partition):
        self.topic = topic
        self.partition = partition
        self.flights = _deque()


@cython.final
cdef class Gate:
    """A lock that is held from the first, for one waiter, and released when there is an outcome."""

    cdef PyThread_type_lock lock

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
    for gate in gates:
        if type(gate) is Gate:
            PyThread_release_lock((<Gate>gate).lock)
        else:
            gate.release()


cdef class QuickRoute:
    cdef public bint compacts
    cdef public bint murmur3
    cdef public object choose
    cdef public list queues
    cdef public OpenQueue sticky

    def __init__(self, bint compacts, bint murmur3, choose):
        self.compacts = compacts
        self.murmur3 = murmur3
        self.choose = choose
        self.queues = []


cdef class SendLock:
    """A ``threading.Lock`` that compiled code takes without a call of Python's: ``take`` and ``give``."""

    cdef PyThread_type_lock lock
    cdef bint held

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
    cdef SendLock lock
    cdef Gate gate
    cdef double left_s = LONGEST_S, late_s, began_s
    driver = batch.driver
    if driver is None or type(getattr(driver, "lock", None)) is not SendLock or driver.pid != getpid():
        return None
    if timeout_s is not None:
        left_s = timeout_s
    if not queue.flights:
        return None
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
    late_s = max(batch.deadline_s + <double>driver.grace_s - began_s, 0.0001)
    if not gate.passed(clock, min(late_s, left_s)):
        driver.expire()
    return None if timeout_s is None else max(left_s - (<double>clock.monotonic_s() - began_s), 0)


cdef inline Delivery _delivery(OpenBatch batch, Py_ssize_t index):
    cdef Delivery made = Delivery.__new__(Delivery)
    made._batch = batch
    made._index = index
    return made


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
                row = (key, value)
                # It holds bytes alone, so that it can be in no cycle: the garbage collector would find that out by
                # itself, after it has looked at it.
                PyObject_GC_UnTrack(<PyObject*>row)
            else:
                _import()
                checked, more = _measured_headers(headers, topic)
                row = (key, value, checked)
                size += more
            self.lock.take()
            try:
                delivery = self.queued(topic, key, row, size)
                if delivery is not None:
                    return delivery
            except (KeyError, TypeError):
                pass  # a topic not met before, or one whose partition is not chosen here
            finally:
                self.lock.give()
        return self._send_slowly(topic, value, key, headers, timestamp_ms, partition)

    cdef object queued(self, topic, key, tuple row, Py_ssize_t size):
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
            batch.rows.append(row)
            batch.size += size
            return _delivery(batch, PyList_GET_SIZE(batch.rows) - 1)
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
            return self.queued(topic, key, (key, value), size) if topic in self._quick_routes else None
        finally:
            self.lock.give()
