import threading
from collections import deque
from collections.abc import Callable, Sequence

from logstore.client.producer.pending import (
    Driver,
    Identity,
    PartitionQueue,
    PendingBatch,
    Releasable,
    Route,
)
from logstore.errors import LogStoreError
from logstore.format.batch import BatchHeader
from logstore.format.row_buffer import RowBuffer
from logstore.types import Buffer

FINGERPRINT: str

class OpenBatch:
    rows: RowBuffer
    size: int
    room: int
    cap: int
    reserved: int
    count: int
    overhead: int
    attempts: int
    done: bool
    wanted: bool
    timestamped: bool
    doubtful: bool
    observed: bool
    full_told: bool
    created_s: float
    deadline_s: float
    full_since_s: float
    base_sequence: int
    parts: tuple[PendingBatch, PendingBatch] | None
    queue: PartitionQueue
    driver: Driver | None
    error: LogStoreError | None
    refusal: LogStoreError | None
    gates: list[Releasable] | None
    base_offset: int
    timestamp_ms: int
    now_ms: int
    timestamps: list[int] | None
    encoded: bytes | None
    header: BatchHeader | None
    ready: Buffer | None
    identity: Identity | None
    callbacks: list[tuple[int, Callable[[], object]]] | None
    def __init__(
        self, queue: PartitionQueue, driver: Driver | None, cap: int, created_s: float, deadline_s: float
    ) -> None: ...
    def resolve(self, base_offset: int, append_time_ms: int) -> None: ...

class OpenQueue:
    open: PendingBatch | None
    flights: deque[tuple[PendingBatch, ...]]
    closed: deque[PendingBatch]
    route: Route
    topic: str
    partition: int
    again: list[PendingBatch]
    stacks: bool
    held_up: bool
    renumbers: bool
    spent: bool
    retry_at_s: float
    identity: Identity | None
    next_sequence: int
    numbered_topic: str
    def __init__(self, route: Route, topic: str, partition: int) -> None: ...

class QuickRoute:
    compacts: bool
    murmur3: bool
    choose: Callable[[bytes | None], int]
    max_message_bytes: int
    codec: str
    queues: list[PartitionQueue]
    sticky: PartitionQueue
    def __init__(
        self,
        compacts: bool,
        murmur3: bool,
        choose: Callable[[bytes | None], int],
        max_message_bytes: int,
        codec: str,
    ) -> None: ...
    def move_on(self, queue: PartitionQueue) -> None: ...

class Counters:
    records: int
    batches: int
    produced_bytes: int
    produce_calls: int
    retries: int
    failed_records: int
    waits_for_room: int

class ProducerBuffer:
    limit_bytes: int
    held_bytes: int
    def __init__(self, limit_bytes: int, counters: Counters) -> None: ...
    @property
    def free_bytes(self) -> int: ...
    def has_room_for(self, needed_bytes: int) -> bool: ...
    def hold(self, more_bytes: int) -> None: ...
    def give_back(self, released_bytes: int) -> None: ...
    @property
    def is_waited_for(self) -> bool: ...
    def join_queue(self) -> threading.Lock: ...
    def leave_queue(self, gate: threading.Lock) -> None: ...

class SendLock:
    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...
    def locked(self) -> bool: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...

def send_lock() -> threading.Lock: ...
def release_all(gates: Sequence[Releasable]) -> None: ...
