"""Known answers: published vectors of the hashes, and the partitions Kafka's clients choose."""

from __future__ import annotations

from types import ModuleType

import pytest
from aiokafka.partitioner import murmur2 as kafka_murmur2
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.client import partitioner
from logstore.client.partitioner import (
    bucket_by_key,
    checked_partition,
    crc32_partition,
    key_partitioner,
    murmur2,
    murmur2_partition,
    murmur3_hash,
    murmur3_partition,
)
from logstore.errors import InvalidConfigError, UnknownPartitionError
from logstore.format.rows import cut
from tests.native.twins import python_twin


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_vectors(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    for partitions in (1, 3, 12, 1000):
        assert murmur2_partition(key, partitions) == (hashed & 0x7FFFFFFF) % partitions


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=100))
def test_murmur2_is_kafkas(key: bytes) -> None:
    assert murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # MurmurHash3_x86_32, seed 0
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"foo", -156908512 & 0xFFFFFFFF),
    ],
)
def test_murmur3_vectors(key: bytes, hashed: int) -> None:
    assert murmur3_hash(key, 0) & 0xFFFFFFFF == hashed
    for partitions in (1, 3, 8, 12):
        assert murmur3_partition(key, partitions) == (hashed & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(("key", "hashed"), [(b"123456789", 0xCBF43926), (b"", 0)])
def test_crc32_vectors(key: bytes, hashed: int) -> None:
    assert crc32_partition(key, 7) == hashed % 7


def test_long_keys_are_hashed_like_short_ones() -> None:
    assert murmur2_partition(b"k" * 65, 1000) == (murmur2(b"k" * 65) & 0x7FFFFFFF) % 1000


def test_round_robin_counts_on_whatever_the_key() -> None:
    choose = key_partitioner("round_robin", 3, first=2)
    assert [choose(key) for key in (b"a", None, b"a", b"", b"b", b"a")] == [2, 0, 1, 2, 0, 1]


def test_key_partitioners_by_name() -> None:
    assert key_partitioner("murmur3", 8)(b"hello") == 0x248BFA47 % 8
    assert key_partitioner("murmur2", 10)(b"21") == (-973932308 & 0x7FFFFFFF) % 10
    assert key_partitioner("crc32", 10)(b"123456789") == 0xCBF43926 % 10
    with pytest.raises(InvalidConfigError, match="murmur3, murmur2, crc32, round_robin"):
        key_partitioner("fnv1a", 3)


@pytest.mark.parametrize("twin", [partitioner, python_twin("logstore.client.partitioner")])
@pytest.mark.parametrize("name", ["murmur3", "murmur2", "crc32"])
def test_buckets_hold_what_the_single_choice_says_in_order(twin: ModuleType, name: str) -> None:
    rows = [(b"key-%d" % (number % 50), b"%d" % number) for number in range(1000)]
    buckets = twin.bucket_by_key(name, rows, list(range(1000)), 7)
    choose = key_partitioner(name, 7)
    for partition, bucket in enumerate(buckets):
        assert [rows[size] for size in bucket.sizes] == bucket.rows
        assert bucket.rows == [row for row in rows if choose(row[0]) == partition]
    assert sum(len(bucket.rows) for bucket in buckets) == 1000
    with pytest.raises(ValueError, match="shorter"):
        twin.bucket_by_key(name, rows, [1], 7)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    lengths=st.lists(st.integers(0, 400), max_size=60),
    name=st.sampled_from(["murmur3", "murmur2", "crc32"]),
    partitions=st.integers(1, 5),
    timestamped=st.booleans(),
    cap=st.sampled_from([100, 300, 1000, 1 << 20]),
)
def test_rows_are_dealt_and_cut_in_one_pass(
    lengths: list[int], name: str, partitions: int, timestamped: bool, cap: int
) -> None:
    rows = [(b"key-%d" % (number % 9), b"v" * length) for number, length in enumerate(lengths)]
    sizes = [len(key) + len(value) for key, value in rows]
    wanted = [
        list(cut(bucket.rows, bucket.sizes, timestamped, cap, 1 << 20))
        for bucket in bucket_by_key(name, rows, sizes, partitions)
    ]
    for twin in (partitioner, python_twin("logstore.client.partitioner")):
        for measured in (sizes, None):
            assert twin.chunks_by_key(name, rows, measured, partitions, timestamped, cap, 1 << 20) == wanted
        if rows:
            with pytest.raises(ValueError, match="shorter"):
                twin.chunks_by_key(name, rows, sizes[1:], partitions, timestamped, cap, 1 << 20)


class OfBytes(bytes):
    """A key of a class derived from bytes is a key."""


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=100), st.integers(1, 1 << 31))
def test_both_twins_choose_the_same_partition(key: bytes, partitions: int) -> None:
    python = python_twin("logstore.client.partitioner")
    assert murmur2(key) == python.murmur2(key)
    assert murmur2_partition(key, partitions) == python.murmur2_partition(key, partitions)
    assert murmur3_partition(key, partitions) == python.murmur3_partition(key, partitions)
    for name in ("murmur3", "murmur2", "crc32"):
        choose = key_partitioner(name, partitions)
        assert choose(key) == choose(OfBytes(key)) == python.key_partitioner(name, partitions)(OfBytes(key))


class Text(bytes):
    """A subclass, such as numpy's."""


@pytest.mark.parametrize("twin", [partitioner, python_twin("logstore.client.partitioner")])
@pytest.mark.parametrize("name", ["murmur3", "murmur2", "crc32"])
def test_a_key_of_a_subclass_of_bytes_is_hashed_as_bytes(twin: ModuleType, name: str) -> None:
    for text in (b"", b"k", b"N14228", b"x" * 300):
        plain = twin.key_partitioner(name, 1000)(text)
        assert twin.key_partitioner(name, 1000)(Text(text)) == plain
        buckets = twin.bucket_by_key(name, [(Text(text), b"v")], [1], 1000)
        assert buckets[plain].rows == [(Text(text), b"v")]
    assert twin.murmur2(Text(b"foobar")) == twin.murmur2(b"foobar")


@pytest.mark.parametrize("chosen", [-1, 3, "1", None, True, 1.0])
def test_a_partition_that_is_none_is_refused(chosen: object) -> None:
    with pytest.raises(UnknownPartitionError, match="partitions 0 to 2"):
        checked_partition(chosen, "t", 3, "the partitioner")
    assert checked_partition(2, "t", 3, "the partitioner") == 2
