from collections.abc import Sequence

from logstore.api.backend import Backend
from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.flights import Flights
from logstore.client.producer.pending import PendingBatch
from logstore.client.producer.sequences import Sequences
from logstore.seams.clock import Clock

FINGERPRINT: str

class FlightPath:
    grace_s: float
    def __init__(
        self,
        backend: Backend,
        accumulator: Accumulator,
        clock: Clock,
        sequences: Sequences | None,
        flights: Flights | None,
        grace_s: float,
    ) -> None: ...
    def drive(
        self, batch: PendingBatch, index: int, timeout_s: float | None
    ) -> tuple[PendingBatch, int] | None: ...
    def _fly(
        self, batches: Sequence[PendingBatch], timeout_s: float | None, now_s: float | None = None
    ) -> None: ...
