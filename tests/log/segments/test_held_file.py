"""The active segment's file: one pin while it is held, one more life while a sync has borrowed it."""

from __future__ import annotations

from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.held_file import HeldFile
from logstore.log.segments.segment import Segment
from logstore.log.segments.segment_files import create_segment
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import FOLDER


def desk() -> tuple[FilePool, HeldFile, Segment]:
    fs = MemoryFileSystem()
    fs.mkdir(FOLDER)
    pool = FilePool(fs, capacity=1)
    segment = create_segment(pool, FOLDER, 0, 4096)
    return pool, HeldFile(pool), segment


def pins(pool: FilePool, segment: Segment) -> int:
    entry = pool._entries.get((segment.path(), "rw"))
    return 0 if entry is None else entry.pins


def test_a_held_file_is_pinned_once() -> None:
    pool, held, segment = desk()
    file = held.hold(segment)
    assert held.file is file
    assert pins(pool, segment) == 1
    held.let_go()
    held.let_go()
    assert held.file is None
    assert pins(pool, segment) == 0


def test_what_is_lent_outlives_letting_go() -> None:
    pool, held, segment = desk()
    file = held.hold(segment)
    assert held.lend() is file
    held.let_go()
    assert held.file is None
    assert pins(pool, segment) == 1
    held.hold(segment)
    assert pins(pool, segment) == 2
    held.take_back()
    assert pins(pool, segment) == 1, "the one that holds it now"
    held.let_go()
    assert pins(pool, segment) == 0


def test_a_loan_that_was_cut_short_is_settled_by_the_next() -> None:
    pool, held, segment = desk()
    held.hold(segment)
    held.lend()
    held.let_go()
    file = held.hold(segment)
    assert held.lend() is file
    assert pins(pool, segment) == 1
    held.take_back()
    assert held.file is file
    assert pins(pool, segment) == 1


def test_nothing_is_lent_while_nothing_is_held() -> None:
    pool, held, segment = desk()
    assert held.lend() is None
    held.take_back()
    assert pins(pool, segment) == 0
