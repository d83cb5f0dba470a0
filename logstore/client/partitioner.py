"""Which partition a record goes to: pure functions of key, partition count and a counter.

A topic names its partitioner (setting ``partitioner``) and every client obeys it, so that a key's records
meet in one partition whoever wrote them:

- ``murmur3``: MurmurHash3 x86 32, seed 0, sign bit cleared, modulo (the default; the library's own hash);
- ``murmur2``: what Kafka's Java clients do (seed 0x9747b28c, sign bit cleared, modulo);
- ``crc32``: what librdkafka's ``consistent`` does (CRC-32 of zlib, modulo);
- ``round_robin``: one record after the other, with or without a key.

Null keys stay on one partition for a batch and then move on (KIP-480); an empty key is a key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import mmh3

from logstore.errors import InvalidConfigError, UnknownPartitionError
from logstore.format.rows import Chunk, cut
from logstore.native import compiled

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""A caller's own: (topic, key, value, partition count) -> partition; key and value are serialized."""

KeyPartitioner: TypeAlias = Callable[[bytes | None], int]

POSITIVE = 0x7FFFFFFF
_UINT32 = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995

# Pure Python murmur2 costs about a microsecond, so recent hashes are kept: at most this many, of keys of at
# most this many bytes (about 12 MB when full).
_CACHED_HASHES = 65536
_CACHED_KEY_BYTES = 64

murmur3_hash: Callable[..., int] = mmh3.hash


@compiled("client.hashing")
def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, as ``org.apache.kafka.common.utils.Utils.murmur2`` has it; unsigned here."""
    length = len(data)
    hashed = (_MURMUR2_SEED ^ length) & _UINT32
    words = length & ~3
    for position in range(0, words, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MURMUR2_M & _UINT32
        word = (word ^ word >> 24) * _MURMUR2_M & _UINT32
        hashed = hashed * _MURMUR2_M & _UINT32 ^ word
    if length != words:
        hashed = (hashed ^ int.from_bytes(data[words:], "little")) * _MURMUR2_M & _UINT32
    hashed = (hashed ^ hashed >> 13) * _MURMUR2_M & _UINT32
    return hashed ^ hashed >> 15


_murmur2_of_short = lru_cache(maxsize=_CACHED_HASHES)(murmur2)


@compiled("client.hashing")
def murmur3_partition(key: bytes, partitions: int) -> int:
    return (murmur3_hash(key, 0) & POSITIVE) % partitions


@compiled("client.hashing")
def murmur2_partition(key: bytes, partitions: int) -> int:
    hashed = _murmur2_of_short(key) if len(key) <= _CACHED_KEY_BYTES else murmur2(key)
    return (hashed & POSITIVE) % partitions


def crc32_partition(key: bytes, partitions: int) -> int:
    return zlib.crc32(key) % partitions


_BY_KEY: dict[str, Callable[[bytes, int], int]] = {
    "murmur3": murmur3_partition,
    "murmur2": murmur2_partition,
    "crc32": crc32_partition,
}


@compiled("client.hashing")
def by_key(name: str, partitions: int) -> Callable[[bytes], int]:
    """The function key -> partition of a partitioner that goes by the key."""
    choose = _BY_KEY[name]
    return lambda key: choose(key, partitions)


def key_partitioner(name: str, partitions: int, first: int = 0) -> KeyPartitioner:
    """The function key -> partition of a topic. ``first``: where round_robin begins.

    The keyed ones take no None: null keys are the caller's to place. InvalidConfigError: unknown name.
    """
    if name == "round_robin":
        turns = count(first)
        return lambda _key: next(turns) % partitions
    if name not in _BY_KEY:
        raise InvalidConfigError(
            f"topic setting partitioner={name!r} is not known to this client",
            hint=f"use one of {', '.join((*_BY_KEY, 'round_robin'))}",
        )
    return by_key(name, partitions)  # type: ignore[return-value]


class Bucket(NamedTuple):
    """Rows of one partition, in the order given, and the size of each."""

    rows: list[Any]
    sizes: list[int]


def empty_buckets(partitions: int) -> list[Bucket]:
    return [Bucket([], []) for _ in range(partitions)]


@compiled("client.hashing")
def bucket_by_key(name: str, rows: Sequence[Any], sizes: Sequence[int], partitions: int) -> list[Bucket]:
    """``rows`` (tuples whose first field is a key, never None) with their ``sizes``, by partition, as the
    partitioner ``name`` says, which goes by the key."""
    buckets = empty_buckets(partitions)
    adds = [(bucket.rows.append, bucket.sizes.append) for bucket in buckets]
    if name != "murmur3":
        choose = _BY_KEY[name]
        for row, size in zip(rows, sizes, strict=True):
            add_row, add_size = adds[choose(row[0], partitions)]
            add_row(row)
            add_size(size)
        return buckets
    hash_of = murmur3_hash  # a call less for each of the rows of the default partitioner
    for row, size in zip(rows, sizes, strict=True):
        add_row, add_size = adds[(hash_of(row[0], 0) & POSITIVE) % partitions]
        add_row(row)
        add_size(size)
    return buckets


@compiled("client.hashing")
def chunks_by_key(
    name: str,
    rows: list[Any],
    sizes: list[int] | None,
    partitions: int,
    timestamped: bool,
    cap: int,
    limit: int,
) -> list[list[Chunk]]:
    """The rows of ``bucket_by_key``, by partition in the chunks of ``cut``. ``sizes`` None: of plain (key, value)
    rows, measured here."""
    if sizes is None:
        sizes = [len(key) + len(value or b"") for key, value in rows]
    return [
        list(cut(bucket.rows, bucket.sizes, timestamped, cap, limit))
        for bucket in bucket_by_key(name, rows, sizes, partitions)
    ]


def checked_partition(chosen: object, topic: str, partitions: int, who: str) -> int:
    """``chosen`` if it is a partition of the topic, else UnknownPartitionError. ``who`` chose it."""
    if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < partitions:
        return chosen
    raise UnknownPartitionError(
        f"{who} names partition {chosen!r} of topic {topic!r}, which has partitions 0 to {partitions - 1}",
        hint="choose one of them, or add partitions first",
    )
