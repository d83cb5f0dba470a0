"""Real processes under faults, and a check of their history: one short seed in CI, whole campaigns by hand."""

from __future__ import annotations

import pytest

from tests.history.campaign import CLUSTER, drawn, run_seed
from tests.history.cluster_faults import CLUSTER_FAULTS
from tests.history.faults import FAULTS

SEEDS = range(3)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_faults_at_a_broker_leave_no_anomaly(seed: int) -> None:
    faults = drawn(seed, 6)
    outcome = run_seed(seed, faults)
    assert outcome.anomalies == [], str(outcome)
    assert outcome.values["in"] > 1_000, "the faults hit something"
    assert outcome.transactions > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_faults_at_a_cluster_leave_no_anomaly(seed: int) -> None:
    outcome = run_seed(seed, drawn(seed, 5, CLUSTER_FAULTS), stage=CLUSTER)
    assert outcome.anomalies == [], str(outcome)
    assert outcome.values["in"] > 1_000, "the faults hit something"
    assert outcome.transactions > 10


def test_ci_has_every_fault_of_a_cluster() -> None:
    assert len({fault for seed in SEEDS for fault in drawn(seed, 5, CLUSTER_FAULTS)}) >= 10


def test_ci_has_every_fault() -> None:
    assert {fault for seed in SEEDS for fault in drawn(seed, 6)} == set(FAULTS)


def test_all_kinds_come_before_one_comes_again() -> None:
    assert set(drawn(7, len(FAULTS))) == set(FAULTS)
    assert drawn(7, 5) == drawn(7, 30)[:5]
