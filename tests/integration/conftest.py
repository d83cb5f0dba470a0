"""Processes that end with the test that started them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_connector.java import java_version, why_not
from tests.worker_process import Worker

_WHY_NOT = why_not(java_version())
collect_ignore = [] if _WHY_NOT is None else ["test_killed_stream.py"]  # tests/spark says so at the end


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """What a test puts in here is killed at its end if it has not ended by itself."""
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.dispose()
