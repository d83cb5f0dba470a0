"""``FlightPath``: what brings a batch to its outcome, for the caller who waits for it or the producer's thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logstore.api.backend import Backend
from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.flights import Flights
from logstore.client.producer.pending import PendingBatch
from logstore.client.producer.sequences import Sequences
from logstore.native import compiled
from logstore.seams.clock import Clock


@compiled("client.flights")
class FlightPath:
    """The compiled twin numbers, encodes, produces and lands a flight of new batches in one go, and takes the lone one
    of a caller who waits. Every other one, and all that goes wrong, it leaves to the steps of ``Sender``, which this
    twin takes always.

    ``lock``, ``clock``, ``pid`` and ``grace_s`` are for those that wait without ``drive`` (``Delivery``): the
    accumulator's lock, the time, the process that made this, and how long after its time a flight is given up on.
    """

    lock: threading.Lock

    if TYPE_CHECKING:

        def _drive(
            self, batch: PendingBatch, index: int, timeout_s: float | None
        ) -> tuple[PendingBatch, int] | None: ...
        def _fly_in_steps(
            self, batches: Sequence[PendingBatch], timeout_s: float | None, now_s: float | None
        ) -> None: ...

    def __init__(
        self,
        backend: Backend,
        accumulator: Accumulator,
        clock: Clock,
        sequences: Sequences | None,
        flights: Flights | None,
        grace_s: float,
    ) -> None:
        self._backend = backend
        self._accumulator = accumulator
        self.lock = accumulator.lock
        self.clock = clock
        self._sequences = sequences
        self._flights = flights
        self.grace_s = grace_s
        self.pid = os.getpid()
        self._stopping = False

    def drive(
        self, batch: PendingBatch, index: int, timeout_s: float | None
    ) -> tuple[PendingBatch, int] | None:
        """See ``Driver``. ForkedStoreError in a forked child."""
        return self._drive(batch, index, timeout_s)

    def _fly(
        self, batches: Sequence[PendingBatch], timeout_s: float | None, now_s: float | None = None
    ) -> None:
        """Encode, produce and land batches that were taken; those of one queue stand together. ``now_s``: the
        time if it has just been asked."""
        self._fly_in_steps(batches, timeout_s, now_s)
