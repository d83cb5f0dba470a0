# The header of a batch (byte diagram at the top of format/batch.py), for every extension module that reads one.
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    HEADER_BYTES = 61
    UNCOUNTED_BYTES = 12  # of those: before the field of the batch's length, and itself
    ATTRIBUTES_AT = 21  # from here on the CRC covers the batch
    LAST_DELTA_AT = 23
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    KNOWN_BITS = 0x7F


cdef inline uint64_t big(const uint8_t* data, int size) noexcept nogil:
    """An unsigned integer of so many bytes, the highest first."""
    cdef uint64_t found = 0
    cdef int at
    for at in range(size):
        found = found << 8 | data[at]
    return found


cdef struct Header:
    int64_t base_offset
    int32_t batch_length
    int32_t leader_epoch
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_ms
    int64_t max_ms
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t count


cdef inline bint read(const uint8_t* data, Py_ssize_t left, Header* header) noexcept nogil:
    """Whether a batch that may be is there, all of it."""
    if left < HEADER_BYTES or data[16] != 2:
        return False
    header.base_offset = <int64_t>big(data, 8)
    header.batch_length = <int32_t>big(data + 8, 4)
    header.leader_epoch = <int32_t>big(data + 12, 4)
    header.crc = <uint32_t>big(data + 17, 4)
    header.attributes = <int16_t>big(data + ATTRIBUTES_AT, 2)
    header.last_offset_delta = <int32_t>big(data + LAST_DELTA_AT, 4)
    header.base_ms = <int64_t>big(data + 27, 8)
    header.max_ms = <int64_t>big(data + 35, 8)
    header.producer_id = <int64_t>big(data + 43, 8)
    header.producer_epoch = <int16_t>big(data + 51, 2)
    header.base_sequence = <int32_t>big(data + 53, 4)
    header.count = <int32_t>big(data + 57, 4)
    return (
        header.batch_length >= HEADER_BYTES - UNCOUNTED_BYTES
        and <int64_t>header.batch_length + UNCOUNTED_BYTES <= left
        and not header.attributes & ~KNOWN_BITS
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
        and 0 <= header.count <= <int64_t>header.last_offset_delta + 1
        and header.base_offset <= INT64_MAX - header.last_offset_delta
    )


cdef inline tuple header_fields(const Header* header):
    """In the order of ``BatchHeader``."""
    return (
        header.base_offset, header.batch_length, header.leader_epoch, 2, header.crc, header.attributes,
        header.last_offset_delta, header.base_ms, header.max_ms, header.producer_id, header.producer_epoch,
        header.base_sequence, header.count,
    )
