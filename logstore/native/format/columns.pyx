"""Batches to Arrow columns: the compiled twin of ``TableBuilder`` in format/arrow.py.

Records go from their batch into the buffers of their columns in one pass, without the interpreter's lock. What does not
read well is left to the Python twin, which reads it or says why not.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memset

from logstore.native.format.arrow_columns cimport (
    Bounds, Column, FILLED, FULL, Filling, Needs, Outcome, STRIDE, Section, UNSOUND, fill, measure,
)
from logstore.native.format.batch_header cimport (
    ATTRIBUTES_AT, CODEC_MASK, CONTROL_BIT, HEADER_BYTES, Header, LOG_APPEND_TIME_BIT, UNCOUNTED_BYTES, header_fields, read,
)
from logstore.native.format.record_fields cimport MIN_RECORD_BYTES
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef extern from "Python.h":
    object view_of "PyMemoryView_FromMemory" (char* data, Py_ssize_t size, int flags)
    int PyBUF_READ

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <sys/mman.h>

    #define LOGSTORE_HUGE ((uintptr_t)1 << 21)

    /* Clearing a huge page costs a fraction of clearing its small ones. Those at the ends stay small, so that no memory
       is taken that will not be written. Where there are none, nothing changes. */
    static void prefer_huge_pages(void* start, size_t size) {
    #ifdef MADV_HUGEPAGE
        uintptr_t first = ((uintptr_t)start + LOGSTORE_HUGE - 1) & ~(LOGSTORE_HUGE - 1);
        uintptr_t end = ((uintptr_t)start + size) & ~(LOGSTORE_HUGE - 1);
        if (size >= LOGSTORE_HUGE && first < end)
            madvise((void*)first, end - first, MADV_HUGEPAGE);
    #else
        (void)start; (void)size;
    #endif
    }
    """
    void prefer_huge_pages(void* start, size_t size) noexcept nogil

cdef enum:
    LEFT = -1  # to the Python twin
    ALIGNED = 64
    CACHED_BYTES = 8192
    COLUMNS = 6
    OFFSET = 4  # which of the table's columns
    TIMESTAMP = 5
    MICROSECONDS = 1000  # in one of the batch's
    MOST_CHUNK_BYTES = 1 << 30
    MOST_ROWS = 1 << 23  # of a chunk

cdef object _arrow = None
cdef object _crc32c = None
cdef object _BatchHeader = None
cdef object _records_section = None


cdef int _import() except -1:
    global _arrow, _crc32c, _BatchHeader, _records_section
    if _records_section is None:
        import pyarrow
        from crc32c import crc32c

        from logstore.format.batch import BatchHeader, records_section

        _arrow, _crc32c, _BatchHeader, _records_section = pyarrow, crc32c, BatchHeader, records_section
    return 0


cdef allocated(Py_ssize_t size):
    buffer = _arrow.allocate_buffer(size, resizable=True)
    prefer_huge_pages(<void*><uintptr_t>buffer.address, size)
    return buffer


cdef uint8_t* start_of(buffer) except? NULL:
    return <uint8_t*><uintptr_t>buffer.address


cdef cut(buffer, Py_ssize_t size):
    """The buffer's first bytes. What was too large by much is given back."""
    buffer.resize(size, shrink_to_fit=2 * size < buffer.size)
    return buffer


cdef inline Py_ssize_t up(Py_ssize_t size) noexcept:
    return (size + ALIGNED - 1) // ALIGNED * ALIGNED


cdef void lay_out(Py_ssize_t rows, Py_ssize_t* places) noexcept:
    """Where in one buffer the columns of so many rows lie: offsets, timestamps, where keys and values begin, which keys
    and values are null; then its size."""
    cdef Py_ssize_t bits = (rows + 7) // 8, begins = (rows + 1) * sizeof(int32_t), numbers = rows * sizeof(int64_t)
    cdef Py_ssize_t* sizes = [numbers, numbers, begins, begins, bits, bits]
    cdef Py_ssize_t number
    places[0] = 0
    for number in range(COLUMNS):
        places[number + 1] = up(places[number] + sizes[number])


cdef Py_ssize_t room_for(Py_ssize_t need, const Needs* needs, Py_ssize_t rows) noexcept:
    """Of ``rows`` rows, if that of the first ones is ``need``: some more, as they are not all alike."""
    cdef Py_ssize_t others = need * (rows - needs.records) // needs.records
    return max(min(need + others + others // 8, INT32_MAX - STRIDE), need)


cdef void repeat(uint8_t* to, const uint8_t* text, Py_ssize_t size, Py_ssize_t times) noexcept nogil:
    """``text`` so many times, from some copies of it that are in the processor's cache."""
    cdef Py_ssize_t done = size, step = size, end = size * times
    if end:
        memcpy(to, text, size)
    while done < end:
        memcpy(to + done, to, min(step, end - done))
        done += step
        if step < CACHED_BYTES:
            step = done


cdef class Constants:
    """Columns that are the same in each row: made once, of as many rows as the largest chunk has, for all chunks."""

    cdef object topics, partitions, zeros
    cdef Py_ssize_t rows, items

    def __cinit__(self, bytes topic, int32_t partition, Py_ssize_t rows, Py_ssize_t items):
        """``topics`` and ``partitions`` of so many rows; ``zeros`` where so many items begin."""
        cdef Py_ssize_t size = len(topic), begins = up((rows + 1) * sizeof(int32_t)), texts = up(rows * size), row
        cdef Py_ssize_t numbers = up(rows * sizeof(int32_t)), nothing = (items + 1) * sizeof(int32_t)
        cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(topic)
        self.rows, self.items = rows, items
        buffer = allocated(begins + texts + numbers + nothing)
        cdef int32_t* offsets = <int32_t*>start_of(buffer)
        cdef uint8_t* to = <uint8_t*>offsets + begins
        cdef int32_t* places = <int32_t*>(to + texts)
        with nogil:
            offsets[0] = 0
            for row in range(rows):
                offsets[row + 1] = <int32_t>((row + 1) * size)
                places[row] = partition
            repeat(to, text, size, rows)
            memset(<uint8_t*>places + numbers, 0, nothing)
        parts = [None, buffer.slice(0, begins), buffer.slice(begins, texts)]
        self.topics = _arrow.Array.from_buffers(_arrow.string(), rows, parts, 0)
        parts = [None, buffer.slice(begins + texts, numbers)]
        self.partitions = _arrow.Array.from_buffers(_arrow.int32(), rows, parts, 0)
        self.zeros = buffer.slice(begins + texts + numbers)


cdef class Chunk:
    """Rows that become one record batch: buffers with room for more of them, and how far they are filled."""

    cdef Filling filling
    cdef Py_ssize_t bytes  # of the sections
    cdef object rows, keys, values, kinds, ends, headers, names, contents

    def __cinit__(self):
        memset(&self.filling, 0, sizeof(Filling))
        self.bytes = 0

    cdef int open(self, Py_ssize_t rows, const Needs* needs, bint headed, int64_t ticks) except -1:
        """Room for ``rows`` rows like those that need ``needs``."""
        cdef Filling* to = &self.filling
        cdef Py_ssize_t[COLUMNS + 1] places
        cdef Py_ssize_t headers
        lay_out(rows, places)
        self.rows = allocated(places[COLUMNS])
        self.point(start_of(self.rows), places)
        to.room, to.ticks, to.farthest_ms = rows, ticks, INT64_MAX // ticks
        self.keys = self.open_data(&to.keys, room_for(needs.keys, needs, rows))
        self.values = self.open_data(&to.values, room_for(needs.values, needs, rows))
        if headed and needs.headers:
            headers = to.headers_room = room_for(needs.headers, needs, rows)
            self.ends = allocated((rows + 1) * sizeof(int32_t))
            self.headers = allocated(2 * (headers + 1) * sizeof(int32_t) + (headers + 7) // 8)
            to.ends = <int32_t*>start_of(self.ends)
            to.names.offsets = <int32_t*>start_of(self.headers)
            to.contents.offsets = to.names.offsets + headers + 1
            to.contents.validity = <uint8_t*>(to.contents.offsets + headers + 1)
            to.ends[0] = to.names.offsets[0] = to.contents.offsets[0] = 0
            self.names = self.open_data(&to.names, room_for(needs.names, needs, rows))
            self.contents = self.open_data(&to.contents, room_for(needs.contents, needs, rows))
        return 0

    cdef int point(self, uint8_t* start, const Py_ssize_t* places) except -1:
        cdef Filling* to = &self.filling
        to.offsets = <int64_t*>start
        to.times = <int64_t*>(start + places[1])
        to.keys.offsets = <int32_t*>(start + places[2])
        to.values.offsets = <int32_t*>(start + places[3])
        to.keys.validity = start + places[4]
        to.values.validity = start + places[5]
        to.keys.offsets[0] = to.values.offsets[0] = 0
        return 0

    cdef open_data(self, Column* column, Py_ssize_t room):
        buffer = allocated(room + STRIDE)
        column.data, column.room = start_of(buffer), room
        return buffer

    cdef int note_kind(self, int32_t kind) except -1:
        """Timestamps of another kind than those before need a column of their own."""
        cdef Filling* to = &self.filling
        cdef Py_ssize_t row
        if to.rows == 0:
            to.kind, to.kinds = kind, NULL
        elif to.kinds == NULL and to.kind != kind:
            self.kinds = allocated(to.room * sizeof(int32_t))
            to.kinds = <int32_t*>start_of(self.kinds)
            for row in range(to.rows):
                to.kinds[row] = to.kind
        return 0

    cdef bint names_are_text(self, const Column* before) except -1:
        """Whether those behind ``before`` are UTF-8."""
        cdef Column* names = &self.filling.names
        cdef Py_ssize_t number
        try:
            for number in range(before.count, names.count):
                (<char*>names.data)[names.offsets[number]:names.offsets[number + 1]].decode()
        except UnicodeDecodeError:
            return False
        return True

    cdef list arrays(self, Constants same, columns):
        """Its columns; nothing more comes."""
        cdef Filling* to = &self.filling
        cdef Py_ssize_t[COLUMNS + 1] places
        cdef Py_ssize_t rows = to.rows
        self.settle()
        lay_out(to.room, places)
        cdef list parts = [
            self.rows.slice(places[number], places[number + 1] - places[number]) for number in range(COLUMNS)
        ]
        cdef list arrays = [
            payloads(_arrow.binary(), &to.keys, parts[4], parts[2], self.keys, same.zeros),
            payloads(_arrow.binary(), &to.values, parts[5], parts[3], self.values, same.zeros),
            same.topics.slice(0, rows),
            same.partitions.slice(0, rows),
            numbers(columns.field(OFFSET).type, rows, parts[0]),
            numbers(columns.field(TIMESTAMP).type, rows, parts[1]),
        ]
        if to.kinds != NULL:
            arrays.append(numbers(_arrow.int32(), rows, cut(self.kinds, rows * sizeof(int32_t))))
        elif to.kind:
            arrays.append(_arrow.repeat(_arrow.scalar(to.kind, _arrow.int32()), rows))
        else:
            arrays.append(numbers(_arrow.int32(), rows, same.zeros))
        if "headers" in columns.names:
            arrays.append(self.header_lists(columns.field("headers").type, same.zeros))
        return arrays

    cdef header_lists(self, kind, zeros):
        cdef Filling* to = &self.filling
        cdef Py_ssize_t begins = (to.headers_room + 1) * sizeof(int32_t)
        if to.ends == NULL:
            nothing = _arrow.array([], kind.value_type)
            return _arrow.Array.from_buffers(kind, to.rows, [None, zeros], 0, 0, [nothing])
        names = payloads(_arrow.string(), &to.names, None, self.headers.slice(0, begins), self.names, zeros)
        contents = payloads(
            _arrow.binary(), &to.contents, self.headers.slice(2 * begins), self.headers.slice(begins, begins),
            self.contents, zeros,
        )
        pairs = _arrow.StructArray.from_arrays([names, contents], fields=list(kind.value_type))
        ends = cut(self.ends, (to.rows + 1) * sizeof(int32_t))
        return _arrow.Array.from_buffers(kind, to.rows, [None, ends], 0, 0, [pairs])

    cdef int settle(self) except -1:
        """Give back what was too large by much: nothing more comes."""
        cdef Filling* to = &self.filling
        cdef Py_ssize_t[COLUMNS + 1] places
        cdef Py_ssize_t[COLUMNS + 1] fewer
        cdef Py_ssize_t number
        cut(self.keys, to.keys.size)
        cut(self.values, to.values.size)
        if to.ends != NULL:
            cut(self.names, to.names.size)
            cut(self.contents, to.contents.size)
        lay_out(to.room, places)
        lay_out(to.rows, fewer)
        if 2 * fewer[COLUMNS] < places[COLUMNS]:
            buffer = allocated(fewer[COLUMNS])
            for number in range(COLUMNS):
                memcpy(
                    start_of(buffer) + fewer[number], start_of(self.rows) + places[number],
                    fewer[number + 1] - fewer[number],
                )
            self.rows, to.room = buffer, to.rows
        return 0


cdef numbers(kind, Py_ssize_t rows, buffer):
    return _arrow.Array.from_buffers(kind, rows, [None, buffer], 0)


cdef payloads(kind, const Column* column, validity, offsets, data, zeros):
    """A column of bytes; ``zeros`` in the place of what is not written where all are null."""
    if column.nulls and column.nulls == column.count:
        validity = offsets = data = zeros
    elif not column.nulls:
        validity = None
    return _arrow.Array.from_buffers(kind, column.count, [validity, offsets, data], column.nulls)


cdef class TableBuilder:
    """Batches, one buffer of them after the other, that become one table, or record batches as they come."""

    cdef object columns
    cdef bytes topic
    cdef int32_t partition
    cdef Py_ssize_t max_bytes, chunk_bytes, most_rows
    cdef int64_t end  # of all that comes; -1: with the first buffer
    cdef int64_t ticks  # of the column of timestamps in a millisecond
    cdef bint proves, headed
    cdef list parts  # chunks, and tables that the Python twin made
    cdef Chunk chunk  # the last part, if it is one
    cdef Constants same
    cdef int64_t taken  # rows of the buffer that ``batches`` is at
    cdef tuple arguments

    READ_BYTES = 1 << 20

    def __init__(
        self, columns, topic, partition, check, max_decompressed_bytes, chunk_bytes, end_offset=None
    ):
        _import()
        self.arguments = columns, topic, partition, check, max_decompressed_bytes, chunk_bytes
        self.columns, self.partition = columns, partition
        self.topic = topic.encode()
        self.most_rows = min(MOST_ROWS, INT32_MAX // max(len(self.topic), 1))
        self.proves, self.max_bytes, self.chunk_bytes = check, max_decompressed_bytes, min(chunk_bytes, MOST_CHUNK_BYTES)
        self.headed = "headers" in columns.names
        self.ticks = MICROSECONDS if columns.field(TIMESTAMP).type.unit == "us" else 1
        self.end = end_offset if end_offset is not None and 0 <= end_offset <= INT64_MAX else -1
        self.parts = []

    def add(self, buffer, start_offset, end_offset):
        """The records in [start_offset, end_offset) of whole batches. After an error what was there stays."""
        cdef Filling before
        cdef Chunk chunk = self.chunk
        cdef Py_ssize_t parts = len(self.parts), size = 0
        cdef bint done = False
        if chunk is not None:
            before, size = chunk.filling, chunk.bytes
        try:
            done = self.step(buffer, start_offset, end_offset, 0, False) != LEFT
        finally:
            if not done:
                del self.parts[parts:]
                self.chunk = chunk
                if chunk is not None:
                    chunk.filling, chunk.bytes = before, size
        if not done:
            self.leave(buffer, start_offset, end_offset, 0)

    def batches(self, buffer, start_offset, end_offset):
        """``add``, and what of all that was added is whole, as record batches."""
        cdef Py_ssize_t at = 0, size = memoryview(buffer).nbytes
        self.taken = 0
        while at < size:
            at = self.step(buffer, start_offset, end_offset, at, True)
            if at == LEFT:
                self.leave(buffer, start_offset, end_offset, self.taken)
                at = size
            while self.parts and (len(self.parts) > 1 or self.chunk is None):
                yield from self.given(self.parts.pop(0))

    def rest(self):
        """What was added and not given yet, as record batches."""
        self.chunk = None
        while self.parts:
            yield from self.given(self.parts.pop(0))

    cdef given(self, part):
        """A part as record batches."""
        cdef Filling* filling
        if not isinstance(part, Chunk):
            return part.to_batches()
        filling = &(<Chunk>part).filling
        if not filling.rows:
            return ()
        self.share(filling.rows, max(filling.rows, filling.contents.count))
        return (_arrow.RecordBatch.from_arrays((<Chunk>part).arrays(self.same, self.columns), schema=self.columns),)

    cdef int share(self, Py_ssize_t rows, Py_ssize_t items) except -1:
        """Columns that are the same in each row, of at least so many."""
        if self.same is None or self.same.rows < rows or self.same.items < items:
            self.same = Constants(self.topic, self.partition, rows, items)
        return 0

    cdef int leave(self, buffer, start_offset, end_offset, int64_t taken) except -1:
        """To Python's twin, all of the buffer but so many rows that are there already."""
        twin = PYTHON_TWINS["TableBuilder"](*self.arguments)
        twin.add(buffer, start_offset, end_offset)
        table = twin.table()
        self.parts.append(table.slice(taken) if taken else table)
        self.chunk = None
        return 0

    def table(self):
        """All that was added. Nothing can be added any more."""
        cdef list tables = []
        cdef Py_ssize_t rows = 0, items = 0
        cdef Filling* filling
        for part in self.parts:
            if isinstance(part, Chunk):
                filling = &(<Chunk>part).filling
                rows, items = max(rows, filling.rows), max(items, filling.rows, filling.contents.count)
        if rows:
            self.share(rows, items)
        for part in self.parts:
            if not isinstance(part, Chunk):
                tables.append(part)
            elif (<Chunk>part).filling.rows:
                tables.append(_arrow.table((<Chunk>part).arrays(self.same, self.columns), schema=self.columns))
        self.parts, self.chunk = [], None
        if not tables:
            return self.columns.empty_table()
        return tables[0] if len(tables) == 1 else _arrow.concat_tables(tables)

    cdef Py_ssize_t step(self, buffer, start_offset, end_offset, Py_ssize_t at, bint whole) except? -2:
        """The batches from ``at`` on, with ``whole`` until a chunk is whole: behind the last of them; ``LEFT``: to the
        Python twin."""
        cdef Py_buffer data
        cdef Bounds kept
        if not (INT64_MIN <= start_offset <= INT64_MAX and (end_offset is None or INT64_MIN <= end_offset <= INT64_MAX)):
            return LEFT
        kept.start, kept.end = start_offset, INT64_MAX if end_offset is None else end_offset
        kept.to_last = end_offset is None
        PyObject_GetBuffer(buffer, &data, PyBUF_SIMPLE)
        try:
            return self.take(buffer, <const uint8_t*>data.buf, data.len, &kept, at, whole)
        finally:
            PyBuffer_Release(&data)

    cdef Py_ssize_t take(
        self, buffer, const uint8_t* data, Py_ssize_t size, const Bounds* kept, Py_ssize_t at, bint whole
    ) except? -2:
        cdef Header header
        cdef Section section
        cdef Py_ssize_t here, length
        cdef int64_t end = self.end if self.end >= 0 else last_offset(data, size)
        while at < size and not (whole and len(self.parts) > 1):
            here = at
            if not read(data + here, size - here, &header):
                return LEFT
            if not kept.to_last and header.base_offset >= kept.end:
                return size
            length = <Py_ssize_t>header.batch_length + UNCOUNTED_BYTES
            if header.base_offset + header.last_offset_delta >= kept.start:
                if self.proves:
                    crc = _crc32c(view_of(<char*>data + here + ATTRIBUTES_AT, length - ATTRIBUTES_AT, PyBUF_READ))
                    if crc != header.crc:
                        return LEFT
                if header.count and not header.attributes & CONTROL_BIT:
                    section.held, section.end = size, here + length
                    if not self.take_batch(buffer, here, &header, &section, data, kept, end):
                        return LEFT
            at = here + length
        return at

    cdef bint take_batch(
        self, buffer, Py_ssize_t here, const Header* header, Section* section, const uint8_t* data, const Bounds* kept,
        int64_t end
    ) except -1:
        """The records of the batch at ``here``, which ends at the section's end."""
        section.records = header.count
        section.base_offset, section.last_delta = header.base_offset, header.last_offset_delta
        section.appended = header.attributes & LOG_APPEND_TIME_BIT != 0
        section.base_ms = header.max_ms if section.appended else header.base_ms
        section.data, section.at = data, here + HEADER_BYTES
        if header.attributes & CODEC_MASK:
            found = tuple.__new__(_BatchHeader, header_fields(header))
            records = _records_section(buffer, here, found, self.max_bytes)
            section.data, section.at = <const uint8_t*>PyBytes_AS_STRING(records), 0
            section.end = section.held = PyBytes_GET_SIZE(records)
        return self.take_section(section, kept, end)

    cdef bint take_section(self, const Section* section, const Bounds* kept, int64_t end) except -1:
        """False: left to the Python twin. ``end``: of all that comes, as far as it is known."""
        cdef Py_ssize_t size = section.end - section.at
        cdef Filling before
        cdef Outcome outcome = FULL
        if size > INT32_MAX or section.records > size // MIN_RECORD_BYTES or section.records > self.most_rows:
            return False
        if self.chunk is not None and self.chunk.bytes + size <= self.chunk_bytes:
            before = self.chunk.filling
            outcome = self.fill(section, kept)
            if outcome == FULL:
                self.chunk.filling = before
        if outcome == FULL:
            if not self.open(section, size, end):
                return False
            before = self.chunk.filling
            outcome = self.fill(section, kept)
        if outcome != FILLED:
            return False
        if self.chunk.filling.wide_names and not self.chunk.names_are_text(&before.names):
            self.chunk.filling = before
            return False
        self.chunk.bytes += size
        self.taken += self.chunk.filling.rows - before.rows
        return True

    cdef Outcome fill(self, const Section* section, const Bounds* kept) except *:
        cdef Filling* filling = &self.chunk.filling
        cdef Outcome outcome
        self.chunk.note_kind(section.appended)
        filling.wide_names = False
        with nogil:
            outcome = fill(section, kept, self.headed, filling)
        return outcome

    cdef bint open(self, const Section* section, Py_ssize_t size, int64_t end) except -1:
        """A new chunk that holds the section and, as far as is known, what comes behind it; False if the section is not
        sound."""
        cdef Needs needs
        cdef Outcome outcome
        cdef int64_t rows
        cdef Chunk chunk
        with nogil:
            outcome = measure(section, &needs)
        if outcome != FILLED:
            return False
        rows = min(max(end - section.base_offset, 0), INT32_MAX) * section.records // (section.last_delta + 1)
        rows = min(rows, self.chunk_bytes * section.records // size, self.most_rows)
        chunk = Chunk()
        chunk.open(max(rows, section.records), &needs, self.headed, self.ticks)
        self.parts.append(chunk)
        self.chunk = chunk
        return True


cdef int64_t last_offset(const uint8_t* data, Py_ssize_t size) noexcept:
    """Behind the last of the batches that are there."""
    cdef Header header
    cdef Py_ssize_t at = 0
    cdef int64_t end = 0
    while at < size and read(data + at, size - at, &header):
        at += <Py_ssize_t>header.batch_length + UNCOUNTED_BYTES
        end = header.base_offset + header.last_offset_delta
    return end if end == INT64_MAX else end + 1
