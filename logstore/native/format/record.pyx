"""A record as an object: the compiled twin of ``types.Record``, a sequence of seven as its named tuple is.

The garbage collector does not follow one that was read, its integers are made when they are asked for, and the memory of
those that are gone serves again.
"""

cimport cython
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from logstore.native.format.varints cimport fingerprint

import sys
from collections.abc import Sequence
from types import GenericAlias

FINGERPRINT = fingerprint()

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
    void PyObject_GC_Track(PyObject* item)

cdef tuple _FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
cdef frozenset _LEAVES = frozenset((type(None), bytes, str, int, float, bool))


@cython.final
@cython.collection_type("sequence")
cdef class Record:
    """One record as read. ``timestamp_ms``: ms since 1970 UTC; ``headers``: tuple of (name, bytes | None).

    Keys and values are ``bytes | None`` unless the consumer has deserializers; a value of None is a tombstone.
    """

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


cdef PyObject* record_from(
    PyObject* topic, PyObject* partition, int64_t offset, int64_t timestamp_ms,
    PyObject* key, PyObject* value, PyObject* headers
) except NULL:
    return logstore_read_record(
        <PyTypeObject*>Record, topic, partition, offset, timestamp_ms, key, value, headers
    )
