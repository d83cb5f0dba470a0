"""Batches to Arrow columns: the compiled twin of ``chunk_table`` in format/arrow.py.

One pass over the records finds their fields, the next copies each into the buffer of its column; both without the
interpreter's lock. What does not read well is left to the Python twin, which reads it or says why not.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memset

from logstore.native.record_fields cimport ABSENT, MIN_RECORD_BYTES, RecordFields, read_header, read_record
from logstore.native.varints cimport fingerprint

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}


cdef struct Span:
    # Where the fields of a record lie; sizes are ABSENT for null.
    int32_t key_at, key_size, value_at, value_size, headers_at, headers


cdef struct Column:
    # A column of bytes that is being filled: Arrow's buffers.
    int32_t* offsets
    uint8_t* validity  # NULL: no null among them
    uint8_t* data
    int32_t size
    Py_ssize_t count


cdef struct Chunk:
    # What the first pass found, of the records to keep.
    Span* spans
    int64_t* offsets
    int64_t* times
    int32_t* kinds
    Py_ssize_t count
    Py_ssize_t key_bytes, value_bytes, headers, name_bytes, content_bytes
    Py_ssize_t null_keys, null_values, null_contents


cdef struct Section:
    Py_ssize_t at, end, records
    int64_t base_offset, last_delta, base_ms
    int32_t appended


cdef struct Bounds:
    int64_t start
    int64_t end
    bint to_last  # no end


cdef int find_fields(const uint8_t* data, const Section* section, const Bounds* kept, Chunk* chunk) noexcept nogil:
    """Read all records of a section, and note those to keep; not 0 if they are not exactly what it should hold."""
    cdef Py_ssize_t at = section.at, number
    cdef int64_t last = -1, time_ms, offset
    cdef RecordFields fields
    cdef Span* span
    for number in range(section.records):
        if read_record(data, section.end, &at, &fields):
            return -1
        if fields.offset_delta <= last or fields.offset_delta > section.last_delta:
            return -1
        last = fields.offset_delta
        time_ms = section.base_ms
        if fields.timestamp_delta and not section.appended:
            time_ms += fields.timestamp_delta
            if (time_ms < section.base_ms) != (fields.timestamp_delta < 0):
                return -1
        offset = section.base_offset + fields.offset_delta
        if offset < kept.start or (offset >= kept.end and not kept.to_last):
            continue
        span = &chunk.spans[chunk.count]
        span.key_at, span.key_size = <int32_t>fields.key_at, <int32_t>fields.key_size
        span.value_at, span.value_size = <int32_t>fields.value_at, <int32_t>fields.value_size
        span.headers_at, span.headers = <int32_t>fields.headers_at, <int32_t>fields.headers
        chunk.offsets[chunk.count] = offset
        chunk.times[chunk.count] = time_ms
        chunk.kinds[chunk.count] = section.appended
        chunk.count += 1
        if fields.key_size == ABSENT:
            chunk.null_keys += 1
        else:
            chunk.key_bytes += fields.key_size
        if fields.value_size == ABSENT:
            chunk.null_values += 1
        else:
            chunk.value_bytes += fields.value_size
        if fields.headers:
            find_headers(data, section.end, &fields, chunk)
    return 0 if at == section.end else -1


cdef void find_headers(const uint8_t* data, Py_ssize_t end, const RecordFields* fields, Chunk* chunk) noexcept nogil:
    cdef Py_ssize_t at = fields.headers_at, number, name_at = 0, name_size = 0, content_at = 0, content_size = 0
    for number in range(fields.headers):
        read_header(data, end, &at, &name_at, &name_size, &content_at, &content_size)
        chunk.name_bytes += name_size
        if content_size == ABSENT:
            chunk.null_contents += 1
        else:
            chunk.content_bytes += content_size
    chunk.headers += fields.headers


cdef inline void put(Column* column, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """One more item of the column."""
    column.offsets[column.count] = column.size
    if size != ABSENT:
        memcpy(column.data + column.size, data, size)
        column.size += <int32_t>size
        if column.validity != NULL:
            column.validity[column.count >> 3] |= 1 << (column.count & 7)
    column.count += 1
    column.offsets[column.count] = column.size


cdef void put_headers(
    const uint8_t* data, Py_ssize_t end, const Chunk* chunk, Column* names, Column* contents, int32_t* ends
) noexcept nogil:
    cdef Py_ssize_t record, number, at, name_at = 0, name_size = 0, content_at = 0, content_size = 0
    ends[0] = 0
    for record in range(chunk.count):
        at = chunk.spans[record].headers_at
        for number in range(chunk.spans[record].headers):
            read_header(data, end, &at, &name_at, &name_size, &content_at, &content_size)
            put(names, data + name_at, name_size)
            put(contents, data + content_at, content_size)
        ends[record + 1] = <int32_t>names.count


cdef class Builder:
    """A binary column of a known size: its Arrow buffers, and where they lie."""

    cdef Column column
    cdef object offsets, validity, data

    def __cinit__(self, arrow, Py_ssize_t count, Py_ssize_t size, bint nulls):
        cdef Py_ssize_t bits = (count + 7) // 8
        self.offsets = arrow.allocate_buffer((count + 1) * sizeof(int32_t))
        self.data = arrow.allocate_buffer(size)
        self.column.offsets = <int32_t*><uintptr_t>self.offsets.address
        self.column.data = <uint8_t*><uintptr_t>self.data.address
        self.column.offsets[0] = 0
        if nulls:
            self.validity = arrow.allocate_buffer(bits)
            self.column.validity = <uint8_t*><uintptr_t>self.validity.address
            memset(self.column.validity, 0, bits)

    cdef array(self, arrow, Py_ssize_t nulls):
        if nulls and nulls == self.column.count:
            return arrow.nulls(self.column.count, arrow.binary())
        return arrow.Array.from_buffers(
            arrow.binary(), self.column.count, [self.validity, self.offsets, self.data], nulls
        )


cdef class Reading:
    """One chunk of batches on its way to columns."""

    cdef Chunk chunk
    cdef object arrow, offsets, times, kinds

    def __cinit__(self, arrow, Py_ssize_t records):
        self.arrow = arrow
        self.chunk.spans = <Span*>PyMem_Malloc(records * sizeof(Span) or 1)
        if self.chunk.spans == NULL:
            raise MemoryError
        self.offsets = arrow.allocate_buffer(records * sizeof(int64_t))
        self.times = arrow.allocate_buffer(records * sizeof(int64_t))
        self.kinds = arrow.allocate_buffer(records * sizeof(int32_t))
        self.chunk.offsets = <int64_t*><uintptr_t>self.offsets.address
        self.chunk.times = <int64_t*><uintptr_t>self.times.address
        self.chunk.kinds = <int32_t*><uintptr_t>self.kinds.address

    def __dealloc__(self):
        PyMem_Free(self.chunk.spans)

    cdef tuple payloads(self, const uint8_t* data):
        """The columns of keys and values."""
        cdef Builder keys = Builder(
            self.arrow, self.chunk.count, self.chunk.key_bytes, self.chunk.null_keys
        )
        cdef Builder values = Builder(
            self.arrow, self.chunk.count, self.chunk.value_bytes, self.chunk.null_values
        )
        cdef Py_ssize_t number
        cdef Span* span
        with nogil:
            for number in range(self.chunk.count):
                span = &self.chunk.spans[number]
                put(&keys.column, data + span.key_at, span.key_size)
                put(&values.column, data + span.value_at, span.value_size)
        return keys.array(self.arrow, self.chunk.null_keys), values.array(self.arrow, self.chunk.null_values)

    cdef header_lists(self, const uint8_t* data, Py_ssize_t end, kind):
        """The column of headers; None if a name is not UTF-8."""
        cdef Builder names = Builder(self.arrow, self.chunk.headers, self.chunk.name_bytes, False)
        cdef Builder contents = Builder(
            self.arrow, self.chunk.headers, self.chunk.content_bytes, self.chunk.null_contents
        )
        ends = self.arrow.allocate_buffer((self.chunk.count + 1) * sizeof(int32_t))
        cdef int32_t* to = <int32_t*><uintptr_t>ends.address
        with nogil:
            put_headers(data, end, &self.chunk, &names.column, &contents.column, to)
        try:
            texts = names.array(self.arrow, 0).cast(self.arrow.string())
        except self.arrow.ArrowInvalid:
            return None
        pairs = [texts, contents.array(self.arrow, self.chunk.null_contents)]
        structs = self.arrow.StructArray.from_arrays(pairs, fields=list(kind.value_type))
        return self.arrow.Array.from_buffers(kind, self.chunk.count, [None, ends], 0, 0, [structs])

    cdef list numbers(self, schema):
        """The columns of offsets, timestamps and their types."""
        return [
            self.arrow.Array.from_buffers(schema.field(name).type, self.chunk.count, [None, buffer], 0)
            for name, buffer in (("offset", self.offsets), ("timestamp", self.times), ("timestamp_type", self.kinds))
        ]


cdef Reading read_sections(arrow, sections, const Py_buffer* data, Bounds* kept):
    """None: left to the Python twin."""
    cdef Py_ssize_t records = 0, number
    cdef Section section
    cdef Reading reading
    cdef int failed
    cdef list found = sections.found, bounds = sections.bounds
    for _position, header in found:
        records += header.records_count
    if records > data.len // MIN_RECORD_BYTES:
        return None
    reading = Reading(arrow, records)
    for number in range(len(found)):
        header = found[number][1]
        section.at, section.end = bounds[number]
        section.records = header.records_count
        section.base_offset, section.last_delta = header.base_offset, header.last_offset_delta
        section.appended = header.is_log_append_time
        section.base_ms = header.max_timestamp if section.appended else header.base_timestamp
        if section.records * MIN_RECORD_BYTES > section.end - section.at or section.end > data.len:
            return None
        with nogil:
            failed = find_fields(<const uint8_t*>data.buf, &section, kept, &reading.chunk)
        if failed:
            return None
    return reading


cdef read_table(sections, columns, topic, partition, const Py_buffer* data, Bounds* kept):
    """None: left to the Python twin."""
    import pyarrow

    cdef const uint8_t* start = <const uint8_t*>data.buf
    cdef list arrays
    cdef Reading reading = read_sections(pyarrow, sections, data, kept)
    if reading is None:
        return None
    arrays = [
        *reading.payloads(start),
        pyarrow.repeat(pyarrow.scalar(topic, pyarrow.string()), reading.chunk.count),
        pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), reading.chunk.count),
        *reading.numbers(columns),
    ]
    if "headers" in columns.names:
        lists = reading.header_lists(start, data.len, columns.field("headers").type)
        if lists is None:
            return None
        arrays.append(lists)
    return pyarrow.table(arrays, schema=columns)


def chunk_table(sections, columns, topic, partition, start_offset, end_offset):
    """One table of the batches in ``sections``."""
    cdef Py_buffer data
    cdef Bounds kept
    found = None
    if INT64_MIN <= start_offset <= INT64_MAX and (end_offset is None or INT64_MIN <= end_offset <= INT64_MAX):
        kept.start, kept.end = start_offset, INT64_MAX if end_offset is None else end_offset
        kept.to_last = end_offset is None
        PyObject_GetBuffer(sections.data, &data, PyBUF_SIMPLE)
        try:
            if data.len <= INT32_MAX:
                found = read_table(sections, columns, topic, partition, &data, &kept)
        finally:
            PyBuffer_Release(&data)
    if found is None:
        return PYTHON_TWINS["chunk_table"](sections, columns, topic, partition, start_offset, end_offset)
    return found
