"""One partition's map: batches in, the newest record of each key out."""

from __future__ import annotations

import pytest

from logstore.client.table.partition_map import KEY_OVERHEAD_BYTES, PartitionMap
from logstore.errors import CorruptBatchError
from logstore.format.batch import HEADER_SIZE, encode_batch, pack_batch, read_header
from logstore.format.control import ControlType, encode_control_batch, encode_marker
from logstore.log.cleaning.compaction import emptied
from logstore.types import Row

MODES = [True, False]


def batch(base: int, *rows: Row, epoch: int = 0, codec: str = "none") -> bytes:
    return encode_batch(rows, now_ms=1, base_offset=base, leader_epoch=epoch, codec=codec)


@pytest.mark.parametrize("with_values", MODES)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_newest_record_of_each_key(with_values: bool, codec: str) -> None:
    held = PartitionMap(with_values=with_values)
    held.apply(batch(0, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), codec=codec), 3)
    held.apply(batch(3, (b"b", b"four"), (b"c", b""), epoch=2, codec=codec), 5)
    expected = {b"a": (2, b"3"), b"b": (3, b"four"), b"c": (4, b"")}
    if not with_values:
        assert held.entries == {key: offset for key, (offset, _) in expected.items()}
        assert held.memory_bytes() == held.measure() == 3 * (KEY_OVERHEAD_BYTES + 1)
    else:
        assert held.entries == expected
    assert (held.position, held.epoch, held.absent) == (5, 2, 0)
    assert [held.offset_of(key) for key in (b"a", b"z")] == [2, None]


@pytest.mark.parametrize("with_values", MODES)
def test_tombstones_count_in_their_order(with_values: bool) -> None:
    held = PartitionMap(with_values=with_values)
    held.apply(
        batch(0, (b"a", None), (b"a", b"1"), (b"b", b"1"), (b"b", None), (b"c", None), (b"c", None)), 6
    )
    assert {key: held.offset_of(key) for key in held.entries} == {b"a": 1}
    held.apply(batch(6, (b"a", None)), 7)
    assert (held.entries, held.key_bytes) == ({}, 0)


@pytest.mark.parametrize("with_values", MODES)
def test_records_without_a_key_are_passed_over(with_values: bool) -> None:
    held = PartitionMap(with_values=with_values)
    held.apply(batch(0, (None, b"1"), (b"a", b"1"), (None, None)), 3)
    assert list(held.entries) == [b"a"]
    assert (held.position, held.key_bytes) == (3, held.measure() - KEY_OVERHEAD_BYTES)
    held.apply(batch(3, (None, b"1")), 4)
    assert (list(held.entries), held.position) == ([b"a"], 4)


@pytest.mark.parametrize("with_values", MODES)
def test_only_the_range_counts(with_values: bool) -> None:
    data = batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", None), (b"c", b"1")) + batch(4, (b"d", b"1"))
    held = PartitionMap(with_values=with_values)
    held.position = 1
    held.apply(data, 5, 2)
    assert ({*held.entries}, held.position, held.absent) == ({b"b"}, 2, 0)
    held.apply(data, 5, 4)
    assert ({*held.entries}, held.position, held.absent) == ({b"b", b"c"}, 4, 0)
    held.apply(data, 5)
    assert ({*held.entries}, held.position, held.absent) == ({b"b", b"c", b"d"}, 5, 0)


def test_what_is_missing_is_counted_and_markers_are_not() -> None:
    held = PartitionMap(with_values=True)
    marker = encode_control_batch(
        ControlType.COMMIT,
        encode_marker(0),
        producer_id=1,
        producer_epoch=0,
        timestamp_ms=1,
        base_offset=2,
    )
    gap = emptied(read_header(batch(5, (b"x", b"1"), (b"y", b"1"))))
    held.apply(batch(0, (b"a", b"1"), (b"b", b"1")) + marker, 3)
    assert (held.position, held.absent) == (3, 0)
    held.apply(batch(3, (b"a", b"2"), (b"b", b"2")) + gap, 9)
    assert (held.position, held.absent) == (9, 4), "an empty batch of two, and what the fetch read over"
    held.apply(b"", 11)
    assert (held.position, held.absent) == (11, 6)


@pytest.mark.parametrize("with_values", MODES)
def test_a_damaged_batch_leaves_the_map_at_the_one_before(with_values: bool) -> None:
    good, bad = batch(0, (b"a", b"1")), bytearray(batch(1, (b"a", b"2")))
    bad[-2] ^= 1
    held = PartitionMap(with_values=with_values)
    with pytest.raises(CorruptBatchError, match="wrong CRC-32C"):
        held.apply(good + bytes(bad), 2)
    assert (held.offset_of(b"a"), held.position) == (0, 1)
    data = batch(1, (b"a", b"2"), (b"b", b"2"), (b"c", b"2"))
    header = read_header(data)._replace(last_offset_delta=1, records_count=2)
    with pytest.raises(CorruptBatchError):
        held.apply(pack_batch(header, data[HEADER_SIZE:]), 4)
    assert (held.offset_of(b"a"), held.position) == (0, 1)


@pytest.mark.parametrize("with_values", MODES)
def test_the_front_goes_and_a_copy_does_not_change(with_values: bool) -> None:
    held = PartitionMap(with_values=with_values)
    held.apply(batch(0, (b"a", b"1"), (b"bb", b"1"), (b"a", b"2")), 3)
    copy = held.copy()
    held.raise_start(2)
    assert ({*held.entries}, held.start, held.position, held.key_bytes) == ({b"a"}, 2, 3, 1)
    held.forget(b"a", 1)
    assert b"a" in held.entries, "it is another record that is gone"
    held.forget(b"a", 2)
    held.forget(b"nobody", 2)
    assert held.entries == {}
    assert ({*copy.entries}, copy.position, copy.start) == ({b"a", b"bb"}, 3, 0)
