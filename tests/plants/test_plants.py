"""Every planted bug is caught within its number of runs, by a run that finds nothing in the engine as it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from logstore.errors import LogStoreError, StorageError
from tests.plants.all_plants import KINDS, PLANTS
from tests.plants.plant import Plant, Run, finding

LONG_RUNS = 25  # a hunt that may take more is for the command, and for the long tests


@pytest.fixture(autouse=True)
def without_complaints() -> Iterator[None]:
    """Also of threads that a run leaves behind: a transaction that could not be aborted, a dropped producer."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _marked(plant: Plant) -> object:
    return pytest.param(plant.name, marks=[pytest.mark.long] if plant.most_runs > LONG_RUNS else [])


@pytest.mark.parametrize("name", list(map(_marked, PLANTS.values())))
def test_it_is_caught_within_its_number_of_runs(name: str) -> None:
    plant = PLANTS[name]
    caught = plant.hunt()
    assert caught is not None, f"{plant.what}: not caught in {plant.most_runs} runs"
    assert caught.runs <= plant.most_runs


@pytest.mark.long
def test_the_hunts_find_nothing_in_the_engine_as_it_is() -> None:
    runs = {run.name: run for plant in PLANTS.values() for run in plant.chosen()}
    assert [(name, finding(run)) for name, run in runs.items() if finding(run)] == []


def test_each_kind_has_plants() -> None:
    assert sum(plant.sow.__module__ == kind.__name__ for kind in KINDS for plant in PLANTS.values()) == len(
        PLANTS
    )
    assert all(any(plant.sow.__module__ == kind.__name__ for plant in PLANTS.values()) for kind in KINDS)


def _plant(checks: list[object], most_runs: int = 3) -> Plant:
    def runs() -> list[Run]:
        return [Run(str(number), check) for number, check in enumerate(checks)]  # type: ignore[arg-type]

    return Plant("p", "", lambda patch: patch.setitem(STATE, "sown", True), runs, most_runs)


STATE: dict[str, bool] = {}


def _broken() -> None:
    raise StorageError("broken with the plant and without")


def _breaks_when_sown() -> None:
    assert "sown" not in STATE


def test_a_run_that_fails_in_any_case_catches_nothing() -> None:
    assert _plant([_broken, _broken]).hunt() is None
    caught = _plant([_broken, _breaks_when_sown]).hunt()
    assert caught is not None
    assert (caught.runs, caught.by) == (2, "1")
    assert STATE == {}


def test_a_plant_that_no_run_finds_is_not_caught() -> None:
    assert _plant([lambda: None] * 5).hunt() is None
    assert _plant([lambda: None] * 5 + [_breaks_when_sown]).hunt() is None  # past its number of runs


def test_what_is_no_finding_comes_out() -> None:
    def mistaken() -> None:
        raise TypeError("the run itself is wrong")

    assert issubclass(StorageError, LogStoreError)
    with pytest.raises(TypeError):
        _plant([mistaken]).hunt()
