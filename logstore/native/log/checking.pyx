"""A batch on its way in: the compiled twins of ``split_checked`` and ``check_leader_append`` in
log/append_validation.py.

Header, checksum and records of a batch that comes from elsewhere are looked at in one call. What is compressed, has
names of headers beyond ASCII, or is wrong in any way is left to the Python twin.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_CheckExact
from cpython.bytearray cimport PyByteArray_CheckExact
from cpython.memoryview cimport PyMemoryView_Check
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from logstore.native.format.batch_header cimport (
    ATTRIBUTES_AT, CODEC_MASK, CONTROL_BIT, HEADER_BYTES, Header, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT,
    UNCOUNTED_BYTES, header_fields, read,
)
from logstore.native.format.record_fields cimport ABSENT, MIN_RECORD_BYTES, RecordFields, read_header as read_name, read_record
from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef extern from "Python.h":
    object view_of "PyMemoryView_FromMemory" (char* data, Py_ssize_t size, int flags)
    object whole_view "PyMemoryView_FromObject" (object buffer)
    PyObject* tuple_item "PyTuple_GET_ITEM" (object items, Py_ssize_t at) noexcept
    int64_t int64_of "PyLong_AsLongLong" (object number) except? -1
    int PyBUF_READ

cdef enum:
    MAX_TIMESTAMP_AT = 8  # places in a ``BatchHeader``
    HEADER_FIELDS = 13
    WORD_BYTES = 8

cdef object _BatchHeader = None
cdef object _CheckedBatch = None
cdef object _crc32c = None
cdef object _prove = None
cdef int64_t _newest_allowed_ms = 0
cdef int64_t _oldest_allowed_ms = 0


cdef inline object item_of(items, Py_ssize_t at):
    return <object>tuple_item(items, at)


cdef int _import() except -1:
    global _BatchHeader, _CheckedBatch, _crc32c, _prove, _newest_allowed_ms, _oldest_allowed_ms
    if _prove is None:
        from crc32c import crc32c

        from logstore.format.batch import BatchHeader
        from logstore.format.proof import prove_batch
        from logstore.format.rows import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
        from logstore.log.append_validation import CheckedBatch

        _crc32c, _BatchHeader, _CheckedBatch = crc32c, BatchHeader, CheckedBatch
        _newest_allowed_ms, _oldest_allowed_ms = MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
        _prove = prove_batch
    return 0


cdef struct Layout:
    # Of one record without headers: the next one has the same, or ``size`` is 0. Places are counted from its start,
    # ``*_mask`` are of the words there: what is before the offset, and the two lengths.
    Py_ssize_t size, delta_at, delta_bytes, key_size_at, value_size_at
    uint64_t head, head_mask, key_size, key_size_mask, value_size, value_size_mask


cdef inline uint64_t word_at(const uint8_t* data) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data, sizeof(word))
    return word


cdef inline uint64_t mask_of(Py_ssize_t count) noexcept nogil:
    """Of the first ``count`` bytes of a word in memory."""
    cdef uint64_t mask = 0
    memset(&mask, 0xFF, count)
    return mask


cdef inline Py_ssize_t past_varint(const uint8_t* data, Py_ssize_t at) noexcept nogil:
    """Of a varint that was read before."""
    while data[at] >= 0x80:
        at += 1
    return at + 1


cdef void lay_out(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t start, Py_ssize_t end, const RecordFields* fields, Layout* layout
) noexcept nogil:
    """Of the record that was read into ``fields``, if it is one that ``is_next`` can tell, as most are."""
    cdef Py_ssize_t value_end = fields.value_at + (fields.value_size if fields.value_size != ABSENT else 0)
    layout.size = 0
    if fields.headers or value_end != end - 1 or end + WORD_BYTES > size:
        return
    layout.delta_at = past_varint(data, past_varint(data, start) + 1) - start
    layout.key_size_at = past_varint(data, start + layout.delta_at) - start
    layout.delta_bytes = layout.key_size_at - layout.delta_at
    layout.value_size_at = fields.key_at - start + (fields.key_size if fields.key_size != ABSENT else 0)
    if layout.delta_at > WORD_BYTES or layout.delta_bytes > 2:
        return
    layout.head_mask = mask_of(layout.delta_at)
    layout.key_size_mask = mask_of(fields.key_at - start - layout.key_size_at)
    layout.value_size_mask = mask_of(fields.value_at - start - layout.value_size_at)
    layout.head = word_at(data + start) & layout.head_mask
    layout.key_size = word_at(data + start + layout.key_size_at) & layout.key_size_mask
    layout.value_size = word_at(data + start + layout.value_size_at) & layout.value_size_mask
    layout.size = end - start


cdef inline bint is_next(const uint8_t* here, int64_t delta, const Layout* layout) noexcept nogil:
    """Whether the ``layout.size`` bytes from ``here`` on, behind which there is another word, are a record of that
    layout, with the same time and of offset ``delta``: then it differs in payloads and the offset alone."""
    cdef uint64_t raw = <uint64_t>delta << 1
    if layout.delta_bytes == 1:
        if raw >= 0x80 or here[layout.delta_at] != raw:
            return False
    elif raw >= 0x4000 or here[layout.delta_at] != (raw & 0x7F | 0x80) or here[layout.delta_at + 1] != raw >> 7:
        return False
    return (
        word_at(here) & layout.head_mask == layout.head
        and word_at(here + layout.key_size_at) & layout.key_size_mask == layout.key_size
        and word_at(here + layout.value_size_at) & layout.value_size_mask == layout.value_size
        and here[layout.size - 1] == 0
    )


cdef bint proved(const uint8_t* data, Py_ssize_t size, const Header* header) noexcept nogil:
    """Whether the plain records are those of the header: one for each offset, none newer than it says."""
    cdef RecordFields fields
    cdef Layout layout
    cdef Py_ssize_t at = 0, start, length = 0, number = 0
    cdef int64_t last = -1, time_ms, newest_ms = INT64_MIN
    if header.count > size // MIN_RECORD_BYTES:
        return False
    layout.size = 0
    while number < header.count:
        start = at
        if layout.size and layout.size + WORD_BYTES <= size - at and is_next(data + at, last + 1, &layout):
            at += layout.size
            last += 1
            number += 1
            continue
        if read_record(data, size, &at, &fields) or fields.offset_delta <= last:
            return False
        last = fields.offset_delta
        if fields.headers and not are_ascii(data, size, &fields):
            return False
        time_ms = header.base_ms + fields.timestamp_delta
        if (time_ms < header.base_ms) != (fields.timestamp_delta < 0):
            return False
        if time_ms > newest_ms:
            newest_ms = time_ms
        number += 1
        layout.size = 0
        if at - start == length:  # as long as the one before: perhaps they are alike
            lay_out(data, size, start, at, &fields, &layout)
        length = at - start
    return (
        at == size and last == header.last_offset_delta
        and (newest_ms == header.max_ms or header.attributes & LOG_APPEND_TIME_BIT)
    )


cdef bint are_ascii(const uint8_t* data, Py_ssize_t size, const RecordFields* fields) noexcept nogil:
    """Whether the names of the record's headers are: others are left to the Python twin."""
    cdef Py_ssize_t name, place = fields.headers_at, name_at = 0, name_size = 0, value_at = 0, value_size = 0
    for name in range(fields.headers):
        read_name(data, size, &place, &name_at, &name_size, &value_at, &value_size)
        while name_size:
            name_size -= 1
            if data[name_at + name_size] > 0x7F:
                return False
    return True


cdef object split(buffer, const uint8_t* data, Py_ssize_t size):
    """The batches, or None where one is wrong."""
    cdef Header header
    cdef Py_ssize_t at = 0, length
    cdef bint plain
    view = whole_view(buffer)
    found = []
    while at < size:
        if not read(data + at, size - at, &header):
            return None
        length = header.batch_length + UNCOUNTED_BYTES
        crc = _crc32c(view_of(<char*>data + at + ATTRIBUTES_AT, length - ATTRIBUTES_AT, PyBUF_READ))
        if crc != header.crc:
            return None
        whole = tuple.__new__(_BatchHeader, header_fields(&header))
        if not header.attributes & CONTROL_BIT and 1 <= header.count == <int64_t>header.last_offset_delta + 1:
            plain = not header.attributes & CODEC_MASK
            if not plain or not proved(data + at + HEADER_BYTES, length - HEADER_BYTES, &header):
                _prove(view, at, whole)
        found.append(
            tuple.__new__(_CheckedBatch, (view if length == size else view[at : at + length], whole))
        )
        at += length
    return found


def split_checked(buffer, where):
    """The whole batches in ``buffer``, each with magic, length, CRC and records verified (``proof.py``). Errors have
    the batch's ``position`` in the buffer."""
    return batches_in(buffer, where)


cdef object batches_in(buffer, where):
    cdef Py_buffer view
    found = None
    _import()
    if (
        PyBytes_CheckExact(buffer) or PyByteArray_CheckExact(buffer)
        or (PyMemoryView_Check(buffer) and buffer.ndim == 1 and buffer.itemsize == 1 and buffer.c_contiguous)
    ):
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if view.len:
                found = split(buffer, <const uint8_t*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
    return PYTHON_TWINS["split_checked"](buffer, where) if found is None else found


cdef class Rules:
    """What a topic's settings ask of a batch. Fields are declared in checking.pxd."""


cdef Rules _newest_rules = None


cdef Rules rules_of(config):
    """Of a topic's settings, which never change in place."""
    global _newest_rules
    cdef Rules rules = _newest_rules
    if rules is None or rules.config is not config:
        rules = Rules.__new__(Rules)
        rules.config = config
        rules.plain = (
            not config.cleanup_policy.compact and config.compression_type in ("producer", "none")
            and config.timestamp_type == "CreateTime"
        )
        rules.most_bytes = config.largest_batch()[0]
        rules.before_ms, rules.after_ms = config.timestamp_before_max_ms, config.timestamp_after_max_ms
        _newest_rules = rules
    return rules


cdef bint passes(batch, Rules rules, int64_t now_ms) except -1:
    """Whether the plain batch is stored as it is."""
    cdef int64_t attributes, producer_id, count, last_delta, oldest_ms, newest_ms
    header = item_of(batch, 1)
    attributes, last_delta = int64_of(item_of(header, 5)), int64_of(item_of(header, 6))
    oldest_ms, newest_ms = int64_of(item_of(header, 7)), int64_of(item_of(header, MAX_TIMESTAMP_AT))
    producer_id, count = int64_of(item_of(header, 9)), int64_of(item_of(header, 12))
    return (
        not attributes & (CODEC_MASK | CONTROL_BIT) and (not attributes & TRANSACTIONAL_BIT or producer_id >= 0)
        and count >= 1 and count == last_delta + 1
        and newest_ms - now_ms <= rules.after_ms and newest_ms <= _newest_allowed_ms
        and oldest_ms >= _oldest_allowed_ms and now_ms - oldest_ms <= rules.before_ms
        and len(item_of(batch, 0)) <= rules.most_bytes
    )


def check_leader_append(batches, config, now_ms, where):
    """Batches as the leader stores them. Errors name the rule and the limit; nothing is stored then."""
    return as_leader(batches, config, now_ms, where)


cdef object as_leader(batches, config, now_ms, where):
    cdef Rules rules
    _import()
    if type(now_ms) is int and 0 <= now_ms <= _newest_allowed_ms:
        rules = rules_of(config)
        for batch in batches:
            if not (
                rules.plain and type(batch) is _CheckedBatch and type(item_of(batch, 1)) is _BatchHeader
                and PyTuple_GET_SIZE(item_of(batch, 1)) == HEADER_FIELDS and passes(batch, rules, now_ms)
            ):
                break
        else:
            return batches if type(batches) is list else list(batches)
    return PYTHON_TWINS["check_leader_append"](batches, config, now_ms, where)
