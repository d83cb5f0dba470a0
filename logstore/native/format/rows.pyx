"""Types and sizes of rows in one pass each: the compiled twin of format/rows.py.

Whatever is unusual goes to the functions there that name what is wrong.
"""

from collections.abc import Iterator

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE, PyList_GET_ITEM
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_GET_LENGTH

from logstore.native.format.varints cimport fingerprint

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    PyObject* tuple_item "PyTuple_GET_ITEM" (PyObject* items, Py_ssize_t at) noexcept
    PyObject* list_item "PyList_GET_ITEM" (PyObject* items, Py_ssize_t at) noexcept
    PyObject* Py_None

FINGERPRINT = fingerprint()

cdef enum:  # format/rows.py says what they are made of
    HEADER_SIZE = 61
    RECORD_OVERHEAD = 23
    TIMESTAMP_OVERHEAD = 9
    HEADERS_OVERHEAD = 4
    HEADER_OVERHEAD = 10

cdef object _rows = None  # logstore.format.rows, asked for late: it imports this module


cdef object _twin():
    global _rows
    if _rows is None:
        from logstore.format import rows

        _rows = rows
    return _rows


def shape_of(list rows not None):
    cdef Py_ssize_t width, place, count = PyList_GET_SIZE(rows)
    cdef bint pairs = True, plain = True, null_keys = False, some_keys = False
    cdef object row, content, shape = _twin().RowShape
    for place in range(count):
        if type(<object>PyList_GET_ITEM(rows, place)) is not tuple:
            return shape(False, False, False, False, False, False)
    for place in range(count):
        row = <object>PyList_GET_ITEM(rows, place)
        width = PyTuple_GET_SIZE(row)
        if width != 2:
            pairs = False
            if width != 3 and width != 4:
                return shape(True, False, False, False, False, False)
        content = <object>PyTuple_GET_ITEM(row, 0)
        if content is None:
            null_keys = True
        else:
            some_keys = True
            if type(content) is not bytes:
                plain = False
        content = <object>PyTuple_GET_ITEM(row, 1)
        if content is not None and type(content) is not bytes:
            plain = False
    return shape(True, True, pairs, plain, null_keys, some_keys)


def plain_rows(rows):
    """What ``check_rows`` and ``row_sizes`` find of a list of (key, value) tuples, keys and values bytes or None. None
    of all else, and of no rows."""
    cdef Py_ssize_t place, count, size, total = 0, largest = 0
    cdef bint null_keys = False, some_keys = False
    cdef PyObject* row
    cdef PyObject* content
    if type(rows) is not list or PyList_GET_SIZE(<list>rows) == 0:
        return None
    count = PyList_GET_SIZE(<list>rows)
    for place in range(count):
        row = list_item(<PyObject*>rows, place)
        if not PyTuple_CheckExact(<object>row) or PyTuple_GET_SIZE(<object>row) != 2:
            return None
        content = tuple_item(row, 0)
        size = 0
        if content == Py_None:
            null_keys = True
        elif PyBytes_CheckExact(<object>content):
            some_keys = True
            size = PyBytes_GET_SIZE(<object>content)
        else:
            return None
        content = tuple_item(row, 1)
        if content != Py_None:
            if not PyBytes_CheckExact(<object>content):
                return None
            size += PyBytes_GET_SIZE(<object>content)
        total += size
        if size > largest:
            largest = size
    return tuple.__new__(_twin().PlainRows, (null_keys, some_keys, total, largest, None))


cdef inline Py_ssize_t _length(object content) except -1:
    """Of bytes, which may be of a derived class, or of None."""
    if content is None:
        return 0
    return PyBytes_GET_SIZE(content) if type(content) is bytes else len(content)


cdef Py_ssize_t _headers_bytes(object pairs) except -2:
    """Of a tuple of header tuples, as ``row_bytes`` reckons; -1 if the thorough check is to look at them."""
    cdef Py_ssize_t total = HEADERS_OVERHEAD
    cdef object pair, name, content
    for pair in <tuple>pairs:
        if type(pair) is not tuple or PyTuple_GET_SIZE(pair) != 2:
            return -1
        name = <object>PyTuple_GET_ITEM(pair, 0)
        content = <object>PyTuple_GET_ITEM(pair, 1)
        if type(name) is not str:
            return -1
        if PyUnicode_IS_ASCII(name):
            total += HEADER_OVERHEAD + PyUnicode_GET_LENGTH(name)
        else:
            try:
                total += HEADER_OVERHEAD + len((<str>name).encode())
            except UnicodeEncodeError:
                return -1
        if content is not None:
            if type(content) is not bytes:
                return -1
            total += PyBytes_GET_SIZE(content)
    return total


def measured_headers(headers, topic):
    """``check_headers`` and the headers' part of ``row_bytes``, in one quick pass."""
    cdef Py_ssize_t total = -1
    cdef object pairs = None
    try:
        if type(headers) is not tuple and type(headers) is not list and isinstance(headers, Iterator):
            headers = tuple(headers)  # once: it gives them no second time
        pairs = tuple(headers)
        total = _headers_bytes(pairs)
    except (TypeError, ValueError):
        pass  # not pairs: the thorough check says what they are
    if total >= 0:
        return pairs, total
    checked = _twin().check_headers(headers, f"a record for topic {topic!r}")
    return checked, _twin().row_bytes(None, None, checked)


def wide_rows(where, rows):
    """Rows with their headers as tuples, and whether any row has a timestamp."""
    cdef Py_ssize_t index = -1, width
    cdef bint timestamped = False
    cdef list checked = []
    cdef object row, headers, timestamp_ms
    for row in rows:
        index += 1
        width = PyTuple_GET_SIZE(<tuple?>row)
        if width == 2:
            checked.append(row)
            continue
        if width < 2:
            raise IndexError("tuple index out of range")  # put among the rows since their shape was looked at
        headers = <object>PyTuple_GET_ITEM(row, 2)
        timestamp_ms = <object>PyTuple_GET_ITEM(row, 3) if width == 4 else None
        if headers is not None:
            if not headers:
                headers = None
            elif type(headers) is not tuple or _headers_bytes(headers) < 0:
                headers = _twin().check_headers(headers, f"row {index} for {where}")
        if timestamp_ms is not None:
            _twin().check_timestamp(timestamp_ms, f"row {index} for {where}")
            timestamped = True
            checked.append((row[0], row[1], headers, timestamp_ms))
        elif headers:
            checked.append((row[0], row[1], headers))
        else:
            checked.append((row[0], row[1]))
    return checked, timestamped


def row_sizes(checked, rows):
    """Bytes of each row, without the overhead every row has (see ``row_bytes``)."""
    cdef Py_ssize_t size, more
    cdef list sizes = []
    cdef object row, headers
    for row in rows:
        if PyTuple_GET_SIZE(<tuple?>row) < 2:
            raise IndexError("tuple index out of range")  # put among the rows since their shape was looked at
        size = _length(<object>PyTuple_GET_ITEM(row, 0)) + _length(<object>PyTuple_GET_ITEM(row, 1))
        if PyTuple_GET_SIZE(row) > 2:
            headers = <object>PyTuple_GET_ITEM(row, 2)
            if headers:
                more = _headers_bytes(headers) if type(headers) is tuple else -1
                size += more if more >= 0 else _twin().row_bytes(None, None, headers)
        sizes.append(size)
    return sizes


def largest(sizes):
    """0 of none."""
    cdef Py_ssize_t size, most = 0
    for size in sizes:
        if size > most:
            most = size
    return most


def cut(
    list rows not None,
    list sizes not None,
    bint timestamped,
    long long cap,
    long long limit,
    long long most=1 << 31,
):
    """``rows`` in chunks of ``most`` rows that each make a batch of at most ``cap`` bytes; a row that alone passes
    it (but not ``limit``, see ``check_sizes``) makes a chunk of its own."""
    cdef long long overhead = RECORD_OVERHEAD + (TIMESTAMP_OVERHEAD if timestamped else 0)
    cdef long long size, total
    cdef Py_ssize_t count = PyList_GET_SIZE(rows), start = 0, end
    cdef object chunk = _twin().Chunk
    cdef object row
    cdef list chunks = []
    if PyList_GET_SIZE(sizes) < count:
        raise IndexError("list index out of range")
    while start < count:
        end = start
        total = HEADER_SIZE
        while end < count and end - start < most:
            size = <object>PyList_GET_ITEM(sizes, end)
            if total + size + overhead > cap:
                break
            total += size + overhead
            end += 1
        if end == start:
            row = rows[start]
            size = <object>PyList_GET_ITEM(sizes, start)
            end += 1
            total = min(limit, HEADER_SIZE + overhead + size)
            total = max(total, <long long>_twin().alone_bytes(row[0], row[1], row[2] if len(row) > 2 else None))
        chunks.append(chunk(rows[start:end], total))  # a copy: the list given stays the caller's
        start = end
    return iter(chunks)
