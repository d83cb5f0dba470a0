"""Pending batches: the outcome of each row, also when a batch was cut, and sizes that are upper bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.client.producer.pending import PartitionQueue, PendingBatch
from logstore.errors import DiskFullError
from logstore.format.batch import encode_batch
from logstore.format.rows import row_bytes
from tests.client.producer.test_accumulator import route_of

NOW_MS = 1_700_000_000_000


def batch_of(rows: list[Any]) -> PendingBatch:
    queue: PartitionQueue = route_of(1).queues[0]
    batch = PendingBatch(queue, None, cap=1 << 30, created_s=0.0, deadline_s=1.0)
    for row in rows:
        timestamped = len(row) == 4 and row[3] is not None
        headers = row[2] if len(row) > 2 else None
        batch.add(row, batch.size_with(row_bytes(row[0], row[1], headers), timestamped), timestamped)
    batch.count = len(rows)
    return batch


content = st.none() | st.binary(max_size=200)
header = st.tuples(st.text(max_size=10), content)
row = st.tuples(content, content) | st.tuples(
    content, content, st.lists(header, max_size=3), st.none() | st.integers(0, 2**63 - 1)
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(row, min_size=1, max_size=40))
def test_the_size_is_never_too_small(rows: list[Any]) -> None:
    assert len(encode_batch(rows, now_ms=NOW_MS)) <= batch_of(rows).size


def test_timestamps_of_rows_and_of_the_batch() -> None:
    batch = batch_of([(None, b"a"), (None, b"b", None, 5), (None, b"c", None, None)])
    batch.now_ms = 100
    batch.resolve(7, -1)
    assert [batch.timestamp_of(index) for index in range(3)] == [100, 5, 100]
    stamped = batch_of([(None, b"a"), (None, b"b", None, 5)])
    stamped.resolve(7, 999)
    assert [stamped.timestamp_of(index) for index in range(2)] == [999, 999]


def test_what_is_done_lets_go_of_its_rows() -> None:
    batch = batch_of([(None, b"a")])
    batch.encoded = b"x"
    batch.fail(DiskFullError("full"))
    assert (batch.done, batch.rows, batch.encoded, batch.driver) == (True, [], None, None)


@pytest.mark.parametrize("index", range(7))
def test_rows_are_found_in_the_parts_of_parts(index: int) -> None:
    rows = [(None, b"%d" % number) for number in range(7)]
    whole, left, right = batch_of(rows), batch_of(rows[:3]), batch_of(rows[3:])
    low, high = batch_of(rows[3:5]), batch_of(rows[5:])
    whole.parts = (left, right)
    right.parts = (low, high)
    part, place = whole.locate(index)
    assert part.rows[place] == rows[index]
    assert whole.leaves() == [left, low, high]
