"""Every workload of up to two calls and a share of those of three, at every I/O boundary, with bounded kept subsets;
all of three in CI's own step, four by hand."""

from __future__ import annotations

import pytest

from tests.sim.exhaustive import Explorer, boundaries, workloads
from tests.sim.workload import ALPHABET, Append

CHUNKS, SHARE = 4, 32  # of the workloads of three calls, one of so many


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_up_to_three_calls(chunk: int) -> None:
    short = len(list(workloads(2)))
    chosen = [one for number, one in enumerate(workloads(3)) if number < short or number % SHARE == 1]
    part = chosen[chunk::CHUNKS]
    counts = Explorer().explore(part)
    assert counts.workloads == len(part)
    assert counts.distinct > 100


def test_recoveries_of_single_calls_are_cut_off_everywhere() -> None:
    """Up to one call, and every tenth recovery cut off before each of its changes, with what that may leave."""
    counts = Explorer(recrash_every=10).explore(workloads(1))
    assert counts.workloads == 1 + len(ALPHABET)
    assert counts.crashed_recoveries > 600


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("chunk", range(100))
def test_up_to_four_calls(chunk: int) -> None:
    chosen = list(workloads(4))
    size = len(chosen) // 100 + 1
    Explorer(limit=200, recrash_every=50).explore(chosen[chunk * size : (chunk + 1) * size])


def test_boundaries_lie_before_each_change_and_behind_the_last() -> None:
    found = list(boundaries((Append("all"),)))
    names = [boundary.operation.name for boundary in found if boundary.operation is not None]
    assert names == ["pwritev", "sync"]
    assert found[-1].operation is None
    before_write, before_sync, after = (len(list(boundary.fs.crash_states())) for boundary in found)
    assert before_write == after == 1
    assert before_sync > 2


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_every_recovery_of_single_calls_is_cut_off_everywhere() -> None:
    Explorer(limit=200, recrash_every=1).explore(workloads(1))
