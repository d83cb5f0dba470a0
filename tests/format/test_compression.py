"""The codecs: round trips, both snappy shapes, bounds before allocation, damage, missing packages."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import (
    CorruptBatchError,
    DecompressionBombError,
    InvalidArgumentError,
    MissingExtraError,
    UnsupportedCodecError,
)
from logstore.format.compression import (
    CODEC_NAMES,
    codec_id,
    codec_name,
    compress,
    decompress,
)
from tests.format.batches import FEW
from tests.format.oracles import CODEC_ORACLES

PACKED = CODEC_NAMES[1:]
BOUND = 8 << 20
GIB = 1 << 30
SAMPLE = random.Random(7).randbytes(300) + b"abc" * 200


def test_numbers_are_kafkas() -> None:
    assert [codec_id(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
    assert [codec_name(number) for number in range(5)] == list(CODEC_NAMES)


@pytest.mark.parametrize("number", [5, 6, 7, -1])
def test_unknown_number(number: int) -> None:
    with pytest.raises(UnsupportedCodecError, match=f"codec {number}"):
        codec_name(number)


@pytest.mark.parametrize("call", [codec_id, lambda c: compress(c, b""), lambda c: decompress(c, b"")])
def test_unknown_name(call: Callable[[str], object]) -> None:
    with pytest.raises(UnsupportedCodecError, match=r"'brotli'.*none, gzip, snappy, lz4 or zstd"):
        call("brotli")


@pytest.mark.parametrize("codec", CODEC_NAMES)
@FEW
@given(data=st.one_of(st.binary(max_size=2000), st.integers(0, 200_000).map(lambda n: b"ab" * n)))
def test_round_trip_of_every_buffer(codec: str, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert compress(codec, bytearray(data)) == packed == compress(codec, memoryview(data))
    assert decompress(codec, memoryview(packed)) == data == decompress(codec, bytearray(packed))
    assert decompress(codec, packed, len(data)) == data


@pytest.mark.parametrize(("codec", "pack", "unpack"), CODEC_ORACLES)
def test_other_projects_read_ours_and_we_read_theirs(
    codec: str, pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]
) -> None:
    for size in (0, 1, 100, 32 * 1024, 32 * 1024 + 1, 300_000):
        data = (SAMPLE * (size // len(SAMPLE) + 1))[:size]
        assert bytes(unpack(compress(codec, data))) == data
        assert decompress(codec, bytes(pack(data))) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [("gzip", (0, 1, 9)), ("lz4", (-5, 0, 12)), ("zstd", (-3, 1, 19))]
)
def test_levels(codec: str, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, SAMPLE, level)) == SAMPLE


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 10), ("gzip", -1), ("lz4", 17), ("zstd", 23), ("snappy", 1)]
)
def test_levels_out_of_range(codec: str, level: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{codec} cannot compress with level {level}"):
        compress(codec, SAMPLE, level)


def test_snappy_is_written_in_the_java_frame_and_read_in_both_shapes() -> None:
    assert compress("snappy", SAMPLE)[:16].hex() == "82534e41505059000000000100000001"
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(SAMPLE))) == SAMPLE
    by_hand = b"\x05" + bytes([4 << 2]) + b"hello"
    assert decompress("snappy", by_hand) == b"hello"
    framed = compress("snappy", b"")[:16] + struct.pack(">i", len(by_hand)) + by_hand
    assert decompress("snappy", framed) == b"hello"


def test_gzip_members_are_joined() -> None:
    assert decompress("gzip", gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_gzip_is_a_function_of_its_input() -> None:
    assert compress("gzip", SAMPLE)[4:8] == bytes(4)  # no time in the header


def test_zstd_without_its_size_and_with_a_checksum() -> None:
    for size, checksum in ((False, False), (True, True), (False, True)):
        packer = zstandard.ZstdCompressor(write_content_size=size, write_checksum=checksum)
        for data in (b"", b"x", SAMPLE, SAMPLE * 3000):
            assert decompress("zstd", packer.compress(data)) == data
    streamed = zstandard.ZstdCompressor().compressobj()
    packed = streamed.compress(SAMPLE) + streamed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    packed += streamed.compress(SAMPLE) + streamed.flush()
    assert decompress("zstd", packed) == SAMPLE * 2


def test_lz4_with_linked_blocks_checksums_and_size() -> None:
    data = SAMPLE * 3000
    for options in (
        {"block_linked": True},
        {"content_checksum": True},
        {"block_checksum": True},
        {"store_size": False},
    ):
        assert decompress("lz4", lz4.frame.compress(data, **options)) == data


# --- bounds -----------------------------------------------------------------------------------------


def gzip_bomb() -> bytes:
    """A GiB of zeros: one deflated MiB that ends on a byte, over and over."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return bytes.fromhex("1f8b08000000000002ff") + block * 1024 + b"\x03\x00" + bytes(8)


def lz4_bomb() -> bytes:
    frame: bytes = lz4.frame.compress(
        bytes(4 << 20), block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
    )
    return frame[:7] + frame[7:-4] * 256 + frame[-4:]


def zstd_bomb(stated: bool) -> bytes:
    """Blocks of one byte repeated 128 KiB times; the frame's header says its size, or does not."""
    block, last = ((128 << 10 << 3 | 2 | end).to_bytes(3, "little") + b"\0" for end in (0, 1))
    head = bytes.fromhex("28b52ffd") + (b"\xe0" + struct.pack("<Q", GIB) if stated else b"\x00\x88")
    return head + block * 8191 + last


def snappy_bomb_raw() -> bytes:
    zeros = bytes(cramjam.snappy.compress_raw(bytes(64 << 20)))
    return b"\x80\x80\x80\x80\x04" + zeros[4:] * 16


def snappy_bomb_framed() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    return compress("snappy", b"") + (struct.pack(">i", len(block)) + block) * 1024


BOMBS: list[tuple[str, Callable[[], bytes]]] = [
    ("gzip", gzip_bomb),
    ("lz4", lz4_bomb),
    ("zstd", lambda: zstd_bomb(True)),
    ("zstd", lambda: zstd_bomb(False)),
    ("snappy", snappy_bomb_raw),
    ("snappy", snappy_bomb_framed),
]


@pytest.mark.parametrize(("codec", "make"), BOMBS)
def test_a_gib_of_zeros_is_refused_before_it_is_allocated(codec: str, make: Callable[[], bytes]) -> None:
    bomb = make()
    assert len(bomb) < GIB // 15
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionBombError, match=f"codec {codec} .* the bound is {BOUND}"):
            decompress(codec, bomb, BOUND)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The rest of the input may be held once more (gzip's unconsumed tail).
    assert peak < 3 * BOUND + len(bomb)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_the_bound_is_exact(codec: str) -> None:
    data = SAMPLE * 1000
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(DecompressionBombError):
        decompress(codec, packed, len(data) - 1)


def test_bound_of_zstd_without_its_size_is_exact() -> None:
    data = SAMPLE * 1000
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert decompress("zstd", packed, len(data)) == data
    with pytest.raises(DecompressionBombError):
        decompress("zstd", packed, len(data) - 1)


def test_sizes_that_the_input_cannot_hold_are_lies() -> None:
    with pytest.raises(CorruptBatchError, match="cannot hold"):
        decompress("snappy", b"\x80\x80\x80\x02" + b"\0" * 20, BOUND)
    frame = bytes.fromhex("28b52ffd") + b"\xe0" + struct.pack("<Q", 1 << 20)
    with pytest.raises(CorruptBatchError, match="cannot hold"):
        decompress("zstd", frame + b"\x01\x00\x00", BOUND)


# --- damage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", PACKED)
def test_every_truncation_is_named(codec: str) -> None:
    packed = compress(codec, SAMPLE)
    blocks = {16} if codec == "snappy" else set()  # a frame of no blocks is whole, and empty
    for length in set(range(len(packed))) - blocks:
        with pytest.raises(CorruptBatchError):
            decompress(codec, packed[:length], BOUND)


@pytest.mark.parametrize("codec", PACKED)
def test_every_flipped_bit_gives_bytes_within_the_bound_or_a_named_error(codec: str) -> None:
    packed = compress(codec, SAMPLE[250:350])
    refused = 0
    for bit in range(len(packed) * 8):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            unpacked = decompress(codec, damaged, BOUND)
        except (CorruptBatchError, DecompressionBombError):
            refused += 1
        else:
            assert len(unpacked) <= BOUND
    assert refused > 40


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_and_leftovers(codec: str) -> None:
    random_bytes = random.Random(11)
    for size in (0, 1, 3, 4, 7, 16, 100, 1000):
        with pytest.raises(CorruptBatchError):
            decompress(codec, b"\xff" * size, BOUND)
        with pytest.raises((CorruptBatchError, DecompressionBombError), match=codec):
            decompress(codec, random_bytes.randbytes(size), BOUND)
    with pytest.raises(CorruptBatchError):
        decompress(codec, compress(codec, SAMPLE) + b"junk", BOUND)


# --- packages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "package"), [("snappy", "cramjam"), ("lz4", "lz4.frame"), ("zstd", "zstandard")]
)
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, codec: str, package: str) -> None:
    packed = compress(codec, SAMPLE)
    monkeypatch.setitem(sys.modules, package, None)
    calls: list[Callable[[], object]] = [
        lambda: compress(codec, SAMPLE),
        lambda: decompress(codec, packed),
    ]
    for call in calls:
        with pytest.raises(MissingExtraError, match=rf"{codec} needs .*logstore-engine\[compression\]"):
            call()


def test_gzip_and_none_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("cramjam", "lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, package, None)
    for codec in ("none", "gzip"):
        assert decompress(codec, compress(codec, SAMPLE)) == SAMPLE
