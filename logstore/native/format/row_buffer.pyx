"""Rows of a batch to be, encoded as they come: the compiled twin of ``RowBuffer`` in format/row_buffer.py.

A row of plain types is written at once behind those before it, so that it is looked at once and no object of the
caller's is kept. From the first row on that is not plain, or has a timestamp of its own, all rows are kept as objects.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.ref cimport Py_XDECREF, PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from logstore.native.format.batch_header cimport HEADER_BYTES, TRANSACTIONAL_BIT, UNCOUNTED_BYTES
from logstore.native.format.record_writing cimport (
    Head,
    Py_None,
    list_item,
    put_head,
    put_headers,
    put_payload,
    size_of_headers,
    size_of_payload,
    tuple_item,
)
from logstore.native.format.varints cimport fingerprint, put_raw, read_raw, size_of_raw, unzigzag

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize" (const char* data, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject** data, Py_ssize_t size) except -1

cdef enum:
    FIRST_BYTES = 448  # so that with what Python adds the first piece is a small one
    MOST_BYTES = 1 << 30  # of a record that is written here

cdef object _BatchHeader = None
cdef object _crc32c = None
cdef object _batch = None


cdef int _import() except -1:
    """Asked for late: what defines them imports this module."""
    global _BatchHeader, _crc32c, _batch
    if _batch is None:
        from crc32c import crc32c as _crc32c

        from logstore.format.batch import BatchHeader as _BatchHeader

        from logstore.format import batch as _batch
    return 0


cdef inline bint fits(number, int64_t least, int64_t most):
    return type(number) is int and least <= number <= most


cdef bint are_pairs(PyObject* headers):
    """Whether they come back as they are: a tuple of tuples."""
    cdef Py_ssize_t number
    if not PyTuple_CheckExact(<object>headers):
        return False
    for number in range(PyTuple_GET_SIZE(<object>headers)):
        if not PyTuple_CheckExact(<object>tuple_item(headers, number)):
            return False
    return True


cdef object payload_at(const uint8_t* data, Py_ssize_t size, Py_ssize_t* at):
    cdef uint64_t raw = 0
    cdef Py_ssize_t start
    read_raw(data, size, at, 5, &raw)
    if raw == 1:
        return None
    start = at[0]
    at[0] += <Py_ssize_t>(raw >> 1)
    return PyBytes_FromStringAndSize(<const char*>data + start, <Py_ssize_t>(raw >> 1))


@cython.final
cdef class RowBuffer:
    def __dealloc__(self):
        Py_XDECREF(self.data)

    cdef int make_room(self, Py_ssize_t more) except -1:
        """For so many bytes behind ``used``, in bytes that nobody else has."""
        cdef Py_ssize_t size
        cdef PyObject* copy
        if self.data == NULL:
            self.data = new_bytes(NULL, max(FIRST_BYTES, HEADER_BYTES + more))
            self.used = HEADER_BYTES
            return 0
        size = PyBytes_GET_SIZE(<object>self.data)
        if self.used + more <= size and not self.lent:
            return 0
        copy = new_bytes(NULL, size if self.used + more <= size else max(self.used + more, 2 * size))
        memcpy(PyBytes_AS_STRING(<object>copy), PyBytes_AS_STRING(<object>self.data), self.used)
        Py_XDECREF(self.data)
        self.data, self.lent = copy, False
        return 0

    cdef Py_ssize_t put(self, PyObject* key, PyObject* value, PyObject* headers) except -1:
        """Put a row behind the others; its index. ``headers`` NULL: none."""
        cdef Py_ssize_t size, more, number = self.count
        cdef uint8_t* to
        if self.kept is None:
            size, more = size_of_payload(key), size_of_payload(value)
            if size >= 0 and more >= 0 and size + more < MOST_BYTES and number < INT32_MAX:
                size += more + 3 + size_of_raw(<uint64_t>number << 1)
                more = 0
                if headers != NULL:
                    more = size_of_headers(headers) if are_pairs(headers) else -1
                    size += more - 1
                if 0 <= more < MOST_BYTES:
                    self.make_room(size + 5)
                    to = <uint8_t*>PyBytes_AS_STRING(<object>self.data) + self.used
                    to = put_raw(to, <uint64_t>size << 1)
                    to[0] = to[1] = 0
                    to = put_payload(put_payload(put_raw(to + 2, <uint64_t>number << 1), key), value)
                    if headers == NULL:
                        to[0] = 0
                        to += 1
                    else:
                        to = put_headers(to, headers)
                    self.used = to - <uint8_t*>PyBytes_AS_STRING(<object>self.data)
                    self.count = number + 1
                    return number
            self.kept = self.decoded()
            Py_XDECREF(self.data)
            self.data = NULL
        if headers == NULL:
            self.kept.append((<object>key, <object>value))
        else:
            self.kept.append((<object>key, <object>value, <object>headers))
        self.count = number + 1
        return number

    cdef int put_linked(
        self, PyObject* rows, const Linked* links, Py_ssize_t number, Py_ssize_t end, Py_ssize_t most_bytes
    ) except -1:
        """``put`` of the rows of a list from ``number`` on as they are linked, without ``end``. All are tuples of a key and
        a value, bytes or None, and ``most_bytes`` are their bytes with the overhead, which is no less than is written."""
        cdef Py_ssize_t size, place = self.count
        cdef PyObject* key
        cdef PyObject* value
        cdef uint8_t* to
        if self.kept is not None or most_bytes >= MOST_BYTES or place > INT32_MAX - most_bytes:
            while number != end:
                self.put(tuple_item(list_item(rows, number), 0), tuple_item(list_item(rows, number), 1), NULL)
                number = links[number].next
            return 0
        self.make_room(most_bytes)
        to = <uint8_t*>PyBytes_AS_STRING(<object>self.data) + self.used
        while number != end:
            key, value = tuple_item(list_item(rows, number), 0), tuple_item(list_item(rows, number), 1)
            size = size_of_payload(key) + size_of_payload(value) + 3 + size_of_raw(<uint64_t>place << 1)
            to = put_raw(to, <uint64_t>size << 1)
            to[0] = to[1] = 0
            to = put_payload(put_payload(put_raw(to + 2, <uint64_t>place << 1), key), value)
            to[0] = 0
            to += 1
            place += 1
            number = links[number].next
        self.used = to - <uint8_t*>PyBytes_AS_STRING(<object>self.data)
        self.count = place
        return 0

    cdef list decoded(self):
        """The rows that are in ``data``."""
        cdef list rows = []
        cdef Py_ssize_t number, pair, at = HEADER_BYTES
        cdef uint64_t raw = 0
        cdef const uint8_t* data
        if self.data == NULL:
            return rows
        section = <object>self.data  # held: making objects may run any code
        data = <const uint8_t*>PyBytes_AS_STRING(section)
        for number in range(self.count):
            read_raw(data, self.used, &at, 5, &raw)
            at += 2
            read_raw(data, self.used, &at, 5, &raw)
            key = payload_at(data, self.used, &at)
            value = payload_at(data, self.used, &at)
            read_raw(data, self.used, &at, 5, &raw)
            if raw == 0:
                rows.append((key, value))
                continue
            headers = []
            for pair in range(<Py_ssize_t>unzigzag(raw)):
                name = payload_at(data, self.used, &at)
                headers.append((PyUnicode_DecodeUTF8(name, PyBytes_GET_SIZE(name), NULL), payload_at(data, self.used, &at)))
            rows.append((key, value, tuple(headers)))
        return rows

    cdef list all_rows(self):
        return self.kept if self.kept is not None else self.decoded()

    def append(self, row):
        cdef Py_ssize_t width
        if self.kept is None:
            width = PyTuple_GET_SIZE(row) if PyTuple_CheckExact(row) else 0
            if width == 2:
                self.put(tuple_item(<PyObject*>row, 0), tuple_item(<PyObject*>row, 1), NULL)
                return
            if width == 3 and PyTuple_CheckExact(row[2]) and PyTuple_GET_SIZE(row[2]) > 0:
                self.put(tuple_item(<PyObject*>row, 0), tuple_item(<PyObject*>row, 1), tuple_item(<PyObject*>row, 2))
                return
            self.kept = self.decoded()
            Py_XDECREF(self.data)
            self.data = NULL
        self.kept.append(row)
        self.count += 1

    def extend(self, rows):
        for row in rows:
            self.append(row)

    def part(self, Py_ssize_t start, Py_ssize_t end):
        """A buffer of its own with the rows [start, end)."""
        cdef RowBuffer made = RowBuffer()
        made.extend(self.all_rows()[start:end])
        return made

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        return self.all_rows()[place]

    def __iter__(self):
        return iter(self.all_rows())

    def __eq__(self, other):
        if isinstance(other, RowBuffer):
            other = (<RowBuffer>other).all_rows()
        return self.all_rows() == other

    def encode(
        self, now_ms, codec="none", producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False
    ):
        """The batch of the rows, and its header: see ``encode_with_header``."""
        cdef Head head
        _import()
        if self.kept is not None or self.count == 0:
            return _batch.encode_with_header(
                self.all_rows(), now_ms, codec, producer_id=producer_id, producer_epoch=producer_epoch,
                base_sequence=base_sequence, transactional=transactional,
            )
        if (
            codec != "none" or not fits(now_ms, INT64_MIN, INT64_MAX) or not fits(producer_id, INT64_MIN, INT64_MAX)
            or not fits(producer_epoch, INT16_MIN, INT16_MAX) or not fits(base_sequence, INT32_MIN, INT32_MAX)
            or self.used - UNCOUNTED_BYTES > INT32_MAX
        ):
            self.lent = True
            section = memoryview(<object>self.data)[HEADER_BYTES : self.used]
            return _batch.pack_rows(
                (section, now_ms, now_ms, self.count), codec, producer_id=producer_id, producer_epoch=producer_epoch,
                base_sequence=base_sequence, transactional=transactional,
            )
        if self.lent:
            self.make_room(0)
        _PyBytes_Resize(&self.data, self.used)
        self.lent = True
        head.base_offset, head.leader_epoch = 0, -1
        head.attributes = TRANSACTIONAL_BIT if transactional else 0
        head.base_ms = head.max_ms = now_ms
        head.count, head.producer_id = self.count, producer_id
        head.producer_epoch, head.base_sequence = producer_epoch, base_sequence
        data = <object>self.data
        return data, put_head(<uint8_t*>PyBytes_AS_STRING(data), self.used, &head, _crc32c, _BatchHeader)
