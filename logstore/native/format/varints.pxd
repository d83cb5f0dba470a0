# Zigzag varints, big-endian integers and the fingerprint, for every extension module. The twin of format/varint.py.
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #ifndef LOGSTORE_SOURCE
    #define LOGSTORE_SOURCE "logstore-source:unknown"
    #endif
    """
    const char* LOGSTORE_SOURCE

cdef enum:
    READ = 0
    PAST_END = 1  # the section ends before the integer does
    TOO_LONG = 2  # more bits than the integer may have


cdef inline str fingerprint():
    return (<bytes>LOGSTORE_SOURCE).decode().partition(":")[2]


cdef inline int64_t unzigzag(uint64_t raw) noexcept nogil:
    return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)


cdef inline int read_long(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* at, int max_bytes, uint64_t* raw
) noexcept nogil:
    """As ``read_raw``, of any width. At a failure ``at`` stays at the integer's first byte."""
    cdef uint64_t found = 0
    cdef uint64_t byte
    cdef int place
    for place in range(max_bytes):
        if at[0] + place >= size:
            return PAST_END
        byte = data[at[0] + place]
        if place == 9 and (byte & 0x7F) > 1:
            # Bits past 64. Python's twin reads on to the integer's end before it refuses them; this is its end.
            return TOO_LONG
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if max_bytes == 5 and found >> 32:
                return TOO_LONG
            raw[0] = found
            at[0] += place + 1
            return READ
    return TOO_LONG


cdef inline int read_raw(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* at, int max_bytes, uint64_t* raw
) noexcept nogil:
    """Read the integer at ``at`` without undoing zigzag, and move ``at`` past it."""
    cdef Py_ssize_t here = at[0]
    if here >= size:
        return PAST_END
    if data[here] < 0x80:
        raw[0] = data[here]
        at[0] = here + 1
        return READ
    if here + 1 < size and data[here + 1] < 0x80:
        raw[0] = (<uint64_t>data[here + 1] << 7) | (data[here] & 0x7F)
        at[0] = here + 2
        return READ
    return read_long(data, size, at, max_bytes, raw)


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int size_of_raw(uint64_t raw) noexcept nogil:
    """How many bytes ``put_raw`` writes."""
    cdef int size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t* put_raw(uint8_t* to, uint64_t raw) noexcept nogil:
    """Write a zigzagged integer; the byte behind it."""
    while raw > 0x7F:
        to[0] = <uint8_t>(raw & 0x7F) | 0x80
        raw >>= 7
        to += 1
    to[0] = <uint8_t>raw
    return to + 1


cdef inline uint8_t* put_big(uint8_t* to, int64_t number, int size) noexcept:
    """``number`` as a big-endian integer of ``size`` bytes."""
    cdef int at
    for at in range(size - 1, -1, -1):
        to[at] = <uint8_t>(number & 0xFF)
        number >>= 8
    return to + size
