# Arrow's columns of a partition's records, as they are filled from the batches: one pass, every room checked.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from logstore.native.format.record_fields cimport ABSENT, RecordFields, read_header, read_record

cdef enum Outcome:
    FILLED, FULL, UNSOUND

cdef enum:
    STRIDE = 32  # bytes copied at once; each column's data has so many spare ones behind its room
    LONG = 512  # from here on memcpy is faster


cdef struct Section:
    # The records of one batch: data[at:end]. Behind ``end``, ``held`` is where the memory ends.
    const uint8_t* data
    Py_ssize_t at, end, held, records
    int64_t base_offset, last_delta, base_ms
    int32_t appended


cdef struct Bounds:
    int64_t start
    int64_t end
    bint to_last  # no end


cdef struct Column:
    # A column of bytes. Before the first null beside others ``validity`` is not written, before the first that is not
    # null neither are the offsets.
    int32_t* offsets
    uint8_t* validity
    uint8_t* data
    Py_ssize_t size, room  # of the data
    Py_ssize_t count, nulls


cdef struct Filling:
    # All columns of one chunk, filled up to ``rows``. ``rows``, and what a column holds, may be set back.
    int64_t* offsets
    int64_t* times
    int32_t* kinds  # NULL: all are ``kind``
    int32_t* ends  # of the headers of each row; NULL: no headers so far
    int32_t kind
    int64_t ticks, farthest_ms  # of ``times`` in a millisecond; beyond which they do not fit 64 bits
    Py_ssize_t rows, room, headers_room
    Column keys, values, names, contents
    bint wide_names  # a header's name is not ASCII


cdef struct Needs:
    # The room that a section takes, whatever is left out of it.
    Py_ssize_t records, keys, values, headers, names, contents


cdef inline void copy(uint8_t* to, const uint8_t* data, Py_ssize_t size, Py_ssize_t held) noexcept nogil:
    """``size`` bytes of the ``held`` that can be read; up to ``STRIDE`` more may be written behind them."""
    cdef Py_ssize_t at = 0
    if size > LONG or size + STRIDE > held:
        memcpy(to, data, size)
        return
    while at < size:
        memcpy(to + at, data + at, STRIDE)
        at += STRIDE


cdef inline void put(Column* column, const uint8_t* data, Py_ssize_t size, Py_ssize_t held) noexcept nogil:
    """One more item, for which there is room."""
    cdef Py_ssize_t count = column.count
    if size == ABSENT:
        if column.nulls != count:
            if column.nulls == 0:
                memset(column.validity, 0xFF, (count + 7) >> 3)
            if count & 7 == 0:
                column.validity[count >> 3] = 0
            column.validity[count >> 3] &= ~(1 << (count & 7))
            column.offsets[count + 1] = <int32_t>column.size
        column.nulls += 1
    else:
        if column.nulls:
            if column.nulls == count:
                memset(column.offsets, 0, (count + 1) * sizeof(int32_t))
                memset(column.validity, 0, (count + 7) >> 3)
            if count & 7 == 0:
                column.validity[count >> 3] = 0
            column.validity[count >> 3] |= 1 << (count & 7)
        copy(column.data + column.size, data, size, held)
        column.size += size
        column.offsets[count + 1] = <int32_t>column.size
    column.count = count + 1


cdef inline Outcome put_headers(const Section* section, const RecordFields* fields, Filling* to) noexcept nogil:
    cdef Py_ssize_t at = fields.headers_at, number, byte, name_at = 0, name_size = 0, content_at = 0, content_size = 0
    if to.ends == NULL or to.headers_room - to.names.count < fields.headers:
        return FULL
    for number in range(fields.headers):
        if read_header(section.data, section.end, &at, &name_at, &name_size, &content_at, &content_size):
            return UNSOUND
        if name_size > to.names.room - to.names.size or content_size > to.contents.room - to.contents.size:
            return FULL
        for byte in range(name_at, name_at + name_size):
            to.wide_names |= section.data[byte] > 0x7F
        put(&to.names, section.data + name_at, name_size, section.held - name_at)
        put(&to.contents, section.data + content_at, content_size, section.held - content_at)
    return FILLED


cdef inline Outcome fill(const Section* section, const Bounds* kept, bint headed, Filling* filling) noexcept nogil:
    """The records of a section behind those that are there. Where it is not ``FILLED`` the caller sets back what
    ``filling`` was."""
    cdef Filling to = filling[0]
    cdef Py_ssize_t at = section.at, number
    cdef int64_t last = -1, time_ms, offset
    cdef RecordFields fields
    cdef Outcome put_well
    for number in range(section.records):
        if read_record(section.data, section.end, &at, &fields):
            return UNSOUND
        if fields.offset_delta <= last or fields.offset_delta > section.last_delta:
            return UNSOUND
        last = fields.offset_delta
        time_ms = section.base_ms
        if fields.timestamp_delta and not section.appended:
            time_ms += fields.timestamp_delta
            if (time_ms < section.base_ms) != (fields.timestamp_delta < 0):
                return UNSOUND
        offset = section.base_offset + fields.offset_delta
        if offset < kept.start or (offset >= kept.end and not kept.to_last):
            continue
        if (
            to.rows == to.room
            or fields.key_size > to.keys.room - to.keys.size
            or fields.value_size > to.values.room - to.values.size
        ):
            return FULL
        put(&to.keys, section.data + fields.key_at, fields.key_size, section.held - fields.key_at)
        put(&to.values, section.data + fields.value_at, fields.value_size, section.held - fields.value_at)
        to.offsets[to.rows] = offset
        if not -to.farthest_ms <= time_ms <= to.farthest_ms:
            return UNSOUND
        to.times[to.rows] = time_ms * to.ticks
        if to.kinds != NULL:
            to.kinds[to.rows] = section.appended
        if headed:
            if fields.headers:
                put_well = put_headers(section, &fields, &to)
                if put_well != FILLED:
                    return put_well
            if to.ends != NULL:
                to.ends[to.rows + 1] = <int32_t>to.names.count
        to.rows += 1
    if at != section.end:
        return UNSOUND
    filling[0] = to
    return FILLED


cdef inline Outcome measure(const Section* section, Needs* needs) noexcept nogil:
    cdef Py_ssize_t at = section.at, number, header, here, name_at = 0, name_size = 0, content_at = 0, content_size = 0
    cdef RecordFields fields
    memset(needs, 0, sizeof(Needs))
    needs.records = section.records
    for number in range(section.records):
        if read_record(section.data, section.end, &at, &fields):
            return UNSOUND
        needs.keys += max(fields.key_size, 0)
        needs.values += max(fields.value_size, 0)
        needs.headers += fields.headers
        here = fields.headers_at
        for header in range(fields.headers):
            if read_header(section.data, section.end, &here, &name_at, &name_size, &content_at, &content_size):
                return UNSOUND
            needs.names += name_size
            needs.contents += max(content_size, 0)
    return FILLED
