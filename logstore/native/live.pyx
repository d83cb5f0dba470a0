"""A slot of ``.live`` as it is published: the compiled twins of ``write_slot`` and ``LivePublisher`` in
ownership/live.py.

Every durable append publishes once. What stands in the file is compared with what this process wrote last; where it
differs, another process was the publisher since, and the Python twin looks at both copies.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy
from posix.types cimport off_t
from posix.unistd cimport pread, pwrite

from logstore.native.varints cimport fingerprint, put_big

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef enum:
    COPY_BYTES = 64
    SLOT_BYTES = 128
    BODY_BYTES = 60
    GENERATION_BYTES = 8

cdef object _crc32c = None
cdef object _StorageError = None
cdef object _from_os_error = None

cdef enum:
    FILE_HEADER_BYTES = 256


cdef int64_t generation_of(const uint8_t* body):
    cdef int at
    cdef int64_t number = 0
    for at in range(GENERATION_BYTES):
        number = number << 8 | body[at]
    return number


cpdef write_slot(
    int fd, int64_t place, known, int64_t log_start, int64_t high_watermark, int64_t last_stable, int64_t log_end,
    int64_t segment_base, int64_t end_position, int32_t leader_epoch,
):
    """Put a newer copy into the slot at byte ``place``; see the Python twin."""
    global _crc32c
    cdef uint8_t slot[SLOT_BYTES]
    cdef uint8_t body[BODY_BYTES]
    cdef uint8_t* to
    cdef const uint8_t* current
    cdef Py_ssize_t count
    cdef off_t at = place
    cdef tuple last = known
    while True:
        count = pread(fd, slot, SLOT_BYTES, at)
        if count >= 0:
            break
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()
    after = None if last is None else last[0]
    shown = None if last is None else last[1]
    if (
        type(after) is not bytes or type(shown) is not bytes or PyBytes_GET_SIZE(shown) != BODY_BYTES
        or PyBytes_GET_SIZE(after) != SLOT_BYTES or count != SLOT_BYTES
        or memcmp(PyBytes_AS_STRING(after), slot, SLOT_BYTES) != 0
    ):
        return PYTHON_TWINS["write_slot"](
            fd, place, known, log_start, high_watermark, last_stable, log_end, segment_base, end_position,
            leader_epoch,
        )
    current = <const uint8_t*>PyBytes_AS_STRING(shown)
    to = put_big(body, generation_of(current) + 1, 8)
    to = put_big(put_big(put_big(to, log_start, 8), high_watermark, 8), last_stable, 8)
    to = put_big(put_big(put_big(to, log_end, 8), segment_base, 8), end_position, 8)
    put_big(to, leader_epoch, 4)
    if memcmp(current + GENERATION_BYTES, body + GENERATION_BYTES, BODY_BYTES - GENERATION_BYTES) == 0:
        return None
    if _crc32c is None:
        from crc32c import crc32c as _crc32c
    now = PyBytes_FromStringAndSize(<const char*>body, BODY_BYTES)
    to = slot + (COPY_BYTES if body[GENERATION_BYTES - 1] & 1 else 0)
    memcpy(to, body, BODY_BYTES)
    put_big(to + BODY_BYTES, <int64_t>_crc32c(now), 4)
    at += to - slot
    while True:
        with nogil:
            count = pwrite(fd, to, COPY_BYTES, at)
        if count >= 0:
            break
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()
    return count, PyBytes_FromStringAndSize(<const char*>slot, SLOT_BYTES), now


cdef class LivePublisher:
    """What a publish touches of ``.live``. ``_written``: by slot, the file's bytes after our publish, and the body."""

    cdef public object path
    cdef public bint _writable
    cdef public int _fd
    cdef public dict _written

    def __init__(self, path, bint writable):
        global _StorageError, _from_os_error
        self.path = path
        self._writable = writable
        self._fd = -1
        self._written = {}
        if _from_os_error is None:
            from logstore.errors import StorageError as _StorageError
            from logstore.errors import from_os_error as _from_os_error

    def publish(
        self, slot, int64_t log_start_offset, int64_t high_watermark, int64_t last_stable_offset,
        int64_t log_end_offset, int64_t segment_base, int64_t end_position, int32_t leader_epoch,
    ):
        cdef int fd = self._fd
        if fd < 0 or not self._writable:
            self._refuse_publish()
        try:
            written = write_slot(
                fd, FILE_HEADER_BYTES + SLOT_BYTES * <int64_t>slot, self._written.get(slot), log_start_offset,
                high_watermark, last_stable_offset, log_end_offset, segment_base, end_position, leader_epoch,
            )
        except OSError as error:
            raise _from_os_error(error, "publish to", self.path) from error
        if written is None:
            return
        count, after, body = written
        if count != COPY_BYTES:
            raise _StorageError(
                f"publish to {self.path} wrote {count} of {COPY_BYTES} bytes", hint="free space"
            )
        self._written[slot] = (after, body)
