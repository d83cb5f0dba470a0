"""Where replicas go: balanced within one, spread over racks, and the same for the same facts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import InvariantError
from replication.cluster.placement import Load, Replicas, Spot, place, replacement


def spread(counts: Counter[int], nodes: list[int]) -> int:
    found = [counts[node] for node in nodes]
    return max(found) - min(found)


@settings(max_examples=150, deadline=None)
@given(
    racks=st.integers(1, 5),
    size=st.integers(1, 4),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 1_000),
    data=st.data(),
)
def test_equal_racks_are_balanced_within_one(
    racks: int, size: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    spots = [Spot(rack * 10 + number, f"r{rack}") for rack in range(racks) for number in range(size)]
    factor = data.draw(st.integers(1, len(spots)))
    placed = place(spots, partitions, factor, seed=seed)
    nodes = [spot.node_id for spot in spots]
    assert all(len(set(replicas)) == factor for replicas in placed)
    assert spread(Counter(node for replicas in placed for node in replicas), nodes) <= 1
    assert spread(Counter(replicas[0] for replicas in placed), nodes) <= 1
    for replicas in placed:
        per_rack = Counter(node // 10 for node in replicas)
        assert max(per_rack.values()) - min(per_rack[rack] for rack in range(racks)) <= 1
    assert placed == place(list(reversed(spots)), partitions, factor, seed=seed)


@settings(max_examples=100, deadline=None)
@given(
    racks=st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=9),
    partitions=st.integers(1, 30),
    seed=st.integers(0, 100),
    data=st.data(),
)
def test_no_rack_has_two_before_each_has_one(
    racks: list[str], partitions: int, seed: int, data: st.DataObject
) -> None:
    spots = [Spot(number, rack) for number, rack in enumerate(racks)]
    factor = data.draw(st.integers(1, len(spots)))
    names = [rack or f"-{number}" for number, rack in enumerate(racks)]
    placed = place(spots, partitions, factor, seed=seed)
    for replicas in placed:
        used = {names[node] for node in replicas}
        assert len(used) == min(factor, len(set(names)))
    leads = Counter(replicas[0] for replicas in placed)
    for replicas in placed:  # no single exchange would balance leaders better
        assert all(leads[node] >= leads[replicas[0]] - 1 for node in replicas)


def test_topics_of_one_partition_go_around() -> None:
    spots = [Spot(node) for node in range(4)]
    placed: list[Replicas] = []
    for seed in range(8):
        placed += place(spots, 1, 3, seed=seed, overall=Load.of(placed))
    assert spread(Counter(replicas[0] for replicas in placed), [0, 1, 2, 3]) == 0
    assert spread(Counter(node for replicas in placed for node in replicas), [0, 1, 2, 3]) == 0


def test_partitions_that_are_added_even_out_what_is_there() -> None:
    spots = [Spot(node) for node in range(3)]
    present = [(0, 1), (0, 1)]
    placed = place(spots, 2, 2, present=present)
    assert Counter(node for replicas in [*present, *placed] for node in replicas) == {0: 3, 1: 3, 2: 2}
    assert {replicas[0] for replicas in placed} <= {1, 2}


def test_a_replacement_takes_the_rack_that_is_left() -> None:
    spots = [Spot(1, "a"), Spot(2, "a"), Spot(3, "b"), Spot(4, "b")]
    overall = Load({3: 5, 4: 7})
    assert replacement(spots, [1], overall=overall) == 3
    assert replacement(spots, [1, 3], overall=overall) == 2
    assert replacement(spots, [1, 2, 3, 4]) is None


def test_more_replicas_than_brokers_are_a_fault_of_the_caller() -> None:
    with pytest.raises(InvariantError):
        place([Spot(1)], 1, 2)
