"""Keys and values without records: the same as the careful decoding gives, for every shape of a batch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptBatchError
from logstore.format.batch import decode_batches, encode_batch, read_header, records_section
from logstore.format.payloads import payloads, take_plain

BYTES = st.one_of(st.none(), st.binary(max_size=200), st.sampled_from([b"x" * 63, b"x" * 64, b"y" * 9000]))
HEADERS = st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=2)
ROWS = st.lists(st.tuples(BYTES, BYTES, HEADERS, st.integers(0, 300)), min_size=1, max_size=4)


@settings(derandomize=True, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.sampled_from(["none", "gzip"]))
def test_as_decoded_with_care(batches: list[list[tuple[object, ...]]], codec: str) -> None:
    data, offset = b"", 0
    for rows in batches:
        data += encode_batch(rows, now_ms=100, base_offset=offset, codec=codec)  # type: ignore[arg-type]
        offset += len(rows)
    found, at = [], 0
    view = memoryview(data)
    while at < len(view):
        end = take_plain(view, at, 0, found)
        assert (end == at) == (codec != "none")
        at = end
        if at < len(view):
            header = read_header(view, at)
            found += payloads(records_section(view, at, header), header.records_count, header.base_offset)
            at += header.size
    assert found == [(record.key, record.value) for record in decode_batches(data, "t", 0)]


def test_batches_before_the_start_are_passed_over() -> None:
    data = memoryview(b"".join(encode_batch([(b"%d" % n, b"v")], now_ms=1, base_offset=n) for n in range(4)))
    found: list[tuple[bytes | None, bytes | None]] = []
    assert take_plain(data, 0, 2, found) == len(data)
    assert found == [(b"2", b"v"), (b"3", b"v")]


@pytest.mark.parametrize("place", range(8, 76))
def test_damage_stops_it_or_is_named(place: int) -> None:
    whole = encode_batch([(b"key", b"value")], now_ms=1)
    damaged = bytearray(whole)
    damaged[place] ^= 0x40
    found: list[tuple[bytes | None, bytes | None]] = []
    end = take_plain(memoryview(damaged), 0, 0, found)
    if 12 <= place < 16:  # the leader's epoch is under no checksum
        assert found == [(b"key", b"value")]
    else:
        assert (end, found) == (0, [])


def test_a_section_that_lies_about_its_record_is_corrupt() -> None:
    batch = encode_batch([(b"key", b"value")], now_ms=1)
    section = records_section(batch, 0, read_header(batch))
    for place in range(len(section)):
        damaged = bytearray(section)
        damaged[place] ^= 0x7F
        try:
            found = payloads(bytes(damaged), 1, 0)
        except CorruptBatchError:
            continue
        assert len(found) == 1
    with pytest.raises(CorruptBatchError):
        payloads(section[:-1], 1, 0)
