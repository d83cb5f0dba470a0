"""Batch headers: read, checked, stamped, walked; whole batches encoded, decoded, recompressed."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import (
    CorruptBatchError,
    DecompressionBombError,
    InvalidRecordError,
    RecordTooLargeError,
    RecordTypeError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from logstore.format import batch as format_batch
from logstore.format.batch import (
    BatchHeader,
    check_crc,
    data_batches,
    decode_batches,
    encode_batch,
    encode_with_header,
    iter_headers,
    pack_batch,
    read_header,
    recompress,
    records_section,
    stamp,
    stamp_log_append_time,
    whole_batches,
)
from logstore.format.control import encode_control_batch, encode_marker
from tests.format.batches import CODECS, FEW, NOW_MS, records_of, row_lists

ROWS: list[Any] = [(b"k%d" % number, b"v%d" % number) for number in range(5)]
HEADER = struct.Struct(">qiibIhiqqqhii")


def with_fields(batch: bytes, **fields: Any) -> bytes:
    """The batch with other header fields as they stand, and a CRC that fits (unless given)."""
    header = read_header(batch)._replace(**fields)
    packed = bytearray(HEADER.pack(*header) + batch[61:])
    if "crc" not in fields:
        packed[17:21] = struct.pack(">I", crc32c(bytes(packed[21:])))
    return bytes(packed)


def log_of(*sizes: int, base: int = 0, codec: str = "none") -> bytes:
    """Batches of so many records each, one after the other."""
    out = []
    for size in sizes:
        rows: list[Any] = [(None, b"%d" % offset) for offset in range(base, base + size)]
        out.append(encode_batch(rows, now_ms=NOW_MS, base_offset=base, codec=codec, leader_epoch=4))
        base += size
    return b"".join(out)


@pytest.mark.parametrize("codec", CODECS)
@FEW
@given(rows=row_lists, base_offset=st.integers(0, 1 << 62))
def test_round_trip(codec: str, rows: list[Any], base_offset: int) -> None:
    batch = encode_batch(rows, now_ms=NOW_MS, codec=codec, base_offset=base_offset, leader_epoch=7)
    expected = records_of(rows, base_offset)
    header = read_header(batch)
    assert header.size == len(batch)
    assert header.codec == codec
    assert (header.last_offset, header.next_offset) == (base_offset + len(rows) - 1, base_offset + len(rows))
    assert header.max_timestamp == max(record.timestamp_ms for record in expected)
    for buffer in (batch, bytearray(batch), memoryview(batch)):
        assert decode_batches(buffer, "t", 3) == expected


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], [(None, None, [("h", b"v")], 5)]])
def test_the_header_that_comes_with_a_batch_is_the_one_in_it(codec: str, rows: list[Any]) -> None:
    data, header = encode_with_header(
        rows,
        NOW_MS,
        codec,
        base_offset=3,
        producer_id=7,
        producer_epoch=1,
        base_sequence=9,
        transactional=True,
    )
    assert header == read_header(data)
    check_crc(data, 0, header)
    assert data == encode_batch(
        rows,
        now_ms=NOW_MS,
        codec=codec,
        base_offset=3,
        producer_id=7,
        producer_epoch=1,
        base_sequence=9,
        transactional=True,
    )


def test_header_of_a_new_batch() -> None:
    header = read_header(encode_batch(ROWS, now_ms=NOW_MS))
    assert header._replace(crc=0, batch_length=0) == BatchHeader(
        0, 0, -1, 2, 0, 0, 4, NOW_MS, NOW_MS, -1, -1, -1, 5
    )
    full = read_header(
        encode_batch(
            ROWS,
            now_ms=NOW_MS,
            codec="gzip",
            level=1,
            base_offset=9,
            leader_epoch=3,
            producer_id=77,
            producer_epoch=2,
            base_sequence=41,
            transactional=True,
        )
    )
    assert (full.base_offset, full.leader_epoch, full.attributes) == (9, 3, 0x11)
    assert (full.producer_id, full.producer_epoch, full.base_sequence) == (77, 2, 41)
    assert full.is_transactional
    assert (full.is_control, full.is_log_append_time, full.has_delete_horizon) == (False, False, False)


def test_encode_errors() -> None:
    with pytest.raises(InvalidRecordError):
        encode_batch([], now_ms=NOW_MS)
    with pytest.raises(RecordTypeError, match="row 0"):
        encode_batch([("k", b"v")], now_ms=NOW_MS)  # type: ignore[list-item]
    with pytest.raises(UnsupportedCodecError, match="'brotli'"):
        encode_batch(ROWS, now_ms=NOW_MS, codec="brotli")


def test_a_batch_past_two_gib_is_refused() -> None:
    class Vast(bytes):
        def __len__(self) -> int:
            return 1 << 31

    with pytest.raises(RecordTooLargeError, match="does not fit"):
        pack_batch(read_header(log_of(1)), Vast())


# --- headers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_magic_is_checked_before_what_depends_on_it(magic: int) -> None:
    batch = bytearray(61)  # all else is impossible
    batch[16] = magic
    with pytest.raises(UnsupportedMagicError, match=f"magic {magic}, not 2.*only record batches of magic 2"):
        read_header(batch)
    with pytest.raises(UnsupportedMagicError):
        read_header(batch[:17])
    with pytest.raises(CorruptBatchError):
        read_header(batch[:16])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_length": 48}, "length 48, at least 49"),
        ({"batch_length": -1}, "length -1, at least 49"),
        ({"base_offset": -1}, "base offset -1"),
        ({"last_offset_delta": -1}, "last offset delta -1"),
        ({"last_offset_delta": 3}, "5 records with last offset delta 3"),
        ({"records_count": -1}, "-1 records"),
        ({"records_count": 6}, "6 records with last offset delta 4"),
        ({"base_offset": (1 << 63) - 3}, "last offset delta 4 after base offset"),
        ({"attributes": 0x80}, "attributes 0x0080"),
        ({"attributes": -0x8000}, "attributes 0x8000"),
    ],
)
def test_impossible_headers(fields: dict[str, int], message: str) -> None:
    first = log_of(2)
    batch = first + with_fields(encode_batch(ROWS, now_ms=NOW_MS), **fields)
    with pytest.raises(
        CorruptBatchError, match=f"batch at byte {len(first)} is impossible: {message}"
    ) as caught:
        read_header(batch, len(first))
    assert caught.value.position == len(first)
    with pytest.raises(CorruptBatchError):
        decode_batches(batch, "t", 0)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_codecs_that_do_not_exist(number: int) -> None:
    batch = with_fields(encode_batch(ROWS, now_ms=NOW_MS), attributes=number)
    header = read_header(batch)  # recovery reads headers of bytes it has not checked yet
    with pytest.raises(UnsupportedCodecError, match=f"codec {number}"):
        _ = header.codec
    for call in (lambda: decode_batches(batch, "t", 0), lambda: recompress(batch, "none")):
        with pytest.raises(UnsupportedCodecError):
            call()


@pytest.mark.parametrize("length", range(61))
def test_cut_headers(length: int) -> None:
    with pytest.raises(CorruptBatchError, match=f"only {length} bytes are there"):
        read_header(encode_batch(ROWS, now_ms=NOW_MS)[:length])


def test_position_past_the_end() -> None:
    with pytest.raises(CorruptBatchError, match="only 0 bytes"):
        read_header(b"", 5)


# --- CRC --------------------------------------------------------------------------------------------


def test_crc_names_both_sums_and_the_place() -> None:
    first = log_of(2)
    batch = encode_batch(ROWS, now_ms=NOW_MS, base_offset=2)
    right = read_header(batch).crc
    buffer = first + with_fields(batch, crc=0x12345678)
    header = read_header(buffer, len(first))
    with pytest.raises(
        CorruptBatchError, match=f"offset 2.*give {right:#010x}, its header says 0x12345678"
    ) as c:
        check_crc(buffer, len(first), header)
    assert c.value.position == len(first)
    with pytest.raises(CorruptBatchError, match="wrong CRC"):
        decode_batches(buffer, "t", 0)
    assert len(decode_batches(buffer, "t", 0, check=False)) == 7


def test_crc_covers_attributes_to_the_end_and_no_more() -> None:
    batch = log_of(3)
    for bit in range(len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        header = BatchHeader._make(HEADER.unpack_from(damaged))._replace(batch_length=len(batch) - 12)
        if bit // 8 < 17:
            check_crc(damaged, 0, header)
        else:
            with pytest.raises(CorruptBatchError, match="CRC"):
                check_crc(damaged, 0, header)


def test_crc_of_a_batch_that_is_not_all_there() -> None:
    batch = log_of(3)
    with pytest.raises(CorruptBatchError, match=f"has {len(batch)} bytes, only 70 are there"):
        check_crc(batch[:70], 0, read_header(batch))


# --- stamps -----------------------------------------------------------------------------------------


@FEW
@given(base_offset=st.integers(0, (1 << 63) - 10), leader_epoch=st.integers(-1, (1 << 31) - 1))
def test_stamp(base_offset: int, leader_epoch: int) -> None:
    batch = encode_batch(ROWS, now_ms=NOW_MS, codec="lz4")
    stamped = stamp(batch, base_offset, leader_epoch) + memoryview(batch)[16:]
    header = read_header(stamped)
    check_crc(stamped, 0, header)
    assert header == read_header(batch)._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    assert decode_batches(stamped, "t", 3) == records_of(ROWS, base_offset)


@pytest.mark.parametrize("codec", CODECS)
def test_stamp_log_append_time(codec: str) -> None:
    batch = encode_batch([(None, b"a", None, 5), (None, b"b", None, 9)], now_ms=NOW_MS, codec=codec)
    stamped = stamp_log_append_time(batch + b"whatever follows", 77)
    check_crc(stamped, 0, read_header(stamped))
    assert len(stamped) == len(batch)
    assert stamped[61:] == batch[61:]
    assert read_header(stamped).base_timestamp == 5
    assert [record.timestamp_ms for record in decode_batches(stamped, "t", 0)] == [77, 77]


# --- walks ------------------------------------------------------------------------------------------


def test_whole_batches() -> None:
    sizes = (3, 1, 4)
    buffer = log_of(*sizes, base=10)
    ends = [0]
    for _, header in iter_headers(buffer):
        ends.append(ends[-1] + header.size)
    assert whole_batches(buffer) == (ends[3], 18, 3)
    for limit, count, after in [(0, 0, -1), (10, 0, -1), (11, 1, 13), (13, 1, 13), (14, 2, 14), (99, 3, 18)]:
        assert whole_batches(buffer, limit_offset=limit) == (ends[count], after, count)
    assert whole_batches(buffer, position=ends[1]) == (ends[3], 18, 2)
    assert whole_batches(buffer, position=ends[1], limit_offset=14) == (ends[2], 14, 1)
    assert whole_batches(buffer, position=len(buffer)) == (len(buffer), -1, 0)
    for length in range(len(buffer)):
        count = sum(end <= length for end in ends[1:])
        for cut in (buffer[:length], memoryview(buffer)[:length]):
            assert whole_batches(cut) == (ends[count], (-1, 13, 14)[count], count)


@pytest.mark.parametrize("length", [0, 48, -1, -(1 << 31)])
def test_whole_batches_refuses_sizes_that_would_never_end(length: int) -> None:
    first = log_of(2)
    with pytest.raises(CorruptBatchError, match=f"batch at byte {len(first)} is impossible: length {length}"):
        whole_batches(first + struct.pack(">qi", 5, length) + bytes(60))


def test_iter_headers() -> None:
    buffer = log_of(3, 1, 4)
    found = list(iter_headers(buffer))
    assert [(header.base_offset, header.records_count) for _, header in found] == [(0, 3), (3, 1), (4, 4)]
    assert list(iter_headers(buffer, found[1][0])) == found[1:]
    assert list(iter_headers(b"")) == []
    for cut in range(found[2][0] + 1, len(buffer)):
        with pytest.raises(CorruptBatchError, match=f"byte {found[2][0]}"):
            list(iter_headers(buffer[:cut]))


# --- decoding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_every_range_of_offsets(codec: str) -> None:
    buffer = log_of(3, 1, 4, base=10, codec=codec)
    everything = decode_batches(buffer, "t", 3)
    assert [(record.offset, record.value) for record in everything] == [(o, b"%d" % o) for o in range(10, 18)]
    for start in range(8, 20):
        for end in (None, *range(8, 20)):
            found = decode_batches(buffer, "t", 3, start_offset=start, end_offset=end)
            assert found == [r for r in everything if start <= r.offset and (end is None or r.offset < end)]


def test_batches_outside_the_range_are_not_read() -> None:
    first, last = log_of(3), log_of(2, base=4)
    buffer = with_fields(first, crc=1) + log_of(1, base=3) + with_fields(last, crc=1)
    assert [r.offset for r in decode_batches(buffer, "t", 0, start_offset=3, end_offset=4)] == [3]
    with pytest.raises(CorruptBatchError):
        decode_batches(buffer, "t", 0, start_offset=3, end_offset=5)


def test_control_and_empty_batches_hold_nothing() -> None:
    marker = encode_control_batch(1, encode_marker(0), timestamp_ms=NOW_MS, base_offset=3, producer_id=1)
    empty = with_fields(log_of(2, base=4), records_count=0)[:61]
    empty = with_fields(empty, batch_length=49, records_count=0)
    buffer = log_of(3) + marker + empty + log_of(1, base=6)
    assert [record.offset for record in decode_batches(buffer, "t", 0)] == [0, 1, 2, 6]
    assert [header.base_offset for _, header in data_batches(buffer, 0, None, check=True)] == [0, 6]


def test_counts_that_lie() -> None:
    for lie in (1, 2, 4):
        with pytest.raises(CorruptBatchError, match=r"records|bytes"):
            decode_batches(with_fields(log_of(3), records_count=lie, last_offset_delta=9), "t", 0)
    with pytest.raises(CorruptBatchError, match="2147483647 records"):
        decode_batches(
            with_fields(log_of(3), records_count=(1 << 31) - 1, last_offset_delta=(1 << 31) - 1), "t", 0
        )


def test_a_record_past_the_last_offset() -> None:
    gapped = bytes.fromhex("0c 00 00 02 01 01 00") + bytes.fromhex("0c 00 00 08 01 01 00")
    header = read_header(log_of(2))
    assert len(decode_batches(pack_batch(header._replace(last_offset_delta=4), gapped), "t", 0)) == 2
    with pytest.raises(CorruptBatchError, match="offset 4, past the batch's last offset 3"):
        decode_batches(pack_batch(header._replace(last_offset_delta=3), gapped), "t", 0)


@pytest.mark.parametrize("codec", CODECS)
def test_bound_on_decompressed_bytes(codec: str) -> None:
    batch = encode_batch([(None, bytes(100_000))], now_ms=NOW_MS, codec=codec)
    assert len(decode_batches(batch, "t", 0, max_decompressed_bytes=100_050)) == 1
    if codec != "none":
        with pytest.raises(DecompressionBombError):
            decode_batches(batch, "t", 0, max_decompressed_bytes=100_000)


# --- recompression ----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_recompress(source: str, target: str) -> None:
    marker = encode_control_batch(0, encode_marker(0), timestamp_ms=NOW_MS, base_offset=3, producer_id=1)
    buffer = log_of(3, codec=source) + marker + log_of(4, base=4, codec=source)
    packed = recompress(buffer, target)
    headers = [header for _, header in iter_headers(packed)]
    assert [header.codec for header in headers] == [target, "none", target]
    assert [header.leader_epoch for header in headers] == [4, -1, 4]
    assert decode_batches(packed, "t", 0) == decode_batches(buffer, "t", 0)
    plain = log_of(3)
    assert recompress(log_of(3, codec=source), "none") == plain
    assert records_section(packed, 0, headers[0]) == plain[61:]


def test_recompress_refuses_damage() -> None:
    with pytest.raises(CorruptBatchError, match="CRC"):
        recompress(with_fields(log_of(3), crc=1), "gzip")


def test_the_library_imports_light() -> None:
    extras = {"numpy", "pyarrow", "zstandard", "lz4", "cramjam"}
    code = (
        "import sys, logstore.format.batch, logstore.format.control, logstore.format.arrow; "
        f"print(sorted({extras!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert format_batch.HEADER_SIZE == HEADER.size == 61
