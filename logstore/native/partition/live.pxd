# What an append publishes for readers in other processes, as the append sees it.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    COPY_BYTES = 64
    SLOT_BYTES = 128


cdef class WrittenSlot:
    cdef uint8_t copies[SLOT_BYTES]
    cdef int newest


cdef struct Shown:
    # In the order of ``LiveBoard.publish``.
    int64_t log_start, high_watermark, last_stable, log_end, segment_base, end_position
    int32_t leader_epoch


cdef class LivePublisher:
    cdef public object path
    cdef public bint _writable
    cdef public int _fd
    cdef dict written

    cdef int show(self, slot, const Shown* shown) except -1
    cdef int show_carefully(self, slot, int64_t place, const Shown* shown) except -1
    cdef int check_written(self, Py_ssize_t count) except -1


cdef class SlotPublisher:
    cdef object context, slot
