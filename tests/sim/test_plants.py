"""Each planted bug is caught; without plants nothing is."""

from __future__ import annotations

import pytest

from tests.sim.ledger_plants import PLANTS
from tests.sim.plants import hunt, planted
from tests.sim.schedules import run_schedule

SLOW = {
    "committed swap ignored",
    "failed sync retried",
    "lost index pages believed",
    "no checksum",
    "recovery point before sync",
    "undo in the wrong order",
    "watermark past the sync",
}
"""Hunts of a hundred runs and more: the report, which is CI's own step, has all."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in PLANTS]
)
def test_the_plant_is_caught(name: str) -> None:
    caught = hunt(PLANTS[name], runs_after=0)
    assert caught.by == PLANTS[name].hunted_by, f"{name}: not caught in {caught.runs} runs"


def test_there_are_enough() -> None:
    assert PLANTS.keys() >= SLOW
    assert len(PLANTS) >= 24 + 12


def test_a_plant_is_gone_afterwards() -> None:
    with planted(PLANTS["ack before sync"]):
        assert any(run_schedule(seed).violation is not None for seed in range(5))
    assert all(run_schedule(seed).violation is None for seed in range(5))
