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
from logstore.api.batches import arrow_builder
from logstore.api.batches import schema as log_schema
from logstore.api.records import FetchResult
from logstore.errors import DataLossError, OffsetOutOfRangeError, SegmentVanishedError
from spark_connector.connection import Logs
from spark_connector.reading.planner import Range
from spark_connector.reading.schema import arrow_schema, is_plain, to_columns
from spark_connector.settings.options import SourceOptions
from spark_connector.settings.positions import Place
from spark_connector.worker_heap import settle_worker

logger = logging.getLogger("logstore.spark")

BATCH_ROWS: Final = 20_000
_FETCH_BYTES: Final = 2 << 20
"""Also the records of a batch. More leaves the processor's cache between the log, the columns and the socket; less
costs more for each fetch and each write than it saves."""
_LEAST_FETCH_BYTES: Final = 64 << 10
_FIRST_GUESS_BYTES: Final = 1024  # a record, before one was seen
_LEAST_ROWS: Final = 1_000  # a batch with fewer rows is joined with what follows,
_LEAST_BYTES: Final = 512 << 10  # unless its bytes are enough


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
    """The records of the range, in batches of at most ``BATCH_ROWS``. Errors: ``DataLossError`` for offsets that are
    gone (unless ``failOnDataLoss=false``); those of ``PartitionLog.fetch``."""
    if not isinstance(split, Split):
        return  # Spark makes an empty task where there is nothing to read
    target = arrow_schema(schema)
    settle_worker()
    held = _Held()
    for found in _batches(options, split, target):
        held.add(to_columns(found, options, target))
        del found  # kept here it would take memory from the next one
        if held.is_enough():
            yield from held.batches()
    yield from held.batches()


@dataclass(slots=True)
class _Held:
    """Batches that wait until they are worth one."""

    waiting: list[pa.RecordBatch]
    rows: int

    def __init__(self) -> None:
        self.waiting, self.rows = [], 0

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self.waiting.append(batch)
            self.rows += batch.num_rows

    def is_enough(self) -> bool:
        return self.rows >= _LEAST_ROWS or sum(batch.nbytes for batch in self.waiting) >= _LEAST_BYTES

    def batches(self) -> Iterator[pa.RecordBatch]:
        waiting, rows = self.waiting, self.rows
        self.waiting, self.rows = [], 0
        if len(waiting) == 1 and rows <= BATCH_ROWS:
            yield waiting.pop()
        elif waiting:
            joined = pa.Table.from_batches(waiting)
            if len(waiting) > 1:
                joined = joined.combine_chunks()
            waiting.clear()
            yield from joined.to_batches(max_chunksize=BATCH_ROWS)


def _batches(options: SourceOptions, split: Split, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records, with the columns of the log, or those of ``target`` where they are the same."""
    topic, partition, start, end = split.piece
    place, logs = TopicPartition(topic, partition), Logs(options.target, options.isolation)
    columns = target if is_plain(options) else log_schema(options.include_headers)
    builder = arrow_builder(topic, partition, columns, batch_bytes=_FETCH_BYTES, end_offset=end)
    at = Place(start, split.epoch)
    record_bytes, backend = _FIRST_GUESS_BYTES, logs.backend
    while at.offset < end:
        result = logs.fetch(place, at, fetch_bytes(end - at.offset, record_bytes), backend)
        offset = _passed_over(options, place, at.offset, end, result)
        if offset is not None:
            at = Place(offset, -1)
            continue
        if len(result.batches):
            record_bytes = len(result.batches) // (result.next_offset - at.offset) + 1
            yield from builder.batches(result.batches, at.offset, end)
        at = Place(result.next_offset, split.epoch)
    yield from builder.rest()


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
