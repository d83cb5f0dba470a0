"""The batch reader: plans on the driver, with ends pinned there; tasks read by ``reading.py``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from logstore import LogStoreError, TopicPartition
from spark_connector.connection import Logs
from spark_connector.filters import LogOffsets
from spark_connector.options import SourceOptions
from spark_connector.planner import Range, split
from spark_connector.positions import Place, PositionSpec, check_covered, check_order, resolve
from spark_connector.pruning import SCAN_BYTES, narrowed
from spark_connector.reading import Split, read_split

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.api.topics import TopicMetadata

logger = logging.getLogger("logstore.spark")

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class LogStoreReader(DataSourceReader):
    """Travels pickled to the tasks: it holds options and columns, nothing that is open."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._bounds = LogOffsets()

    def partitions(self) -> list[InputPartition]:
        """One task a partition, more where options or filters cut the ranges. Errors: those of the options,
        ``UnknownTopicError``, ``OffsetOutOfRangeError`` for offsets that are not there."""
        options = self._options
        logs = Logs(options.path, options.isolation)
        topics = logs.topics(options.selection)
        places = logs.places(options.selection, topics)
        for spec in (options.starting, options.ending):
            check_covered(spec, places)
        places = [place for place in places if self._bounds.reads(place)]
        latest = logs.latest(places)
        starts, ends = self._resolved(logs, latest)
        ranges = [
            Range(
                place.topic,
                place.partition,
                max(starts[place], self._bounds.offset_low),
                min(ends[place], self._bounds.offset_high + 1),
            )
            for place in places
        ]
        ranges = self._within_times(logs, [piece for piece in ranges if piece.size > 0], topics)
        pieces = split(
            ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
        )
        return [Split(piece, latest[TopicPartition(*piece[:2])].epoch) for piece in pieces]

    def _resolved(
        self, logs: Logs, latest: dict[TopicPartition, Place]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        earliest = logs.earliest(latest)
        high = {place: at.offset for place, at in latest.items()}
        found = []
        for spec in (self._options.starting, self._options.ending):
            spec = _narrowed_spec(spec, high)
            by_time = logs.at_times(spec.timestamps(high))
            found.append(resolve(spec, earliest, high, by_time, self._on_loss))
        check_order(found[0], found[1])
        return found[0], found[1]

    def _on_loss(self, error: LogStoreError) -> None:
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("%s; failOnDataLoss=false: taking the nearest", error.message)

    def _within_times(self, logs: Logs, ranges: list[Range], topics: dict[str, TopicMetadata]) -> list[Range]:
        """The parts of the ranges that a filter on ``timestamp`` leaves."""
        bounds = self._bounds
        if not bounds.by_time or not ranges:
            return ranges
        low, high = bounds.time_low_ms, bounds.time_high_ms
        firsts = logs.at_times({TopicPartition(*piece[:2]): low for piece in ranges})
        left: list[Range] = []
        budget = SCAN_BYTES
        for piece in ranges:
            first = firsts[TopicPartition(*piece[:2])]
            if first is None or first >= piece.end:
                continue  # no record is so new
            piece = piece._replace(start=max(piece.start, first))
            parts, budget = narrowed(logs, piece, topics[piece.topic].topic_id, low, high, budget)
            left += parts
        return left

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._options, self._schema, partition)


class PushdownReader(LogStoreReader):
    """The same, where Spark's setting lets filters be pushed down; elsewhere Spark refuses such a class."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        return self._bounds.take(filters)


def pushes_filters() -> bool:
    """Whether this is the process that Spark starts to push filters down, which it does where
    ``spark.sql.python.filterPushdown.enabled`` is true."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", "") == _PUSHDOWN_WORKER


def _narrowed_spec(spec: PositionSpec, places: dict[TopicPartition, int]) -> PositionSpec:
    """The spec for these partitions alone; its table was found to name all."""
    if spec.kind not in ("offsets", "timestamps"):
        return spec
    table = {place: spec.table[place] for place in places}
    return replace(spec, table=table)
