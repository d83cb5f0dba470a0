"""A batch from elsewhere is what its header says, or a named error says where it is not."""

from __future__ import annotations

import random

import pytest

from logstore.errors import (
    CorruptBatchError,
    DecompressionBombError,
    LogStoreError,
    UnsupportedCodecError,
)
from logstore.format.batch import decode_batches, encode_batch, pack_batch, read_header, records_section
from logstore.format.compression import compress
from logstore.format.proof import prove_batch

NOW_MS = 1_700_000_000_000
ROWS = [
    (b"k%d" % number, b"value" * number, [("name", b"x" * number)] if number % 3 else [], NOW_MS + number % 5)
    for number in range(20)
]
ALIKE = [(b"k%02d" % number, b"value %02d" % number) for number in range(20)]


def proved(data: bytes, **settings: int) -> None:
    prove_batch(data, 0, read_header(data), **settings)


def remade(data: bytes, section: bytes, codec: str = "none", **fields: int) -> bytes:
    """The batch with another records section and header fields, and a right checksum."""
    return pack_batch(read_header(data)._replace(**fields), compress(codec, section, None))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("rows", [ROWS, ALIKE, ROWS[:1], [(None, None)]])
def test_what_is_encoded_here_is_proved(codec: str, rows: list[tuple[object, ...]]) -> None:
    proved(encode_batch(rows, now_ms=NOW_MS, codec=codec))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"max_timestamp": NOW_MS + 3},
            "says 1700000000003 for the largest timestamp, the records' largest is",
        ),
        ({"max_timestamp": NOW_MS + 5}, "largest timestamp"),
        ({"records_count": 19, "last_offset_delta": 18}, "ends at byte"),
        ({"records_count": 21, "last_offset_delta": 20}, "ends in the middle of a record"),
        ({"records_count": 10**6, "last_offset_delta": 10**6 - 1}, "says 1000000 records"),
    ],
)
def test_a_header_that_says_something_else(fields: dict[str, int], message: str) -> None:
    data = encode_batch(ROWS, now_ms=NOW_MS)
    section = records_section(data, 0, read_header(data))
    with pytest.raises(CorruptBatchError, match=message) as caught:
        prove_batch(
            b"." * 7 + remade(data, section, **fields), 7, read_header(remade(data, section, **fields))
        )
    assert caught.value.position == 7


def test_two_records_of_one_offset_and_one_that_is_left_out() -> None:
    data = encode_batch([(None, b"a"), (None, b"b"), (None, b"c")], now_ms=NOW_MS)
    section = bytearray(records_section(data, 0, read_header(data)))
    size = len(section) // 3
    for delta, message in ((0, "do not grow"), (3 << 1, "has offset delta 3, the header says 2")):
        changed = section.copy()
        changed[2 * size + 3] = delta
        with pytest.raises(CorruptBatchError, match=message):
            proved(remade(data, bytes(changed)))


def test_more_than_the_bound_of_records_is_not_unpacked() -> None:
    data = encode_batch([(None, bytes(1 << 20))], now_ms=NOW_MS, codec="gzip")
    proved(data)
    with pytest.raises(DecompressionBombError, match="the batch at byte 0"):
        proved(data, max_bytes=1 << 19)


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("rows", [ROWS, ALIKE])
def test_whatever_is_let_in_reads_as_its_header_says(codec: str, rows: list[tuple[object, ...]]) -> None:
    """Bits flipped, bytes cut, zeros and huge numbers in the records or in the header, with a right checksum."""
    data = encode_batch(rows, now_ms=NOW_MS)
    whole = records_section(data, 0, read_header(data))
    source = random.Random(20261128)
    refused = 0
    for _ in range(1500):
        section, fields = bytearray(whole), {}
        at = source.randrange(len(section))
        match source.randrange(5):
            case 0:
                section[at] ^= 1 << source.randrange(8)
            case 1:
                del section[at:]
            case 2:
                section[at : at + source.randrange(1, 9)] = bytes(8)
            case 3:
                section[at : at + 5] = b"\xff\xff\xff\xff\x0f"
            case 4:
                name = source.choice(
                    ["max_timestamp", "base_timestamp", "records_count", "last_offset_delta"]
                )
                fields[name] = source.choice([0, 1, 19, 21, 2**31 - 1, -1])
        try:
            batch = remade(data, bytes(section), codec, **fields)
            batch = (
                batch[:22] + bytes([batch[22] & ~7 | {"none": 0, "gzip": 1, "lz4": 3}[codec]]) + batch[23:]
            )
            batch = pack_batch(read_header(batch), batch[61:])
            header = read_header(batch)
            proved(batch)
        except LogStoreError:
            refused += 1
            continue
        if header.records_count == header.last_offset_delta + 1:
            records = decode_batches(batch, "t", 0)
            assert [record.offset for record in records] == list(range(header.records_count))
            assert max(record.timestamp_ms for record in records) == header.max_timestamp
    assert refused > 500


def test_a_codec_that_nobody_knows() -> None:
    data = bytearray(encode_batch(ALIKE, now_ms=NOW_MS))
    data[22] |= 7
    batch = pack_batch(read_header(bytes(data)), bytes(data[61:]))
    with pytest.raises(UnsupportedCodecError):
        proved(batch)
