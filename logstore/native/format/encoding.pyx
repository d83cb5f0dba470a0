"""Rows to the records section of a batch, or to the whole batch: the compiled twins of ``encode_rows`` in
format/record.py, and of ``encode_with_header`` and ``stamped`` in format/batch.py.

One pass over the rows measures and checks, the next writes into the one bytes object that is returned. No code of
Python's runs in between, so that rows cannot change. What is not of the plain types (subclasses, other sequences), or
is wrong, is left to the Python twin, which takes it or says why not.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.stdint cimport INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t

from logstore.native.format.batch_header cimport HEADER_BYTES, TRANSACTIONAL_BIT, UNCOUNTED_BYTES
from logstore.native.format.record_writing cimport (
    LEFT,
    Head,
    Py_None,
    item_of,
    items_of,
    put_head,
    put_headers,
    put_payload,
    size_of_headers,
    size_of_payload,
    tuple_item,
)
from logstore.native.format.varints cimport fingerprint, put_big, put_raw, size_of_raw, zigzag

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef extern from "Python.h":
    long long int64_of "PyLong_AsLongLongAndOverflow" (PyObject* number, int* overflow)
    bint is_int "PyLong_CheckExact" (PyObject* item) noexcept

cdef enum:
    STAMP_BYTES = 16

cdef object _EncodedRows = None
cdef object _BatchHeader = None
cdef object _crc32c = None


cdef struct Row:
    PyObject* key
    PyObject* value
    PyObject* headers  # NULL: none
    int64_t timestamp_ms


cdef inline int read_row(PyObject* row, int64_t now_ms, Row* found):
    """Not 0 if it is left to the Python twin."""
    cdef int overflow = 0
    cdef Py_ssize_t width
    cdef PyObject* item
    if not PyTuple_CheckExact(<object>row):
        return LEFT
    width = PyTuple_GET_SIZE(<object>row)
    if width < 2 or width > 4:
        return LEFT
    found.key, found.value, found.headers = tuple_item(row, 0), tuple_item(row, 1), NULL
    found.timestamp_ms = now_ms
    if width > 2:
        item = tuple_item(row, 2)
        if item != Py_None:
            if items_of(item) < 0:
                return LEFT
            if items_of(item) > 0:
                found.headers = item
    if width > 3:
        item = tuple_item(row, 3)
        if item != Py_None:
            if not is_int(item):
                return LEFT
            found.timestamp_ms = int64_of(item, &overflow)
            if overflow:
                return LEFT
    return 0


cdef Py_ssize_t measure(
    PyObject* rows, Py_ssize_t count, int64_t now_ms, Py_ssize_t* sizes, int64_t* base_ms, int64_t* max_ms
):
    """The section's size; those of the records without their lengths go to ``sizes``."""
    cdef Py_ssize_t number, key_size, value_size, size, total = 0
    cdef int64_t delta
    cdef Row row
    for number in range(count):
        if read_row(item_of(rows, number), now_ms, &row):
            return LEFT
        if number == 0:
            base_ms[0] = max_ms[0] = row.timestamp_ms
        delta = row.timestamp_ms - base_ms[0]
        if (row.timestamp_ms < base_ms[0]) != (delta < 0):
            return LEFT
        max_ms[0] = max(max_ms[0], row.timestamp_ms)
        key_size, value_size = size_of_payload(row.key), size_of_payload(row.value)
        if key_size < 0 or value_size < 0:
            return LEFT
        size = 1 + size_of_raw(zigzag(delta)) + size_of_raw(<uint64_t>number << 1) + key_size + value_size + 1
        if row.headers != NULL:
            key_size = size_of_headers(row.headers)
            if key_size < 0:
                return LEFT
            size += key_size - 1
        if size > INT32_MAX or number == INT32_MAX:
            return LEFT
        sizes[number] = size
        total += size + size_of_raw(<uint64_t>size << 1)
    return total


cdef void write(PyObject* rows, Py_ssize_t count, int64_t now_ms, const Py_ssize_t* sizes, int64_t base_ms, uint8_t* to):
    cdef Py_ssize_t number
    cdef Row row
    for number in range(count):
        read_row(item_of(rows, number), now_ms, &row)
        to = put_raw(to, <uint64_t>sizes[number] << 1)
        to[0] = 0
        to = put_raw(to + 1, zigzag(row.timestamp_ms - base_ms))
        to = put_raw(to, <uint64_t>number << 1)
        to = put_payload(put_payload(to, row.key), row.value)
        if row.headers == NULL:
            to[0] = 0
            to += 1
        else:
            to = put_headers(to, row.headers)


cdef object encoded(rows, int64_t now_ms, Py_ssize_t ahead, int64_t* base_ms, int64_t* max_ms):
    """The records section behind ``ahead`` bytes that are not set; None if it is left to the Python twin."""
    cdef Py_ssize_t few[16]
    cdef Py_ssize_t* sizes = few
    cdef Py_ssize_t count = items_of(<PyObject*>rows), total
    if count <= 0:
        return None
    if count > 16:
        sizes = <Py_ssize_t*>PyMem_Malloc(count * sizeof(Py_ssize_t))
        if sizes == NULL:
            raise MemoryError
    try:
        total = measure(<PyObject*>rows, count, now_ms, sizes, base_ms, max_ms)
        if total < 0:
            return None
        section = PyBytes_FromStringAndSize(NULL, ahead + total)
        write(<PyObject*>rows, count, now_ms, sizes, base_ms[0], <uint8_t*>PyBytes_AS_STRING(section) + ahead)
    finally:
        if sizes != few:
            PyMem_Free(sizes)
    return section


def encode_rows(rows, now_ms):
    """The records section of ``rows`` (tuples of 2, 3 or 4: key, value[, headers[, timestamp_ms]])."""
    global _EncodedRows
    cdef int64_t base_ms = 0, max_ms = 0
    section = None
    if type(now_ms) is int and INT64_MIN <= now_ms <= INT64_MAX:
        section = encoded(rows, now_ms, 0, &base_ms, &max_ms)
    if section is None:
        return PYTHON_TWINS["encode_rows"](rows, now_ms)
    if _EncodedRows is None:
        from logstore.format.record import EncodedRows as _EncodedRows
    return _EncodedRows(section, base_ms, max_ms, items_of(<PyObject*>rows))


cdef inline bint fits(number, int64_t least, int64_t most):
    return type(number) is int and least <= number <= most


def encode_with_header(
    rows, now_ms, codec="none", level=None, base_offset=0, leader_epoch=-1, producer_id=-1, producer_epoch=-1,
    base_sequence=-1, transactional=False,
):
    """``encode_batch``, and the header of what it made, for who would have to read it again at once."""
    global _BatchHeader, _crc32c
    cdef int64_t base_ms = 0, max_ms = 0
    cdef Head head
    data = None
    if (
        codec == "none" and fits(now_ms, INT64_MIN, INT64_MAX) and fits(base_offset, INT64_MIN, INT64_MAX)
        and fits(leader_epoch, INT32_MIN, INT32_MAX) and fits(producer_id, INT64_MIN, INT64_MAX)
        and fits(producer_epoch, INT16_MIN, INT16_MAX) and fits(base_sequence, INT32_MIN, INT32_MAX)
    ):
        data = encoded(rows, now_ms, HEADER_BYTES, &base_ms, &max_ms)
    if data is None or PyBytes_GET_SIZE(data) - UNCOUNTED_BYTES > INT32_MAX:
        return PYTHON_TWINS["encode_with_header"](
            rows, now_ms, codec, level, base_offset, leader_epoch, producer_id, producer_epoch, base_sequence,
            transactional,
        )
    if _BatchHeader is None:
        from crc32c import crc32c as _crc32c

        from logstore.format.batch import BatchHeader as _BatchHeader
    head.base_offset, head.leader_epoch = base_offset, leader_epoch
    head.attributes = TRANSACTIONAL_BIT if transactional else 0
    head.base_ms, head.max_ms, head.count = base_ms, max_ms, items_of(<PyObject*>rows)
    head.producer_id, head.producer_epoch, head.base_sequence = producer_id, producer_epoch, base_sequence
    header = put_head(<uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &head, _crc32c, _BatchHeader)
    return data, header


def stamped(buffer, base_offset, leader_epoch):
    """A copy of the batch in ``buffer`` with new first 16 bytes: see ``stamp``."""
    cdef Py_buffer view
    cdef uint8_t* to
    if not fits(base_offset, INT64_MIN, INT64_MAX) or not fits(leader_epoch, INT32_MIN, INT32_MAX):
        return PYTHON_TWINS["stamped"](buffer, base_offset, leader_epoch)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if view.len < STAMP_BYTES:
            return PYTHON_TWINS["stamped"](buffer, base_offset, leader_epoch)
        copy = PyBytes_FromStringAndSize(<const char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    to = <uint8_t*>PyBytes_AS_STRING(copy)
    put_big(to, base_offset, 8)
    put_big(to + UNCOUNTED_BYTES, leader_epoch, 4)
    return copy
