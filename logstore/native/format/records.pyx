"""Records as objects: the compiled twins of ``types.Record`` and of what ``format/record.py`` reads.

What does not read well is read again by the Python twin, which says what is wrong with it: so errors and their words
come from one place. Nothing is allocated for a count or a length before the bytes are seen to be there.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_New
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t
from libc.string cimport memcmp, memset

from logstore.native.format.record_fields cimport ABSENT, MIN_RECORD_BYTES, RecordFields, read_header, read_record
from logstore.native.format.varints cimport fingerprint

import sys
from collections.abc import Sequence
from types import GenericAlias

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef extern from *:
    """
    /* The fields of Record below, in its order; checked where the module is loaded. */
    typedef struct {
        PyObject_HEAD
        PyObject *topic, *partition, *key, *value, *headers, *odd;
        int64_t offset, timestamp_ms;
    } LogstoreRecord;

    /* Records that are gone, each pointing to the next by its first field. */
    #define LOGSTORE_KEPT_RECORDS 2048
    static PyObject *logstore_kept = NULL;
    static int logstore_kept_count = 0;

    static PyObject *logstore_new_record(PyTypeObject *type) {
        PyObject *made = logstore_kept;
        if (made == NULL)
            return (PyObject *)PyObject_GC_New(LogstoreRecord, type);
        logstore_kept = ((LogstoreRecord *)made)->topic;
        logstore_kept_count--;
        return PyObject_Init(made, type);
    }

    /* tp_alloc: what is made by a call. As any object's, its fields are zero, but it is not tracked yet. */
    static PyObject *logstore_alloc_record(PyTypeObject *type, Py_ssize_t items) {
        PyObject *made = logstore_new_record(type);
        (void)items;
        if (made != NULL)
            memset((char *)made + sizeof(PyObject), 0, sizeof(LogstoreRecord) - sizeof(PyObject));
        return made;
    }

    /* tp_free: its fields are cleared already. */
    static void logstore_free_record(void *record) {
        if (logstore_kept_count == LOGSTORE_KEPT_RECORDS) {
            PyObject_GC_Del(record);
            return;
        }
        ((LogstoreRecord *)record)->topic = logstore_kept;
        logstore_kept = (PyObject *)record;
        logstore_kept_count++;
    }

    /* Of a record whose content the garbage collector need not look at. Steals key, value and headers. */
    static CYTHON_INLINE PyObject *logstore_read_record(
        PyTypeObject *type, PyObject *topic, PyObject *partition, int64_t offset, int64_t timestamp_ms,
        PyObject *key, PyObject *value, PyObject *headers
    ) {
        LogstoreRecord *made = (LogstoreRecord *)logstore_new_record(type);
        if (made == NULL) {
            Py_DECREF(key); Py_DECREF(value); Py_DECREF(headers);
            return NULL;
        }
        Py_INCREF(topic); Py_INCREF(partition); Py_INCREF(Py_None);
        made->topic = topic; made->partition = partition; made->odd = Py_None;
        made->offset = offset; made->timestamp_ms = timestamp_ms;
        made->key = key; made->value = value; made->headers = headers;
        return (PyObject *)made;
    }

    /* tp_dealloc: records may hold records, however deep, so that those which may are let go through the trashcan. One
       that is not tracked holds no other, and the trashcan would cost it a seventh of its life. */
    static destructor logstore_clear_record = NULL;
    static void logstore_dealloc_record(PyObject *record) {
        if (!PyObject_GC_IsTracked(record)) {
            logstore_clear_record(record);
            return;
        }
        PyObject_GC_UnTrack(record);
        Py_TRASHCAN_BEGIN(record, logstore_dealloc_record)
        logstore_clear_record(record);
        Py_TRASHCAN_END
    }

    /* 0 if the type is as the functions above take it. Its name is that of the class it stands for, for pickles. */
    static int logstore_adopt_record(PyTypeObject *type) {
        if (type->tp_basicsize != sizeof(LogstoreRecord) || !PyType_IS_GC(type))
            return -1;
        type->tp_alloc = logstore_alloc_record;
        type->tp_free = logstore_free_record;
        logstore_clear_record = type->tp_dealloc;
        type->tp_dealloc = logstore_dealloc_record;
        type->tp_name = "logstore.types.Record";
        PyType_Modified(type);
        return 0;
    }
    """
    ctypedef struct PyTypeObject:
        pass
    PyObject* logstore_read_record(
        PyTypeObject* kind, PyObject* topic, PyObject* partition, int64_t offset, int64_t timestamp_ms,
        PyObject* key, PyObject* value, PyObject* headers
    ) except NULL
    int logstore_adopt_record(PyTypeObject* kind) noexcept

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
    void PyObject_GC_Track(PyObject* item)
    PyObject* Py_None

cdef tuple _FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
cdef frozenset _LEAVES = frozenset((type(None), bytes, str, int, float, bool))
cdef tuple _NOTHING = ()


@cython.final
@cython.collection_type("sequence")
cdef class Record:
    """One record as read. ``timestamp_ms``: ms since 1970 UTC; ``headers``: tuple of (name, bytes | None).

    Keys and values are ``bytes | None`` unless the consumer has deserializers; a value of None is a tombstone.
    """

    cdef readonly object topic
    cdef readonly object partition
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef object odd  # offset and timestamp where they are no ints of 64 bits; else None
    cdef int64_t _offset
    cdef int64_t _timestamp_ms

    _fields = _FIELDS
    _field_defaults = {"headers": ()}
    __match_args__ = _FIELDS

    def __cinit__(self, topic, partition, offset, timestamp_ms, key, value, headers=()):
        self.topic = topic
        self.partition = partition
        self.key = key
        self.value = value
        self.headers = headers
        if (
            type(offset) is int and type(timestamp_ms) is int
            and INT64_MIN <= offset <= INT64_MAX and INT64_MIN <= timestamp_ms <= INT64_MAX
        ):
            self._offset = offset
            self._timestamp_ms = timestamp_ms
        else:
            self.odd = (offset, timestamp_ms)
        # What a deserializer made may hold anything, its own record too.
        if self.odd is not None or type(headers) is not tuple or PyTuple_GET_SIZE(headers) or not (
            type(key) in _LEAVES and type(value) in _LEAVES and type(topic) in _LEAVES and type(partition) in _LEAVES
        ):
            PyObject_GC_Track(<PyObject*>self)

    @property
    def offset(self):
        return self._offset if self.odd is None else self.odd[0]

    @property
    def timestamp_ms(self):
        return self._timestamp_ms if self.odd is None else self.odd[1]

    @classmethod
    def _make(cls, iterable):
        """A record of the seven items."""
        items = tuple(iterable)
        if len(items) != 7:
            raise TypeError(f"Expected 7 arguments, got {len(items)}")
        return Record(*items)

    def _replace(self, **changes):
        """A record with new values for some fields."""
        made = Record(*[changes.pop(name, item) for name, item in zip(_FIELDS, fields_of(self))])
        if changes:
            kind = TypeError if sys.version_info >= (3, 13) else ValueError
            raise kind(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self):
        """The fields by name."""
        return dict(zip(_FIELDS, fields_of(self)))

    def __repr__(self):
        items = ", ".join([f"{name}={item!r}" for name, item in zip(_FIELDS, fields_of(self))])
        return f"Record({items})"

    def __hash__(self):
        return hash(fields_of(self))

    def __richcmp__(self, other, int op):
        cdef tuple ours = fields_of(<Record>self)
        if type(other) is Record:
            other = fields_of(<Record>other)
        elif not isinstance(other, tuple):
            return NotImplemented
        if op == 2:
            return ours == other
        if op == 3:
            return ours != other
        if op == 0:
            return ours < other
        if op == 1:
            return ours <= other
        if op == 4:
            return ours > other
        return ours >= other

    def __len__(self):
        return 7

    def __iter__(self):
        return iter(fields_of(self))

    def __contains__(self, item):
        return item in fields_of(self)

    def __getitem__(self, place):
        return fields_of(self)[place]

    def __add__(self, other):
        return fields_of(self) + (fields_of(<Record>other) if type(other) is Record else other)

    def __radd__(self, other):
        return other + fields_of(self)

    def __mul__(self, times):
        return fields_of(self) * times

    def __rmul__(self, times):
        return fields_of(self) * times

    def count(self, item):
        return fields_of(self).count(item)

    def index(self, item, *bounds):
        return fields_of(self).index(item, *bounds)

    def __replace__(self, **changes):
        return self._replace(**changes)

    def __reduce__(self):
        return Record, fields_of(self)

    __class_getitem__ = classmethod(GenericAlias)


cdef inline tuple fields_of(Record record):
    return (
        record.topic, record.partition, record.offset, record.timestamp_ms, record.key, record.value, record.headers
    )


if logstore_adopt_record(<PyTypeObject*>Record):
    raise ImportError("records are not laid out as their functions take them")
Sequence.register(Record)


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
    return logstore_read_record(
        <PyTypeObject*>Record, batch.topic, batch.partition, offset, timestamp_ms, key, value, headers
    )


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


cdef inline bint fits(number):
    """Whether it is an int of 64 bits."""
    return type(number) is int and INT64_MIN <= number <= INT64_MAX
