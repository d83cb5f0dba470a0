"""Each planted bug is found by the simulator, within the seeds that the table says."""

from __future__ import annotations

import pytest

from tests.replication.sim.plants import PLANTS, SEEDS, found

# Found within a few tens of seeds at most; the others need elections that meet within moments.
RARE = {
    "vote_forgotten_at_restart",
    "old_terms_committed_by_counting",
    "two_votes_in_a_term",
    "longer_logs_win_whatever_their_term",
    "snapshot_over_what_is_committed",
    "stale_terms_are_heard",
}


@pytest.mark.parametrize("name", sorted(set(PLANTS) - RARE))
def test_a_planted_bug_is_found(name: str) -> None:
    assert found(PLANTS[name], 40) is not None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(RARE))
def test_a_rare_planted_bug_is_found(name: str) -> None:
    assert found(PLANTS[name], SEEDS) is not None


def test_there_are_enough() -> None:
    assert len(PLANTS) >= 20
    assert set(PLANTS) >= RARE
