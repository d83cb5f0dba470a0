"""Seeds of the simulated partition: no property breaks, and what a seed does is the seed's."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.replication.sim.schedule import run_seed

CHUNK = 10


def run_chunk(first: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        partition = run_seed(seed)
        counts += partition.counts
        counts["elections won"] += len(partition.checks.leaders)
        counts["reads answered"] += partition.checks.reads
    return counts


@pytest.mark.parametrize("first", range(0, 40, CHUNK))
def test_no_property_breaks(first: int) -> None:
    counts = run_chunk(first)
    for what in (
        "crashes",
        "partitions",
        "proposals",
        "reads answered",
        "membership changes",
        "elections won",
    ):
        assert counts[what] >= 5, what


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 300, CHUNK))
def test_no_property_breaks_in_more(first: int) -> None:
    run_chunk(first)


def test_every_path_is_taken() -> None:
    counts = run_chunk(0) + run_chunk(10)
    for what in (
        "truncations",
        "snapshots installed",
        "transfers",
        "retentions",
        "crashes in an election",
        "leaders struck before their first commit",
        "elections that met",
    ):
        assert counts[what] >= 3, what


def test_a_seed_that_failed_once() -> None:
    """A snapshot took entries from a follower that its leader had not sent anew, and a majority was counted with."""
    run_seed(238)


def test_the_same_seed_is_the_same_run() -> None:
    one, other = run_seed(3), run_seed(3)
    assert one.trace == other.trace
    assert len(one.trace) > 200
