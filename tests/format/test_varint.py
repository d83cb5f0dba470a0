"""Zigzag varints: the documented bytes, round trips over the whole range, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptBatchError
from logstore.format import varint
from tests.format.batches import CALM
from tests.format.oracles import kafka_encode_varint as oracle_encode

INT32 = st.integers(varint.INT32_MIN, varint.INT32_MAX)
INT64 = st.integers(varint.INT64_MIN, varint.INT64_MAX)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (-8193, "818001"),
        (1048575, "feff7f"),
        (1048576, "80808001"),
        (134217728, "8080808001"),
        (varint.INT32_MAX, "feffffff0f"),
        (varint.INT32_MIN, "ffffffff0f"),
    ],
)
def test_documented_bytes(value: int, encoded: str) -> None:
    assert varint.encode_varint(value).hex() == encoded
    assert varint.encode_varlong(value).hex() == encoded
    assert varint.read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
    assert varint.size_of_varint(value) == len(encoded) // 2


def test_ends_of_int64() -> None:
    assert varint.encode_varlong(varint.INT64_MAX).hex() == "feffffffffffffffff01"
    assert varint.encode_varlong(varint.INT64_MIN).hex() == "ffffffffffffffffff01"


def test_ready_table_holds_two_byte_values_and_null_last() -> None:
    assert len(varint.VARINTS) == varint.TWO_BYTE_END + 1
    assert varint.VARINTS[-1] == b"\x01"
    for value in range(varint.TWO_BYTE_END):
        out = bytearray()
        oracle_encode(value, out.append)
        assert varint.VARINTS[value] == out


@CALM
@given(INT32, st.binary(max_size=3))
def test_varint_round_trip(value: int, before: bytes) -> None:
    encoded = varint.encode_varint(value)
    out = bytearray()
    oracle_encode(value, out.append)
    assert encoded == out
    assert varint.read_varint(before + encoded + b"\xff", len(before)) == (value, len(before) + len(encoded))


@CALM
@given(INT64)
def test_varlong_round_trip(value: int) -> None:
    encoded = varint.encode_varlong(value)
    out = bytearray()
    oracle_encode(value, out.append)
    assert encoded == out
    assert varint.read_raw(encoded, 0, varint.VARLONG_MAX_BYTES) == (value << 1 ^ value >> 63, len(encoded))


@pytest.mark.parametrize("encoded", ["", "80", "8080", "80808080", "ffffff"])
def test_cut_short(encoded: str) -> None:
    with pytest.raises(CorruptBatchError, match="cut short"):
        varint.read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["808080808001", "ffffffff1f", "8080808080"])
def test_varint_with_too_many_bits(encoded: str) -> None:
    with pytest.raises(CorruptBatchError, match="too many bits"):
        varint.read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["ffffffffffffffffff02", "8080808080808080808001"])
def test_varlong_with_too_many_bits(encoded: str) -> None:
    with pytest.raises(CorruptBatchError, match="too many bits"):
        varint.read_raw(bytes.fromhex(encoded), 0, varint.VARLONG_MAX_BYTES)


def test_longer_encodings_than_needed_are_read_as_kafka_reads_them() -> None:
    assert varint.read_varint(b"\x82\x00", 0) == (1, 2)
    assert varint.read_varint(b"\x82\x80\x80\x00", 0) == (1, 4)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16384, "808001"), ((1 << 32) - 1, "ffffffff0f")],
)
def test_plain_integers(value: int, encoded: str) -> None:
    assert varint.encode_raw(value).hex() == encoded
    assert varint.read_raw(bytes.fromhex(encoded), 0, varint.VARINT_MAX_BYTES) == (value, len(encoded) // 2)
    assert varint.read_raw(memoryview(bytes.fromhex(encoded)), 0, varint.VARLONG_MAX_BYTES)[0] == value
