"""Golden batches in tests/golden: each file says how it was made. They hold the format still."""

from __future__ import annotations

import pytest

from logstore.format.arrow import to_table
from logstore.format.batch import (
    check_crc,
    decode_batches,
    encode_batch,
    iter_headers,
    pack_batch,
    read_header,
    recompress,
    records_section,
    stamp,
    stamp_log_append_time,
)
from logstore.types import Record
from tests.format.batches import GOLDEN, golden

Rows = list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]]

THREE: Rows = [
    (b"k1", b"v12", (), 1_000_000),
    (None, b"", (("h", b"\xff\x00"), ("é", None)), 999_993),
    (None, None, (), 1_042_176),
]
ABC: Rows = [(b"key-%d" % number, b"abc" * 40, (("h", b"x"),), 1_000_000 + number) for number in range(3)]


def records(
    rows: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]],
) -> list[Record]:
    return [Record("t", 0, offset, row[3], *row[:3]) for offset, row in enumerate(rows)]


FILES: dict[str, tuple[str, list[Record]]] = {
    "batch_none.hex": ("none", records(THREE)),
    "batch_snappy_raw.hex": ("snappy", records(THREE)),
    "batch_snappy_framed.hex": ("snappy", records(THREE)),
    "batch_gzip.hex": ("gzip", records(ABC)),
    "batch_snappy.hex": ("snappy", records(ABC)),
    "batch_lz4.hex": ("lz4", records(ABC)),
    "batch_zstd.hex": ("zstd", records(ABC)),
    "batch_log_append_time.hex": (
        "none",
        [r._replace(offset=500 + r.offset, timestamp_ms=1_234_567) for r in records(THREE)],
    ),
    "batch_compacted.hex": ("none", [Record("t", 0, 103, 1_000_000, b"k", None)]),
    "batch_control_commit.hex": ("none", []),
}


def test_every_golden_batch_is_tested() -> None:
    assert {path.name for path in GOLDEN.glob("batch_*.hex")} == set(FILES)


@pytest.mark.parametrize(("name", "codec", "expected"), [(name, *row) for name, row in FILES.items()])
def test_read(name: str, codec: str, expected: list[Record]) -> None:
    batch = golden(name)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header.size == len(batch)
    assert header.codec == codec
    assert decode_batches(batch, "t", 0) == expected
    table = to_table(batch, "t", 0)
    assert table.column("offset").to_pylist() == [record.offset for record in expected]
    assert table.column("value").to_pylist() == [record.value for record in expected]
    assert pack_batch(header, batch[61:]) == batch


def test_written_byte_for_byte() -> None:
    assert encode_batch(THREE, now_ms=0) == golden("batch_none.hex")
    snappy = encode_batch(THREE, now_ms=0, codec="snappy")
    assert snappy == golden("batch_snappy_framed.hex")


def test_stamps_make_the_log_append_time_batch_of_the_plain_one() -> None:
    batch = encode_batch(
        THREE,
        now_ms=0,
        producer_id=77,
        producer_epoch=3,
        base_sequence=41,
        transactional=True,
    )
    batch = stamp(batch, 500, 9) + batch[16:]
    assert stamp_log_append_time(batch, 1_234_567) == golden("batch_log_append_time.hex")


def test_fields_of_every_header() -> None:
    found = read_header(golden("batch_log_append_time.hex"))
    assert found[:4] == (500, 86, 9, 2)
    assert found[5:] == (0x18, 2, 1_000_000, 1_234_567, 77, 3, 41, 3)
    assert (found.last_offset, found.next_offset) == (502, 503)
    assert (found.is_log_append_time, found.is_transactional, found.is_control) == (True, True, False)
    compacted = read_header(golden("batch_compacted.hex"))
    assert compacted.has_delete_horizon
    assert (compacted.records_count, compacted.last_offset, compacted.next_offset) == (1, 109, 110)


def test_recompressed_to_none_all_codecs_agree() -> None:
    # The writers of these files stamp different leader epochs.
    plain = {
        recompress(golden(f"batch_{codec}.hex"), "none")[16:] for codec in ("gzip", "snappy", "lz4", "zstd")
    }
    assert len(plain) == 1
    raw, framed = golden("batch_snappy_raw.hex"), golden("batch_snappy_framed.hex")
    assert records_section(raw, 0, read_header(raw)) == records_section(framed, 0, read_header(framed))
    assert recompress(raw, "none") == recompress(framed, "none") == golden("batch_none.hex")


def test_all_of_them_in_one_buffer() -> None:
    buffer = b"".join(map(golden, FILES))
    assert len(list(iter_headers(buffer))) == len(FILES)
    assert decode_batches(buffer, "t", 0) == [record for _, expected in FILES.values() for record in expected]
