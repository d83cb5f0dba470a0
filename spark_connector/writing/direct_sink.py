"""``DirectSink``: tasks that send their rows to brokers themselves: each row at least once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logstore import Producer
from spark_connector.connection import client_of
from spark_connector.settings.sink_options import SinkOptions
from spark_connector.writing.sink_batches import SinkBatches

if TYPE_CHECKING:
    import pyarrow as pa


class DirectSink:
    """One write as its tasks know it. Picklable; nothing is staged, so there is nothing to commit or to abort: a task
    that is done again sends its rows again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def send(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Durable when it returns. Errors: ``UnknownTopicError``, ``UnknownPartitionError``, ``InvalidRecordError``,
        ``RecordTooLargeError``, ``InvalidTimestampError``, and those of a delivery; rows before it may be in."""
        options = self._options
        backend = client_of(options.target).backend
        with Producer[bytes, bytes](backend) as producer:
            made = SinkBatches(backend, options)
            for batch in batches:
                for encoded in made.of(batch):
                    producer.send_batch(*encoded)
