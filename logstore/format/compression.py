"""The five codecs of a batch; what they unpack to is bounded before it is allocated.

Shapes, as Kafka's Java client writes and reads them: gzip streams; LZ4 frames (independent blocks); zstd
frames; snappy in the frame of the Java library (``82 53 4e 41 50 50 59 00``, two i32 versions, then blocks
of ``length i32, raw snappy``) or raw, as some other clients write it: both are read.

gzip comes with Python; the others need ``pip install 'logstore-engine[compression]'`` and are imported on first use.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from logstore.errors import (
    CorruptBatchError,
    DecompressionBombError,
    InvalidArgumentError,
    MissingExtraError,
    UnsupportedCodecError,
)
from logstore.types import Buffer

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Codec names by number (bits 0 to 2 of a batch's attributes)."""

CODEC_IDS = {name: number for number, name in enumerate(CODEC_NAMES)}

MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
"""Default bound on the decompressed records of one batch: 64 times the default ``max.message.bytes``."""

LEVELS = {"gzip": (0, 9), "lz4": (-(1 << 31), 16), "zstd": (-(1 << 17), 22)}
"""Lowest and highest level a codec takes; the others have none."""

_STEP_BYTES = 256 * 1024
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES = 32 * 1024
# A snappy copy element of 3 bytes yields at most 64: a larger claim is a lie, whatever follows.
_SNAPPY_MAX_RATIO = 22
_ZSTD_MAX_BLOCK_BYTES = 128 * 1024
_ZSTD_SIZE_UNKNOWN = (1 << 64) - 1


def codec_id(name: str) -> int:
    """The number of a codec. ``UnsupportedCodecError`` if there is none of that name."""
    number = CODEC_IDS.get(name)
    if number is None:
        raise UnsupportedCodecError(f"there is no codec {name!r}")
    return number


def codec_name(number: int) -> str:
    """The name of a codec. ``UnsupportedCodecError`` if the number is not in use."""
    if not 0 <= number < len(CODEC_NAMES):
        raise UnsupportedCodecError(f"a batch names codec {number}, which does not exist")
    return CODEC_NAMES[number]


def compress(codec: str, data: Buffer, level: int | None = None) -> bytes:
    """``data`` compressed; ``level`` None is the codec's own default.

    Errors: ``UnsupportedCodecError``, ``MissingExtraError``, ``InvalidArgumentError`` (a level out of range).
    """
    codec_id(codec)
    if level is not None:
        lowest, highest = LEVELS.get(codec, (0, -1))
        if not lowest <= level <= highest:
            allowed = f"{lowest} to {highest}" if codec in LEVELS else "no level"
            raise InvalidArgumentError(f"{codec} cannot compress with level {level}: it takes {allowed}")
    if codec == "none":
        return bytes(data)
    return _COMPRESS[codec](data, level)


def decompress(codec: str, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The bytes that ``compress`` was given; never more than ``max_bytes`` are allocated for them.

    Errors: ``DecompressionBombError`` (more than ``max_bytes``), ``CorruptBatchError`` (cut short, garbage,
    or something left over), ``UnsupportedCodecError``, ``MissingExtraError``.
    """
    codec_id(codec)
    if codec == "none":
        if len(data) > max_bytes:
            raise _bomb(codec, len(data), max_bytes)
        return bytes(data)
    return _DECOMPRESS[codec](data, max_bytes)


def _load(package: str, codec: str) -> ModuleType:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"codec {codec} needs the package {package.partition('.')[0]}, which is not installed",
            hint="pip install 'logstore-engine[compression]'",
        ) from error


def _bomb(codec: str, size: int, max_bytes: int) -> DecompressionBombError:
    return DecompressionBombError(
        f"a batch of codec {codec} decompresses to {size} bytes or more, the bound is {max_bytes}",
        hint="raise the bound on decompressed batches if you trust who wrote them",
    )


def _corrupt(codec: str, why: object) -> CorruptBatchError:
    return CorruptBatchError(f"the records section is no valid {codec} stream: {why}")


# --- gzip -------------------------------------------------------------------------------------------


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    # wbits 31: a gzip header without name or time, so that equal records give equal bytes.
    packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _gzip_decompress(data: Buffer, max_bytes: int) -> bytes:
    """All members of the stream: Java's GZIPInputStream joins them too."""
    pieces: list[bytes] = []
    room = max_bytes
    rest: Buffer = data
    while True:
        unpacker = zlib.decompressobj(31)
        try:
            # zlib grows its output as it goes, up to the length given.
            piece = unpacker.decompress(rest, room + 1)
        except zlib.error as error:
            raise _corrupt("gzip", error) from None
        room -= len(piece)
        if room < 0:
            raise _bomb("gzip", max_bytes + 1, max_bytes)
        pieces.append(piece)
        if not unpacker.eof:
            raise _corrupt("gzip", "it is cut short")
        rest = unpacker.unused_data
        if not rest:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


# --- snappy -----------------------------------------------------------------------------------------


def _snappy_compress(data: Buffer, _level: int | None) -> bytes:
    pack: Callable[[Any], Any] = _load("cramjam", "snappy").snappy.compress_raw
    view = memoryview(data)
    parts = [_SNAPPY_HEADER]
    # One block at least: other readers take a frame of none for a raw block.
    for start in range(0, max(len(view), 1), _SNAPPY_BLOCK_BYTES):
        block = bytes(pack(view[start : start + _SNAPPY_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_bytes: int) -> bytes:
    _load("cramjam", "snappy")
    view = memoryview(data)
    if bytes(view[:8]) != _SNAPPY_MAGIC:
        return _snappy_block(view, max_bytes, max_bytes)
    if len(view) < len(_SNAPPY_HEADER):
        raise _corrupt("snappy", "its frame header is cut short")
    parts: list[bytes] = []
    room = max_bytes
    at = len(_SNAPPY_HEADER)
    while at < len(view):
        if at + 4 > len(view):
            raise _corrupt("snappy", "the length of a block is cut short")
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if size <= 0 or at + size > len(view):
            raise _corrupt("snappy", f"a block of {size} bytes, where {len(view) - at} are left")
        parts.append(_snappy_block(view[at : at + size], room, max_bytes))
        room -= len(parts[-1])
        at += size
    return b"".join(parts)


def _snappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    """One raw block: its length, an unsigned varint, comes first and is checked before it is believed."""
    size = 0
    for place, byte in enumerate(bytes(block[:5])):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    else:
        raise _corrupt("snappy", "a block has no length")
    if size > room:
        raise _bomb("snappy", max_bytes - room + size, max_bytes)
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise _corrupt("snappy", f"a block of {len(block)} bytes cannot hold {size}")
    try:
        return bytes(_load("cramjam", "snappy").snappy.decompress_raw(block))
    except Exception as error:
        if type(error).__name__ != "DecompressionError":
            raise
        raise _corrupt("snappy", error) from None


# --- lz4 --------------------------------------------------------------------------------------------


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    frame = _load("lz4.frame", "lz4")
    # Java's reader takes independent blocks only.
    packed: bytes = frame.compress(data, compression_level=level or 0, block_linked=False)
    return packed


def _lz4_decompress(data: Buffer, max_bytes: int) -> bytes:
    frame = _load("lz4.frame", "lz4")
    unpacker = frame.LZ4FrameDecompressor()
    # The package allocates the whole length it is allowed at once: allow it a little at a time.
    step = min(max_bytes + 1, max(_STEP_BYTES, 4 * len(data)))
    pieces: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        try:
            piece = unpacker.decompress(rest, max_length=step)
        except (RuntimeError, EOFError) as error:
            raise _corrupt("lz4", error) from None
        size += len(piece)
        if size > max_bytes:
            raise _bomb("lz4", size, max_bytes)
        pieces.append(piece)
        if unpacker.eof:
            break
        if unpacker.needs_input or not piece:
            raise _corrupt("lz4", "it is cut short")
        rest = b""
    if unpacker.unused_data:
        raise _corrupt("lz4", f"{len(unpacker.unused_data)} bytes are left over after the frame")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


# --- zstd -------------------------------------------------------------------------------------------


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    zstandard = _load("zstandard", "zstd")
    packed: bytes = zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    return packed


def _zstd_decompress(data: Buffer, max_bytes: int) -> bytes:
    """One frame. Walking its blocks first finds a cut and bounds the size, whatever the header says."""
    zstandard = _load("zstandard", "zstd")
    view = memoryview(data)
    try:
        stated = zstandard.get_frame_parameters(view).content_size
        most = _zstd_most_bytes(view, zstandard.frame_header_size(view))
    except zstandard.ZstdError as error:
        raise _corrupt("zstd", error) from None
    if stated != _ZSTD_SIZE_UNKNOWN:
        if stated > max_bytes:
            raise _bomb("zstd", stated, max_bytes)
        if stated > most:
            raise _corrupt("zstd", f"its blocks cannot hold the {stated} bytes it states")
        if not stated:
            return b""
    try:
        unpacked: bytes = zstandard.ZstdDecompressor().decompress(
            view, max_output_size=max(1, min(most, max_bytes)), allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        # The blocks are all there: what is not whole now had no room.
        if most > max_bytes and ("full frame" in str(error) or "too small" in str(error)):
            raise _bomb("zstd", max_bytes + 1, max_bytes) from None
        raise _corrupt("zstd", error) from None
    return unpacked


def _zstd_most_bytes(view: memoryview, at: int) -> int:
    """The most that the blocks from ``at`` can hold. ``CorruptBatchError`` if they do not end with the data.

    A block starts with 3 bytes, little-endian: bit 0 last, bits 1-2 type (0 raw, 1 one byte repeated,
    2 compressed), bits 3-23 size (RFC 8878, 3.1.1.2). The 4 bytes after the last are an optional checksum.
    """
    most = 0
    while True:
        head = int.from_bytes(view[at : at + 3], "little")
        if at + 3 > len(view):
            raise _corrupt("zstd", "it is cut short")
        kind, size = head >> 1 & 3, head >> 3
        if kind == 3:
            raise _corrupt("zstd", "a block of a type that does not exist")
        most += _ZSTD_MAX_BLOCK_BYTES if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
        if head & 1:
            break
    has_checksum = view[4] & 4
    if at + (4 if has_checksum else 0) != len(view):
        raise _corrupt("zstd", f"its last block ends at byte {at} of {len(view)}")
    return most


_PACKAGES = {"snappy": "cramjam", "lz4": "lz4.frame", "zstd": "zstandard"}
_COMPRESS: dict[str, Callable[[Buffer, int | None], bytes]] = {
    "gzip": _gzip_compress,
    "snappy": _snappy_compress,
    "lz4": _lz4_compress,
    "zstd": _zstd_compress,
}
_DECOMPRESS: dict[str, Callable[[Buffer, int], bytes]] = {
    "gzip": _gzip_decompress,
    "snappy": _snappy_decompress,
    "lz4": _lz4_decompress,
    "zstd": _zstd_decompress,
}
