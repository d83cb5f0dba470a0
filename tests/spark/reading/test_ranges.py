"""How much a task asks of a log at a time, and how it cuts what it gets into batches for Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import logstore
from logstore.native import native_status
from spark_connector.reading.planner import Range
from spark_connector.reading.ranges import BATCH_ROWS, Split, fetch_bytes, read_split
from spark_connector.reading.schema import spark_schema
from spark_connector.settings.options import parse


def test_a_fetch_grows_with_what_is_left_up_to_a_bound() -> None:
    assert fetch_bytes(1, 100) == (64 << 10) + 100
    assert fetch_bytes(1000, 100) == (64 << 10) + 100_000
    assert fetch_bytes(10**9, 100) == 2 << 20


def batches_of(path: Path, values: list[bytes], start: int, end: int) -> list[pa.RecordBatch]:
    with logstore.open(path) as store:
        store.create_topic("t", 1)
        with store.producer(batch_bytes=64 << 10) as producer:
            producer.send_many("t", [(None, value) for value in values])
    options = parse({"path": str(path), "subscribe": "t"}, "batch")
    schema = spark_schema(options)
    assert not isinstance(schema, str)
    return list(read_split(options, schema, Split(Range("t", 0, start, end), -1)))


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 700), (1234, 1235), (5, 2000), (1999, 2000)])
def test_a_split_of_records_of_any_size_is_read_whole(tmp_path: Path, start: int, end: int) -> None:
    values = [b"%d " % n * (1 + n % 400) for n in range(2000)]  # the guess of a record's size is often wrong
    found = batches_of(tmp_path / "s", values, start, end)
    assert [value for batch in found for value in batch.column("value").to_pylist()] == values[start:end]
    offsets = [offset for batch in found for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(start, end))


def test_small_chunks_become_one_batch_and_large_ones_stay(tmp_path: Path) -> None:
    small = batches_of(tmp_path / "small", [b"v" * 50] * 3000, 0, 3000)
    assert [batch.num_rows for batch in small] == [3000]
    large = batches_of(tmp_path / "large", [b"v" * 10_000] * 800, 0, 800)
    assert sum(batch.num_rows for batch in large) == 800
    assert len(large) > 1


def test_a_batch_of_large_records_does_not_wait_for_the_whole_fetch(tmp_path: Path) -> None:
    found = batches_of(tmp_path / "s", [b"v" * 1024] * 15_000, 0, 15_000)
    assert sum(batch.num_rows for batch in found) == 15_000
    if native_status().compiled:
        assert len(found) == 8
    assert max(batch.num_rows for batch in found) <= BATCH_ROWS


def test_a_batch_of_small_records_has_as_many_rows_as_it_may(tmp_path: Path) -> None:
    found = batches_of(tmp_path / "s", [b"v"] * 150_000, 0, 150_000)
    assert [batch.num_rows for batch in found[:-1]].count(BATCH_ROWS) >= 4
    assert max(batch.num_rows for batch in found) <= BATCH_ROWS
    assert sum(batch.num_rows for batch in found) == 150_000
