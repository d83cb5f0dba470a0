# Keys of a records section that are objects only where one is asked for; keytable enters them as they lie.
from libc.stdint cimport int32_t, uint8_t


cdef struct Span:
    # One record; ``key_size`` is ABSENT for null.
    Py_ssize_t at, key_at
    int32_t key_size


cdef class Spans:
    cdef bytes section
    cdef Span* records  # one more than there are: where the last ends
    cdef Py_ssize_t count


cdef class SectionKeys:
    cdef Spans spans
    cdef Py_ssize_t first, count

    cdef const uint8_t* key_of(self, Py_ssize_t number, Py_ssize_t* size) noexcept
