"""The simulator of whole clusters finds bugs: some that are planted, each in a seed that is known to find it."""

from __future__ import annotations

import pytest

from tests.sim.cluster import plants
from tests.sim.cluster.plants import Plant
from tests.sim.cluster.run import run_seed, traps_of
from tests.sim.cluster.traps import AFTER_AN_ANSWER, BEHIND_AN_ANSWER


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (plants.dedupe_state_is_the_leaders_alone, 0),
        pytest.param(plants.markers_for_other_nodes_are_lost, 0, marks=pytest.mark.slow),
    ],
)
def test_a_planted_bug_is_found(plant: Plant, seed: int) -> None:
    assert run_seed(seed, plant=plant).broken


def found_by_traps(plant: Plant, what: str, broken: str = "") -> None:
    """With that kind of traps alone two of twelve seeds break that, and break nothing without the bug: each trap finds
    the bugs below in half of the seeds, so that a test does not hang on one of them, which any change of elections
    may make another run."""
    found = []
    for seed in range(12):
        traps = traps_of(seed, what)
        told = run_seed(seed, only=traps, plant=plant, witnessed=True).broken
        if told and broken in told:
            honest = run_seed(seed, only=traps, witnessed=True)
            assert honest.broken == ""
            assert honest.counts["traps sprung"] >= 1
            found.append(seed)
        if len(found) == 2:
            return
    raise AssertionError(f"found in seeds {found} alone")


@pytest.mark.slow
def test_a_coordinator_that_answers_before_it_has_committed_is_found_after_an_answer() -> None:
    found_by_traps(plants.group_commits_are_answered_before_they_are_committed, AFTER_AN_ANSWER)


@pytest.mark.slow
def test_a_coordinator_that_asks_no_majority_is_found_after_an_answer() -> None:
    found_by_traps(plants.coordinators_answer_without_a_majority, AFTER_AN_ANSWER, "was acknowledged")


@pytest.mark.slow
def test_a_coordinator_that_decides_on_what_it_knows_is_found_behind_an_answer() -> None:
    plant = plants.coordinators_decide_on_what_they_know_to_be_committed
    found_by_traps(plant, BEHIND_AN_ANSWER, "was opened twice")
