"""Processes that end with the test that started them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worker_process import Worker


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """What a test puts in here is killed at its end if it has not ended by itself."""
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.dispose()
