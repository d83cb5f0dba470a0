"""One segment: reads at the right place, indexes that are hints, both indexes a function of the bytes."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptBatchError, InvariantError
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import Segment, file_name
from logstore.log.segments.segment_files import create_segment
from logstore.seams.fs import read_file, replace_file, write_all
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import FOLDER, NOW_MS, batch

COUNT = 40


def make(interval: int = 300, base: int = 100, count: int = COUNT) -> tuple[MemoryFileSystem, Segment]:
    """Batches of two records, with times that go back now and then."""
    fs = MemoryFileSystem()
    fs.mkdir(FOLDER)
    pool = FilePool(fs)
    segment = create_segment(pool, FOLDER, base, interval)
    with pool.pinned(segment.path(), True) as file:
        for number in range(count):
            offset = base + 2 * number
            data = batch(b"x%d" % number, b"y" * 30, at_ms=NOW_MS + number * 7 % 50, base_offset=offset)
            write_all(file, [data[:16], data[16:]], segment.size)
            segment.note_appended(segment.size, len(data), offset + 1, NOW_MS + number * 7 % 50)
    segment.store_indexes()
    return fs, segment


def closed(fs: MemoryFileSystem, segment: Segment, pool: FilePool | None = None) -> Segment:
    return Segment(
        pool or FilePool(fs),
        FOLDER,
        segment.base_offset,
        size=segment.size,
        next_offset=segment.next_offset,
        interval_bytes=segment.interval_bytes,
    )


def positions(fs: MemoryFileSystem, segment: Segment) -> list[int]:
    size = len(read_file(fs, segment.path())) // COUNT
    return [size] if size == 0 else locate_all(segment)


def locate_all(segment: Segment) -> list[int]:
    found = []
    position = 0
    while (chunk := segment.read(position, 1, 1 << 60)) is not None:
        found.append(position)
        position = chunk.end_position
    return found


def test_file_names() -> None:
    assert file_name(7, ".index") == "00000000000000000007.index"


@pytest.mark.parametrize("interval", [0, 100, 300, 4_096, 1 << 20])
def test_every_offset_is_located_open_and_closed(interval: int) -> None:
    fs, active = make(interval)
    for segment in (active, closed(fs, active)):
        starts = locate_all(segment)
        assert len(starts) == COUNT
        for number, start in enumerate(starts):
            assert segment.locate(100 + 2 * number) == start
            assert segment.locate(101 + 2 * number) == start
        assert segment.locate(0) == 0
        assert segment.locate(100 + 2 * COUNT) is None


def test_read_gives_whole_batches_below_the_limit() -> None:
    _, segment = make()
    starts = locate_all(segment)
    size = starts[1] - starts[0]
    one = segment.read(0, 1, 1 << 60)
    assert one is not None
    assert (len(one.data), one.next_offset, one.end_position) == (starts[1], 102, starts[1])
    two = segment.read(0, starts[2] + 5, 1 << 60)
    assert two is not None
    assert (len(two.data), two.next_offset) == (starts[2], 104)
    limited = segment.read(0, 1 << 20, 104)
    assert limited is not None
    assert (len(limited.data), limited.next_offset) == (starts[2], 104)
    assert segment.read(starts[2], 1 << 20, 104) is None
    assert segment.read(segment.size, 1 << 20, 1 << 60) is None
    assert size > 100


def test_a_batch_larger_than_what_was_asked_comes_whole() -> None:
    fs, segment = make(count=1)
    with FilePool(fs).pinned(segment.path(), True) as file:
        data = batch(b"z" * 20_000, base_offset=102)
        write_all(file, [data], segment.size)
        segment.note_appended(segment.size, len(data), 102, NOW_MS)
    chunk = segment.read(len(read_file(fs, segment.path())) - len(data), 10, 1 << 60)
    assert chunk is not None
    assert bytes(chunk.data) == data
    assert chunk.next_offset == 103


def test_indexes_are_a_function_of_the_bytes() -> None:
    fs, active = make()
    before = [read_file(fs, active.path(suffix)) for suffix in (".index", ".timeindex")]
    assert len(before[0]) > 8 * 5
    assert len(before[1]) > 12 * 2
    for suffix in (".index", ".timeindex"):
        fs.remove(active.path(suffix))
    segment = closed(fs, active)
    segment.rewrite_indexes(300)
    assert [read_file(fs, active.path(suffix)) for suffix in (".index", ".timeindex")] == before
    active.reopen_for_appends()
    assert [read_file(fs, active.path(suffix)) for suffix in (".index", ".timeindex")] == before
    assert active.next_offset == 100 + 2 * COUNT


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".index", None),
        (".timeindex", None),
        (".index", b"\x00\x00\x00\x05\x7f\xff\xff\xff"),  # past the end
        (".index", b"\x00\x00\x00\x05\x00\x00\x00\x07"),  # into the middle of a batch
        (".index", b"\xff\xff\xff\xff\x00\x00\x00\x00"),
        (".timeindex", b"\x00" * 7 + b"\x01" + b"\x7f\xff\xff\xff"),  # an offset that is not there
        (".timeindex", b"\xff" * 12),
        (
            ".timeindex",
            b"\x00" * 6 + b"\x09\x00" + b"\x00\x00\x00\x01" + b"\x00" * 7 + b"\x01\x00\x00\x00\x03",
        ),
    ],
)
def test_a_missing_or_implausible_index_is_made_anew_in_memory(suffix: str, content: bytes | None) -> None:
    fs, active = make()
    starts = locate_all(active)
    if content is None:
        fs.remove(active.path(suffix))
    else:
        replace_file(fs, active.path(suffix), content)
    segment = closed(fs, active)
    assert segment.locate(161) == starts[30]
    assert segment.times().last() == active.times().last()
    assert segment.offsets().last() == active.offsets().last()


def test_a_plausible_lie_in_the_middle_does_no_harm() -> None:
    fs, active = make()
    starts = locate_all(active)
    rows = bytearray(read_file(fs, active.path(".index")))
    for lie in (9, -5, 2**31 - 1, active.size - 3):
        rows[8:16] = (40).to_bytes(4, "big") + lie.to_bytes(4, "big", signed=True)
        replace_file(fs, active.path(".index"), bytes(rows))
        segment = closed(fs, active)
        assert [segment.locate(100 + 2 * number) for number in range(COUNT)] == starts


def test_padded_indexes_of_a_broker_are_read() -> None:
    fs, active = make()
    starts = locate_all(active)
    for suffix in (".index", ".timeindex"):
        replace_file(fs, active.path(suffix), read_file(fs, active.path(suffix)) + bytes(12 * 8 * 50))
    segment = closed(fs, active)
    assert [segment.locate(100 + 2 * number) for number in range(COUNT)] == starts
    assert segment.times().last() == active.times().last()


def test_damage_is_named_with_file_and_position() -> None:
    fs, active = make(interval=1 << 20)
    starts = locate_all(active)
    content = bytearray(read_file(fs, active.path()))
    content[starts[3] + 8 : starts[3] + 12] = b"\x00\x00\x00\x00"
    replace_file(fs, active.path(), bytes(content))
    segment = closed(fs, active)
    for look in (lambda: segment.locate(120), lambda: segment.read(starts[3], 10, 1 << 60)):
        with pytest.raises(CorruptBatchError, match=f"{active.path()} at byte {starts[3]}: ") as caught:
            look()
        assert (caught.value.path, caught.value.position) == (active.path(), starts[3])
    with pytest.raises(CorruptBatchError, match="at byte"):
        segment.read(0, 1 << 20, 1 << 60)


def test_when_every_place_of_the_pool_is_taken_it_reads_all_the_same() -> None:
    fs, active = make()
    starts = locate_all(active)
    pool = FilePool(fs, capacity=1)
    held = pool.pin(active.path(".index"))
    segment = closed(fs, active, pool)
    assert [segment.locate(100 + 2 * number) for number in range(COUNT)] == starts
    pool.unpin(held)


def test_a_reader_of_an_unfinished_segment_opens_nothing_for_writing() -> None:
    fs, active = make()
    modes: list[str] = []
    fs.faults.observer = lambda operation: (
        modes.append(operation.detail) if operation.name == "open" else None
    )
    segment = closed(fs, active)
    segment.closed = False
    assert segment.locate(150) is not None
    assert set(modes) == {"r"}


def test_only_the_active_segment_grows() -> None:
    _, segment = make(count=1)
    segment.close_for_appends()
    with pytest.raises(InvariantError, match="only the active segment grows"):
        segment.note_appended(0, 1, 1, 1)


def test_what_the_index_takes_counts_the_larger_rows() -> None:
    fs, segment = make(interval=0)
    assert segment.index_bytes == 12 * (COUNT - 1)
    assert len(read_file(fs, segment.path(".index"))) == 8 * (COUNT - 1)
    assert closed(fs, segment).index_bytes == 0
