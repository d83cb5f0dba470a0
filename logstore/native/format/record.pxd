# A record as an object, made from its parts without a call of Python's.
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t


cdef class Record:
    cdef readonly object topic
    cdef readonly object partition
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef object odd  # offset and timestamp where they are no ints of 64 bits; else None
    cdef int64_t _offset
    cdef int64_t _timestamp_ms


# Of a record whose content the garbage collector need not look at. Steals key, value and headers.
cdef PyObject* record_from(
    PyObject* topic, PyObject* partition, int64_t offset, int64_t timestamp_ms,
    PyObject* key, PyObject* value, PyObject* headers
) except NULL
