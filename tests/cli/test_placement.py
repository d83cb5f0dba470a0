"""Where rows of a named import go: the same at each run, however the input comes in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.cli.placement import Placement
from logstore.cli.streams.rows import RowChunk
from logstore.client.partitioner import murmur3_partition
from logstore.types import Row

KEYS = st.one_of(st.none(), st.binary(max_size=2))


def chunks(rows: list[Row], sizes: list[int]) -> list[RowChunk]:
    found = []
    start = 0
    for size in [*sizes, len(rows)]:
        part = rows[start : start + size]
        if part:
            found.append(RowChunk(part, range(start + 1, start + 1 + len(part))))
        start += size
    return found


def placed(placement: Placement, given_chunks: list[RowChunk]) -> dict[int, list[tuple[int, Row]]]:
    """partition -> (line, row) in the order that they are sent."""
    found: dict[int, list[tuple[int, Row]]] = {}
    for chunk in given_chunks:
        for part, partition in placement.new_rows(chunk):
            found.setdefault(partition, []).extend(zip(part.lines, part.rows, strict=True))
    return found


@given(
    keys=st.lists(KEYS, max_size=40),
    first=st.lists(st.integers(1, 9), max_size=8),
    second=st.lists(st.integers(1, 9), max_size=8),
    partitioner=st.sampled_from(["murmur3", "murmur2", "crc32", "round_robin"]),
    partitions=st.integers(1, 4),
    data=st.data(),
)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_what_is_in_and_what_is_sent_make_the_whole(
    keys: list[bytes | None],
    first: list[int],
    second: list[int],
    partitioner: str,
    partitions: int,
    data: st.DataObject,
) -> None:
    rows: list[Row] = [(key, b"%d" % number) for number, key in enumerate(keys)]
    whole = placed(Placement(partitioner, partitions, None, lambda _: 0), chunks(rows, first))
    assert sorted(line for part in whole.values() for line, _ in part) == list(range(1, len(rows) + 1))
    assert all(part == sorted(part) for part in whole.values())
    known = {partition: data.draw(st.integers(0, len(part))) for partition, part in whole.items()}
    again = Placement(partitioner, partitions, None, lambda partition: known.get(partition, 0))
    rest = placed(again, chunks(rows, second))
    assert again.skipped == sum(known.values())
    assert not again.missing()
    assert {partition: part[known[partition] :] for partition, part in whole.items()} == {
        partition: rest.get(partition, []) for partition in whole
    }


def test_keys_go_where_the_topic_says_and_others_by_their_number() -> None:
    rows: list[Row] = [(b"a", b"0"), (None, b"1"), (b"", b"2"), (None, b"3"), (b"a", b"4")]
    found = placed(Placement("murmur3", 3, None, lambda _: 0), chunks(rows, [2]))
    where = {line - 1: partition for partition, part in found.items() for line, _ in part}
    assert where == {
        0: murmur3_partition(b"a", 3), 1: 1, 2: murmur3_partition(b"", 3), 3: 0, 4: murmur3_partition(b"a", 3),
    }  # fmt: skip


@pytest.mark.parametrize("fixed", [None, 2])
def test_one_partition_takes_all(fixed: int | None) -> None:
    rows: list[Row] = [(b"%d" % number, b"v") for number in range(5)]
    placement = Placement("murmur3", 1 if fixed is None else 4, fixed, lambda _: 3)
    found = placed(placement, chunks(rows, [2]))
    assert {partition: [line for line, _ in part] for partition, part in found.items()} == {
        fixed or 0: [4, 5]
    }


def test_partitions_that_lines_name_are_kept() -> None:
    chunk = RowChunk([(None, b"a"), (None, b"b"), (None, b"c")], [1, 2, 3], [3, None, 3])
    found = placed(Placement("round_robin", 2, None, lambda partition: int(partition == 3)), [chunk])
    assert found == {1: [(2, (None, b"b"))], 3: [(3, (None, b"c"))]}


def test_an_input_with_fewer_rows_than_are_in_is_noticed() -> None:
    placement = Placement("round_robin", 2, None, lambda partition: 3 * partition)
    placed(placement, chunks([(None, b"a")] * 4, []))
    assert (placement.skipped, placement.missing()) == (2, {1: 1})
