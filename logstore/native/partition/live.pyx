"""A slot of ``.live`` as it is published: the compiled twins of ``LivePublisher`` in ownership/live.py and of
``SlotPublisher`` in partition/context.py. Fields are declared in live.pxd.

Every durable append publishes once. What stands in the file is compared with what this process wrote last; where it
differs, another process was the publisher since, and ``write_slot`` looks at both copies.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy
from posix.types cimport off_t
from posix.unistd cimport pread, pwrite

from logstore.native.format.varints cimport fingerprint, put_big

FINGERPRINT = fingerprint()

cdef enum:
    FILE_HEADER_BYTES = 256
    BODY_BYTES = 60
    GENERATION_BYTES = 8

cdef object _crc32c = None
cdef object _StorageError = None
cdef object _from_os_error = None
cdef object _write_slot = None


cdef int _import() except -1:
    global _crc32c, _StorageError, _from_os_error, _write_slot
    if _write_slot is None:
        from crc32c import crc32c

        from logstore.errors import StorageError, from_os_error
        from logstore.ownership.live import write_slot

        _crc32c, _StorageError, _from_os_error, _write_slot = crc32c, StorageError, from_os_error, write_slot
    return 0


cdef int64_t generation_of(const uint8_t* body) noexcept:
    cdef int at
    cdef int64_t number = 0
    for at in range(GENERATION_BYTES):
        number = number << 8 | body[at]
    return number


cdef Py_ssize_t read_at(int fd, uint8_t* to, Py_ssize_t size, off_t at) except -1:
    cdef Py_ssize_t count
    while True:
        count = pread(fd, to, size, at)
        if count >= 0:
            return count
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()


cdef Py_ssize_t write_at(int fd, const uint8_t* data, Py_ssize_t size, off_t at) except -1:
    cdef Py_ssize_t count
    while True:
        with nogil:
            count = pwrite(fd, data, size, at)
        if count >= 0:
            return count
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()


cdef class WrittenSlot:
    """``copies``: what the slot has since our last publish, which is the copy at byte ``newest`` of it."""


cdef class LivePublisher:
    """What a publish touches of ``.live``. ``written``: what our last publish of each slot left."""

    def __init__(self, path, bint writable):
        self.path = path
        self._writable = writable
        self._fd = -1
        self.written = {}
        _import()

    def publish(
        self, slot, int64_t log_start_offset, int64_t high_watermark, int64_t last_stable_offset,
        int64_t log_end_offset, int64_t segment_base, int64_t end_position, int32_t leader_epoch,
    ):
        cdef Shown shown
        shown.log_start, shown.high_watermark, shown.last_stable = (
            log_start_offset, high_watermark, last_stable_offset,
        )
        shown.log_end, shown.segment_base, shown.end_position = log_end_offset, segment_base, end_position
        shown.leader_epoch = leader_epoch
        self.show(slot, &shown)

    cdef int show(self, slot, const Shown* shown) except -1:
        cdef int fd = self._fd, newest
        cdef off_t place = FILE_HEADER_BYTES + SLOT_BYTES * <int64_t>slot
        cdef WrittenSlot last
        cdef Py_ssize_t count
        cdef uint8_t found[SLOT_BYTES]
        cdef uint8_t copy[COPY_BYTES]
        cdef const uint8_t* current
        cdef uint8_t* to
        if fd < 0 or not self._writable:
            self._refuse_publish()
        last = self.written.get(slot)
        if last is None:
            return self.show_carefully(slot, place, shown)
        try:
            count = read_at(fd, found, SLOT_BYTES, place)
            if count != SLOT_BYTES or memcmp(found, last.copies, SLOT_BYTES) != 0:
                return self.show_carefully(slot, place, shown)
            current = last.copies + last.newest
            to = put_big(copy, generation_of(current) + 1, 8)
            to = put_big(put_big(put_big(to, shown.log_start, 8), shown.high_watermark, 8), shown.last_stable, 8)
            to = put_big(put_big(put_big(to, shown.log_end, 8), shown.segment_base, 8), shown.end_position, 8)
            to = put_big(to, shown.leader_epoch, 4)
            if memcmp(current + GENERATION_BYTES, copy + GENERATION_BYTES, BODY_BYTES - GENERATION_BYTES) == 0:
                return 0
            put_big(to, <int64_t>_crc32c(PyBytes_FromStringAndSize(<const char*>copy, BODY_BYTES)), 4)
            newest = COPY_BYTES if copy[GENERATION_BYTES - 1] & 1 else 0
            count = write_at(fd, copy, COPY_BYTES, place + newest)
        except OSError as error:
            raise _from_os_error(error, "publish to", self.path) from error
        self.check_written(count)
        memcpy(last.copies + newest, copy, COPY_BYTES)
        last.newest = newest
        return 0

    cdef int show_carefully(self, slot, int64_t place, const Shown* shown) except -1:
        """What another process published in the meantime, or an earlier life of this one, is gone on from."""
        cdef WrittenSlot last
        try:
            written = _write_slot(
                self._fd, place, None, shown.log_start, shown.high_watermark, shown.last_stable, shown.log_end,
                shown.segment_base, shown.end_position, shown.leader_epoch,
            )
        except OSError as error:
            raise _from_os_error(error, "publish to", self.path) from error
        if written is None:
            return 0
        count, after, body = written
        self.check_written(count)
        after = (<bytes?>after).ljust(SLOT_BYTES, b"\0")
        last = WrittenSlot.__new__(WrittenSlot)
        memcpy(last.copies, PyBytes_AS_STRING(after), SLOT_BYTES)
        last.newest = COPY_BYTES if (<bytes?>body)[GENERATION_BYTES - 1] & 1 else 0
        self.written[slot] = last
        return 0

    cdef int check_written(self, Py_ssize_t count) except -1:
        if count != COPY_BYTES:
            raise _StorageError(
                f"publish to {self.path} wrote {count} of {COPY_BYTES} bytes", hint="free space"
            )
        return 0


cdef class SlotPublisher:
    """Publishes a log's state in its slot of ``.live``."""

    def __init__(self, context, slot):
        self.context, self.slot = context, slot

    def __call__(self, log):
        self.context.show(self.slot, log)
