"""``StagingBackend``: lets a ``Producer`` write to a staging file, as it would to a log.

So a task's rows are checked, spread over partitions, cut into batches and compressed by the client that everybody
uses, by the topics' own settings; only the batches' offsets come later, when the driver appends them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from logstore import LogStoreError, TopicPartition
from logstore.api.backend import Backend
from logstore.api.batches import records_in
from logstore.api.records import ProduceItem, ProduceResult
from logstore.api.topics import TopicMetadata
from logstore.errors import StorageError
from logstore.types import Acks
from spark_connector.staging import StagedBatch, StagingFile


class StagingBackend:
    """What a producer without ids and transactions asks of a ``Backend``. ``metadata``: that of the store."""

    def __init__(self, metadata: Backend, file: StagingFile) -> None:
        self._metadata = metadata
        self._file = file
        self._written: Counter[TopicPartition] = Counter()
        # A producer's own thread and one that flushes may produce at a time, and a file is written in one order.
        self._lock = threading.Lock()

    def as_backend(self) -> Backend:
        """For ``Producer``, which calls nothing else of one."""
        return cast(Backend, self)

    def topics(self) -> Mapping[str, TopicMetadata]:
        return self._metadata.topics()

    def topic(self, name: str) -> TopicMetadata:
        return self._metadata.topic(name)

    def metadata_version(self) -> int:
        return self._metadata.metadata_version()

    def produce(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> list[ProduceResult]:  # noqa: ARG002
        """Offsets count the records of this file."""
        with self._lock:
            return [self._stage(item) for item in items]

    def _stage(self, item: ProduceItem) -> ProduceResult:
        try:
            self._file.append(StagedBatch(item.topic, item.partition, bytes(item.batch)))
        except LogStoreError as error:
            # Also where a log would be tried again (a full disk): Spark tries the task again, elsewhere or later.
            return ProduceResult(-1, error=StorageError(error.message, hint=error.advice))
        place = TopicPartition(item.topic, item.partition)
        first = self._written[place]
        self._written[place] += records_in(item.batch)
        return ProduceResult(first)

    @property
    def records(self) -> int:
        return self._written.total()
