"""Partitions of keys by their hash, one by one and in bulk: the compiled twin of client/partitioner.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from logstore.native.hashing cimport POSITIVE, murmur2_of, murmur3_of
from logstore.native.varints cimport fingerprint

import zlib

FINGERPRINT = fingerprint()

cdef enum:
    MURMUR3 = 0
    MURMUR2 = 1
    CRC32 = 2

cdef object _crc32 = zlib.crc32
cdef dict _KINDS = {"murmur3": MURMUR3, "murmur2": MURMUR2, "crc32": CRC32}


cdef inline unsigned long long hashed_of(object key, int kind) except? 0xFFFFFFFFFFFFFFFF:
    """What is taken modulo the number of partitions. A key may be of a class derived from bytes."""
    if not isinstance(key, bytes):
        raise TypeError(f"a key is bytes, not {type(key).__name__}")
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(key)
    if kind == MURMUR3:
        return murmur3_of(data, PyBytes_GET_SIZE(key), 0) & POSITIVE
    if kind == MURMUR2:
        return murmur2_of(data, PyBytes_GET_SIZE(key)) & POSITIVE
    return _crc32(key)


def murmur2(data):
    """MurmurHash2, 32 bits, as ``org.apache.kafka.common.utils.Utils.murmur2`` has it; unsigned here."""
    if not isinstance(data, bytes):
        raise TypeError(f"a key is bytes, not {type(data).__name__}")
    return murmur2_of(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


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
