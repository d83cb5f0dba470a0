# Hashes of keys, for every extension module. Kafka's MurmurHash2 and MurmurHash3 x86 32, both little-endian.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    POSITIVE = 0x7FFFFFFF  # what the sign bit is cleared with


cdef inline uint32_t word_at(const uint8_t* data) noexcept nogil:
    return (
        <uint32_t>data[0] | (<uint32_t>data[1] << 8) | (<uint32_t>data[2] << 16) | (<uint32_t>data[3] << 24)
    )


cdef inline uint32_t rotated(uint32_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (32 - bits))


cdef inline uint32_t murmur3_of(const uint8_t* data, Py_ssize_t size, uint32_t seed) noexcept nogil:
    cdef uint32_t hashed = seed
    cdef uint32_t word = 0
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t words = size & ~3
    while at < words:
        word = rotated(word_at(data + at) * 0xCC9E2D51u, 15) * 0x1B873593u
        hashed = rotated(hashed ^ word, 13) * 5u + 0xE6546B64u
        at += 4
    if size != words:
        word = 0
        while size > words:
            size -= 1
            word = (word << 8) | data[size]
            at += 1
        hashed ^= rotated(word * 0xCC9E2D51u, 15) * 0x1B873593u
    hashed ^= <uint32_t>at
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6Bu
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35u
    return hashed ^ (hashed >> 16)


cdef inline uint32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t hashed = 0x9747B28Cu ^ <uint32_t>size
    cdef uint32_t word = 0
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t words = size & ~3
    while at < words:
        word = word_at(data + at) * 0x5BD1E995u
        word = (word ^ (word >> 24)) * 0x5BD1E995u
        hashed = hashed * 0x5BD1E995u ^ word
        at += 4
    if size != words:
        word = 0
        while size > words:
            size -= 1
            word = (word << 8) | data[size]
        hashed = (hashed ^ word) * 0x5BD1E995u
    hashed = (hashed ^ (hashed >> 13)) * 0x5BD1E995u
    return hashed ^ (hashed >> 15)


cdef inline uint64_t long_at(const uint8_t* data) noexcept nogil:
    return <uint64_t>word_at(data) | (<uint64_t>word_at(data + 4) << 32)


cdef inline uint64_t turned(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))


cdef inline uint64_t mixed(uint64_t word) noexcept nogil:
    word = (word ^ (word >> 33)) * 0xFF51AFD7ED558CCDull
    word = (word ^ (word >> 33)) * 0xC4CEB9FE1A85EC53ull
    return word ^ (word >> 33)


cdef inline uint64_t murmur128_low(const uint8_t* data, Py_ssize_t size, uint32_t seed) noexcept nogil:
    """The first 64 bits of MurmurHash3 x64 128."""
    cdef uint64_t first = seed, second = seed, one, two
    cdef Py_ssize_t at = 0, whole = size & ~15
    while at < whole:
        one = turned(long_at(data + at) * 0x87C37B91114253D5ull, 31) * 0x4CF5AD432745937Full
        two = turned(long_at(data + at + 8) * 0x4CF5AD432745937Full, 33) * 0x87C37B91114253D5ull
        first = (turned(first ^ one, 27) + second) * 5 + 0x52DCE729
        second = (turned(second ^ two, 31) + first) * 5 + 0x38495AB5
        at += 16
    one = two = 0
    for at in range(size - 1, whole + 7, -1):
        two = (two << 8) | data[at]
    for at in range(min(size, whole + 8) - 1, whole - 1, -1):
        one = (one << 8) | data[at]
    second ^= turned(two * 0x4CF5AD432745937Full, 33) * 0x87C37B91114253D5ull
    first ^= turned(one * 0x87C37B91114253D5ull, 31) * 0x4CF5AD432745937Full
    first ^= <uint64_t>size
    second ^= <uint64_t>size
    first += second
    second += first
    return mixed(first) + mixed(second)
