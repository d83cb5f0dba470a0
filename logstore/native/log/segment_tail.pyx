"""What an append touches of its segment: the compiled twins of ``GrowingTable``, ``IndexRule`` and
log/segments/segment_tail.py. Fields are declared in segment_tail.pxd."""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport INT64_MIN, int64_t

from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef object _InvariantError = None


cdef int _import() except -1:
    global _InvariantError
    if _InvariantError is None:
        from logstore.errors import InvariantError

        _InvariantError = InvariantError
    return 0


cdef class GrowingTable:
    """Rows (key, value); keys grow strictly. One writer, any number of readers."""

    def __init__(self, row, content=b""):
        self._row = row
        for key, value in row.iter_unpack(content[: len(content) // row.size * row.size]):
            self.add(key, value)
        self.stored = self.rows

    def __dealloc__(self):
        PyMem_Free(self.keys)
        PyMem_Free(self.values)

    cdef int add(self, int64_t key, int64_t value) except -1:
        cdef Py_ssize_t room = self.room
        cdef void* grown
        if self.rows == room:
            room = 2 * room if room else 16
            grown = PyMem_Realloc(self.keys, room * sizeof(int64_t))
            if grown is NULL:
                raise MemoryError()
            self.keys = <int64_t*>grown
            grown = PyMem_Realloc(self.values, room * sizeof(int64_t))
            if grown is NULL:
                raise MemoryError()
            self.values = <int64_t*>grown
            self.room = room
        self.keys[self.rows], self.values[self.rows] = key, value
        self.rows += 1
        return 0

    @property
    def count(self):
        return self.rows

    @property
    def size_bytes(self):
        return self.rows * self._row.size

    @property
    def unstored_rows(self):
        return self.rows - self.stored

    def row(self, Py_ssize_t number):
        if number < 0:
            number += self.rows
        if not 0 <= number < self.rows:
            raise IndexError("array index out of range")
        return self.keys[number], self.values[number]

    def floor(self, key):
        cdef Py_ssize_t low = 0, high = self.rows, middle
        cdef int64_t wanted
        if not INT64_MIN <= key <= 0x7FFFFFFFFFFFFFFF:
            return -1 if key < 0 else self.rows - 1
        wanted = key
        while low < high:
            middle = (low + high) // 2
            if wanted < self.keys[middle]:
                high = middle
            else:
                low = middle + 1
        return low - 1

    def append(self, int64_t key, int64_t value):
        self.add(key, value)

    cdef bytes packed(self, Py_ssize_t start):
        cdef Py_ssize_t number
        pack = self._row.pack
        return b"".join([pack(self.keys[number], self.values[number]) for number in range(start, self.rows)])

    def unstored(self):
        """Rows that the file lacks, encoded, and the position in the file where they go."""
        return self.packed(self.stored), self.stored * self._row.size

    def mark_stored(self):
        self.stored = self.rows

    def encoded(self):
        return self.packed(0)


cdef class IndexRule:
    """When a batch gets index entries: one place for append, recovery and rebuild, so that they agree.

    As in Kafka, a batch is entered when more than ``interval_bytes`` were written since the last entry, and
    the bytes of the batch itself count towards the next one.
    """

    def __init__(self, int64_t interval_bytes):
        self.interval_bytes = interval_bytes
        self.bytes_since_entry = 0
        self.max_timestamp_ms = self.offset_of_max = -1

    def feed(self, int64_t last_offset, int64_t size, int64_t max_timestamp_ms):
        """Count one batch; True if it gets an entry in the offset index (and maybe in the time index)."""
        return self.fed(last_offset, size, max_timestamp_ms)

    cdef bint fed(self, int64_t last_offset, int64_t size, int64_t max_timestamp_ms) noexcept:
        cdef bint due
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.offset_of_max = max_timestamp_ms, last_offset
        due = self.bytes_since_entry > self.interval_bytes
        if due:
            self.bytes_since_entry = 0
        self.bytes_since_entry += size
        return due


cdef class SegmentTail:
    """``size``: valid bytes; ``next_offset``: first offset past them (for a closed one: the next base)."""

    def __init__(self, int64_t base_offset, int64_t size, int64_t next_offset):
        self.base_offset, self.size, self.next_offset = base_offset, size, next_offset
        self.closed = True
        self.first_timestamp_ms = -1
        self.index_bytes = 0

    def note_appended(self, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp_ms):
        """Count a batch that is in the file: index rows, then what readers may see. True if there are new rows."""
        return self.noted(position, size, last_offset, max_timestamp_ms)

    cdef bint noted(
        self, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp_ms
    ) except -1:
        cdef IndexRule rule = self.rule
        cdef bint entered
        if rule is None or self.closed:
            _import()
            raise _InvariantError("invariant broken: only the active segment grows")
        entered = rule.fed(last_offset, size, max_timestamp_ms)
        if entered:
            self.enter(last_offset, position, rule)
            self.index_bytes += LARGEST_ROW  # the time index has the larger rows, and no more of them
        if self.first_timestamp_ms < 0:
            self.first_timestamp_ms = max_timestamp_ms
        self.next_offset = last_offset + 1
        self.size = position + size
        return entered

    cdef int enter(self, int64_t last_offset, int64_t position, IndexRule rule) except -1:
        """A row of the offset index, and one of the time index where the newest timestamp has grown."""
        cdef GrowingTable offsets, times
        if type(self._offsets.table) is not GrowingTable or type(self._times.table) is not GrowingTable:
            self._offsets.append(last_offset, position)
            self._times.maybe_append(rule.max_timestamp_ms, rule.offset_of_max)
            return 0
        offsets, times = <GrowingTable>self._offsets.table, <GrowingTable>self._times.table
        offsets.add(last_offset - <int64_t>self._offsets.base_offset, position)
        if rule.max_timestamp_ms >= 0 and (times.rows == 0 or rule.max_timestamp_ms > times.keys[times.rows - 1]):
            times.add(rule.max_timestamp_ms, rule.offset_of_max - <int64_t>self._times.base_offset)
        return 0

    cdef int64_t unstored(self) except -1:
        """Index rows that the file lacks."""
        if self._offsets is None or type(self._offsets.table) is not GrowingTable:
            return 0
        return (<GrowingTable>self._offsets.table).rows - (<GrowingTable>self._offsets.table).stored
