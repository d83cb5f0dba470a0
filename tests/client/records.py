"""Reading back what a backend holds, and polling for what threads will bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

from logstore.api.backend import Backend
from logstore.api.records import FetchRequest, FetchResult
from logstore.format.batch import decode_batches
from logstore.types import Isolation, Record

DEADLINE_S = 60.0


def all_records(backend: Backend, topic: str, partition: int = 0) -> list[Record]:
    """Every record of a partition, oldest first."""
    records: list[Record] = []
    offset = 0
    while True:
        request = FetchRequest(topic, partition, offset, -1, 1 << 20)
        (result,) = backend.fetch(
            [request], isolation="read_uncommitted", min_bytes=0, max_bytes=1 << 20, max_wait_s=0
        )
        if result.error is not None:
            raise result.error
        if not len(result.batches):
            return records
        records += decode_batches(result.batches, topic, partition, start_offset=offset)
        offset = result.next_offset


def fetched(
    backend: Backend, topic: str, partition: int, isolation: Isolation = "read_uncommitted"
) -> FetchResult:
    """A partition's first batches, as a fetch gives them."""
    request = FetchRequest(topic, partition, 0, -1, 1 << 20)
    (result,) = backend.fetch([request], isolation=isolation, min_bytes=0, max_bytes=1 << 20, max_wait_s=0)
    assert result.error is None
    return result


def values_of(backend: Backend, topic: str, partition: int = 0) -> list[bytes]:
    return [record.value for record in all_records(backend, topic, partition)]


def until(condition: Callable[[], object], what: str) -> None:
    """Poll until ``condition`` holds; fail after a generous deadline."""
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError(f"not within {DEADLINE_S} s: {what}")
        time.sleep(0.001)
