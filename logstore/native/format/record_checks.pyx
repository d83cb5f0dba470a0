"""Sections of records proved without keeping any: the compiled twins of ``check_records`` and ``newest_record`` in
format/record.py.

What does not read well is read again by the Python twin, which says what is wrong with it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MIN, int64_t, uint8_t

from logstore.native.format.record_fields cimport (
    ABSENT, MIN_RECORD_BYTES, RecordFields, fits, read_header, read_record
)
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef extern from "Python.h":
    PyObject* text_of "PyUnicode_DecodeUTF8" (const char* data, Py_ssize_t size, const char* errors)
    void PyErr_Clear()
    void Py_DECREF_ "Py_DECREF" (PyObject* item)


cdef bint is_text(const uint8_t* data, Py_ssize_t size):
    """Whether it is UTF-8."""
    cdef Py_ssize_t at
    cdef PyObject* text
    for at in range(size):
        if data[at] > 0x7F:
            break
    else:
        return True
    text = text_of(<const char*>data, size, NULL)
    if text == NULL:
        PyErr_Clear()
        return False
    Py_DECREF_(text)
    return True


cdef bint are_texts(const uint8_t* data, Py_ssize_t size, const RecordFields* fields):
    """Whether the names of a record's headers are UTF-8."""
    cdef Py_ssize_t at = fields.headers_at, number, name_at = 0, name_size = 0, value_at = 0, value_size = 0
    for number in range(fields.headers):
        read_header(data, size, &at, &name_at, &name_size, &value_at, &value_size)
        if not is_text(data + name_at, name_size):
            return False
    return True


cdef int walk(section, count, int64_t base_ms, bint need_key, int64_t* last_delta, int64_t* newest_ms) except? -1:
    """Read all records without keeping any; not 0 if they are not as they should be, or one has no key."""
    cdef Py_buffer view
    cdef RecordFields fields
    cdef Py_ssize_t at = 0, number
    cdef int64_t time_ms
    cdef const uint8_t* data
    last_delta[0] = -1
    newest_ms[0] = INT64_MIN
    PyObject_GetBuffer(section, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*>view.buf
        if not 0 <= count or count > view.len // MIN_RECORD_BYTES:
            return 1
        for number in range(count):
            if read_record(data, view.len, &at, &fields) or fields.offset_delta <= last_delta[0]:
                return 1
            if need_key and fields.key_size == ABSENT:
                return 1
            if fields.headers and not are_texts(data, view.len, &fields):
                return 1
            last_delta[0] = fields.offset_delta
            time_ms = base_ms + fields.timestamp_delta
            if (time_ms < base_ms) != (fields.timestamp_delta < 0):
                return 1
            newest_ms[0] = max(newest_ms[0], time_ms)
        return 0 if at == view.len else 1
    finally:
        PyBuffer_Release(&view)


def check_records(section, count, need_key):
    """Prove the structure of an uncompressed section without keeping its records."""
    cdef int64_t last_delta, newest_ms
    if not fits(count) or walk(section, count, 0, need_key, &last_delta, &newest_ms):
        PYTHON_TWINS["check_records"](section, count, need_key)


def newest_record(section, count, base_timestamp):
    """The offset delta of the last record and the largest timestamp of all, in ms, of a section that is proved."""
    cdef int64_t last_delta, newest_ms
    if (
        not fits(count) or not fits(base_timestamp) or count < 1
        or walk(section, count, base_timestamp, False, &last_delta, &newest_ms)
    ):
        return PYTHON_TWINS["newest_record"](section, count, base_timestamp)
    return last_delta, newest_ms
