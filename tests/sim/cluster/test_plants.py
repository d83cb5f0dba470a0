"""The simulator of whole clusters finds bugs: some that are planted, each in a seed that is known to find it."""

from __future__ import annotations

import pytest

from tests.sim.cluster import plants
from tests.sim.cluster.plants import Plant
from tests.sim.cluster.run import run_seed


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (plants.dedupe_state_is_the_leaders_alone, 0),
        pytest.param(plants.markers_for_other_nodes_are_lost, 0, marks=pytest.mark.slow),
        pytest.param(plants.group_commits_are_answered_before_they_are_committed, 2, marks=pytest.mark.slow),
    ],
)
def test_a_planted_bug_is_found(plant: Plant, seed: int) -> None:
    assert run_seed(seed, plant=plant).broken
