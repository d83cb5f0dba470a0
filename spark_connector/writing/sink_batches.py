"""``SinkBatches``: a task's rows as record batches, each with its topic and partition, and what rows they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from logstore import ArrowEncoder, ArrowRows
from logstore.api.backend import Backend
from logstore.seams.clock import Clock, SystemClock
from spark_connector.settings.sink_options import SinkOptions
from spark_connector.writing.batch_marks import Content, content_of
from spark_connector.writing.sink_rows import placed
from spark_connector.writing.staging import StagedBatch

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES: Final = 512 << 10


class SinkBatches:
    """Encodes the rows of one task. ``content``: of all rows so far."""

    def __init__(self, backend: Backend, options: SinkOptions, clock: Clock | None = None) -> None:
        self.content = Content()
        self._backend = backend
        self._options = options
        self._clock = SystemClock() if clock is None else clock
        self._encoders: dict[str, ArrowEncoder] = {}

    def of(self, batch: pa.RecordBatch) -> Iterator[StagedBatch]:
        """Errors: ``UnknownTopicError``, ``UnknownPartitionError``, ``InvalidRecordError``, ``RecordTooLargeError``,
        ``InvalidTimestampError``."""
        for part in placed(batch, self._options.topic):
            rows = ArrowRows(part.rows)
            encoder = self._encoders.get(part.topic)
            if encoder is None:
                encoder = self._encoders[part.topic] = self._encoder(part.topic)
            encoded = encoder.encode(rows, now_ms=self._clock.wall_ms(), partition=part.partition)
            self.content = self.content.joined(content_of(part.topic, part.partition, rows))
            for made in encoded:
                yield StagedBatch(part.topic, made.partition, made.batch)

    def _encoder(self, topic: str) -> ArrowEncoder:
        return ArrowEncoder(
            self._backend.topic(topic),
            compression=self._options.compression,
            batch_bytes=_BATCH_BYTES,
            first=self._clock.wall_ms(),  # tasks should not all begin with partition 0
        )
