"""The batch reader: plans on the driver, with ends pinned there; tasks read by ``reading.py``.

No filter is pushed down. Spark keeps one planned reader per DataFrame, not per query: the filters of one query would
stay in force for the next query of that DataFrame, and those of the last branch of a union for all its branches. A
scan without filters is not announced to the reader at all, so nothing here could take them back. ``pushFilters`` is
inherited: it gives every filter back to Spark, whatever ``spark.sql.python.filterPushdown.enabled`` says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from logstore import LogStoreError, TopicPartition
from spark_connector.connection import Logs
from spark_connector.reading.planner import Range, split
from spark_connector.reading.ranges import Split, read_split
from spark_connector.settings.options import SourceOptions
from spark_connector.settings.positions import Place, check_covered, check_order, resolve
from spark_connector.worker_heap import settle_worker

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("logstore.spark")


class LogStoreReader(DataSourceReader):
    """Travels pickled to the tasks: it holds options and columns, nothing that is open."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One task a partition, more where options cut the ranges. Errors: those of the options,
        ``UnknownTopicError``, ``OffsetOutOfRangeError`` for offsets that are not there."""
        settle_worker()
        options = self._options
        logs = Logs(options.target, options.isolation)
        latest = logs.latest(logs.places(options.selection, logs.topics(options.selection)))
        starts, ends = self._resolved(logs, latest)
        pieces = split(
            (Range(*place, starts[place], ends[place]) for place in latest),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [Split(piece, latest[TopicPartition(*piece[:2])].epoch) for piece in pieces]

    def _resolved(
        self, logs: Logs, latest: dict[TopicPartition, Place]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where each partition begins and ends."""
        earliest = logs.earliest(latest)
        high = {place: at.offset for place, at in latest.items()}
        found = []
        for spec in (self._options.starting, self._options.ending):
            check_covered(spec, high)
            by_time = logs.at_times(spec.timestamps(high))
            found.append(resolve(spec, earliest, high, by_time, self._on_loss))
        check_order(found[0], found[1])
        return found[0], found[1]

    def _on_loss(self, error: LogStoreError) -> None:
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("%s; failOnDataLoss=false: taking the nearest", error.message)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._options, self._schema, partition)
