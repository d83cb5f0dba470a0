"""The walk over a segment's batches, and what it says of the batch that stops it."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptBatchError, UnsupportedMagicError
from logstore.format.batch import encode_batch
from logstore.log.recovery import scan as module
from logstore.log.recovery.scan import SegmentScan
from tests.log.logs import NOW_MS, batch

THREE = [batch(b"a", b"b", base_offset=0), batch(b"c", base_offset=2), batch(b"d" * 100, base_offset=3)]


def scan(content: bytes, *, start: int = 0, next_offset: int = 0, **settings: object) -> SegmentScan:
    found = SegmentScan(
        lambda position, length: content[position : position + length],
        start=start,
        end=len(content),
        next_offset=next_offset,
        **settings,  # type: ignore[arg-type]
    )
    for position, header, data in found:
        assert content[position : position + header.size] == data
    return found


@pytest.mark.parametrize("chunk", [64, 100, 1_000, 1 << 20])
def test_all_good(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk)
    content = b"".join(THREE)
    found = scan(content)
    assert (found.bad, found.position, found.next_offset) == (None, len(content), 4)
    second = len(THREE[0])
    assert scan(content, start=second, next_offset=2).next_offset == 4


def test_nothing_there() -> None:
    found = scan(b"", next_offset=7)
    assert (found.bad, found.position, found.next_offset) == (None, 0, 7)


@pytest.mark.parametrize("kept", range(1, len(THREE[1])))
def test_every_cut_of_the_last_batch_is_incomplete(kept: int) -> None:
    found = scan(THREE[0] + THREE[1][:kept])
    assert found.bad is not None
    assert found.bad.position == found.position == len(THREE[0])
    assert found.bad.incomplete
    assert found.bad.zeros == (not any(THREE[1][:kept]))
    assert found.next_offset == 2


def test_a_cut_head_that_is_not_the_one_due_is_damage() -> None:
    cut = THREE[2][:-20]
    assert scan(THREE[0] + THREE[1] + cut).bad.incomplete  # type: ignore[union-attr]
    older = batch(b"x" * 100, base_offset=0)[:-20]
    assert not scan(THREE[0] + THREE[1] + older).bad.incomplete  # type: ignore[union-attr]
    other_magic = cut[:16] + b"\x01" + cut[17:]
    assert not scan(THREE[0] + THREE[1] + other_magic).bad.incomplete  # type: ignore[union-attr]
    huge = cut[:8] + b"\x7f\xff\xff\x00" + cut[12:]
    assert not scan(THREE[0] + THREE[1] + huge, max_batch_bytes=1 << 20).bad.incomplete  # type: ignore[union-attr]


@pytest.mark.parametrize("zeros", [1, 11, 61, 512, 5_000])
def test_zeros_to_the_end(zeros: int) -> None:
    found = scan(THREE[0] + bytes(zeros))
    assert found.bad is not None
    assert found.bad.zeros
    assert found.bad.position == len(THREE[0])


def test_zeros_and_then_something() -> None:
    found = scan(THREE[0] + bytes(512) + b"\x01")
    assert found.bad is not None
    assert not found.bad.zeros
    assert not found.bad.incomplete


def test_a_flipped_bit_fails_the_checksum_only_when_checked() -> None:
    damaged = bytearray(b"".join(THREE))
    damaged[len(THREE[0]) + 65] ^= 1
    found = scan(bytes(damaged))
    assert found.bad is not None
    assert isinstance(found.bad.error, CorruptBatchError)
    assert not found.bad.incomplete
    assert (found.position, found.next_offset) == (len(THREE[0]), 2)
    assert scan(bytes(damaged), check=False).bad is None


def test_offsets_never_go_back_but_may_jump() -> None:
    found = scan(THREE[0] + batch(b"again", base_offset=1))
    assert found.bad is not None
    assert "offset 1 where 2 or more was due" in found.bad.error.message
    assert scan(THREE[0] + batch(b"later", base_offset=90)).next_offset == 91


def test_where_nothing_was_compacted_offsets_do_not_jump() -> None:
    jump = THREE[0] + batch(b"later", base_offset=3)
    assert scan(jump, gapless_from=3).bad is None
    found = scan(jump, gapless_from=2)
    assert found.bad is not None
    assert "offset 3 where 2 was due" in found.bad.error.message
    cut = scan(THREE[0] + batch(b"l" * 99, base_offset=3)[:-9], gapless_from=0)
    assert cut.bad is not None
    assert not cut.bad.incomplete
    assert scan(b"".join(THREE), gapless_from=0).bad is None


def test_unknown_magic_and_impossible_length() -> None:
    old = bytearray(THREE[1])
    old[16] = 1
    found = scan(THREE[0] + bytes(old))
    assert found.bad is not None
    assert isinstance(found.bad.error, UnsupportedMagicError)
    short = THREE[1][:8] + (48).to_bytes(4, "big") + THREE[1][12:]
    found = scan(THREE[0] + short)
    assert found.bad is not None
    assert "length 48 is impossible" in found.bad.error.message


def test_a_batch_larger_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 100)
    large = encode_batch([(None, b"z" * 5_000)], now_ms=NOW_MS, base_offset=2)
    found = scan(THREE[0] + large + batch(b"e", base_offset=3))
    assert (found.bad, found.next_offset) == (None, 4)
    cut = scan(THREE[0] + large[:-1])
    assert cut.bad is not None
    assert cut.bad.incomplete
