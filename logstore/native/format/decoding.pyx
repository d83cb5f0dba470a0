"""Sections of records to objects: the compiled twin of ``decode_rows`` in format/record.py.

What does not read well is read again by the Python twin, which says what is wrong with it: so errors and their words
come from one place. Nothing is allocated for a count or a length before the bytes are seen to be there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_New
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memset

from logstore.native.format.record cimport record_from
from logstore.native.format.record_fields cimport (
    ABSENT, MIN_RECORD_BYTES, RecordFields, fits, read_header, read_record
)
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef extern from "Python.h":
    PyObject* bytes_of "PyBytes_FromStringAndSize" (const char* data, Py_ssize_t size) except NULL
    PyObject* tuple_of "PyTuple_New" (Py_ssize_t size) except NULL
    void put "PyTuple_SET_ITEM" (PyObject* items, Py_ssize_t at, PyObject* item) noexcept
    void put_in_list "PyList_SET_ITEM" (PyObject* items, Py_ssize_t at, PyObject* item) noexcept
    PyObject* text_of "PyUnicode_DecodeUTF8" (const char* data, Py_ssize_t size, const char* errors)
    void PyErr_Clear()
    void Py_XDECREF(PyObject* item)
    void Py_DECREF_ "Py_DECREF" (PyObject* item)
    void Py_INCREF_ "Py_INCREF" (PyObject* item)
    void PyObject_GC_UnTrack(PyObject* item)
    PyObject* Py_None

cdef tuple _NOTHING = ()


cdef struct Name:
    const uint8_t* data
    Py_ssize_t size
    PyObject* text


cdef struct Batch:
    # What all records of a section share. Its objects are borrowed.
    const uint8_t* data
    Py_ssize_t size
    PyObject* topic
    PyObject* partition
    int64_t base_offset
    int64_t base_ms
    bint one_time  # that of the batch, whatever the records say
    # The names of headers met last, by their place: records of a program mostly have the same ones in the same order.
    Name names[8]


cdef inline void forget_names(Batch* batch):
    cdef int place
    for place in range(8):
        Py_XDECREF(batch.names[place].text)
        batch.names[place].text = NULL


cdef PyObject* name_of(Batch* batch, Py_ssize_t number, Py_ssize_t at, Py_ssize_t size):
    """A new reference; NULL without an error if it is not UTF-8."""
    cdef Name* name = &batch.names[number & 7]
    cdef const uint8_t* data = batch.data + at
    cdef PyObject* made
    if name.text != NULL and name.size == size and memcmp(name.data, data, size) == 0:
        Py_INCREF_(name.text)
        return name.text
    made = text_of(<const char*>data, size, NULL)
    if made == NULL:
        PyErr_Clear()
        return NULL
    Py_XDECREF(name.text)
    Py_INCREF_(made)
    name.data, name.size, name.text = data, size, made
    return made


cdef inline PyObject* payload_of(const uint8_t* data, Py_ssize_t size) except NULL:
    if size == ABSENT:
        Py_INCREF_(Py_None)
        return Py_None
    return bytes_of(<const char*>data, size)


cdef PyObject* headers_of(Batch* batch, const RecordFields* fields) except? NULL:
    """A tuple of pairs, which the garbage collector need not look at; NULL without an error if a name is not UTF-8."""
    cdef Py_ssize_t at = fields.headers_at, number, name_at = 0, name_size = 0, value_at = 0, value_size = 0
    cdef PyObject* text
    cdef PyObject* pair
    cdef PyObject* pairs = tuple_of(fields.headers)
    try:
        for number in range(fields.headers):
            read_header(batch.data, batch.size, &at, &name_at, &name_size, &value_at, &value_size)
            text = name_of(batch, number, name_at, name_size)
            if text == NULL:
                Py_DECREF_(pairs)
                return NULL
            pair = tuple_of(2)
            put(pair, 0, text)
            PyObject_GC_UnTrack(pair)
            put(pairs, number, pair)
            put(pair, 1, payload_of(batch.data + value_at, value_size))
    except BaseException:
        Py_DECREF_(pairs)
        raise
    PyObject_GC_UnTrack(pairs)
    return pairs


cdef PyObject* record_of(Batch* batch, const RecordFields* fields) except? NULL:
    """A new record; NULL without an error if it cannot be: a header's name is not UTF-8, an integer is too large."""
    cdef int64_t offset = batch.base_offset + fields.offset_delta
    cdef int64_t timestamp_ms = batch.base_ms
    cdef PyObject* key
    cdef PyObject* value
    cdef PyObject* headers
    if offset < batch.base_offset:
        return NULL
    if fields.timestamp_delta and not batch.one_time:
        timestamp_ms += fields.timestamp_delta
        if (timestamp_ms < batch.base_ms) != (fields.timestamp_delta < 0):
            return NULL
    if fields.headers:
        headers = headers_of(batch, fields)
        if headers == NULL:
            return NULL
    else:
        headers = <PyObject*>_NOTHING
        Py_INCREF_(headers)
    key = value = NULL
    try:
        key = payload_of(batch.data + fields.key_at, fields.key_size)
        value = payload_of(batch.data + fields.value_at, fields.value_size)
    except BaseException:
        Py_DECREF_(headers)
        Py_XDECREF(key)
        raise
    return record_from(batch.topic, batch.partition, offset, timestamp_ms, key, value, headers)


cdef list records_of(Batch* batch, Py_ssize_t count):
    """All of the section; None if it does not hold exactly as many, as they should be."""
    cdef Py_ssize_t at = 0, number
    cdef int64_t last = -1
    cdef RecordFields fields
    cdef PyObject* record
    cdef list found = PyList_New(count)
    for number in range(count):
        if read_record(batch.data, batch.size, &at, &fields) or fields.offset_delta <= last:
            return None
        last = fields.offset_delta
        record = record_of(batch, &fields)
        if record == NULL:
            return None
        put_in_list(<PyObject*>found, number, record)
    return found if at == batch.size else None


def decode_rows(section, count, base_offset, base_timestamp, topic, partition, log_append_ms):
    """The records of one uncompressed section. ``log_append_ms``: the timestamp of all, if not None."""
    cdef list found = None
    cdef Py_buffer view
    cdef Batch batch
    time_ms = base_timestamp if log_append_ms is None else log_append_ms
    if fits(count) and fits(base_offset) and fits(time_ms):
        PyObject_GetBuffer(section, &view, PyBUF_SIMPLE)
        try:
            if 0 <= count and count <= view.len // MIN_RECORD_BYTES:
                memset(&batch, 0, sizeof(Batch))
                batch.data, batch.size = <const uint8_t*>view.buf, view.len
                batch.topic, batch.partition = <PyObject*>topic, <PyObject*>partition
                batch.base_offset, batch.base_ms = base_offset, time_ms
                batch.one_time = log_append_ms is not None
                try:
                    found = records_of(&batch, count)
                finally:
                    forget_names(&batch)
        finally:
            PyBuffer_Release(&view)
    if found is None:
        return PYTHON_TWINS["decode_rows"](
            section, count, base_offset, base_timestamp, topic, partition, log_append_ms
        )
    return found
