# The active segment and its indexes, as the append sees them.
from libc.stdint cimport int64_t

cdef enum:
    LARGEST_ROW = 12  # bytes of an entry of the time index


cdef class GrowingTable:
    cdef object _row
    cdef int64_t* keys
    cdef int64_t* values
    cdef Py_ssize_t rows
    cdef Py_ssize_t room
    cdef Py_ssize_t stored  # rows that the file has

    cdef int add(self, int64_t key, int64_t value) except -1
    cdef bytes packed(self, Py_ssize_t start)


cdef class IndexRule:
    cdef public int64_t bytes_since_entry
    cdef public int64_t interval_bytes
    cdef public int64_t max_timestamp_ms
    cdef public int64_t offset_of_max

    cdef bint fed(self, int64_t last_offset, int64_t size, int64_t max_timestamp_ms) noexcept


cdef class SegmentTail:
    cdef public int64_t base_offset
    cdef public int64_t size
    cdef public int64_t next_offset
    cdef public bint closed
    cdef public int64_t first_timestamp_ms
    cdef public int64_t index_bytes
    cdef public IndexRule rule
    cdef public object _offsets
    cdef public object _times
    cdef public object _log_path  # of its file; every durable append asks for it

    cdef bint noted(
        self, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp_ms
    ) except -1
    cdef int enter(self, int64_t last_offset, int64_t position, IndexRule rule) except -1
    cdef int64_t unstored(self) except -1
