"""Values of a table: where a key counts, and what the log gives back."""

from __future__ import annotations

import pytest

from logstore.api.backend import Backend
from logstore.client.table.partition_map import PartitionMap
from logstore.client.table.values import Keys, ValueReader
from logstore.errors import CorruptBatchError, PoisonRecordError, RecordTypeError, SegmentVanishedError
from logstore.format.batch import encode_batch, read_header
from logstore.log.cleaning.compaction import emptied
from logstore.types import TopicPartition
from tests.client.fake_backend import FakeBackend


def holding(*keys: bytes) -> PartitionMap:
    held = PartitionMap(with_values=True)
    if keys:
        held.apply(encode_batch([(key, b"v") for key in keys], now_ms=1), len(keys))
    return held


def test_the_partitioners_choice_counts_then_the_lowest() -> None:
    maps = {0: holding(b"a", b"b"), 1: holding(b"b", b"a", b"c"), 2: holding()}
    for keys in (Keys("crc32", 3), Keys("murmur3", 3), Keys("murmur2", 3), Keys("round_robin", 3)):
        places = {key: keys.find(maps, key) for key in (b"a", b"b", b"c", b"d")}
        assert (places[b"c"], places[b"d"]) == ((1, 2, b"v"), None)
        hidden = keys.shadowed(maps)
        for key in (b"a", b"b"):
            found = places[key]
            assert found is not None
            assert [at for at, some in hidden.items() if key in some] == [1 - found.partition]
    assert Keys("round_robin", 3).find(maps, b"b") == (0, 1, b"v")
    assert Keys("round_robin", 3).shadowed(maps) == {1: {b"a", b"b"}}
    assert Keys("crc32", 1).shadowed({0: holding(b"a")}) == {}
    with pytest.raises(RecordTypeError, match="the key of a table is str"):
        Keys("crc32", 3).find(maps, "a")  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_single_values_and_runs(fake: FakeBackend, codec: str) -> None:
    rows = [(b"k%d" % number, b"v" * number or None) for number in range(20)]
    log = fake.log("events", 0)
    for start in (0, 7, 14):
        log.append(encode_batch(rows[start : start + 7], now_ms=1, codec=codec))
    reader = ValueReader(fake, "events", "read_committed", None)
    assert [reader.stored(0, offset) for offset in range(20)] == [value for _, value in rows]
    fetches = fake.fetches
    places = [(offset, rows[offset][0]) for offset in (1, 2, 6, 7, 19)]
    assert list(reader.stored_run(0, places, 1)) == [rows[offset] for offset, _ in places]
    assert fake.fetches == fetches + 3, "each batch is read once"
    log.batches[1] = emptied(read_header(log.batches[1]))
    assert [reader.stored(0, offset) for offset in (6, 7, 13, 14)] == [rows[6][1], None, None, rows[14][1]]
    assert [value for _, value in reader.stored_run(0, places, 1)][3] is None
    fake.delete_records({TopicPartition("events", 0): 3})
    assert (reader.stored(0, 2), reader.stored(0, 3)) == (None, rows[3][1])
    assert list(reader.stored_run(0, places, 1))[1:3] == [(b"k2", None), rows[6]]


def test_faults(fake: FakeBackend) -> None:
    fake.log("events", 0).append(encode_batch([(b"k", b"v")], now_ms=1))
    reader = ValueReader(fake, "events", "read_committed", None)
    faults = fake.fetch_faults[TopicPartition("events", 0)]
    faults.extend([SegmentVanishedError("gone")] * 4)
    assert reader.stored(0, 0) == b"v"
    faults.extend([SegmentVanishedError("gone")] * 5)
    with pytest.raises(SegmentVanishedError):
        reader.stored(0, 0)
    faults.append(CorruptBatchError("damaged"))
    with pytest.raises(CorruptBatchError):
        reader.stored(0, 0)


def test_the_deserializer(backend: Backend) -> None:
    assert ValueReader(backend, "events", "read_committed", None).made(0, 3, b"7") == b"7"
    reader = ValueReader(backend, "events", "read_committed", int)  # type: ignore[arg-type]
    assert reader.made(0, 3, b"7") == 7
    with pytest.raises(
        PoisonRecordError, match="the value at events-0 offset 3 could not be deserialized"
    ) as told:
        reader.made(0, 3, b"x")
    assert isinstance(told.value.__cause__, ValueError)
