"""Partitions of keys by their hash, one by one and in bulk: the compiled twin of client/partitioner.py."""

from cpython.bytes cimport PyBytes_AsStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint32_t

from logstore.native.client.hashing cimport POSITIVE, murmur2_of, murmur3_of
from logstore.native.format.varints cimport fingerprint

import zlib

FINGERPRINT = fingerprint()
PYTHON_TWINS = {}

cdef enum:
    MURMUR3 = 0
    MURMUR2 = 1
    CRC32 = 2

cdef enum:  # format/rows.py says what they are made of
    HEADER_SIZE = 61
    RECORD_OVERHEAD = 23
    TIMESTAMP_OVERHEAD = 9

cdef object _crc32 = zlib.crc32
cdef dict _KINDS = {"murmur3": MURMUR3, "murmur2": MURMUR2, "crc32": CRC32}


# Keys are typed as objects: an argument declared as bytes refuses the subclasses of bytes.
cdef inline unsigned long long hashed_of(object key, int kind) except? 0xFFFFFFFFFFFFFFFF:
    """What is taken modulo the number of partitions. TypeError where ``key`` is not bytes."""
    cdef char* data
    cdef Py_ssize_t size
    PyBytes_AsStringAndSize(key, &data, &size)
    if kind == MURMUR3:
        return murmur3_of(<const uint8_t*>data, size, 0) & POSITIVE
    if kind == MURMUR2:
        return murmur2_of(<const uint8_t*>data, size) & POSITIVE
    return _crc32(key)


def murmur2(data):
    """MurmurHash2, 32 bits, as ``org.apache.kafka.common.utils.Utils.murmur2`` has it; unsigned here."""
    cdef char* start
    cdef Py_ssize_t size
    PyBytes_AsStringAndSize(data, &start, &size)
    return murmur2_of(<const uint8_t*>start, size)


def murmur3_partition(key, unsigned int partitions):
    return hashed_of(key, MURMUR3) % partitions


def murmur2_partition(key, unsigned int partitions):
    return hashed_of(key, MURMUR2) % partitions


cdef class KeyChooser:
    """The partition of a key in a topic of ``partitions``."""

    cdef int kind
    cdef unsigned int partitions

    def __init__(self, str name, unsigned int partitions):
        self.kind = _KINDS[name]
        self.partitions = partitions

    def __call__(self, key):
        return hashed_of(key, self.kind) % self.partitions


def by_key(str name, unsigned int partitions):
    """The function key -> partition of a partitioner that goes by the key."""
    return KeyChooser(name, partitions)


def bucket_by_key(str name, rows, sizes, Py_ssize_t partitions):
    """``rows`` (tuples whose first field is a key, never None) with their ``sizes``, by partition."""
    from logstore.client.partitioner import empty_buckets

    cdef int kind = _KINDS[name]
    cdef list buckets = empty_buckets(partitions)
    cdef list kept = [bucket.rows for bucket in buckets]
    cdef list kept_sizes = [bucket.sizes for bucket in buckets]
    cdef unsigned long long place
    for row, size in zip(rows, sizes, strict=True):
        place = hashed_of((<tuple?>row)[0], kind) % <unsigned long long>partitions
        (<list>kept[place]).append(row)
        (<list>kept_sizes[place]).append(size)
    return buckets


def chunks_by_key(
    str name, list rows not None, list sizes, Py_ssize_t partitions, bint timestamped, long long cap, long long limit
):
    """The rows of ``bucket_by_key``, by partition in the chunks of ``cut``, in one pass. ``sizes`` None: of plain (key,
    value) rows, measured here."""
    from logstore.format.rows import Chunk

    cdef int kind = _KINDS[name]
    cdef long long overhead = RECORD_OVERHEAD + (TIMESTAMP_OVERHEAD if timestamped else 0)
    cdef long long size
    cdef Py_ssize_t number, place, count = PyList_GET_SIZE(rows)
    cdef bint unusual = partitions < 1 or (sizes is not None and PyList_GET_SIZE(sizes) != count)
    cdef list chunks, filling
    cdef tuple row
    cdef list part
    cdef long long* totals = <long long*>PyMem_Malloc(max(partitions, 1) * sizeof(long long))
    if totals is NULL:
        raise MemoryError()
    try:
        if not unusual:
            chunks = [[] for _ in range(partitions)]
            filling = [[] for _ in range(partitions)]
            for place in range(partitions):
                totals[place] = HEADER_SIZE
            for number in range(count):
                row = <tuple?>rows[number]
                key = row[0]
                if sizes is not None:
                    size = <object>PyList_GET_ITEM(sizes, number)
                else:
                    value = row[1]
                    size = len(<bytes?>key) + (0 if value is None else len(<bytes?>value))
                size += overhead
                if size > cap - HEADER_SIZE:
                    unusual = True  # a row that goes alone is measured exactly
                    break
                place = <uint32_t>hashed_of(key, kind) % <uint32_t>partitions
                part = <list>PyList_GET_ITEM(filling, place)
                if totals[place] + size > cap:
                    (<list>PyList_GET_ITEM(chunks, place)).append(tuple.__new__(Chunk, (part, totals[place])))
                    part = filling[place] = []
                    totals[place] = HEADER_SIZE
                part.append(row)
                totals[place] += size
        if unusual:
            return PYTHON_TWINS["chunks_by_key"](name, rows, sizes, partitions, timestamped, cap, limit)
        for place in range(partitions):
            if filling[place]:
                (<list>chunks[place]).append(tuple.__new__(Chunk, (filling[place], totals[place])))
        return chunks
    finally:
        PyMem_Free(totals)
