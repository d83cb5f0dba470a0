# Fields of a record as they are written, and the head of a batch, for every extension module that encodes.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from logstore.native.format.batch_header cimport ATTRIBUTES_AT, UNCOUNTED_BYTES
from logstore.native.format.varints cimport put_big, put_raw, size_of_raw

cdef extern from "Python.h":
    PyObject* tuple_item "PyTuple_GET_ITEM" (PyObject* items, Py_ssize_t at) noexcept
    PyObject* list_item "PyList_GET_ITEM" (PyObject* items, Py_ssize_t at) noexcept
    const char* utf8_of "PyUnicode_AsUTF8AndSize" (PyObject* text, Py_ssize_t* size)
    void PyErr_Clear()
    PyObject* Py_None
    object view_of "PyMemoryView_FromMemory" (char* data, Py_ssize_t size, int flags)
    int PyBUF_READ

cdef enum:
    LEFT = -1  # to the Python twin
    KEEPS_LOCK_BYTES = 1 << 20  # a checksum of so much is made without letting other threads run


cdef inline Py_ssize_t items_of(PyObject* items):
    """How many; ``LEFT`` if it is no tuple or list."""
    if PyTuple_CheckExact(<object>items):
        return PyTuple_GET_SIZE(<object>items)
    if PyList_CheckExact(<object>items):
        return PyList_GET_SIZE(<object>items)
    return LEFT


cdef inline PyObject* item_of(PyObject* items, Py_ssize_t at):
    return tuple_item(items, at) if PyTuple_CheckExact(<object>items) else list_item(items, at)


cdef inline Py_ssize_t size_of_payload(PyObject* payload):
    """Its bytes and its length's; ``LEFT`` if it is neither bytes nor None."""
    if payload == Py_None:
        return 1
    if not PyBytes_CheckExact(<object>payload):
        return LEFT
    return PyBytes_GET_SIZE(<object>payload) + size_of_raw(<uint64_t>PyBytes_GET_SIZE(<object>payload) << 1)


cdef inline uint8_t* put_payload(uint8_t* to, PyObject* payload):
    cdef Py_ssize_t size
    if payload == Py_None:
        to[0] = 1
        return to + 1
    size = PyBytes_GET_SIZE(<object>payload)
    to = put_raw(to, <uint64_t>size << 1)
    memcpy(to, PyBytes_AS_STRING(<object>payload), size)
    return to + size


cdef inline Py_ssize_t size_of_headers(PyObject* headers):
    cdef Py_ssize_t number, more, name_size = 0, count = items_of(headers)
    cdef Py_ssize_t size = size_of_raw(<uint64_t>count << 1)
    cdef PyObject* pair
    for number in range(count):
        pair = item_of(headers, number)
        if items_of(pair) != 2 or not PyUnicode_CheckExact(<object>item_of(pair, 0)):
            return LEFT
        if utf8_of(item_of(pair, 0), &name_size) == NULL:
            PyErr_Clear()
            return LEFT
        more = size_of_payload(item_of(pair, 1))
        if more < 0:
            return LEFT
        size += name_size + size_of_raw(<uint64_t>name_size << 1) + more
    return size


cdef inline uint8_t* put_headers(uint8_t* to, PyObject* headers):
    cdef Py_ssize_t number, name_size = 0, count = items_of(headers)
    cdef PyObject* pair
    cdef const char* name
    to = put_raw(to, <uint64_t>count << 1)
    for number in range(count):
        pair = item_of(headers, number)
        name = utf8_of(item_of(pair, 0), &name_size)  # kept with the string since it was measured
        to = put_raw(to, <uint64_t>name_size << 1)
        memcpy(to, name, name_size)
        to = put_payload(to + name_size, item_of(pair, 1))
    return to


cdef struct Head:
    # What the header of a batch says beside the sizes; the rest is derived.
    int64_t base_offset, base_ms, max_ms, producer_id
    int leader_epoch, producer_epoch, base_sequence, attributes
    Py_ssize_t count


cdef inline object put_head(uint8_t* start, Py_ssize_t size, Head* head, crc_of, header_type):
    """Write the header of the batch of ``size`` bytes at ``start``, whose records are in place; the ``BatchHeader``."""
    cdef uint8_t* to = put_big(start + ATTRIBUTES_AT, head.attributes, 2)
    to = put_big(put_big(put_big(to, head.count - 1, 4), head.base_ms, 8), head.max_ms, 8)
    to = put_big(put_big(put_big(to, head.producer_id, 8), head.producer_epoch, 2), head.base_sequence, 4)
    put_big(to, head.count, 4)
    # The interpreter's lock is kept for what takes microseconds: one that was let go comes back up to 5 ms later while
    # another thread runs.
    crc = crc_of(
        view_of(<char*>start + ATTRIBUTES_AT, size - ATTRIBUTES_AT, PyBUF_READ), 0, 0 if size <= KEEPS_LOCK_BYTES else -1
    )
    to = put_big(put_big(put_big(start, head.base_offset, 8), size - UNCOUNTED_BYTES, 4), head.leader_epoch, 4)
    to[0] = 2
    put_big(to + 1, <int64_t>crc, 4)
    return tuple.__new__(
        header_type,
        (
            head.base_offset, size - UNCOUNTED_BYTES, head.leader_epoch, 2, crc, head.attributes, head.count - 1,
            head.base_ms, head.max_ms, head.producer_id, head.producer_epoch, head.base_sequence, head.count,
        ),
    )
