"""What an append touches of a log: the compiled twins of log/append_path.py, log/segments/segment_tail.py,
``GrowingTable`` and ``IndexRule``.

Their fields are a compiled class's: an append reads and changes them without a step of Python's. Whatever is unusual
is left to methods of the Python classes above them.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport PyObject
from libc.errno cimport EINTR, errno
from libc.stdint cimport INT64_MIN, int64_t, uint8_t
from posix.types cimport off_t

from itertools import chain

from logstore.native.varints cimport fingerprint, put_big

FINGERPRINT = fingerprint()

cdef extern from "Python.h":
    PyObject* tuple_item "PyTuple_GET_ITEM" (PyObject* items, Py_ssize_t at) noexcept
    int64_t int64_of "PyLong_AsLongLong" (PyObject* number) except? -1

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const iovec* parts, int count, off_t at)

cdef enum:
    STAMP_BYTES = 16
    HEADER_BYTES = 61
    COPIED_BYTES = 2048  # a batch up to this is written as one buffer
    LARGEST_ROW = 12  # bytes of an entry of the time index
    INT32_MOST = 0x7FFFFFFF
    MOST_TOGETHER = 128  # batches of one write: with two parts each a quarter of what the system takes
    CONTROL_BIT = 0x20
    LONE_TERM = -1
    ATTRIBUTES_AT = 5  # places in a ``BatchHeader``
    LAST_OFFSET_DELTA_AT = 6
    MAX_TIMESTAMP_AT = 8
    PRODUCER_ID_AT = 9

cdef object _Appended = None
cdef object _CheckedBatch = None
cdef object _InvariantError = None
cdef object _LogOffsets = None
cdef object _OsFile = None
cdef object _write_all = None


cdef int _import() except -1:
    global _Appended, _CheckedBatch, _InvariantError, _LogOffsets, _OsFile, _write_all
    if _write_all is None:
        from logstore.errors import InvariantError
        from logstore.log.append_validation import CheckedBatch
        from logstore.log.log_offsets import Appended, LogOffsets
        from logstore.seams.fs import OsFile, write_all

        _Appended, _CheckedBatch, _InvariantError, _LogOffsets = Appended, CheckedBatch, InvariantError, LogOffsets
        _OsFile, _write_all = OsFile, write_all
    return 0


cdef inline int64_t number_at(PyObject* items, Py_ssize_t at) except? -1:
    return int64_of(tuple_item(items, at))


# --- the indexes of a segment ---


cdef class GrowingTable:
    """Rows (key, value); keys grow strictly. One writer, any number of readers."""

    cdef object _row
    cdef int64_t* keys
    cdef int64_t* values
    cdef Py_ssize_t rows
    cdef Py_ssize_t room
    cdef Py_ssize_t stored  # rows that the file has

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

    cdef public int64_t bytes_since_entry
    cdef public int64_t interval_bytes
    cdef public int64_t max_timestamp_ms
    cdef public int64_t offset_of_max

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

    cdef public int64_t base_offset
    cdef public int64_t size
    cdef public int64_t next_offset
    cdef public bint closed
    cdef public int64_t first_timestamp_ms
    cdef public int64_t index_bytes
    cdef public IndexRule rule
    cdef public object _offsets
    cdef public object _times

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


# --- the log ---


cdef class AppendPath:
    """The positions of a log, and its quick append. ``_lock`` is held wherever one of these fields changes."""

    cdef public int64_t log_start_offset
    cdef public int64_t log_end_offset
    cdef public int64_t flushed_offset
    cdef public int64_t high_watermark
    cdef public int64_t unsynced_records
    cdef public int64_t store_rows
    cdef public bint shows_appended
    cdef public object _failure
    cdef public object epochs
    cdef public object segments
    cdef public object tail
    cdef public object producers
    cdef public object _held
    cdef public object _lock
    cdef public object _waiters
    cdef public object _publish
    cdef public object _on_dirty
    cdef public int64_t _roll_jitter_ms
    cdef object settings
    cdef int64_t segment_bytes
    cdef int64_t segment_ms
    cdef int64_t segment_index_bytes

    def __init__(self):
        self.store_rows = 256  # index rows kept back before they are written to the file
        _import()

    @property
    def config(self):
        return self.settings

    @config.setter
    def config(self, config):
        self.settings = config
        self.segment_bytes, self.segment_ms = config.segment_bytes, config.segment_ms
        self.segment_index_bytes = config.segment_index_bytes

    @property
    def dirty(self):
        return self.flushed_offset < self.log_end_offset

    cdef int64_t stable(self, int64_t high_watermark) except? -1:
        cdef int64_t unstable
        found = self.producers.first_unstable
        if found is None:
            return high_watermark
        unstable = found
        return unstable if unstable < high_watermark else high_watermark

    def bounds(self):
        cdef int64_t high_watermark = self.high_watermark  # before the other: a transaction that ends moves it first
        cdef int64_t stable = self.stable(high_watermark)
        return tuple.__new__(
            _LogOffsets,
            (self.log_start_offset, high_watermark, stable, self.log_end_offset, self.epochs.latest),
        )

    def shown(self):
        """What other processes are to know, in the order of ``LiveBoard.publish``."""
        cdef int64_t high_watermark = self.high_watermark
        cdef int64_t stable = self.stable(high_watermark), base = self.log_end_offset, position = 0
        active = self.segments.active
        if active is not None:
            base, position = (<SegmentTail?>active).base_offset, (<SegmentTail>active).size
        return (
            self.log_start_offset, high_watermark, stable, self.log_end_offset, base, position, self.epochs.latest
        )

    def append(self, batches, expected_offset=None, int64_t term=LONE_TERM):
        """As leader: give offsets and the epoch, write, index. One write call for all batches of a segment.

        The batches were checked (``append_validation``). ``expected_offset``: append only if the log ends
        there, else ``OffsetMismatchError``. ``term``: under which the caller leads, else the log's own;
        ``FencedLeaderEpochError`` if the log knows a newer one. Other errors: ``DiskFullError`` or ``StorageError``
        (the log is as before), ``PartitionPoisonedError``; ``StorageError`` or ``OutcomeUnknownError`` that say so
        when batches that take more than one segment got in only in part.
        """
        cdef int64_t base
        self._lock.acquire()
        try:
            base = self.log_end_offset
            if (
                self._failure is not None or term != LONE_TERM or len(batches) != 1
                or not (expected_offset is None or expected_offset == base)
            ):
                return self._append_carefully(batches, expected_offset, term)
            lone = batches[0]
            if type(lone) is not _CheckedBatch:
                return self._append_carefully(batches, expected_offset, term)
            header = <object>tuple_item(<PyObject*>lone, 1)
            if number_at(<PyObject*>header, PRODUCER_ID_AT) >= 0:
                known = self.producers.repeated_one(header)
                if known is not None:
                    return known  # it was stored before, and only the answer got lost
            self.append_one(lone, header)
            return tuple.__new__(_Appended, (base, self.log_end_offset))
        finally:
            self._lock.release()

    def _append_one(self, batch):
        """The way of one data batch, which most appends are: as that of several, without their loops."""
        self.append_one(batch, batch[1])

    cdef SegmentTail segment_for(self, lone, header, int64_t size):
        """The active segment, unless the batch is to roll it (``rolling.must_roll``)."""
        cdef SegmentTail segment
        active = self.segments.active
        if active is None:
            return self._segment_for(lone)
        segment = <SegmentTail?>active
        if segment.closed or (
            segment.size != 0
            and (
                segment.size + size > self.segment_bytes
                or number_at(<PyObject*>header, MAX_TIMESTAMP_AT) - segment.first_timestamp_ms
                > self.segment_ms - self._roll_jitter_ms
                or segment.index_bytes + LARGEST_ROW > self.segment_index_bytes
                or self.log_end_offset + number_at(<PyObject*>header, LAST_OFFSET_DELTA_AT) - segment.base_offset
                > INT32_MOST
            )
        ):
            return self._segment_for(lone)
        return segment

    def append_run(self, list batches not None):
        """As leader of a lone node: as many batches as the active segment takes, from the first on, with one write; where
        each of them is. None of them, where ``append`` has more to ask: of one batch, of producers with an id, of a roll.
        Errors as ``append``; then none is in."""
        cdef Py_buffer views[MOST_TOGETHER]
        cdef int held = 0, number
        cdef list placed = []
        self._lock.acquire()
        try:
            if self._failure is None and self.epochs.latest >= 0 and self.segments.active is not None:
                held = self.run_of(batches, <SegmentTail?>self.segments.active, views)
            if held > 1:
                self.write_run(batches, <SegmentTail>self.segments.active, views, held, placed)
            return placed
        finally:
            for number in range(held):
                PyBuffer_Release(&views[number])
            self._lock.release()

    cdef int run_of(self, list batches, SegmentTail segment, Py_buffer* views) except -1:
        """How many of the batches go into the segment together. Their bytes are lent to ``views``."""
        cdef int number = 0
        cdef int64_t size = segment.size, offset = self.log_end_offset, first_ms = segment.first_timestamp_ms
        if segment.closed:
            return 0
        try:
            while number < MOST_TOGETHER and number < len(batches):
                batch = batches[number]
                if type(batch) is not _CheckedBatch:
                    break
                header = <object>tuple_item(<PyObject*>batch, 1)
                if (
                    number_at(<PyObject*>header, PRODUCER_ID_AT) >= 0
                    or number_at(<PyObject*>header, ATTRIBUTES_AT) & CONTROL_BIT
                ):
                    break
                PyObject_GetBuffer(<object>tuple_item(<PyObject*>batch, 0), &views[number], PyBUF_SIMPLE)
                number += 1
                if size == 0:
                    first_ms = number_at(<PyObject*>header, MAX_TIMESTAMP_AT)
                elif (
                    size + views[number - 1].len > self.segment_bytes
                    or number_at(<PyObject*>header, MAX_TIMESTAMP_AT) - first_ms
                    > self.segment_ms - self._roll_jitter_ms
                    or segment.index_bytes + number * LARGEST_ROW > self.segment_index_bytes  # one for each batch
                    or offset + number_at(<PyObject*>header, LAST_OFFSET_DELTA_AT) - segment.base_offset > INT32_MOST
                ):
                    number -= 1
                    PyBuffer_Release(&views[number])
                    break
                if views[number - 1].len < HEADER_BYTES:
                    raise _InvariantError("invariant broken: a checked batch has its header")
                size += views[number - 1].len
                offset += number_at(<PyObject*>header, LAST_OFFSET_DELTA_AT) + 1
        except BaseException:
            while number:
                number -= 1
                PyBuffer_Release(&views[number])
            raise
        return number

    cdef int write_run(
        self, list batches, SegmentTail segment, Py_buffer* views, int held, list placed
    ) except -1:
        cdef int64_t epoch = self.epochs.latest, offset = self.log_end_offset, position = segment.size, last
        cdef iovec written[2 * MOST_TOGETHER]
        cdef int number, count = 0
        cdef Py_ssize_t size = 0, copied
        cdef bint was_dirty = self.flushed_offset < self.log_end_offset, entered = False
        cdef uint8_t* to
        cdef list parts = []
        for number in range(held):
            batch = batches[number]
            copied = views[number].len if views[number].len <= COPIED_BYTES else STAMP_BYTES
            stamped = PyBytes_FromStringAndSize(<const char*>views[number].buf, copied)
            to = <uint8_t*>PyBytes_AS_STRING(stamped)
            put_big(to, offset, 8)
            put_big(to + 12, epoch, 4)
            written[count].iov_base, written[count].iov_len = to, copied
            count += 1
            if copied < views[number].len:
                parts.append((stamped, (<object>tuple_item(<PyObject*>batch, 0))[STAMP_BYTES:]))
                written[count].iov_base = <uint8_t*>views[number].buf + STAMP_BYTES
                written[count].iov_len = views[number].len - STAMP_BYTES
                count += 1
            else:
                parts.append((stamped,))
            size += views[number].len
            offset += number_at(tuple_item(<PyObject*>batch, 1), LAST_OFFSET_DELTA_AT) + 1
        file = self._held.file
        if file is None:
            file = self._hold(segment)
        try:
            if type(file) is _OsFile:
                self.write(file, written, count, position, size, tuple(chain.from_iterable(parts)))
            else:
                _write_all(file, list(chain.from_iterable(parts)), position)
        except BaseException as error:
            self._take_back_written(segment, file, error)
            raise
        offset = self.log_end_offset
        for number in range(held):
            header = tuple_item(<PyObject*>batches[number], 1)
            last = offset + number_at(header, LAST_OFFSET_DELTA_AT)
            entered |= segment.noted(position, views[number].len, last, number_at(header, MAX_TIMESTAMP_AT))
            position += views[number].len
            self.tail.add(offset, last + 1, position, parts[number], views[number].len)
            placed.append(tuple.__new__(_Appended, (offset, last + 1)))
            offset = last + 1
        self.count(segment, offset, was_dirty, entered)
        return 0

    cdef int append_one(self, lone, header) except -1:
        cdef int64_t epoch = self.epochs.latest, offset, position, last, newest_ms
        cdef Py_buffer view
        cdef Py_ssize_t size
        cdef bint was_dirty, entered
        cdef SegmentTail segment
        cdef uint8_t* to
        cdef iovec written[2]
        cdef int count = 1
        if epoch < 0:
            epoch = self._writing_epoch(LONE_TERM)
        data = <object>tuple_item(<PyObject*>lone, 0)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            size = view.len
            if size < HEADER_BYTES:
                raise _InvariantError("invariant broken: a checked batch has its header")
            segment = self.segment_for(lone, header, size)
            offset, position = self.log_end_offset, segment.size
            was_dirty = self.flushed_offset < self.log_end_offset
            # One buffer is written faster than two, and is one object in the tail cache instead of four.
            copied = size if size <= COPIED_BYTES else STAMP_BYTES
            stamped = PyBytes_FromStringAndSize(<const char*>view.buf, copied)
            to = <uint8_t*>PyBytes_AS_STRING(stamped)
            put_big(to, offset, 8)
            put_big(to + 12, epoch, 4)
            written[0].iov_base, written[0].iov_len = to, copied
            if size > COPIED_BYTES:
                parts = (stamped, data[STAMP_BYTES:])
                written[1].iov_base = <uint8_t*>view.buf + STAMP_BYTES
                written[1].iov_len = size - STAMP_BYTES
                count = 2
            else:
                parts = (stamped,)
            file = self._held.file
            if file is None:
                file = self._hold(segment)
            try:
                if type(file) is _OsFile:
                    self.write(file, written, count, position, size, parts)
                else:
                    _write_all(file, parts, position)  # behind what is valid: it may be cut back to that
            except BaseException as error:
                self._take_back_written(segment, file, error)
                raise
        finally:
            PyBuffer_Release(&view)
        last = offset + number_at(<PyObject*>header, LAST_OFFSET_DELTA_AT)
        newest_ms = number_at(<PyObject*>header, MAX_TIMESTAMP_AT)
        if number_at(<PyObject*>header, PRODUCER_ID_AT) >= 0:
            self.producers.note(header, data, offset)
        entered = segment.noted(position, size, last, newest_ms)
        self.tail.add(offset, last + 1, position + size, parts, size)
        self.count(segment, last + 1, was_dirty, entered)
        return 0

    cdef int write(
        self, file, iovec* written, int count, int64_t position, Py_ssize_t size, tuple parts
    ) except -1:
        """As ``write_all`` of ``parts``, into a file of the operating system."""
        cdef int fd = file._fd
        cdef ssize_t done
        while True:
            with nogil:
                done = pwritev(fd, written, count, position)
            if done >= 0:
                break
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
        if done < size:
            _write_all(file, [memoryview(b"".join(parts))[done:]], position + done)
        return 0

    def _write(self, segment, buffers):
        file = self._held.file
        if file is None:
            file = self._hold(segment)
        try:
            _write_all(file, buffers, segment.size)  # behind what is valid: it may be cut back to that
        except BaseException as error:
            self._take_back_written(segment, file, error)
            raise

    def _count(self, segment, int64_t offset, bint was_dirty, bint entered):
        """The log reaches to ``offset`` now; ``entered``: the segment's indexes have got new rows."""
        self.count(segment, offset, was_dirty, entered)

    cdef int count(self, SegmentTail segment, int64_t offset, bint was_dirty, bint entered) except -1:
        self.unsynced_records += offset - self.log_end_offset
        self.log_end_offset = offset
        if not was_dirty:
            self._on_dirty(self)
        if entered and segment.unstored() >= self.store_rows:
            try:
                segment.store_indexes()
            except OSError:
                pass  # the batches are in; the rows wait in memory for the next try, a checkpoint or a roll
        if self.shows_appended:
            self.advance(offset)
            self._publish(self)  # else nothing that other processes may see has changed before the sync
        return 0

    def _advance_high_watermark(self, int64_t offset):
        """The one place where the high watermark moves. The lock is held; ``offset`` lies between two batches."""
        self.advance(offset)

    cdef int advance(self, int64_t offset) except -1:
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.first_unstable is not None:
                self.producers.settle(offset)
            if self._waiters:
                self.wake_waiters()
        return 0
