# What brings a batch to its outcome, as those who wait for one see it.
from logstore.native.client.pending cimport Counters, OpenBatch, OpenQueue, ProducerBuffer, SendLock


cdef class FlightPath:
    cdef public object _backend, _accumulator, clock, _sequences, _flights
    cdef public double grace_s
    cdef public long pid
    cdef public bint _stopping
    cdef public SendLock lock
    cdef object acks
    cdef ProducerBuffer buffer
    cdef Counters counters
    cdef dict active

    cdef double brought(self, OpenBatch batch, object timeout_s) except? -2
    cdef bint taken(self, OpenBatch batch, double now_s) except -1
    cdef int flown(self, OpenBatch batch, tuple flight, object timeout_s, double now_s) except -1
    cdef bint numbered(self, OpenBatch batch) except -1
    cdef object produced(self, OpenBatch batch, tuple flight, object timeout_s, double now_s)
    cdef bint landed(self, OpenBatch batch, object results) except -1
    cdef object item_of(self, OpenBatch batch)
    cdef int resolved(self, OpenBatch batch, tuple result) except -1
    cdef bint settled(self, OpenQueue queue) except -1
    cdef int flown_together(self, tuple flight, object timeout_s, double now_s) except -1
    cdef bint numbered_together(self, tuple flight) except -1
    cdef object produced_together(self, tuple flight, object timeout_s, double now_s)
    cdef bint landed_together(self, tuple flight, object results) except -1
