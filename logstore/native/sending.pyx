# cython: nonecheck=True
"""A record on its way from ``send`` into an open batch: the compiled twin of ``client/producer/``'s ``send_path.py`` and
``send_lock.py``, of ``Delivery``, and of the classes that they touch without a step of Python.

What is guarded by what: ``rows``, ``size``, ``room``, ``open``, ``queues`` and ``sticky`` by the accumulator's lock, a
``SendLock``, which ``SendPath`` takes once a record. ``done`` is written with it held, after the rest of the outcome,
and read without. Nothing here counts on the interpreter's lock.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_SIZE
from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from libc.stdint cimport uint8_t

from logstore.native.hashing cimport POSITIVE, murmur3_of
from logstore.native.varints cimport fingerprint

cdef extern from "pythread.h":
    ctypedef enum PyLockStatus:
        PY_LOCK_ACQUIRED
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int intr_flag) nogil

FINGERPRINT = fingerprint()

cdef enum:
    RECORD_OVERHEAD = 23  # format/rows.py says what it is made of

cdef object _outcomes = None
cdef object _measured_headers = None
cdef object _function_or_none = None
cdef object _partial = None


cdef int _import() except -1:
    """Asked for late: what defines them imports this module."""
    global _outcomes, _measured_headers, _function_or_none, _partial
    if _partial is None:
        from functools import partial

        from logstore.arguments import function_or_none
        from logstore.client.producer import outcomes
        from logstore.format.rows import measured_headers

        _outcomes, _measured_headers, _function_or_none = outcomes, measured_headers, function_or_none
        _partial = partial
    return 0


cdef class OpenBatch:
    cdef public list rows
    cdef public Py_ssize_t size
    cdef public Py_ssize_t room
    cdef public bint done
    cdef public tuple parts

    def __init__(self, Py_ssize_t size):
        self.rows = []
        self.size = size
        self.room = 0
        self.done = False
        self.parts = None


cdef class OpenQueue:
    cdef public OpenBatch open


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
        _import()
        return _outcomes.metadata_of(self._batch, self._index, timeout_s)

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
