"""The simulator of whole clusters finds bugs: some that are planted, each in a seed that is known to find it."""

from __future__ import annotations

import pytest

from tests.sim.cluster import plants
from tests.sim.cluster.plants import Plant
from tests.sim.cluster.run import run_seed
from tests.sim.cluster.traps import BEHIND_AN_ANSWER


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (plants.dedupe_state_is_the_leaders_alone, 0),
        pytest.param(plants.markers_for_other_nodes_are_lost, 0, marks=pytest.mark.slow),
        pytest.param(plants.group_commits_are_answered_before_they_are_committed, 12, marks=pytest.mark.slow),
    ],
)
def test_a_planted_bug_is_found(plant: Plant, seed: int) -> None:
    assert run_seed(seed, plant=plant).broken


@pytest.mark.slow
def test_a_coordinator_that_asks_no_majority_is_found_by_a_trap() -> None:
    """With the traps of the seed alone."""
    traps = (1, 3, 5, 8)
    assert run_seed(10, only=traps, witnessed=True).broken == ""
    plant = plants.coordinators_answer_without_a_majority
    broken = run_seed(10, only=traps, plant=plant, witnessed=True).broken
    assert "was acknowledged" in broken


@pytest.mark.slow
def test_a_coordinator_that_decides_on_what_it_knows_is_found_behind_an_answer() -> None:
    """With that trap of the seed alone, the last of its schedule."""
    trap = (9,)
    honest = run_seed(1, only=trap, witnessed=True)
    assert honest.broken == ""
    assert [fault.what for fault in honest.faults] == [BEHIND_AN_ANSWER]
    assert honest.counts["traps sprung"] == 1
    plant = plants.coordinators_decide_on_what_they_know_to_be_committed
    assert "was opened twice" in run_seed(1, only=trap, plant=plant, witnessed=True).broken
