"""The last offset of every key, exactly, in 24 bytes beside the key: the compiled twin of log/cleaning/key_table.py.

Entries lie one behind the other in an arena, in chunks that never move::

    offset   i64   that of a tombstone as -2 - offset
    length   u8    of the key; 255: four bytes more hold it
    key

Exact keys rather than digests: with a digest of 16 bytes an entry would take 24 to 30 bytes whatever its key, but the
answer would rest on the digest's secret; with its key it takes 40 where keys have 16 bytes, and cannot be wrong.

A slot of the hash table is eight bytes, the upper half of them bits of the key's hash, the lower half the entry's place
in the arena and one; 0 is an empty slot. The table is 64 small ones, chosen by other bits of the hash: each grows by a
quarter when it is four fifths full, so that a step of growth is short and the table is never half empty. A slot tells
where it goes in a larger table: growth reads no key.

An entry takes 9 bytes and its key in the arena and 10 to 12.5 in the table (and 4 if the key has more than 254); what
is left of the 24 covers the ends of chunks. One thread at a time uses a table: a cleaning's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.object cimport PyObject_Hash
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from logstore.native.format.record_fields cimport ABSENT
from logstore.native.format.spans cimport SectionKeys
from logstore.native.format.varints cimport fingerprint

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define LOGSTORE_PREFETCH(address) __builtin_prefetch(address)
    #else
    #define LOGSTORE_PREFETCH(address) ((void)0)
    #endif
    """
    void LOGSTORE_PREFETCH(const void* address) noexcept nogil

FINGERPRINT = fingerprint()

cdef enum:
    TABLES = 64
    FIRST_SLOTS = 8
    PAGE_BITS = 16  # places in the arena are numbered through; pages of a chunk lie side by side
    PAGE_BYTES = 1 << 16
    CHUNK_PAGES = 16
    LARGE_BYTES = 1 << 17  # an entry of more has a chunk of its own
    HEAD_BYTES = 9
    LONG_KEY = 255
    AT_ONCE = 500  # entries of a step
    AHEAD = 64  # keys whose slots and entries are asked of the memory before the first is looked up
    ENTRY = 24
    MOST_PAGES = 0xFFFF  # so that a place has 32 bits: 4 GiB of entries at most

cdef struct Table:
    uint64_t* slots
    uint32_t size
    uint32_t used

cdef struct Chunk:
    uint8_t* data
    uint32_t first_page
    uint64_t size
    uint64_t used


# The secret of the hash is Python's own, which is chosen at the process's start.
cdef uint64_t SECRET_LOW = <uint64_t>PyObject_Hash(b"the low half of the secret")
cdef uint64_t SECRET_HIGH = <uint64_t>PyObject_Hash(b"the high half of the secret")


cdef struct Key:
    # ``data`` NULL: none.
    const uint8_t* data
    Py_ssize_t size
    uint64_t hashed


cdef struct Sip:
    uint64_t a, b, c, d


# A literal of more than 31 bits is an object of Python's to Cython: a hash is cut by a cast, not by a mask.
cdef inline uint64_t turned(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))


cdef inline void mix(Sip* state) noexcept nogil:
    state.a += state.b
    state.c += state.d
    state.b = turned(state.b, 13) ^ state.a
    state.d = turned(state.d, 16) ^ state.c
    state.a = turned(state.a, 32) + state.d
    state.c += state.b
    state.d = turned(state.d, 21) ^ state.a
    state.b = turned(state.b, 17) ^ state.c
    state.c = turned(state.c, 32)


cdef inline uint64_t hash_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """SipHash-1-3: keys cannot be chosen to make the table slow by whoever does not know the secret."""
    cdef Sip state = Sip(
        SECRET_LOW ^ 0x736F6D6570736575u, SECRET_HIGH ^ 0x646F72616E646F6Du,
        SECRET_LOW ^ 0x6C7967656E657261u, SECRET_HIGH ^ 0x7465646279746573u,
    )
    cdef uint64_t word = 0
    cdef Py_ssize_t at = 0
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        state.d ^= word
        mix(&state)
        state.a ^= word
        at += 8
    word = 0
    memcpy(&word, data + at, size - at)
    word |= <uint64_t>size << 56
    state.d ^= word
    mix(&state)
    state.a ^= word
    state.c ^= 0xFF
    mix(&state)
    mix(&state)
    mix(&state)
    return state.a ^ state.b ^ state.c ^ state.d


cdef class Keys:
    """Keys that are given to a method, as objects or as they lie in a section: each where it lies."""

    cdef SectionKeys raw
    cdef list objects
    cdef Py_ssize_t count

    def __cinit__(self, keys):
        if type(keys) is SectionKeys:
            self.raw = keys
            self.count = self.raw.count
        else:
            self.objects = keys if type(keys) is list else list(keys)
            self.count = PyList_GET_SIZE(self.objects)

    cdef int find(self, Py_ssize_t number, Key* key) except -1:
        cdef object one
        key.data, key.size, key.hashed = NULL, 0, 0
        if self.raw is not None:
            key.data = self.raw.key_of(number, &key.size)
            if key.size == ABSENT:
                key.data = NULL
                return 0
        else:
            one = <object>PyList_GET_ITEM(self.objects, number)
            if one is None:
                return 0
            key.data = <const uint8_t*>PyBytes_AS_STRING(<bytes?>one)
            key.size = PyBytes_GET_SIZE(one)
        key.hashed = hash_of(key.data, key.size)
        return 0


cdef inline uint8_t* key_at(uint8_t* entry, uint32_t* length) noexcept nogil:
    if entry[8] != LONG_KEY:
        length[0] = entry[8]
        return entry + HEAD_BYTES
    memcpy(length, entry + HEAD_BYTES, 4)
    return entry + HEAD_BYTES + 4


cdef class KeyTable:
    cdef Table tables[TABLES]
    cdef uint8_t** pages
    cdef uint32_t page_room
    cdef uint32_t page_count
    cdef Chunk* chunks
    cdef Py_ssize_t chunk_room
    cdef Py_ssize_t chunk_count
    cdef Py_ssize_t current
    cdef Py_ssize_t count
    cdef readonly long long used_bytes

    ENTRY_BYTES = ENTRY

    def __cinit__(self):
        self.current = -1

    def __len__(self):
        return self.count

    def __dealloc__(self):
        cdef Py_ssize_t number
        for number in range(self.chunk_count):
            PyMem_RawFree(self.chunks[number].data)
        for number in range(TABLES):
            PyMem_RawFree(self.tables[number].slots)
        PyMem_RawFree(self.chunks)
        PyMem_RawFree(self.pages)

    # --- the arena ---

    cdef bint add_chunk(self, uint64_t least_bytes) except -1:
        """One with room for so many bytes: the current one from now on, unless it is a large key's own. False: the
        places in the arena are used up."""
        cdef bint own = least_bytes > LARGE_BYTES
        cdef uint64_t pages = CHUNK_PAGES if self.chunk_count else 1
        cdef uint64_t number, size
        cdef void* grown
        cdef uint8_t* data
        if pages * PAGE_BYTES < least_bytes or own:
            pages = (least_bytes + PAGE_BYTES - 1) >> PAGE_BITS
        size = least_bytes if own else pages * PAGE_BYTES
        if self.page_count + pages > MOST_PAGES:
            return False
        if self.chunk_count == self.chunk_room:
            grown = PyMem_RawRealloc(self.chunks, (self.chunk_room * 2 + 8) * sizeof(Chunk))
            if grown is NULL:
                raise MemoryError()
            self.chunks = <Chunk*>grown
            self.chunk_room = self.chunk_room * 2 + 8
        if self.page_count + pages > self.page_room:
            grown = PyMem_RawRealloc(self.pages, (self.page_count + pages) * 2 * sizeof(uint8_t*))
            if grown is NULL:
                raise MemoryError()
            self.pages = <uint8_t**>grown
            self.page_room = (self.page_count + <uint32_t>pages) * 2
        data = <uint8_t*>PyMem_RawMalloc(size)
        if data is NULL:
            raise MemoryError()
        self.chunks[self.chunk_count] = Chunk(data, self.page_count, size, 0)
        for number in range(pages):
            self.pages[self.page_count + number] = data + number * PAGE_BYTES
        if not own:
            self.current = self.chunk_count
        self.chunk_count += 1
        self.page_count += <uint32_t>pages
        return True

    cdef inline uint8_t* entry_at(self, uint64_t slot) noexcept:
        cdef uint32_t place = <uint32_t>slot - 1
        return self.pages[place >> PAGE_BITS] + (place & (PAGE_BYTES - 1))

    cdef int64_t write_entry(self, const Key* key, int64_t stored) except -1:
        """A new entry; its place and one, 0 if there is no place."""
        cdef uint64_t length = key.size
        cdef uint64_t size = HEAD_BYTES + length + (4 if length >= LONG_KEY else 0)
        cdef uint32_t long_length = <uint32_t>length
        cdef Py_ssize_t number = self.current
        cdef Chunk* chunk
        cdef uint8_t* entry
        if length > 0x7FFFFFFF:
            raise OverflowError("a key has 2^31-1 bytes at most")
        if size > LARGE_BYTES or number < 0 or self.chunks[number].used + size > self.chunks[number].size:
            if not self.add_chunk(size):
                return 0
            number = self.chunk_count - 1
        chunk = self.chunks + number
        entry = chunk.data + chunk.used
        memcpy(entry, &stored, 8)
        if length < LONG_KEY:
            entry[8] = <uint8_t>length
            memcpy(entry + HEAD_BYTES, key.data, length)
        else:
            entry[8] = LONG_KEY
            memcpy(entry + HEAD_BYTES, &long_length, 4)
            memcpy(entry + HEAD_BYTES + 4, key.data, length)
        chunk.used += size
        return <int64_t>((<uint64_t>chunk.first_page << PAGE_BITS) + (chunk.used - size) + 1)

    # --- the tables ---

    cdef uint8_t* find(self, const Key* key) noexcept:
        """The key's entry, NULL if there is none."""
        cdef Table* table = &self.tables[key.hashed >> 58]
        cdef uint64_t tag = <uint32_t>key.hashed
        cdef uint64_t slot
        cdef uint32_t at, length = 0
        cdef uint8_t* entry
        cdef uint8_t* found
        if table.size == 0:
            return NULL
        at = <uint32_t>((tag * table.size) >> 32)
        while True:
            slot = table.slots[at]
            if slot == 0:
                return NULL
            if slot >> 32 == tag:
                entry = self.entry_at(slot)
                found = key_at(entry, &length)
                if length == <uint64_t>key.size and not memcmp(found, key.data, length):
                    return entry
            at += 1
            if at == table.size:
                at = 0

    cdef int look_ahead(self, Keys keys, Py_ssize_t first, Key* found) except -1:
        """Up to ``AHEAD`` keys, whose slots and entries come from memory side by side meanwhile."""
        cdef Py_ssize_t place, count = min(<Py_ssize_t>AHEAD, keys.count - first)
        cdef Table* table
        cdef uint64_t hashed, slot, tag
        cdef uint64_t* home
        for place in range(count):
            keys.find(first + place, found + place)
            hashed = found[place].hashed
            table = &self.tables[hashed >> 58]
            tag = <uint32_t>hashed
            if table.size:
                home = table.slots + ((tag * table.size) >> 32)
                LOGSTORE_PREFETCH(home)
        for place in range(count):
            hashed = found[place].hashed
            table = &self.tables[hashed >> 58]
            tag = <uint32_t>hashed
            if table.size:
                slot = table.slots[(tag * table.size) >> 32]
                if slot and slot >> 32 == tag:
                    LOGSTORE_PREFETCH(self.entry_at(slot))
        return 0

    cdef int insert(self, uint64_t hashed, uint32_t reference) except -1:
        cdef Table* table = &self.tables[hashed >> 58]
        if (<uint64_t>table.used + 1) * 5 > <uint64_t>table.size * 4:
            self.grow(table)
        put(table, (hashed << 32) | reference)
        table.used += 1
        return 0

    cdef int grow(self, Table* table) except -1:
        cdef Table larger
        cdef uint32_t at
        larger.size = table.size + table.size // 4 + FIRST_SLOTS
        larger.used = table.used
        larger.slots = <uint64_t*>PyMem_RawCalloc(larger.size, 8)
        if larger.slots is NULL:
            raise MemoryError()
        for at in range(table.size):
            if table.slots[at]:
                put(&larger, table.slots[at])
        PyMem_RawFree(table.slots)
        table[0] = larger
        return 0

    # --- the twin's methods ---

    def enter(self, keys, offsets, nulls, long long limit_bytes):
        """Enter records in order, until a new key would take the table past ``limit_bytes``; how many are in. One key
        always fits. ``nulls``: numbers of the tombstones, ascending."""
        cdef Py_ssize_t number, next_null
        cdef int64_t stored, first_offset = 0
        cdef Key ahead[AHEAD]
        cdef Key* key
        cdef int64_t reference
        cdef uint8_t* entry
        cdef long long size
        cdef Keys names = Keys(keys)
        cdef list places = None
        if type(offsets) is range and (<object>offsets).step == 1:
            first_offset = (<object>offsets).start
        else:
            places = list(offsets)
        if len(offsets) != names.count:
            raise ValueError(f"{names.count} keys with {len(offsets)} offsets")
        left = iter(nulls)
        next_null = next(left, -1)
        for number in range(names.count):
            if number % AHEAD == 0:
                self.look_ahead(names, number, ahead)
            key = ahead + number % AHEAD
            if key.data is NULL:
                raise TypeError("expected bytes, got None")
            stored = first_offset + number if places is None else places[number]
            if number == next_null:
                stored = -2 - stored
                next_null = next(left, -1)
            entry = self.find(key)
            if entry is not NULL:
                memcpy(entry, &stored, 8)
                continue
            size = ENTRY + key.size
            if self.count and self.used_bytes + size > limit_bytes:
                return number
            reference = self.write_entry(key, stored)
            if reference == 0:
                return number
            self.insert(key.hashed, <uint32_t>reference)
            self.used_bytes += size
            self.count += 1
        return names.count

    def newest(self, keys):
        """For each key its last offset, -1 if there is no record of it."""
        cdef Keys names = Keys(keys)
        cdef list found = []
        cdef Py_ssize_t number
        cdef int64_t stored
        cdef Key ahead[AHEAD]
        cdef uint8_t* entry
        for number in range(names.count):
            if number % AHEAD == 0:
                self.look_ahead(names, number, ahead)
            stored = -1
            if ahead[number % AHEAD].data is not NULL:
                entry = self.find(ahead + number % AHEAD)
                if entry is not NULL:
                    memcpy(&stored, entry, 8)
            found.append(stored if stored >= -1 else -2 - stored)
        return found

    def mark(self, bytearray live not None, long long start_offset):
        """In small steps: ``LIVE`` or ``LIVE_TOMBSTONE`` for each offset, from ``start_offset`` on."""
        cdef Py_ssize_t number = 0, at_once
        cdef uint64_t at = 0
        cdef int64_t stored
        cdef uint32_t length = 0
        cdef uint8_t* entry
        while number < self.chunk_count:
            at_once = AT_ONCE
            while at_once and number < self.chunk_count:
                if at == self.chunks[number].used:
                    number += 1
                    at = 0
                    continue
                entry = self.chunks[number].data + at
                memcpy(&stored, entry, 8)
                if stored >= 0:
                    live[stored - start_offset] = 1
                else:
                    live[-2 - stored - start_offset] = 2
                at += <uint64_t>(key_at(entry, &length) - entry) + length
                at_once -= 1
            if at_once < AT_ONCE:
                yield

    def forget(self):
        """Give the memory back in small steps."""
        cdef Py_ssize_t number
        for number in range(TABLES):
            PyMem_RawFree(self.tables[number].slots)
            self.tables[number] = Table(NULL, 0, 0)
        self.count = 0
        self.page_count = 0
        self.current = -1
        self.used_bytes = 0
        while self.chunk_count:
            self.chunk_count -= 1
            PyMem_RawFree(self.chunks[self.chunk_count].data)
            yield


cdef void put(Table* table, uint64_t slot) noexcept:
    cdef uint32_t at = <uint32_t>(((slot >> 32) * table.size) >> 32)
    while table.slots[at]:
        at += 1
        if at == table.size:
            at = 0
    table.slots[at] = slot
