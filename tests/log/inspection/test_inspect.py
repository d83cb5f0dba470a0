"""Scanning segments, with and without damage, and what dump shows of them."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import StorageError
from logstore.format.batch import encode_batch
from logstore.log.inspection.inspect import (
    BadSpan,
    PartitionFolder,
    ScannedBatch,
    Span,
    batch_row,
    dump_batches,
    dump_indexes,
    dump_records,
    partition_folder,
    partition_folders,
    scan_segment,
    segment_base_offset,
    segment_base_offsets,
)
from logstore.seams.fs import read_file
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.hand_made import (
    FOLDER,
    ROOT,
    add,
    batch_positions,
    change,
    cut,
    flip,
    make_store,
    rows,
    segment,
)


def spans(fs: MemoryFileSystem, path: str, base: int = 0) -> list[Span]:
    return [
        span._replace(data=memoryview(b"")) if isinstance(span, ScannedBatch) else span
        for span in scan_segment(fs, path, base)
    ]


def bad(found: list[Span]) -> list[BadSpan]:
    return [span for span in found if isinstance(span, BadSpan)]


def test_a_sound_segment_is_its_batches() -> None:
    fs = make_store()
    found = spans(fs, segment(1), 24)
    assert not bad(found)
    assert [span.header.base_offset for span in found if isinstance(span, ScannedBatch)] == [
        24,
        28,
        32,
        36,
        40,
        44,
    ]
    assert [span.position for span in found] == batch_positions(fs, segment(1))


@pytest.mark.parametrize(
    ("at", "kind"), [(0, "length"), (8, "length"), (16, "magic"), (17, "crc"), (21, "header"), (70, "crc")]
)
def test_damage_to_one_batch_costs_that_batch_alone(at: int, kind: str) -> None:
    """Whatever field is hit: the batches around the bad one are found, and the bad bytes are its own."""
    fs = make_store()
    second, third = batch_positions(fs, segment(0))[1:3]

    def edit(content: bytearray) -> None:
        content[second + at] ^= 0x40

    change(fs, segment(0), edit)
    found = spans(fs, segment(0))
    if at == 0:  # the first byte of the offset lies outside the CRC: an intact batch at another offset
        assert not bad(found)
        return
    (span,) = bad(found)
    assert (span.position, span.length, span.kind) == (second, third - second, kind)
    assert len(found) == 6


def test_two_bad_batches_in_a_row_are_passed_by_search() -> None:
    fs = make_store()
    positions = batch_positions(fs, segment(0))
    flip(fs, segment(0), positions[1] + 70)
    flip(fs, segment(0), positions[2] + 70)
    found = spans(fs, segment(0))
    assert [(span.position, span.length) for span in bad(found)] == [
        (positions[1], positions[3] - positions[1])
    ]


def test_a_torn_end_and_a_zeroed_end() -> None:
    fs = make_store()
    size = len(read_file(fs, segment(0)))
    last = batch_positions(fs, segment(0))[-1]
    cut(fs, segment(0), size - 1)
    assert [(span.position, span.kind) for span in bad(spans(fs, segment(0)))] == [(last, "torn")]
    cut(fs, segment(0), last + 20)
    assert [(span.position, span.kind) for span in bad(spans(fs, segment(0)))] == [(last, "torn")]
    cut(fs, segment(0), last)
    add(fs, segment(0), bytes(1000))
    assert [(span.length, span.kind) for span in bad(spans(fs, segment(0)))] == [(1000, "zeros")]


def test_zeros_before_more_batches_are_a_gap_and_not_the_end() -> None:
    fs = make_store()
    positions = batch_positions(fs, segment(0))

    def edit(content: bytearray) -> None:
        content[positions[2] : positions[3]] = bytes(positions[3] - positions[2])

    change(fs, segment(0), edit)
    (span,) = bad(spans(fs, segment(0)))
    assert (span.position, span.length, span.kind) == (positions[2], positions[3] - positions[2], "magic")


def test_blocks_that_the_disk_refuses_are_one_bad_span() -> None:
    fs = make_store(segments=1)
    for number in range(200):
        offset = 24 + 4 * number
        add(fs, segment(0), encode_batch(rows(offset, 4), now_ms=1, base_offset=offset))

    refusing = _RefuseBlock(fs, segment(0), 3)
    found = [
        span if isinstance(span, BadSpan) else span.position for span in scan_segment(refusing, segment(0), 0)
    ]
    (span,) = [span for span in found if isinstance(span, BadSpan)]
    assert span.kind == "unreadable"
    assert span.position < 3 * 4096 < 4 * 4096 <= span.position + span.length + 400
    assert len(found) > 150


class _RefuseBlock:
    """A file system whose reads of one block fail with EIO."""

    def __init__(self, fs: MemoryFileSystem, path: str, block: int) -> None:
        self._fs, self._path, self._block = fs, path, block

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)

    def open(self, path: str, mode: str) -> object:
        file = self._fs.open(path, mode)  # type: ignore[arg-type]
        if path != self._path:
            return file
        block, real = self._block, file

        class File:
            def pread(self, length: int, position: int) -> bytes:
                if position < (block + 1) * 4096 and position + length > block * 4096:
                    raise OSError(errno.EIO, "bad sector", path)
                return real.pread(length, position)

            size = real.size
            close = real.close

        return File()


def test_a_segment_that_cannot_be_opened_is_a_named_error() -> None:
    fs = make_store()
    with pytest.raises(StorageError, match="cannot open"):
        list(scan_segment(fs, segment(9), 0))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_every_batch_that_was_not_touched_is_found(data: st.DataObject) -> None:
    """Flip any bytes inside some batches: all others come out, and spans cover the file without overlap."""
    fs = make_store(segments=1)
    positions = batch_positions(fs, segment(0))
    size = len(read_file(fs, segment(0)))
    ends = [*positions[1:], size]
    hit = data.draw(st.sets(st.integers(0, len(positions) - 1), min_size=1, max_size=3))
    for number in sorted(hit):
        at = data.draw(st.integers(positions[number] + 8, ends[number] - 1))
        if positions[number] + 12 <= at < positions[number] + 16:
            at += 5  # the leader epoch lies outside the CRC: changing it leaves an intact batch
        flip(fs, segment(0), at)
    found = spans(fs, segment(0))
    intact = {span.position for span in found if isinstance(span, ScannedBatch)}
    assert intact == {position for number, position in enumerate(positions) if number not in hit}
    at = 0
    for span in found:
        assert span.position == at
        at += span.header.size if isinstance(span, ScannedBatch) else span.length
    assert at == size


def test_folders_and_segments_by_name() -> None:
    fs = make_store()
    fs.mkdir(f"{ROOT}/no partition")
    assert partition_folders(fs, ROOT) == [PartitionFolder("flights", 0, FOLDER)]
    assert segment_base_offsets(fs, FOLDER) == [0, 24, 48, 72]
    assert segment_base_offset(segment(1)) == 24
    assert segment_base_offset(f"{FOLDER}/leader-epoch-checkpoint") is None
    assert partition_folder("/data/a-b-7/") == PartitionFolder("a-b", 7, "/data/a-b-7")
    assert partition_folder("/data/topics") is None


def test_dump_shows_batches_records_and_indexes() -> None:
    fs = make_store(codec="gzip")
    flip(fs, segment(0), batch_positions(fs, segment(0))[2] + 70)
    listed = list(dump_batches(fs, segment(0), 0))
    assert [type(row).__name__ for row in listed] == ["BatchRow"] * 2 + ["BadSpan"] + ["BatchRow"] * 3
    first = listed[0]
    assert not isinstance(first, BadSpan)
    assert (first.base_offset, first.last_offset, first.records, first.codec) == (0, 3, 4, "gzip")
    folder = PartitionFolder("flights", 0, FOLDER)
    records = [
        record
        for batch in dump_records(fs, folder, segment(0), 0)
        if not isinstance(batch, BadSpan)
        for record in batch
    ]
    assert [record.offset for record in records] == [*range(8), *range(12, 24)]
    assert records[0].key == b"N00000"
    index = list(dump_indexes(fs, FOLDER, 24))
    assert {row.kind for row in index} == {"offset", "time"}
    positions = dict(zip(batch_positions(fs, segment(1)), range(27, 48, 4), strict=True))
    assert all(positions[row.value] == row.key for row in index if row.kind == "offset")
    fs.remove(segment(1, ".index"))
    assert {row.kind for row in dump_indexes(fs, FOLDER, 24)} == {"time"}


def test_flags_and_unknown_codecs_are_shown() -> None:
    fs = make_store()
    span = next(iter(scan_segment(fs, segment(0), 0)))
    assert isinstance(span, ScannedBatch)
    odd = span._replace(header=span.header._replace(attributes=0x0F | 0x30))
    assert batch_row(odd).flags == "log-append-time,transactional,control"
    assert batch_row(odd).codec == "codec 7"
