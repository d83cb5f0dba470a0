import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic

from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.pending import Driver, PartitionQueue, PendingBatch, Releasable
from logstore.client.producer.route import TopicRoute
from logstore.errors import LogStoreError
from logstore.format.row_buffer import RowBuffer
from logstore.types import Headers, K, OffsetRange, RecordMetadata, V

FINGERPRINT: str

class OpenBatch:
    rows: RowBuffer
    size: int
    room: int
    done: bool
    parts: tuple[PendingBatch, PendingBatch] | None
    queue: PartitionQueue
    driver: Driver | None
    deadline_s: float
    wanted: bool
    gates: list[Releasable] | None
    error: LogStoreError | None
    base_offset: int
    timestamp_ms: int
    timestamps: list[int] | None
    def __init__(
        self, queue: PartitionQueue, driver: Driver | None, deadline_s: float, size: int
    ) -> None: ...

class OpenQueue:
    open: PendingBatch | None
    flights: deque[tuple[PendingBatch, ...]]
    topic: str
    partition: int
    def __init__(self, topic: str, partition: int) -> None: ...

def release_all(gates: Sequence[Releasable]) -> None: ...

class QuickRoute:
    compacts: bool
    murmur3: bool
    choose: Callable[[bytes | None], int]
    queues: list[PartitionQueue]
    sticky: PartitionQueue
    def __init__(self, compacts: bool, murmur3: bool, choose: Callable[[bytes | None], int]) -> None: ...

class SendLock:
    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...
    def locked(self) -> bool: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...

def send_lock() -> threading.Lock: ...

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
