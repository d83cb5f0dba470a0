"""Whole batches in a buffer: the compiled twins of ``data_batches`` and ``whole_batches`` in format/batch.py, and of
``may_be_transactional`` in log/producers/isolation.py.

What is no sound batch is left to the Python twin, which says why; so is a buffer of another kind than bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_CheckExact
from cpython.bytes cimport PyBytes_CheckExact
from cpython.memoryview cimport PyMemoryView_Check
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

from logstore.native.format.batch_header cimport (
    ATTRIBUTES_AT, CONTROL_BIT, HEADER_BYTES, Header, LAST_DELTA_AT, TRANSACTIONAL_BIT, UNCOUNTED_BYTES, big,
    header_fields, read,
)
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef extern from "Python.h":
    object view_of "PyMemoryView_FromMemory" (char* data, Py_ssize_t size, int flags)
    int PyBUF_READ

cdef enum:
    MOST_LOOKED_AT = 512

cdef object _BatchHeader = None
cdef object _crc32c = None


cdef int _import() except -1:
    global _BatchHeader, _crc32c
    if _BatchHeader is None:
        from crc32c import crc32c

        from logstore.format.batch import BatchHeader

        _crc32c, _BatchHeader = crc32c, BatchHeader
    return 0


cdef bint is_of_bytes(buffer):
    return (
        PyBytes_CheckExact(buffer) or PyByteArray_CheckExact(buffer)
        or (PyMemoryView_Check(buffer) and buffer.ndim == 1 and buffer.format == "B" and buffer.c_contiguous)
    )


cdef class DataBatches:
    """The iterator that ``data_batches`` returns. Between two batches nothing of the buffer is held."""

    cdef object buffer, start_offset, end_offset, check
    cdef object rest  # Python's twin, from the first batch on that it has to look at; None: not yet
    cdef int64_t start, end
    cdef bint to_last, proves, ended
    cdef Py_ssize_t at, given

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_buffer view
        if self.rest is None and not self.ended:
            PyObject_GetBuffer(self.buffer, &view, PyBUF_SIMPLE)
            try:
                found = self.step(<const uint8_t*>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
            if found is not None:
                self.given += 1
                return found
        if self.rest is None:
            raise StopIteration
        return next(self.rest)

    cdef object step(self, const uint8_t* data, Py_ssize_t size):
        """The next batch; None at the end, or where ``rest`` goes on."""
        cdef Header header
        cdef Py_ssize_t here, length
        cdef int64_t last
        while self.at < size:
            here = self.at
            if not read(data + here, size - here, &header):
                return self.leave()
            length = <Py_ssize_t>header.batch_length + UNCOUNTED_BYTES
            last = header.base_offset + header.last_offset_delta
            if not self.to_last and header.base_offset >= self.end:
                break
            if last >= self.start:
                if self.proves:
                    crc = _crc32c(view_of(<char*>data + here + ATTRIBUTES_AT, length - ATTRIBUTES_AT, PyBUF_READ))
                    if crc != header.crc:
                        return self.leave()
                if header.count and not header.attributes & CONTROL_BIT:
                    self.at = here + length
                    return here, tuple.__new__(_BatchHeader, header_fields(&header))
            self.at = here + length
        self.ended = True
        return None

    cdef object leave(self):
        """To Python's twin, past what was given already."""
        rest = PYTHON_TWINS["data_batches"](self.buffer, self.start_offset, self.end_offset, self.check)
        while self.given:
            next(rest)
            self.given -= 1
        self.rest = rest
        return None


def data_batches(buffer, start_offset, end_offset, check):
    """``(position, header)`` of the batches that may hold records in [start_offset, end_offset)."""
    cdef DataBatches found
    if not (
        is_of_bytes(buffer) and type(start_offset) is int and INT64_MIN <= start_offset <= INT64_MAX
        and (end_offset is None or (type(end_offset) is int and INT64_MIN <= end_offset <= INT64_MAX))
    ):
        return PYTHON_TWINS["data_batches"](buffer, start_offset, end_offset, check)
    _import()
    found = DataBatches.__new__(DataBatches)
    found.buffer, found.start_offset, found.end_offset, found.check = buffer, start_offset, end_offset, check
    found.start, found.to_last = start_offset, end_offset is None
    found.end = INT64_MAX if end_offset is None else end_offset
    found.proves = check
    return found


cdef object reach(const uint8_t* data, Py_ssize_t size, Py_ssize_t at, bint limited, int64_t limit, bint gapless):
    """None: an impossible size or offset."""
    cdef int64_t base, length, due = -1
    cdef Py_ssize_t count = 0
    while at + HEADER_BYTES <= size:
        base = <int64_t>big(data + at, 8)
        length = <int32_t>big(data + at + 8, 4)
        if length < HEADER_BYTES - UNCOUNTED_BYTES or not 0 <= base < INT64_MAX - INT32_MAX:
            return None
        if count and base != due and (gapless or base < due):
            return None
        if at + length + UNCOUNTED_BYTES > size or (limited and base >= limit):
            break
        due = base + <int32_t>big(data + at + LAST_DELTA_AT, 4) + 1
        at += length + UNCOUNTED_BYTES
        count += 1
    return at, due, count


cdef bint none_is_transactional(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef int64_t length
    cdef int number
    for number in range(MOST_LOOKED_AT):
        if at == size:
            return True
        if size - at < HEADER_BYTES or data[at + ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
            return False
        length = <int32_t>big(data + at + 8, 4)
        if length < HEADER_BYTES - UNCOUNTED_BYTES or length + UNCOUNTED_BYTES > size - at:
            return False
        at += length + UNCOUNTED_BYTES
    return at == size


def may_be_transactional(buffer):
    """Whether there may be a batch of a transaction among the whole batches in ``buffer``."""
    cdef Py_buffer view
    if not is_of_bytes(buffer):
        return PYTHON_TWINS["may_be_transactional"](buffer)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return not none_is_transactional(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def whole_batches(buffer, *, limit_offset=None, position=0, gapless=False):
    """How far whole batches reach: ``(end position, next offset, how many)``."""
    cdef Py_buffer view
    found = None
    if (
        is_of_bytes(buffer) and type(position) is int and 0 <= position <= len(buffer)
        and (limit_offset is None or (type(limit_offset) is int and INT64_MIN <= limit_offset <= INT64_MAX))
    ):
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            found = reach(
                <const uint8_t*>view.buf, view.len, position, limit_offset is not None,
                0 if limit_offset is None else limit_offset, gapless,
            )
        finally:
            PyBuffer_Release(&view)
    if found is None:
        return PYTHON_TWINS["whole_batches"](
            buffer, limit_offset=limit_offset, position=position, gapless=gapless
        )
    return found
