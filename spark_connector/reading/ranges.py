"""One range of offsets as Arrow batches: what every task does, in batch and in streaming."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from logstore import LogStoreError, TopicPartition
from logstore.api.batches import to_table
from logstore.api.records import FetchResult
from logstore.errors import DataLossError, OffsetOutOfRangeError, SegmentVanishedError
from spark_connector.connection import Logs
from spark_connector.reading.planner import Range
from spark_connector.reading.schema import arrow_schema, to_columns
from spark_connector.settings.options import SourceOptions
from spark_connector.settings.positions import Place
from spark_connector.worker_heap import settle_worker

logger = logging.getLogger("logstore.spark")

BATCH_ROWS: Final = 20_000
_FETCH_BYTES: Final = 4 << 20
"""Also a chunk of the table. A larger one takes memory that is new to the process; a smaller one costs more for each
fetch and each batch than it saves."""
_BATCH_BYTES: Final = 1 << 20  # are enough for a batch: what waits leaves the processor's cache
_LEAST_FETCH_BYTES: Final = 64 << 10
_FIRST_GUESS_BYTES: Final = 1024  # a record, before one was seen
_LEAST_ROWS: Final = 5_000  # a batch with fewer rows is joined with what follows,
_LEAST_BYTES: Final = 1 << 20  # unless its bytes are enough


class Split(InputPartition):
    """One task's range. ``epoch``: the newest leader epoch when it was planned."""

    def __init__(self, piece: Range, epoch: int) -> None:
        super().__init__(None)
        self.piece = piece
        self.epoch = epoch

    def __repr__(self) -> str:
        topic, partition, start, end = self.piece
        return f"Split({topic}-{partition} [{start}, {end}))"


def read_split(options: SourceOptions, schema: StructType, split: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of the range, in batches of about ``BATCH_ROWS``. Errors: ``DataLossError`` for offsets that are
    gone (unless ``failOnDataLoss=false``); those of ``PartitionLog.fetch``."""
    if not isinstance(split, Split):
        return  # Spark makes an empty task where there is nothing to read
    target = arrow_schema(schema)
    settle_worker()
    held = _Held()
    for found in _tables(options, split):
        held.add(to_columns(found, options, target))
        if held.rows >= BATCH_ROWS or held.bytes >= _BATCH_BYTES:
            yield from held.batches()
    yield from held.batches()


@dataclass(slots=True)
class _Held:
    """Tables that wait until they are worth a batch."""

    tables: list[pa.Table]
    rows: int
    bytes: int

    def __init__(self) -> None:
        self.tables, self.rows, self.bytes = [], 0, 0

    def add(self, table: pa.Table) -> None:
        if table.num_rows:
            self.tables.append(table)
            self.rows += table.num_rows
            self.bytes += table.nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        tables, rows, size = self.tables, self.rows, self.bytes
        chunks = sum(table.column(0).num_chunks for table in tables)
        self.tables, self.rows, self.bytes = [], 0, 0
        if not tables:
            return
        joined = pa.concat_tables(tables)
        if chunks > 1 and rows < _LEAST_ROWS * chunks and size < _LEAST_BYTES * chunks:
            joined = joined.combine_chunks()
        yield from joined.to_batches(max_chunksize=BATCH_ROWS)


def _tables(options: SourceOptions, split: Split) -> Iterator[pa.Table]:
    topic, partition, start, end = split.piece
    place, logs = TopicPartition(topic, partition), Logs(options.target, options.isolation)
    at = Place(start, split.epoch)
    record_bytes = _FIRST_GUESS_BYTES
    while at.offset < end:
        result = logs.fetch(place, at, fetch_bytes(end - at.offset, record_bytes))
        offset = _passed_over(options, place, at.offset, end, result)
        if offset is not None:
            at = Place(offset, -1)
            continue
        if len(result.batches):
            record_bytes = len(result.batches) // (result.next_offset - at.offset) + 1
            yield to_table(
                result.batches,
                topic,
                partition,
                start_offset=at.offset,
                end_offset=end,
                headers=options.include_headers,
                chunk_bytes=_FETCH_BYTES,
            )
        at = Place(result.next_offset, split.epoch)


def fetch_bytes(offsets: int, record_bytes: int) -> int:
    """How much to ask for: of a long log a small split reads little more than its own part."""
    return min(_FETCH_BYTES, _LEAST_FETCH_BYTES + offsets * record_bytes)


def _passed_over(
    options: SourceOptions, place: TopicPartition, offset: int, end: int, result: FetchResult
) -> int | None:
    """Where to go on after offsets that are gone; None if the fetch gave what was asked for."""
    error = result.error
    if error is None and result.next_offset > offset:
        return None
    if error is None:
        lost_to = end  # the log is shorter than it was when the range was planned
        reason = f"the log ends at {result.last_stable_offset}"
    else:
        found = lost_end(error, offset, end)
        if found is None:
            raise error
        lost_to, reason = found, why_lost(error)
    report_loss(options, place, offset, min(lost_to, end), reason)
    return max(min(lost_to, end), offset + 1)


def lost_end(error: LogStoreError, offset: int, end: int) -> int | None:
    """The first offset after those that the error says are gone; None for an error of another kind."""
    if isinstance(error, OffsetOutOfRangeError):
        return error.log_start_offset if offset < error.log_start_offset else end
    if isinstance(error, SegmentVanishedError):
        return error.lost[1] if error.lost[1] > offset else end
    return end if isinstance(error, DataLossError) else None


def why_lost(error: LogStoreError) -> str:
    """The error's reason, without the offsets, which whoever reports them says."""
    if isinstance(error, OffsetOutOfRangeError):
        return f"the log is now [{error.log_start_offset}, {error.end_offset})"
    return error.message


def report_loss(options: SourceOptions, place: TopicPartition, start: int, end: int, reason: str) -> None:
    """``DataLossError``, or a warning where ``failOnDataLoss=false``."""
    text = f"{place.topic}-{place.partition}: offsets {start} to {end - 1} are gone: {reason}"
    if options.fail_on_data_loss:
        raise DataLossError(
            text,
            hint="set failOnDataLoss=false to go on after them",
            lost_from=start,
            position=end,
        )
    logger.warning("%s; failOnDataLoss=false: going on at %d", text, end)
