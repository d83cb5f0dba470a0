from collections.abc import Callable, Generator
from typing import Any, Generic

from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.pending import PartitionQueue, PendingBatch
from logstore.client.producer.route import TopicRoute
from logstore.errors import LogStoreError
from logstore.types import Headers, K, OffsetRange, RecordMetadata, V

FINGERPRINT: str

class Delivery:
    def __init__(self, batch: PendingBatch, index: int) -> None: ...
    def done(self) -> bool: ...
    def result(self, timeout_s: float | None = None) -> RecordMetadata: ...
    def exception(self, timeout_s: float | None = None) -> LogStoreError | None: ...
    def add_callback(self, callback: Callable[[Delivery], object]) -> None: ...
    def __await__(self) -> Generator[Any, None, RecordMetadata]: ...

class Piece:
    batch: PendingBatch
    start: int
    count: int
    def __init__(self, batch: PendingBatch, start: int, count: int) -> None: ...

def landed_ranges(pieces: list[Piece]) -> list[OffsetRange] | None: ...
def queue_rows(
    accumulator: Accumulator,
    notice: Callable[[PartitionQueue, float], None],
    route: TopicRoute,
    rows: Any,
    place: int | None,
    cap: int,
    most_bytes: int,
    now_s: float,
) -> list[Piece] | None: ...
def open_for(
    accumulator: Accumulator, queue: PartitionQueue, row: object, row_bytes: int, alone: int, now_s: float
) -> tuple[PendingBatch, int] | None: ...

class SendPath(Generic[K, V]):
    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery: ...
    def send_now(self, topic: str, value: V | None = None, *, key: K | None = None) -> Delivery | None: ...
