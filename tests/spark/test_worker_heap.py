"""Spark's workers collect garbage after every call: what they imported is left out of that."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from spark_connector.worker_heap import settle_worker


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    settle_worker.cache_clear()
    yield
    gc.unfreeze()
    settle_worker.cache_clear()


def test_a_worker_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    settle_worker()
    settled = gc.get_freeze_count()
    assert settled > 1000
    later = [[n] for n in range(settled)]
    settle_worker()
    assert gc.get_freeze_count() <= settled  # what came later is collected as ever
    assert len(later) == settled


def test_another_process_is_left_alone() -> None:
    before = gc.get_freeze_count()
    settle_worker()
    assert gc.get_freeze_count() == before
