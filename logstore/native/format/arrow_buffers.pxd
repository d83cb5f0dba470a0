# The rows of ``ArrowRows`` as they lie in Arrow's buffers; what all modules that read such rows share.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy


cdef struct Payloads:
    # A column of byte strings. ``count`` 0 and ``data`` NULL: there is no such column, all are null.
    const uint8_t* validity  # NULL: none is null
    const uint8_t* offsets
    const uint8_t* data
    Py_ssize_t first, count
    bint wide


cdef struct Field:
    const uint8_t* data  # NULL: null
    Py_ssize_t size


cdef inline bint is_set(const uint8_t* bits, Py_ssize_t at) noexcept nogil:
    return bits == NULL or (bits[at >> 3] >> (at & 7)) & 1


cdef inline int64_t offset_at(const uint8_t* offsets, Py_ssize_t at, bint wide) noexcept nogil:
    cdef int64_t broad
    cdef int32_t narrow
    if wide:
        memcpy(&broad, offsets + 8 * at, 8)
        return broad
    memcpy(&narrow, offsets + 4 * at, 4)
    return narrow


cdef inline Field field_at(const Payloads* column, Py_ssize_t row) noexcept nogil:
    cdef Field found
    cdef int64_t start
    found.data, found.size = NULL, 0
    if column.offsets == NULL or not is_set(column.validity, column.first + row):
        return found
    start = offset_at(column.offsets, column.first + row, column.wide)
    found.size = offset_at(column.offsets, column.first + row + 1, column.wide) - start
    found.data = column.data + start
    return found


cdef class Columns:
    # The buffers, held as long as this. ``sound``: they do not contradict themselves, each offset leads into its data.

    cdef Py_buffer held[16]
    cdef int holds
    cdef Py_ssize_t count
    cdef Payloads keys, values, names, contents
    cdef bint headed, timed, sound
    cdef const uint8_t* list_validity
    cdef const uint8_t* list_offsets
    cdef Py_ssize_t list_first
    cdef const uint8_t* time_validity
    cdef const uint8_t* times
    cdef Py_ssize_t time_first

    cdef Py_buffer* hold(self, buffer) except NULL
    cdef bint bits(self, buffer, Py_ssize_t items, const uint8_t** to) except -1
    cdef bint payloads(self, column, Payloads* to) except -1
    cdef bint read(self, rows) except -1
    cdef bint read_headers(self, lists) except -1
    cdef bint read_times(self, times) except -1
    cdef bint names_are_text(self) except -1


cdef inline bint time_of(Columns columns, Py_ssize_t row, int64_t* to) noexcept:
    """False if the row has none."""
    if not columns.timed or not is_set(columns.time_validity, columns.time_first + row):
        return False
    to[0] = offset_at(columns.times, columns.time_first + row, True)
    return True


cdef inline Py_ssize_t headers_of(Columns columns, Py_ssize_t row, Py_ssize_t* first) noexcept:
    """How many headers the row has; ``first`` of all pairs."""
    if not columns.headed or not is_set(columns.list_validity, columns.list_first + row):
        return 0
    first[0] = offset_at(columns.list_offsets, columns.list_first + row, False)
    return offset_at(columns.list_offsets, columns.list_first + row + 1, False) - first[0]
