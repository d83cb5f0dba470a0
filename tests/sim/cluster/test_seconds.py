"""Two processes with one number in a simulated cluster, while clients write and read, and others fail."""

from __future__ import annotations

import pytest

from tests.sim.cluster.faults import Fault
from tests.sim.cluster.run import run_seed
from tests.sim.cluster.seconds import REFUSED, STARTED, SUPERSEDED

SLOW = pytest.mark.slow


def seeds(*quick: int, count: int) -> list[object]:
    return [number if number in quick else pytest.param(number, marks=SLOW) for number in range(count)]


@pytest.mark.parametrize("seed", seeds(1, count=12))
def test_a_second_process_does_not_become_a_broker_that_lives(seed: int) -> None:
    """Also while the controller goes, and comes again without having heard anything."""
    number, other = seed % 3 + 1, (seed + 1) % 3 + 1
    faults = [
        Fault(0.5, "second beside", number, seed, 0.0),
        Fault(0.3, ("power lost", "cut off", "killed")[seed % 3], other, seed, 1.5),
        Fault(0.8, "transferred", number, seed, 0.0),
        Fault(8.0, "second beside", number, seed + 1, 0.0),
        Fault(0.5, "transferred", other, seed, 0.0),
        Fault(8.0, "bad network", number, seed, 2.0),
        Fault(4.0, "second beside", number, seed + 100, 0.0),
    ]
    outcome = run_seed(seed, nodes=3, faults=faults)
    assert outcome.broken == ""
    assert outcome.counts[REFUSED] >= 2
    assert outcome.counts[STARTED] == outcome.counts[SUPERSEDED] == 0


@pytest.mark.parametrize("seed", seeds(3, count=12))
def test_the_first_process_stops_once_the_second_is_the_broker(seed: int) -> None:
    number, other = seed % 3 + 1, (seed + 1) % 3 + 1
    faults = [
        Fault(0.5, "transferred", other, seed, 0.0),
        Fault(1.0, "second instead", number, seed, 0.3),
        Fault(12.0, "bad network", other, seed, 1.0),
    ]
    outcome = run_seed(seed, nodes=3, faults=faults)
    assert outcome.broken == ""
    assert outcome.counts[STARTED] == outcome.counts[SUPERSEDED] == 1
