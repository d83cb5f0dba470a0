"""Several segments as one log: floor, reads that walk on, lookups by time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.format.batch import decode_batches
from logstore.log.segments.segment_list import SegmentList
from tests.format.batches import FEW
from tests.log.logs import NOW_MS, Desk, append


def three() -> SegmentList:
    """Segments with bases 0, 4, 8: four batches of one record each in the first two, two in the last."""
    desk = Desk(segment_bytes=330, index_interval_bytes=0)
    log = desk.open()
    for number in range(10):
        append(log, b"%d" % number + b"." * 12, at_ms=NOW_MS + number)
    log.sync()
    return log.segments


def test_floor() -> None:
    segments = three()
    assert [segment.base_offset for segment in segments.segments] == [0, 4, 8]
    assert [segments.floor(offset) for offset in (0, 3, 4, 7, 8, 99)] == [0, 0, 1, 1, 2, 2]
    assert SegmentList().floor(5) == 0
    assert SegmentList().active is None
    assert segments.active is segments.segments[-1]
    assert segments.size_bytes == sum(segment.size for segment in segments.segments)


def test_a_read_stays_in_one_segment_and_the_next_goes_on() -> None:
    segments = three()
    chunk = segments.read(2, 1 << 20, 10)
    assert chunk is not None
    assert chunk.next_offset == 4
    chunk = segments.read(4, 1 << 20, 10)
    assert chunk is not None
    assert chunk.next_offset == 8
    assert segments.read(8, 1 << 20, 8) is None
    assert SegmentList().read(0, 10, 10) is None


def test_a_hint_saves_the_lookup() -> None:
    segments = three()
    position = segments.segments[1].locate(6)
    with_hint, without = segments.read(6, 1, 10, position), segments.read(6, 1, 10)
    assert with_hint is not None
    assert without is not None
    assert with_hint == without


@FEW
@given(
    st.lists(st.lists(st.integers(-30, 30), min_size=1, max_size=4), min_size=1, max_size=25),
    st.integers(300, 900),
    st.integers(0, 200),
)
def test_lookup_by_time_is_that_of_a_list(
    batches: list[list[int]], segment_bytes: int, interval: int
) -> None:
    """Times go up and down: the first record at least that new, at every time, under every limit."""
    from logstore.format.batch import encode_batch
    from tests.log.logs import checked

    desk = Desk(segment_bytes=segment_bytes, index_interval_bytes=interval)
    log = desk.open()
    times: list[int] = []
    for found in batches:
        rows = [(None, b"v" * 10, None, NOW_MS + at) for at in found]
        log.append(checked(encode_batch(rows, now_ms=NOW_MS)))
        times += [NOW_MS + at for at in found]
    ends = [0]
    for found in batches:
        ends.append(ends[-1] + len(found))
    for limit in (ends[-1], ends[len(ends) // 2]):
        assert log.segments.max_timestamp(limit) == max(times[:limit], default=-1)
        for wanted in range(NOW_MS - 31, NOW_MS + 32, 3):
            due = next((n for n, at in enumerate(times[:limit]) if at >= wanted), None)
            assert first(log.segments, wanted, limit) == due


def first(segments: SegmentList, wanted: int, limit: int) -> int | None:
    for floor in segments.first_at_or_after(wanted, limit):
        for record in decode_batches(floor.batch, "t", 0, end_offset=limit):
            if record.timestamp_ms >= wanted:
                return record.offset
    return None


def test_segments_are_replaced_as_a_whole() -> None:
    segments = three()
    with pytest.raises(AttributeError):
        segments.more = 1  # type: ignore[attr-defined]
    longer = segments.with_active(segments.segments[0])
    assert (len(segments), len(longer)) == (3, 4)
