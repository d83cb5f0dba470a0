"""Keys, offsets and byte ranges of records without making records: the compiled twin of format/record_spans.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from logstore.native.varints cimport PAST_END, TOO_LONG, fingerprint, read_raw, unzigzag

FINGERPRINT = fingerprint()

cdef int MIN_RECORD_BYTES = 7
cdef object _KeyColumn = None


cdef object _column_class():
    """Asked for late: the module that defines it imports this one."""
    global _KeyColumn
    if _KeyColumn is None:
        from logstore.format.record_spans import KeyColumn

        _KeyColumn = KeyColumn
    return _KeyColumn


cdef object _corrupt(str message):
    from logstore.errors import CorruptBatchError

    return CorruptBatchError(message)


cdef object _unread(int failure, Py_ssize_t at):
    if failure == PAST_END:
        return _corrupt("the records section ends in the middle of a record")
    return _corrupt(f"the integer at byte {at} of the records section has too many bits")


def key_column(bytes section not None, Py_ssize_t count):
    """The keys in ``section``, which holds ``count`` records. ``CorruptBatchError`` if it does not."""
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(section)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(section)
    cdef Py_ssize_t at = 0, end, number, key_end
    cdef uint64_t raw = 0
    cdef int64_t delta, last = -1
    cdef int failure
    cdef bint shifted = False, consecutive = True, grows = True
    if count * MIN_RECORD_BYTES > size:
        raise _corrupt(f"{count} records cannot lie in a records section of {size} bytes")
    cdef list keys = [None] * count
    cdef list deltas = None
    cdef list nulls = []
    cdef list bounds = [0] * (count + 1)
    for number in range(count):
        if failure := read_raw(data, size, &at, 5, &raw):
            raise _unread(failure, at)
        end = at + <Py_ssize_t>(raw >> 1)
        at += 1  # the attributes
        if at < size and data[at]:
            shifted = True  # also for a zero in more bytes than it needs, as Python's twin has it
        if failure := read_raw(data, size, &at, 10, &raw):
            raise _unread(failure, at)
        if failure := read_raw(data, size, &at, 5, &raw):
            raise _unread(failure, at)
        delta = unzigzag(raw)
        if delta != number and consecutive:
            consecutive = False
            deltas = list(range(count))
        if not consecutive:
            deltas[number] = delta
        if delta <= last:
            grows = False
        last = delta
        if at < size and data[at] == 1:
            at += 1
        else:
            if failure := read_raw(data, size, &at, 5, &raw):
                raise _unread(failure, at)
            key_end = at + <Py_ssize_t>(raw >> 1)
            if key_end >= size:
                raise _unread(PAST_END, at)
            keys[number] = PyBytes_FromStringAndSize(<const char*>data + at, key_end - at)
            at = key_end
        if at >= size:
            raise _unread(PAST_END, at)
        if data[at] == 1:
            nulls.append(number)
        if at + 2 > end:
            raise _corrupt(f"record {number} of the records section is shorter than its fields")
        at = end
        bounds[number + 1] = at
    if at != size:
        raise _corrupt(f"{count} records end at byte {at} of a section of {size} bytes")
    if not grows:
        raise _corrupt("the offsets in the records section do not grow")
    return _column_class()(keys, range(count) if consecutive else deltas, nulls, bounds, shifted)


def record_bounds(bytes section not None, Py_ssize_t count):
    """``bounds`` and ``shifted`` of ``key_column``, for a section that it has read before without an error."""
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(section)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(section)
    cdef Py_ssize_t at = 0, number
    cdef uint64_t raw = 0
    cdef int failure
    cdef bint shifted = False
    cdef list bounds = [0] * (count + 1)
    for number in range(1, count + 1):
        failure = read_raw(data, size, &at, 5, &raw)
        if failure == TOO_LONG:
            raise _unread(failure, at)
        if failure == PAST_END or at + 1 >= size:
            raise IndexError("index out of range")
        if data[at + 1]:
            shifted = True
        at += <Py_ssize_t>(raw >> 1)
        bounds[number] = at
    return bounds, shifted


cdef inline Py_ssize_t bound_at(bounds, Py_ssize_t number, Py_ssize_t size) except -1:
    """A bound within the section, whatever the caller has."""
    cdef Py_ssize_t bound = bounds[number]
    if bound < 0 or bound > size:
        raise IndexError("index out of range")
    return bound


def joined(bytes section not None, bounds, numbers):
    """The records of these numbers, as they stand."""
    cdef const char* data = PyBytes_AS_STRING(section)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(section), total = 0, count = 0, place, first, last, number
    if type(numbers) is not list:
        numbers = list(numbers)
    cdef Py_ssize_t most = len(numbers)
    cdef Py_ssize_t* runs = <Py_ssize_t*>PyMem_Malloc((2 * most + 1) * sizeof(Py_ssize_t))
    if runs is NULL:
        raise MemoryError()
    try:
        for number in <list>numbers:
            first = bound_at(bounds, number, size)
            last = bound_at(bounds, number + 1, size)
            if last < first:
                continue
            total += last - first
            if count and runs[2 * count - 1] == first:
                runs[2 * count - 1] = last  # neighbours are copied as one
            else:
                runs[2 * count] = first
                runs[2 * count + 1] = last
                count += 1
        made = PyBytes_FromStringAndSize(NULL, total)
        total = 0
        for place in range(count):
            first, last = runs[2 * place], runs[2 * place + 1]
            memcpy(PyBytes_AS_STRING(made) + total, data + first, last - first)
            total += last - first
        return made
    finally:
        PyMem_Free(runs)


def timestamp_deltas(bytes section not None, bounds, numbers):
    """Milliseconds from the base timestamp of the records of these numbers."""
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(section)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(section), at, number
    cdef uint64_t raw = 0
    cdef int failure
    cdef list found = []
    for number in numbers:
        at = bound_at(bounds, number, size)
        failure = read_raw(data, size, &at, 5, &raw)
        if not failure:
            at += 1  # the attributes
            failure = read_raw(data, size, &at, 10, &raw)
        if failure == TOO_LONG:
            raise _unread(failure, at)
        if failure:
            raise IndexError("index out of range")
        found.append(unzigzag(raw))
    return found
