"""Keys, offsets and byte ranges of records without making records: the compiled twin of format/record_spans.py."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from logstore.native.format.record_fields cimport ABSENT, MIN_RECORD_BYTES
from logstore.native.format.varints cimport PAST_END, TOO_LONG, fingerprint, read_raw, unzigzag

FINGERPRINT = fingerprint()

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


cdef class Spans:
    """Where the records of a section and their keys lie."""

    def __cinit__(self, bytes section not None, Py_ssize_t count):
        self.section = section
        self.count = max(count, 0)
        self.records = <Span*>PyMem_Malloc((self.count + 1) * sizeof(Span))
        if self.records is NULL:
            raise MemoryError()
        self.records[0].at = 0

    def __dealloc__(self):
        PyMem_Free(self.records)


cdef class SectionKeys:
    """Keys as a sequence, each made an object when it is asked for."""

    cdef const uint8_t* key_of(self, Py_ssize_t number, Py_ssize_t* size) noexcept:
        """Where a key lies, ``size`` ABSENT for null; ``number`` is one of the sequence's."""
        cdef Span* span = self.spans.records + self.first + number
        size[0] = span.key_size
        return <const uint8_t*>PyBytes_AS_STRING(self.spans.section) + span.key_at

    def __len__(self):
        return self.count

    def __getitem__(self, item):
        if isinstance(item, slice):
            start, stop, step = item.indices(self.count)
            if step == 1:
                return keys_of(self.spans, self.first + start, max(stop - start, 0))
            return [made_of(self, number) for number in range(start, stop, step)]
        number = item.__index__()
        if number < 0:
            number += self.count
        if not 0 <= number < self.count:
            raise IndexError("index out of range")
        return made_of(self, number)

    def __iter__(self):
        return iter([made_of(self, number) for number in range(self.count)])

    def __contains__(self, key):
        cdef Py_ssize_t number
        if key is not None:
            return key in list(self)
        for number in range(self.count):
            if self.spans.records[self.first + number].key_size == ABSENT:
                return True
        return False


cdef object made_of(SectionKeys keys, Py_ssize_t number):
    cdef Py_ssize_t size = 0
    cdef const uint8_t* data = keys.key_of(number, &size)
    return None if size == ABSENT else PyBytes_FromStringAndSize(<const char*>data, size)


cdef SectionKeys keys_of(Spans spans, Py_ssize_t first, Py_ssize_t count):
    cdef SectionKeys keys = SectionKeys.__new__(SectionKeys)
    keys.spans, keys.first, keys.count = spans, first, count
    return keys


cdef class SectionBounds:
    """Where each record of a section begins, and the end of the last, as a sequence."""

    cdef Spans spans

    def __len__(self):
        return self.spans.count + 1

    def __getitem__(self, item):
        if isinstance(item, slice):
            return list(self)[item]
        number = item.__index__()
        if number < 0:
            number += self.spans.count + 1
        if not 0 <= number <= self.spans.count:
            raise IndexError("index out of range")
        return self.spans.records[<Py_ssize_t>number].at

    def __iter__(self):
        cdef Py_ssize_t number
        return iter([self.spans.records[number].at for number in range(self.spans.count + 1)])

    def __eq__(self, other):
        return list(self) == list(other)

    __hash__ = None


def key_column(bytes section not None, Py_ssize_t count):
    """The keys in ``section``, which holds ``count`` records. ``CorruptBatchError`` if it does not."""
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(section)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(section)
    cdef Py_ssize_t at = 0, end, number, key_end
    cdef uint64_t raw = 0
    cdef int64_t delta, last = -1
    cdef int failure
    cdef bint shifted = False, consecutive = True, grows = True
    cdef Span* span
    if count * MIN_RECORD_BYTES > size:
        raise _corrupt(f"{count} records cannot lie in a records section of {size} bytes")
    cdef Spans spans = Spans(section, count)
    cdef list deltas = None
    cdef list nulls = []
    for number in range(count):
        span = spans.records + number
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
        span.key_at, span.key_size = at, ABSENT
        if at < size and data[at] == 1:
            at += 1
        else:
            if failure := read_raw(data, size, &at, 5, &raw):
                raise _unread(failure, at)
            key_end = at + <Py_ssize_t>(raw >> 1)
            if key_end >= size:
                raise _unread(PAST_END, at)
            span.key_at, span.key_size = at, <int32_t>(raw >> 1)
            at = key_end
        if at >= size:
            raise _unread(PAST_END, at)
        if data[at] == 1:
            nulls.append(number)
        if at + 2 > end:
            raise _corrupt(f"record {number} of the records section is shorter than its fields")
        at = end
        spans.records[number + 1].at = at
    if at != size:
        raise _corrupt(f"{count} records end at byte {at} of a section of {size} bytes")
    if not grows:
        raise _corrupt("the offsets in the records section do not grow")
    cdef SectionBounds bounds = SectionBounds.__new__(SectionBounds)
    bounds.spans = spans
    return _column_class()(
        keys_of(spans, 0, spans.count), range(count) if consecutive else deltas, nulls, bounds, shifted
    )


def kept_section(section, live):
    """The records whose byte in ``live`` is not 0, joined as they stand, and their least and largest timestamp delta:
    of a section that ``key_column`` has read before without an error."""
    cdef Py_buffer records
    cdef Py_buffer flags
    PyObject_GetBuffer(section, &records, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(live, &flags, PyBUF_SIMPLE)
        try:
            return kept_of(<const uint8_t*>records.buf, records.len, <const uint8_t*>flags.buf, flags.len)
        finally:
            PyBuffer_Release(&flags)
    finally:
        PyBuffer_Release(&records)


cdef object kept_of(const uint8_t* data, Py_ssize_t size, const uint8_t* live, Py_ssize_t count):
    cdef Py_ssize_t at = 0, number, start, stamp, runs = 0, total = 0
    cdef uint64_t raw = 0
    cdef int64_t delta, least = 0, most = 0
    cdef int failure
    cdef bint first = True
    cdef Py_ssize_t* ends = <Py_ssize_t*>PyMem_Malloc((count + 2) * sizeof(Py_ssize_t))
    cdef bytes made
    if ends is NULL:
        raise MemoryError()
    # Runs of neighbours, each copied as one: where it begins, where it ends.
    try:
        for number in range(count):
            start = at
            failure = read_raw(data, size, &at, 5, &raw)
            if failure == TOO_LONG:
                raise _unread(failure, at)
            if failure or at + 1 >= size or <Py_ssize_t>(raw >> 1) > size - at:
                raise IndexError("index out of range")
            stamp = at + 1  # behind the attributes
            at += <Py_ssize_t>(raw >> 1)
            if not live[number]:
                continue
            delta = 0
            if data[stamp]:
                failure = read_raw(data, size, &stamp, 10, &raw)
                if failure == TOO_LONG:
                    raise _unread(failure, stamp)
                if failure:
                    raise IndexError("index out of range")
                delta = unzigzag(raw)
            least = delta if first else min(least, delta)
            most = delta if first else max(most, delta)
            first = False
            if runs and ends[runs - 1] == start:
                ends[runs - 1] = at
            else:
                ends[runs], ends[runs + 1] = start, at
                runs += 2
            total += at - start
        made = PyBytes_FromStringAndSize(NULL, total)
        total = 0
        for number in range(0, runs, 2):
            memcpy(PyBytes_AS_STRING(made) + total, data + ends[number], ends[number + 1] - ends[number])
            total += ends[number + 1] - ends[number]
        return made, least, most
    finally:
        PyMem_Free(ends)


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
