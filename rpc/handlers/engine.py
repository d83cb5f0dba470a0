"""``Engine``: a store as a broker serves it: both planes, and the two calls that wait without a thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from logstore.api.backend import Backend
from logstore.api.records import FetchRequest, FetchResult, ProduceItem, ProduceResult
from logstore.types import Acks, Isolation, TopicPartition


class Engine(Backend, Protocol):
    """Thread-safe. The embedded store's backend is one; a node of a cluster is another."""

    def start_produce(
        self,
        items: Sequence[ProduceItem],
        acks: Acks,
        timeout_s: float,
        tell: Callable[[list[ProduceResult]], None],
    ) -> None:
        """As ``produce``, but returns when the batches are written; ``tell`` is called with the results when all are
        decided, from any thread. Not after an error."""
        ...

    def collect(
        self, requests: Sequence[FetchRequest], isolation: Isolation, min_bytes: int, max_bytes: int
    ) -> tuple[list[FetchResult], bool]:
        """What a fetch finds now, and whether it is worth an answer."""
        ...

    def when_more(self, places: Collection[TopicPartition], tell: Callable[[], None]) -> Callable[[], None]:
        """``tell`` is called, from any thread, when there may be more in one of the partitions; what is returned
        ends that."""
        ...
