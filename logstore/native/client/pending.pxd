# Batches on their way to one partition, and what guards them, as the modules that send and fly them see them.
from cpython.pythread cimport PyThread_type_lock

from logstore.native.format.row_buffer cimport RowBuffer


cdef class OpenBatch:
    cdef object __weakref__
    cdef public RowBuffer rows
    cdef public Py_ssize_t size, room, cap, reserved, count, overhead, attempts
    cdef public bint done, wanted, timestamped, doubtful, observed, full_told
    cdef public double created_s, deadline_s, full_since_s
    cdef public long long base_sequence
    cdef public tuple parts
    cdef public OpenQueue queue
    cdef public object driver, error, refusal
    cdef public list gates
    cdef public object base_offset, timestamp_ms, now_ms
    cdef public list timestamps
    cdef public object encoded, header, ready, identity
    cdef public list callbacks

    cdef object metadata(self, Py_ssize_t index)
    cdef int resolved(self, base_offset, append_time_ms) except -1
    cdef int finish(self) except -1


cdef class OpenQueue:
    cdef public OpenBatch open
    cdef public object flights, closed
    cdef public object topic, partition
    cdef public QuickRoute route
    cdef public list again
    cdef public bint stacks, held_up, renumbers, spent
    cdef public double retry_at_s
    cdef public object identity, next_sequence, numbered_topic


cdef class QuickRoute:
    cdef public bint compacts, murmur3
    cdef public object choose, codec
    cdef public Py_ssize_t max_message_bytes
    cdef public list queues
    cdef public OpenQueue sticky

    cdef int moved_on(self, OpenQueue queue) except -1


cdef class Counters:
    cdef public long long records, batches, produced_bytes, produce_calls, retries, failed_records, waits_for_room


cdef class ProducerBuffer:
    cdef public Py_ssize_t limit_bytes, held_bytes
    cdef object waiters, counters

    cdef int given_back(self, Py_ssize_t released_bytes) except -1


cdef class Gate:
    cdef PyThread_type_lock lock

    cdef bint passed(self, clock, double left_s) except -1


cdef int let_through(list gates) except -1


cdef class SendLock:
    cdef PyThread_type_lock lock
    cdef bint held

    cdef int take(self) except -1
    cdef int give(self) except -1
