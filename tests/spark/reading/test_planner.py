"""Admission and splits: each offset exactly once, limits kept, shares fair, nobody starves."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import TopicPartition
from spark_connector.reading.planner import Admission, Range, prorate, split

few = settings(derandomize=True, deadline=None, max_examples=150)
places = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9))
backlogs = st.dictionaries(places, st.one_of(st.integers(0, 30), st.integers(0, 2**40)), max_size=20)
ranges = st.dictionaries(places, st.tuples(st.integers(0, 2**40), st.integers(0, 60)), max_size=8).map(
    lambda found: [Range(*place, start, start + size) for place, (start, size) in found.items()]
)


@few
@given(backlogs, st.integers(1, 2**41))
def test_shares_keep_the_limit_and_starve_nobody(backlogs: dict[TopicPartition, int], limit: int) -> None:
    shares = prorate(backlogs, limit)
    waiting = [place for place, size in backlogs.items() if size]
    total = sum(backlogs.values())
    assert shares.keys() == backlogs.keys()
    assert all(min(1, backlogs[place]) <= share <= backlogs[place] for place, share in shares.items())
    assert sum(shares.values()) == min(total, max(limit, len(waiting)))


@few
@given(backlogs, st.integers(1, 2**41))
def test_shares_are_fair(backlogs: dict[TopicPartition, int], limit: int) -> None:
    """Within one of the proportion, unless those that got their one share took it from the largest."""
    shares, total = prorate(backlogs, limit), sum(backlogs.values())
    if total <= limit:
        assert shares == backlogs
        return
    assert all(share <= max(1, limit * backlogs[place] // total + 1) for place, share in shares.items())
    if all(limit * size >= total for size in backlogs.values() if size):
        assert all(share >= limit * backlogs[place] // total for place, share in shares.items())
    ordered = sorted(backlogs, key=lambda place: backlogs[place])
    assert all(shares[small] <= shares[large] + 1 for small, large in pairwise(ordered))


def test_the_limit_of_sparks_documentation() -> None:
    """ "Rate limit on maximum number of offsets processed per trigger interval. The specified total number of
    offsets will be proportionally split across topicPartitions of different volume."""
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert prorate({a: 900, b: 100}, 100) == {a: 90, b: 10}
    assert prorate({a: 1_000_000, b: 1}, 100) == {a: 99, b: 1}
    assert prorate({a: 5, b: 5}, 1) == {a: 1, b: 1}


@few
@given(backlogs, st.integers(1, 1000), st.integers(1, 1000), st.integers(0, 2000))
def test_admission(backlogs: dict[TopicPartition, int], least: int, most: int, waited_ms: int) -> None:
    starts = dict.fromkeys(backlogs, 7)
    ends = {place: 7 + size for place, size in backlogs.items()}
    taken = Admission(most=most, least=least, max_delay_ms=1000).admit(starts, ends, waited_ms)
    available = sum(backlogs.values())
    if available < least and waited_ms < 1000:
        assert taken == starts
    else:
        assert {place: end - 7 for place, end in taken.items()} == prorate(backlogs, most)


def test_admission_of_a_log_that_became_shorter_takes_nothing() -> None:
    place = TopicPartition("t", 0)
    assert Admission().admit({place: 9}, {place: 5}, 0) == {place: 9}


@few
@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 40))
def test_splits_cover_each_offset_exactly_once(
    ranges: list[Range], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(ranges, min_partitions=min_partitions, max_records=max_records)
    found = [(p.topic, p.partition, offset) for p in pieces for offset in range(p.start, p.end)]
    wanted = [(r.topic, r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    assert sorted(found) == sorted(wanted)
    assert all(piece.size > 0 for piece in pieces)
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)
    if min_partitions is not None:
        assert len(pieces) >= min(min_partitions, len(wanted))


@few
@given(ranges, st.integers(1, 40))
def test_pieces_of_a_range_are_alike(ranges: list[Range], min_partitions: int) -> None:
    pieces = split(ranges, min_partitions=min_partitions)
    for whole in ranges:
        sizes = [piece.size for piece in pieces if piece[:2] == whole[:2]]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_without_limits_a_range_is_a_task() -> None:
    assert split([Range("t", 0, 0, 10), Range("t", 1, 5, 5)]) == [Range("t", 0, 0, 10)]


def test_more_tasks_split_the_largest() -> None:
    pieces = split([Range("t", 0, 0, 90), Range("t", 1, 0, 10)], min_partitions=4)
    assert [piece.size for piece in pieces] == [30, 30, 30, 10]
