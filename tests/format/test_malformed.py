"""Damaged batches: every truncation and every flipped bit gives correct data or an error of ours."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logstore.errors import LogStoreError
from logstore.format.arrow import to_table
from logstore.format.batch import (
    decode_batches,
    encode_batch,
    iter_headers,
    pack_batch,
    read_header,
    recompress,
    records_section,
    whole_batches,
)
from logstore.types import Record
from tests.format.batches import CODECS, NOW_MS

ROWS: list[Any] = [
    (b"k1", b"abcabcabcabcabcabcabc", [("h", b"x"), ("é", None)], NOW_MS),
    (None, b"", None, NOW_MS - 7),
    (b"k2", None, None, NOW_MS + 90_000),
]
BOUND = 1 << 20


def read(batch: bytes, check: bool) -> list[Record] | None:
    """The records, or None for an error of ours; any other exception fails the test."""
    try:
        return decode_batches(batch, "t", 0, check=check, max_decompressed_bytes=BOUND)
    except LogStoreError:
        return None


def flipped(batch: bytes, bit: int) -> bytes:
    damaged = bytearray(batch)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation(codec: str) -> None:
    batch = encode_batch(ROWS, now_ms=NOW_MS, codec=codec)
    two = encode_batch(ROWS, now_ms=NOW_MS) + batch
    for length in range(1, len(batch)):
        cut = batch[:length]
        assert read(cut, check=True) is None
        assert read(cut, check=False) is None
        assert whole_batches(cut) == (0, -1, 0)
        assert read(two[: len(two) - length], check=True) is None
        for call in (lambda cut=cut: recompress(cut, "none"), lambda cut=cut: list(iter_headers(cut))):
            with pytest.raises(LogStoreError):
                call()


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit(codec: str) -> None:
    batch = encode_batch(ROWS, now_ms=NOW_MS, codec=codec, base_offset=1000)
    whole = decode_batches(batch, "t", 0)
    for bit in range(len(batch) * 8):
        damaged = flipped(batch, bit)
        found = read(damaged, check=True)
        byte = bit // 8
        if byte < 8:  # the base offset, which the CRC leaves out
            shift = 1 << (63 - (byte * 8 + 7 - bit % 8))
            moved = [record._replace(offset=record.offset + (1000 ^ shift) - 1000) for record in whole]
            assert found == (None if byte == 0 and bit % 8 == 7 else moved)
        elif 12 <= byte < 16:  # the leader epoch, likewise
            assert found == whole
        else:
            assert found is None, f"bit {bit}"
        read(damaged, check=False)


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_reads_alike_as_records_and_as_columns(codec: str) -> None:
    batch = encode_batch(ROWS, now_ms=NOW_MS, codec=codec)
    for bit in range(21 * 8, len(batch) * 8):
        damaged = flipped(batch, bit)
        records = read(damaged, check=False)
        try:
            table = to_table(damaged, "t", 0, check=False, max_decompressed_bytes=BOUND)
        except LogStoreError:
            assert records is None, f"bit {bit} is refused as columns only"
            continue
        assert records is not None, f"bit {bit} is refused as records only"
        for name in ("offset", "key", "value"):
            assert table.column(name).to_pylist() == [getattr(record, name) for record in records]
        table.validate(full=True)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damage_under_a_right_crc(codec: str) -> None:
    """What a hostile writer can send: the CRC fits, the compressed bytes do not."""
    batch = encode_batch(ROWS, now_ms=NOW_MS, codec=codec)
    header = read_header(batch)
    random_bits = random.Random(codec)
    refused = 0
    for _ in range(400):
        section = bytearray(batch[61:])
        for _ in range(random_bits.randint(1, 4)):
            section[random_bits.randrange(len(section))] = random_bits.randrange(256)
        damaged = pack_batch(header, bytes(section))
        refused += read(damaged, check=True) is None
        try:
            assert len(records_section(damaged, 0, header, BOUND)) <= BOUND
        except LogStoreError:
            refused += 1
    assert refused > 100


def test_random_buffers() -> None:
    source = random.Random(3)
    for _ in range(3000):
        buffer = bytearray(source.randbytes(source.randrange(200)))
        if len(buffer) > 16 and source.random() < 0.9:
            buffer[16] = 2
            buffer[8:12] = source.randrange(40, 150).to_bytes(4, "big")
        assert not read(bytes(buffer), check=True)
        read(bytes(buffer), check=False)
