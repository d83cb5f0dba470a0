# The positions of a log and its quick append, as the modules that append to several logs at once see them.
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t, uint8_t

from logstore.native.log.file_pins cimport HeldFile
from logstore.native.partition.live cimport Shown
from logstore.native.log.segment_tail cimport SegmentTail

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len


cdef class AppendPath:
    cdef public int64_t log_start_offset
    cdef public int64_t log_end_offset
    cdef public int64_t flushed_offset
    cdef public int64_t high_watermark
    cdef public int64_t unsynced_records
    cdef public int64_t store_rows
    cdef public int64_t syncs
    cdef public double dirty_since_s
    cdef public bint shows_appended
    cdef public object _failure
    cdef public object epochs
    cdef public object segments
    cdef public object tail
    cdef public object producers
    cdef public HeldFile _held
    cdef public object _clock
    cdef public object _lock
    cdef public object _sync_lock
    cdef public object _waiters
    cdef public object _publish
    cdef public object _on_dirty
    cdef public int64_t _roll_jitter_ms
    cdef object settings
    cdef object policy
    cdef int64_t segment_bytes
    cdef int64_t segment_ms
    cdef int64_t segment_index_bytes

    cdef int64_t stable(self, int64_t high_watermark) except? -1
    cdef int tell(self, Shown* shown) except -1
    cdef int show(self) except -1
    cdef SegmentTail segment_for(self, lone, header, int64_t size)
    cdef bint is_next(self, first) except -1
    cdef int run_of(self, list batches, SegmentTail segment, Py_buffer* views) except -1
    cdef int write_run(
        self, list batches, SegmentTail segment, Py_buffer* views, int held, list placed
    ) except -1
    cdef int append_one(self, lone, header) except -1
    cdef int write(
        self, file, iovec* written, int count, int64_t position, Py_ssize_t size, tuple parts
    ) except -1
    cdef object hold(self, segment)
    cdef int count(self, SegmentTail segment, int64_t offset, bint was_dirty, bint entered) except -1
    cdef int advance(self, int64_t offset) except -1
    cdef bint synced_quickly(self) except -1
    cdef int synced_up_to(self, int64_t target) except -1
