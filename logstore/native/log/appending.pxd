# The positions of a log and its quick append, as the modules that append to several logs at once see them.
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t
from posix.types cimport off_t

from logstore.native.format.batch_header cimport CONTROL_BIT, TRANSACTIONAL_BIT
from logstore.native.log.file_pins cimport HeldFile
from logstore.native.log.segment_tail cimport SegmentTail
from logstore.native.partition.live cimport Shown

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

    ssize_t pwritev(int fd, const iovec* parts, int count, off_t at)


cdef extern from "Python.h":
    PyObject* _tuple_item "PyTuple_GET_ITEM" (PyObject* items, Py_ssize_t at) noexcept
    int64_t _int64_of "PyLong_AsLongLong" (PyObject* number) except? -1
    PyObject* Py_None

cdef enum:
    SLICE_BYTES = 31 << 16  # of one call: seams/fs.py says why no more
    MOST_TOGETHER = 128  # batches of one write: with two parts each a quarter of what the system takes
    SEQUENCE_MASK = 0x7FFFFFFF
    ATTRIBUTES_AT = 5  # places in a ``BatchHeader``
    LAST_OFFSET_DELTA_AT = 6
    MAX_TIMESTAMP_AT = 8
    PRODUCER_ID_AT = 9
    PRODUCER_EPOCH_AT = 10
    BASE_SEQUENCE_AT = 11


cdef inline int64_t number_at(PyObject* items, Py_ssize_t at) except? -1:
    return _int64_of(_tuple_item(items, at))


cdef inline bint goes_with(PyObject* header, PyObject* before) except -1:
    """Whether the batch may be written behind the one ``before`` (None: it is the first) with nothing asked of it: its
    producer has no id, or it is the next one of the same producer."""
    cdef int64_t attributes = number_at(header, ATTRIBUTES_AT), producer_id
    if attributes & CONTROL_BIT or before == Py_None:
        return not attributes & CONTROL_BIT
    producer_id = number_at(header, PRODUCER_ID_AT)
    if producer_id < 0:
        return number_at(before, PRODUCER_ID_AT) < 0
    return (
        producer_id == number_at(before, PRODUCER_ID_AT)
        and number_at(header, PRODUCER_EPOCH_AT) == number_at(before, PRODUCER_EPOCH_AT)
        and not (attributes ^ number_at(before, ATTRIBUTES_AT)) & TRANSACTIONAL_BIT
        and number_at(header, BASE_SEQUENCE_AT)
        == (number_at(before, BASE_SEQUENCE_AT) + number_at(before, LAST_OFFSET_DELTA_AT) + 1) & SEQUENCE_MASK
    )


cdef struct Run:
    # Batches of one log that are written together, from its position on. ``views``: their bytes, lent until ``let_go``;
    # ``held``: of so many batches; ``written``: the ``count`` parts that are to be written into ``fd``.
    Py_buffer views[128]
    iovec written[256]
    int held, count, fd
    int64_t position
    Py_ssize_t size


cdef inline void let_go(Run* run) noexcept:
    while run.held:
        run.held -= 1
        PyBuffer_Release(&run.views[run.held])


cdef inline ssize_t put_out(int fd, const iovec* parts, int count, int64_t position) noexcept nogil:
    """Write the parts, as many with one call as make ``SLICE_BYTES``, one at least; the bytes up to the first short write.
    -1: a call has failed, and ``errno`` tells; parts before it may be in the file."""
    cdef ssize_t written, done = 0
    cdef size_t size
    cdef int end, start = 0
    while start < count:
        size, end = parts[start].iov_len, start + 1
        while end < count and size + parts[end].iov_len <= <size_t>SLICE_BYTES:
            size += parts[end].iov_len
            end += 1
        written = pwritev(fd, parts + start, end - start, position + done)
        if written < 0:
            return -1
        done += written
        if <size_t>written < size:
            break
        start = end
    return done


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
    cdef bint begun(self, list batches, int least, Run* run) except -1
    cdef list laid_out(self, list batches, Run* run)
    cdef int note_run(self, list batches, Run* run, list parts, list placed) except -1
    cdef int append_one(self, lone, header) except -1
    cdef int write(
        self, file, iovec* written, int count, int64_t position, Py_ssize_t size, tuple parts
    ) except -1
    cdef object hold(self, segment)
    cdef int count(self, SegmentTail segment, int64_t offset, bint was_dirty, bint entered) except -1
    cdef int advance(self, int64_t offset) except -1
    cdef bint synced_quickly(self) except -1
    cdef int synced_up_to(self, int64_t target) except -1
