"""Rows in Arrow's columns, with every offset checked before it is followed: no twin, what the twins that read them share.

Buffers of Arrow are read where they are, and no object is made of a row.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef const uint8_t* NOWHERE = b""  # of a column without data, whose items are all empty


cdef bint lies_within(
    const uint8_t* offsets, Py_ssize_t held, Py_ssize_t first, Py_ssize_t count, bint wide, int64_t end
) noexcept nogil:
    """Whether ``count`` items have offsets in their order up to ``end``."""
    cdef Py_ssize_t at, width = 8 if wide else 4
    cdef int64_t before = 0, here
    if first < 0 or count < 0 or held // width < first + count + 1:
        return False
    for at in range(first, first + count + 1):
        here = offset_at(offsets, at, wide)
        if here < before:
            return False
        before = here
    return before <= end


cdef class Columns:
    """The buffers of ``ArrowRows``, held as long as this."""

    def __cinit__(self, rows):
        self.holds = 0
        self.headed = self.timed = False
        self.keys.offsets = self.values.offsets = self.names.offsets = self.contents.offsets = NULL
        self.count = rows.count
        self.sound = self.read(rows)

    def __dealloc__(self):
        cdef int number
        for number in range(self.holds):
            PyBuffer_Release(&self.held[number])

    cdef Py_buffer* hold(self, buffer) except NULL:
        PyObject_GetBuffer(buffer, &self.held[self.holds], PyBUF_SIMPLE)
        self.holds += 1
        return &self.held[self.holds - 1]

    cdef bint bits(self, buffer, Py_ssize_t items, const uint8_t** to) except -1:
        """False if there are fewer bits than ``items``."""
        cdef Py_buffer* held
        to[0] = NULL
        if buffer is None:
            return True
        held = self.hold(buffer)
        to[0] = <const uint8_t*>held.buf
        return held.len >= (items + 7) // 8

    cdef bint payloads(self, column, Payloads* to) except -1:
        """False if its buffers contradict themselves."""
        cdef Py_buffer* offsets
        cdef Py_buffer* data = NULL
        to.first, to.count, to.wide = column.first, column.size, column.wide
        if to.count == 0:
            return True
        offsets = self.hold(column.offsets)
        if column.data is not None:
            data = self.hold(column.data)
        if not self.bits(column.validity, to.first + to.count, &to.validity):
            return False
        if not lies_within(
            <const uint8_t*>offsets.buf, offsets.len, to.first, to.count, to.wide, 0 if data == NULL else data.len
        ):
            return False
        to.offsets = <const uint8_t*>offsets.buf
        to.data = NOWHERE if data == NULL or data.buf == NULL else <const uint8_t*>data.buf
        return True

    cdef bint read(self, rows) except -1:
        """False if it is left to the Python twin."""
        if self.count == 0:
            return True
        if rows.values.size != self.count or (rows.keys is not None and rows.keys.size != self.count):
            return False
        if not self.payloads(rows.values, &self.values):
            return False
        if rows.keys is not None and not self.payloads(rows.keys, &self.keys):
            return False
        return self.read_headers(rows.headers) and self.read_times(rows.times)

    cdef bint read_headers(self, lists) except -1:
        cdef Py_buffer* held
        if lists is None:
            return True
        if not (self.payloads(lists.names, &self.names) and self.payloads(lists.contents, &self.contents)):
            return False
        self.list_first = lists.first
        if not self.bits(lists.validity, self.list_first + self.count, &self.list_validity):
            return False
        held = self.hold(lists.offsets)
        self.list_offsets = <const uint8_t*>held.buf
        self.headed = True
        return self.names.count == self.contents.count and lies_within(
            self.list_offsets, held.len, self.list_first, self.count, False, self.names.count
        )

    cdef bint read_times(self, times) except -1:
        cdef Py_buffer* held
        if times is None:
            return True
        self.time_first = times.first
        if not self.bits(times.validity, self.time_first + self.count, &self.time_validity):
            return False
        held = self.hold(times.data)
        self.times = <const uint8_t*>held.buf
        self.timed = True
        return self.time_first >= 0 and held.len // 8 >= self.time_first + self.count

    cdef bint names_are_text(self) except -1:
        """Whether every name that a row has is there and is UTF-8."""
        cdef Py_ssize_t row, number, count, at, first = 0
        cdef Field name
        if not self.headed:
            return True
        for row in range(self.count):
            count = headers_of(self, row, &first)
            for number in range(first, first + count):
                name = field_at(&self.names, number)
                if name.data == NULL:
                    return False
                for at in range(name.size):
                    if name.data[at] > 0x7F:
                        if not is_text(name):
                            return False
                        break
        return True


cdef bint is_text(Field name) except -1:
    try:
        name.data[:name.size].decode()
    except UnicodeDecodeError:
        return False
    return True
