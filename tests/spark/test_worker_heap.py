"""Spark's workers collect garbage after every call: what they imported is left out of that."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from spark_connector import worker_heap
from spark_connector.worker_heap import settle_worker


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_heap, "_settled", worker_heap.Settled())
    yield
    gc.unfreeze()


def _import_something(monkeypatch: pytest.MonkeyPatch, number: int = 0) -> list[list[int]]:
    """What a module brings along."""
    monkeypatch.setitem(sys.modules, f"of_a_test_{number}", ModuleType("of_a_test"))
    return [[number] for _ in range(1000)]


def test_a_worker_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    settle_worker()
    assert gc.get_freeze_count() == 0  # the first call finds what its process began with
    settle_worker()
    settled = gc.get_freeze_count()
    assert settled > 1000
    later = [[n] for n in range(settled)]
    settle_worker()
    assert gc.get_freeze_count() <= settled  # what came later is collected as ever
    assert len(later) == settled


def test_what_the_first_call_imported_is_left_out_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    settle_worker()
    assert gc.get_freeze_count() == 0  # the first call finds what its process began with
    settle_worker()
    settled = gc.get_freeze_count()
    brought = _import_something(monkeypatch)
    settle_worker()
    assert gc.get_freeze_count() >= settled + len(brought) // 2


def test_a_worker_that_goes_on_importing_is_left_alone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    frozen, kept = [], []
    for number in range(20):
        kept.append(_import_something(monkeypatch, number))
        settle_worker()
        frozen.append(gc.get_freeze_count())
    assert frozen[8] > frozen[1]
    assert frozen[-1] <= frozen[8]


def test_another_process_is_left_alone() -> None:
    before = gc.get_freeze_count()
    settle_worker()
    assert gc.get_freeze_count() == before
