"""Segment files made at a roll, and removed or shortened by a truncation, call by call."""

from __future__ import annotations

import pytest

from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment_files import create_segment, truncated
from logstore.log.segments.segment_list import SegmentList
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.fs import read_file, write_all
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import FOLDER, Desk, append, batch, values

ONE = len(batch(b"." * 10))


def ten(number: int) -> bytes:
    return b"%010d" % number


def test_three_empty_files_with_durable_names() -> None:
    fs = MemoryFileSystem()
    fs.mkdir(FOLDER)
    fs.sync_dir("/")
    segment = create_segment(FilePool(fs), FOLDER, 42, 4_096)
    assert (segment.base_offset, segment.size, segment.next_offset, segment.closed) == (42, 0, 42, False)
    survivor = fs.crash(KeepNothing())
    names = [f"{42:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]
    assert sorted(survivor.listdir(FOLDER)) == names
    assert [read_file(survivor, f"{FOLDER}/{name}") for name in names] == [b"", b"", b""]


def test_files_that_a_crash_left_are_emptied() -> None:
    fs = MemoryFileSystem()
    fs.mkdir(FOLDER)
    for suffix in (".index", ".log"):
        file = fs.open(f"{FOLDER}/{42:020d}{suffix}", "create")
        write_all(file, [b"\0" * 90], 0)
        file.close()
    segment = create_segment(FilePool(fs), FOLDER, 42, 4_096)
    assert read_file(fs, segment.path()) == read_file(fs, segment.path(".index")) == b""


def written() -> tuple[Desk, SegmentList]:
    desk = Desk(segment_bytes=3 * ONE, index_interval_bytes=0, tail_cache_bytes=0)
    log = desk.open()
    for number in range(8):
        append(log, ten(number))
    log.checkpoint()
    return desk, log.segments


@pytest.mark.parametrize("offset", range(9))
def test_a_truncation_that_crashes_at_any_call_leaves_a_prefix(offset: int) -> None:
    desk, segments = written()
    start = desk.fs.faults.calls
    kept = truncated(desk.pool, FOLDER, segments, offset)
    total = desk.fs.faults.calls - start
    active = kept.active
    assert active is not None
    assert active.next_offset == min(offset, 8)
    assert not active.closed
    for call in range(1, total + 1):
        desk, segments = written()
        desk.fs.faults.at(desk.fs.faults.calls + call, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            truncated(desk.pool, FOLDER, segments, offset)
        for survivor in (desk.fs.process_crash(), desk.fs.crash(KeepNothing()), desk.fs.crash(KeepAll())):
            again = Desk(survivor, segment_bytes=3 * ONE, index_interval_bytes=0)
            log = again.open(recovery_point=min(offset, 6), same_boot=False)
            found = values(log)
            assert found == [ten(number) for number in range(len(found))]
            assert min(offset, 8) <= len(found) <= 8


def test_of_no_segments_there_is_nothing_to_cut() -> None:
    assert len(truncated(FilePool(MemoryFileSystem()), FOLDER, SegmentList(), 5)) == 0
