"""``Flights``: what a producer's thread has under way in a pipeline, in the order in which it comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from logstore.api.pipelines import PendingProduce, ProducePipeline
from logstore.api.records import ProduceItem, ProduceResult
from logstore.client.producer.pending import PendingBatch
from logstore.errors import LogStoreError
from logstore.types import Acks


class Refused:
    """A flight that never left."""

    def __init__(self, error: LogStoreError) -> None:
        self._error = error

    def results(self) -> list[ProduceResult]:
        raise self._error


class Flights:
    """Of one thread. False while nothing is under way."""

    def __init__(self, pipeline: ProducePipeline) -> None:
        self._pipeline = pipeline
        self._waiting: deque[tuple[Sequence[PendingBatch], PendingProduce]] = deque()
        self._halted = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether one more may go. Behind one that never left none does, before that has landed."""
        return not self._halted and len(self._waiting) < self._pipeline.window

    def begin(
        self, batches: Sequence[PendingBatch], items: Sequence[ProduceItem], acks: Acks, timeout_s: float
    ) -> None:
        self._waiting.append((batches, self._pipeline.begin(items, acks, timeout_s)))

    def refuse(self, batches: Sequence[PendingBatch], error: LogStoreError) -> None:
        """They could not be sent; they land with the error when those before them have."""
        self._halted = True
        self._waiting.append((batches, Refused(error)))

    def oldest(self) -> tuple[Sequence[PendingBatch], PendingProduce]:
        """Taken out: the caller lands it."""
        oldest = self._waiting.popleft()
        if not self._waiting:
            self._halted = False
        return oldest

    def rest(self) -> None:
        """See ``ProducePipeline.rest``."""
        if not self._waiting:
            self._pipeline.rest()
