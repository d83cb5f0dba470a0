"""Seeds of the cluster on simulated disks, and planted bugs that it finds."""

from __future__ import annotations

import pytest

from tests.replication.sim.storage_plants import PLANTS, SEEDS, found
from tests.replication.sim.storage_schedule import run_seed


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(start, marks=pytest.mark.slow) for start in range(10, 40, 10))]
)
def test_no_seed_breaks_a_property(start: int) -> None:
    for seed in range(start, start + 10):
        assert run_seed(seed).events["acked"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(40, 300, 52))
def test_no_seed_of_cis_breaks_a_property(start: int) -> None:
    for seed in range(start, start + 52):
        assert run_seed(seed).events["acked"]


@pytest.mark.parametrize("seed", [131, 471])
def test_a_seed_that_failed_once(seed: int) -> None:
    """131: after a full disk the vote's file stayed shut for ever. 471: a follower's log ended within a batch of the
    leader's, which never found out where the two agree."""
    run_seed(seed)


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = run_seed(7), run_seed(7)
    assert one.events == other.events
    assert one.committed == other.committed


# Found within some ten seeds; the others need faults that meet: ``storage_plants.py`` is a command for all of them.
QUICK = (
    "durable_before_the_sync",
    "files_are_not_synced_together",
    "no_directory_is_synced",
    "vote_is_not_synced",
    "all_that_is_recovered_is_committed",
    "recovery_begins_an_epoch",
    "dedupe_state_is_the_leaders_alone",
    "snapshot_without_producers",
    "what_is_damaged_is_cut",
)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    assert found(PLANTS[name], SEEDS) is not None
