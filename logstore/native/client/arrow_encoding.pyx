"""Rows in Arrow's columns to record batches: the compiled twin of ``encode_arrow`` in client/arrow_encoder.py.

No object is made of a row. What does not hold, or is refused, is left to the Python twin, which says why.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from logstore.native.client.hashing cimport POSITIVE, murmur2_of, murmur3_of
from logstore.native.format.arrow_buffers cimport Columns, Field, field_at, headers_of, time_of
from logstore.native.format.batch_header cimport HEADER_BYTES
from logstore.native.format.record_writing cimport PyBUF_READ, Head, put_head, view_of
from logstore.native.format.varints cimport fingerprint, put_raw, size_of_raw, zigzag

import zlib

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef enum:
    NONE = -1  # no partition is given
    RECORD_OVERHEAD = 23  # format/rows.py says what these are made of
    TIMESTAMP_OVERHEAD = 9
    HEADERS_OVERHEAD = 4
    HEADER_OVERHEAD = 10

cdef int64_t MOST_MS = (<int64_t>1 << 62) - 1
cdef int64_t LEAST_MS = -(<int64_t>1 << 62)
cdef object _BatchHeader = None
cdef object _EncodedRows = None
cdef object _Encoded = None
cdef object _crc32c = None
cdef object _crc32 = zlib.crc32


cdef enum Choice:
    GIVEN, TURNS, MURMUR3, MURMUR2, CRC32

cdef dict _CHOICES = {"round_robin": TURNS, "murmur3": MURMUR3, "murmur2": MURMUR2, "crc32": CRC32}


cdef class Plan:
    """The rows by partition: their sizes, and their order where there are several partitions."""

    cdef Columns columns
    cdef int64_t* sizes  # of each row, without the overhead of every row
    cdef int32_t* places
    cdef int32_t* order  # rows by partition; NULL: as they are
    cdef Py_ssize_t* exact  # of a batch's records, without their lengths
    cdef int64_t* starts  # of each partition's rows in ``order``
    cdef Py_ssize_t overhead, largest, partitions
    cdef bint null_keys

    def __cinit__(self, Columns columns, Py_ssize_t partitions):
        cdef Py_ssize_t count = columns.count or 1
        self.columns, self.partitions = columns, partitions
        self.order = NULL
        self.sizes = <int64_t*>PyMem_Malloc(count * sizeof(int64_t))
        self.exact = <Py_ssize_t*>PyMem_Malloc(count * sizeof(Py_ssize_t))
        self.places = <int32_t*>PyMem_Malloc(count * sizeof(int32_t))
        self.starts = <int64_t*>PyMem_Malloc((partitions + 1) * sizeof(int64_t))
        if self.sizes == NULL or self.exact == NULL or self.places == NULL or self.starts == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.sizes)
        PyMem_Free(self.exact)
        PyMem_Free(self.places)
        PyMem_Free(self.order)
        PyMem_Free(self.starts)

    cdef bint measure(self) noexcept:
        """False for a timestamp that is refused."""
        cdef Columns columns = self.columns
        cdef Py_ssize_t row, number, count, first = 0
        cdef int64_t size, time_ms = 0
        cdef Field key
        cdef bint timestamped = False
        self.largest, self.null_keys = 0, False
        for row in range(columns.count):
            key = field_at(&columns.keys, row)
            self.null_keys |= key.data == NULL
            size = key.size + field_at(&columns.values, row).size
            count = headers_of(columns, row, &first)
            if count:
                size += HEADERS_OVERHEAD + HEADER_OVERHEAD * count
                for number in range(first, first + count):
                    size += field_at(&columns.names, number).size + field_at(&columns.contents, number).size
            if time_of(columns, row, &time_ms):
                timestamped = True
                if time_ms < LEAST_MS or time_ms > MOST_MS:
                    return False
            self.sizes[row] = size
            self.largest = max(self.largest, size)
        self.overhead = RECORD_OVERHEAD + (TIMESTAMP_OVERHEAD if timestamped else 0)
        return True

    cdef Py_ssize_t spread(self, Choice choice, Py_ssize_t sticky, Py_ssize_t cap) except -1:
        """Choose the partition of each row; ``sticky`` for the next ones."""
        cdef Columns columns = self.columns
        cdef Py_ssize_t row, filled = 0, more
        cdef Field key
        for row in range(columns.count):
            if choice == TURNS:
                self.places[row] = sticky
                sticky = (sticky + 1) % self.partitions
                continue
            key = field_at(&columns.keys, row)
            if key.data != NULL:
                self.places[row] = hashed(key, choice) % self.partitions
                continue
            more = self.sizes[row] + self.overhead
            if filled and HEADER_BYTES + filled + more > cap:
                filled, sticky = 0, (sticky + 1) % self.partitions
            filled += more
            self.places[row] = sticky
        return (sticky + 1) % self.partitions if filled else sticky

    cdef int sort(self) except -1:
        """Rows of each partition together, in the order given."""
        cdef Py_ssize_t row, place
        cdef int64_t start = 0, count
        self.order = <int32_t*>PyMem_Malloc((self.columns.count or 1) * sizeof(int32_t))
        if self.order == NULL:
            raise MemoryError
        for place in range(self.partitions + 1):
            self.starts[place] = 0
        for row in range(self.columns.count):
            self.starts[self.places[row]] += 1
        for place in range(self.partitions + 1):
            count = self.starts[place]
            self.starts[place] = start
            start += count
        for row in range(self.columns.count):
            self.order[self.starts[self.places[row]]] = row
            self.starts[self.places[row]] += 1
        for place in range(self.partitions, 0, -1):
            self.starts[place] = self.starts[place - 1]
        self.starts[0] = 0
        return 0

    cdef inline Py_ssize_t row_at(self, Py_ssize_t at) noexcept:
        return at if self.order == NULL else self.order[at]

    cdef Py_ssize_t cut(self, Py_ssize_t start, Py_ssize_t end, Py_ssize_t cap) noexcept:
        """Where the batch that begins with row ``start`` of the order ends."""
        cdef Py_ssize_t at = start, size = HEADER_BYTES
        while at < end:
            size += self.sizes[self.row_at(at)] + self.overhead
            if size > cap:
                break
            at += 1
        return max(at, start + 1)


cdef Py_ssize_t hashed(Field key, Choice choice) except -1:
    if choice == MURMUR3:
        return murmur3_of(key.data, key.size, 0) & POSITIVE
    if choice == MURMUR2:
        return murmur2_of(key.data, key.size) & POSITIVE
    return _crc32(view_of(<char*>key.data, key.size, PyBUF_READ))


cdef inline Py_ssize_t size_of_field(Field field) noexcept:
    return 1 if field.data == NULL else field.size + size_of_raw(<uint64_t>field.size << 1)


cdef inline uint8_t* put_field(uint8_t* to, Field field) noexcept:
    if field.data == NULL:
        to[0] = 1
        return to + 1
    to = put_raw(to, <uint64_t>field.size << 1)
    memcpy(to, field.data, field.size)
    return to + field.size


cdef Py_ssize_t exact_sizes(Plan plan, Py_ssize_t start, Py_ssize_t end, int64_t now_ms, int64_t* base_ms, int64_t* max_ms):
    """The size of the records section; those of the records without their lengths go to ``plan.exact``."""
    cdef Columns columns = plan.columns
    cdef Py_ssize_t at, row, number, count, size, first = 0, total = 0
    cdef int64_t time_ms
    for at in range(start, end):
        row = plan.row_at(at)
        time_ms = now_ms
        time_of(columns, row, &time_ms)
        if at == start:
            base_ms[0] = max_ms[0] = time_ms
        max_ms[0] = max(max_ms[0], time_ms)
        count = headers_of(columns, row, &first)
        size = 1 + size_of_raw(zigzag(time_ms - base_ms[0])) + size_of_raw(<uint64_t>(at - start) << 1)
        size += size_of_field(field_at(&columns.keys, row)) + size_of_field(field_at(&columns.values, row))
        size += size_of_raw(<uint64_t>count << 1)
        for number in range(first, first + count):
            size += size_of_field(field_at(&columns.names, number)) + size_of_field(field_at(&columns.contents, number))
        plan.exact[at - start] = size
        total += size + size_of_raw(<uint64_t>size << 1)
    return total


cdef void put_records(Plan plan, Py_ssize_t start, Py_ssize_t end, int64_t now_ms, int64_t base_ms, uint8_t* to) noexcept:
    cdef Columns columns = plan.columns
    cdef Py_ssize_t at, row, number, count, first = 0
    cdef int64_t time_ms
    for at in range(start, end):
        row = plan.row_at(at)
        time_ms = now_ms
        time_of(columns, row, &time_ms)
        to = put_raw(to, <uint64_t>plan.exact[at - start] << 1)
        to[0] = 0
        to = put_raw(to + 1, zigzag(time_ms - base_ms))
        to = put_raw(to, <uint64_t>(at - start) << 1)
        to = put_field(put_field(to, field_at(&columns.keys, row)), field_at(&columns.values, row))
        count = headers_of(columns, row, &first)
        to = put_raw(to, <uint64_t>count << 1)
        for number in range(first, first + count):
            to = put_field(put_field(to, field_at(&columns.names, number)), field_at(&columns.contents, number))


cdef object batch_of(Plan plan, Py_ssize_t start, Py_ssize_t end, int64_t now_ms, bint whole):
    """An ``EncodedRows``; None if it is left to the Python twin."""
    cdef int64_t base_ms = 0, max_ms = 0
    cdef Py_ssize_t total = exact_sizes(plan, start, end, now_ms, &base_ms, &max_ms)
    cdef Py_ssize_t ahead = HEADER_BYTES if whole else 0
    cdef uint8_t* to
    cdef Head head
    if total + HEADER_BYTES > INT32_MAX:
        return None
    data = PyBytes_FromStringAndSize(NULL, ahead + total)
    to = <uint8_t*>PyBytes_AS_STRING(data)
    put_records(plan, start, end, now_ms, base_ms, to + ahead)
    if whole:
        # Of no log and no producer yet.
        head.base_offset, head.leader_epoch, head.attributes = 0, -1, 0
        head.base_ms, head.max_ms, head.count = base_ms, max_ms, end - start
        head.producer_id, head.producer_epoch, head.base_sequence = -1, -1, -1
        put_head(to, ahead + total, &head, _crc32c, _BatchHeader)
    return _EncodedRows(data, base_ms, max_ms, end - start)


cdef object parts_of(Plan plan, Py_ssize_t given, Py_ssize_t cap, int64_t now_ms, bint whole):
    """None if it is left to the Python twin."""
    cdef list parts = []
    cdef Py_ssize_t place, at, end, last
    for place in range(plan.partitions):
        if plan.order == NULL:
            if place != given:
                continue
            at, last = 0, plan.columns.count
        else:
            at, last = plan.starts[place], plan.starts[place + 1]
        while at < last:
            end = plan.cut(at, last, cap)
            part = batch_of(plan, at, end, now_ms, whole)
            if part is None:
                return None
            parts.append((place, part))
            at = end
    return parts


def encode_arrow(rows, where, spread, limits, now_ms):
    """Rows to batches, or to the records of batches."""
    global _BatchHeader, _Encoded, _EncodedRows, _crc32c
    cdef Columns columns = Columns(rows)
    cdef Plan plan
    cdef Py_ssize_t cap = limits.cap, given = spread.given, sticky = spread.sticky
    cdef Choice choice
    parts = None
    if _EncodedRows is None:  # what is imported last
        from crc32c import crc32c as _crc32c

        from logstore.client.arrow_encoder import Encoded as _Encoded
        from logstore.format.batch import BatchHeader as _BatchHeader
        from logstore.format.record import EncodedRows as _EncodedRows
    if columns.sound and columns.names_are_text() and LEAST_MS <= now_ms <= MOST_MS and columns.count <= INT32_MAX:
        plan = Plan(columns, spread.partitions)
        if (
            plan.measure()
            and not (limits.keyed and plan.null_keys and columns.count)
            and plan.largest + HEADER_BYTES + RECORD_OVERHEAD <= limits.most
        ):
            if given == NONE and plan.partitions == 1:
                given = 0
                choice = _CHOICES[spread.partitioner]
                sticky = 0
            elif given == NONE:
                choice = _CHOICES[spread.partitioner]
                sticky = plan.spread(choice, sticky, cap)
                plan.sort()
            parts = parts_of(plan, given, cap, now_ms, limits.whole)
    if parts is None:
        return PYTHON_TWINS["encode_arrow"](rows, where, spread, limits, now_ms)
    return _Encoded(parts, sticky)
