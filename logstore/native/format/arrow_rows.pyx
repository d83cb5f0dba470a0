"""The digest of rows in Arrow's columns: the compiled twin of ``rows_digest`` in format/arrow_rows.py.

Rows that contradict themselves are left to the Python twin, which says why.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from logstore.native.client.hashing cimport murmur128_low
from logstore.native.format.arrow_buffers cimport Columns, Field, field_at, headers_of, time_of
from logstore.native.format.varints cimport fingerprint, put_big

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef enum:
    MARK_BYTES = 3  # between what is hashed of a row, and in the place of a null

cdef const uint8_t* BETWEEN = b"\x00\xfe\x00"
cdef const uint8_t* NULL_MARK = b"\x00\xff\x00"


cdef struct Scratch:
    uint8_t* data
    Py_ssize_t size, room


cdef int add(Scratch* to, const uint8_t* data, Py_ssize_t size) except -1:
    cdef uint8_t* grown
    if to.size + size > to.room:
        grown = <uint8_t*>PyMem_Realloc(to.data, 2 * (to.size + size))
        if grown == NULL:
            raise MemoryError
        to.data, to.room = grown, 2 * (to.size + size)
    memcpy(to.data + to.size, data, size)
    to.size += size
    return 0


cdef int add_field(Scratch* to, Field field) except -1:
    if field.data == NULL:
        return add(to, NULL_MARK, MARK_BYTES)
    return add(to, field.data, field.size)


cdef int add_more(Scratch* to, Columns columns, Py_ssize_t row) except -1:
    """Timestamp and headers, where the row has one of them."""
    cdef uint8_t moment[8]
    cdef int64_t time_ms = 0
    cdef Py_ssize_t number, first = 0, count = headers_of(columns, row, &first)
    cdef bint timed = time_of(columns, row, &time_ms)
    if not timed and not count:
        return 0
    add(to, BETWEEN, MARK_BYTES)
    put_big(moment, time_ms, 8)
    if timed:
        add(to, moment, 8)
    else:
        add(to, NULL_MARK, MARK_BYTES)
    for number in range(first, first + count):
        add(to, BETWEEN, MARK_BYTES)
        add_field(to, field_at(&columns.names, number))
        add(to, BETWEEN, MARK_BYTES)
        add_field(to, field_at(&columns.contents, number))
    return 0


def rows_digest(rows, seed):
    """The sum, in 64 bits, of the hashes of all rows."""
    cdef Columns columns = Columns(rows)
    cdef Scratch scratch
    cdef Py_ssize_t row
    cdef uint64_t total = 0
    cdef uint32_t start
    if not columns.sound or not columns.names_are_text():
        return PYTHON_TWINS["rows_digest"](rows, seed)
    start = seed
    scratch.room = 4096
    scratch.data = <uint8_t*>PyMem_Malloc(scratch.room)
    if scratch.data == NULL:
        raise MemoryError
    try:
        for row in range(columns.count):
            scratch.size = 0
            add_field(&scratch, field_at(&columns.keys, row))
            add(&scratch, BETWEEN, MARK_BYTES)
            add_field(&scratch, field_at(&columns.values, row))
            add_more(&scratch, columns, row)
            total += murmur128_low(scratch.data, scratch.size, start)
    finally:
        PyMem_Free(scratch.data)
    return total
