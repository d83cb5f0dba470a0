# Where the fields of one record lie, with every bound checked; what all modules that read records share.
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t

from logstore.native.format.varints cimport read_raw, unzigzag

cdef enum:
    MIN_RECORD_BYTES = 7
    ABSENT = -1  # the length of what is null
    SHORT_HEAD = 10  # bytes before the key, at most, where each integer takes two; and one more integer
    BEHIND = 4


cdef struct RecordFields:
    int64_t timestamp_delta
    int64_t offset_delta
    Py_ssize_t key_at
    Py_ssize_t key_size
    Py_ssize_t value_at
    Py_ssize_t value_size
    Py_ssize_t headers_at  # behind their count
    Py_ssize_t headers  # how many


cdef inline int read_size(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* at, Py_ssize_t* found
) noexcept nogil:
    """Read the length at ``at``, of so many bytes that are all there, or ``ABSENT``; not 0 if it is another."""
    cdef uint64_t raw = 0
    if at[0] < size and data[at[0]] == 1:
        at[0] += 1
        found[0] = ABSENT
        return 0
    if read_raw(data, size, at, 5, &raw) or raw & 1 or <Py_ssize_t>(raw >> 1) > size - at[0]:
        return -1
    found[0] = <Py_ssize_t>(raw >> 1)
    return 0


cdef inline int read_header(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* at,
    Py_ssize_t* name_at, Py_ssize_t* name_size, Py_ssize_t* value_at, Py_ssize_t* value_size
) noexcept nogil:
    """Read one header, and move ``at`` past it; not 0 if none is there."""
    if read_size(data, size, at, name_size) or name_size[0] == ABSENT:
        return -1
    name_at[0] = at[0]
    at[0] += name_size[0]
    if read_size(data, size, at, value_size):
        return -1
    value_at[0] = at[0]
    if value_size[0] != ABSENT:
        at[0] += value_size[0]
    return 0


cdef inline bint read_two(const uint8_t* data, Py_ssize_t* at, uint64_t* raw) noexcept nogil:
    """An integer of one or two bytes; False for a longer one. Two bytes can be read."""
    cdef Py_ssize_t here = at[0]
    raw[0] = data[here]
    if raw[0] < 0x80:
        at[0] = here + 1
        return True
    if data[here + 1] > 0x7F:
        return False
    raw[0] = (<uint64_t>data[here + 1] << 7) | (raw[0] & 0x7F)
    at[0] = here + 2
    return True


cdef inline bint read_size_of_two(
    const uint8_t* data, Py_ssize_t end, Py_ssize_t* at, Py_ssize_t* size, Py_ssize_t* begin
) noexcept nogil:
    """A length that takes one or two bytes, and where its bytes begin, all of which are there; False for another."""
    cdef uint64_t raw
    if not read_two(data, at, &raw):
        return False
    begin[0] = at[0]
    if raw == 1:
        size[0] = ABSENT
        return at[0] <= end and data[at[0] - 1] == 1  # of two bytes it is left to ``read_size``
    size[0] = <Py_ssize_t>(raw >> 1)
    at[0] += size[0]
    return not raw & 1 and at[0] <= end


cdef inline bint read_short(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* at, RecordFields* fields
) noexcept nogil:
    """A record whose integers take at most two bytes, and with some bytes behind it: most are. False for another, which
    may be sound all the same; ``at`` then stays."""
    cdef uint64_t raw
    cdef Py_ssize_t here = at[0], end, number, name_at, name_size, value_at, value_size
    if size - here < SHORT_HEAD or not read_two(data, &here, &raw) or raw & 1:
        return False
    end = here + <Py_ssize_t>(raw >> 1)
    if end > size - BEHIND:
        return False
    here += 1  # the attributes, which carry nothing yet
    if not read_two(data, &here, &raw):
        return False
    fields.timestamp_delta = unzigzag(raw)
    if not read_two(data, &here, &raw):
        return False
    fields.offset_delta = unzigzag(raw)
    if not read_size_of_two(data, end, &here, &fields.key_size, &fields.key_at):
        return False
    if not read_size_of_two(data, end, &here, &fields.value_size, &fields.value_at):
        return False
    if not read_two(data, &here, &raw) or raw & 1:
        return False
    fields.headers = <Py_ssize_t>(raw >> 1)
    fields.headers_at = here
    for number in range(fields.headers):
        if read_header(data, end, &here, &name_at, &name_size, &value_at, &value_size):
            return False
    if here != end:
        return False
    at[0] = end
    return True


cdef inline int read_record(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* at, RecordFields* fields
) noexcept nogil:
    """Read the record at ``at``, and move ``at`` past it; not 0 unless it is as long as it says."""
    cdef uint64_t raw = 0
    cdef Py_ssize_t end, number, name_at, name_size, value_at, value_size
    if read_short(data, size, at, fields):
        return 0
    if read_raw(data, size, at, 5, &raw) or raw & 1:
        return -1
    if <Py_ssize_t>(raw >> 1) > size - at[0]:
        return -1
    end = at[0] + <Py_ssize_t>(raw >> 1)
    at[0] += 1  # the attributes, which carry nothing yet
    if read_raw(data, end, at, 10, &raw):
        return -1
    fields.timestamp_delta = unzigzag(raw)
    if read_raw(data, end, at, 5, &raw):
        return -1
    fields.offset_delta = unzigzag(raw)
    if read_size(data, end, at, &fields.key_size):
        return -1
    fields.key_at = at[0]
    if fields.key_size != ABSENT:
        at[0] += fields.key_size
    if read_size(data, end, at, &fields.value_size):
        return -1
    fields.value_at = at[0]
    if fields.value_size != ABSENT:
        at[0] += fields.value_size
    if at[0] >= end:
        return -1
    fields.headers = 0
    if data[at[0]] == 0:
        at[0] += 1
        fields.headers_at = at[0]
        return 0 if at[0] == end else -1
    if read_raw(data, end, at, 5, &raw) or raw & 1:
        return -1
    fields.headers = <Py_ssize_t>(raw >> 1)
    fields.headers_at = at[0]
    for number in range(fields.headers):
        if read_header(data, end, at, &name_at, &name_size, &value_at, &value_size):
            return -1
    return 0 if at[0] == end else -1


cdef inline bint fits(number):
    """Whether it is an int of 64 bits."""
    return type(number) is int and INT64_MIN <= number <= INT64_MAX
