"""``MetadataLog``: the log of the cluster's metadata, of whose front a snapshot of the state is left."""

from __future__ import annotations

from typing import Protocol

from logstore.seams.clock import Clock
from replication.coordination.led_partition import LedPartition
from replication.coordination.replicated_log import ReplicatedCoordinatorLog
from replication.replicas.state_snapshots import KeptState


class MetadataPartition(LedPartition, Protocol):
    """Of the metadata group (``ReplicatedPartition``)."""

    def state_before(self, applied: int) -> KeptState | None:
        """What stands for records from ``applied`` on that the log has no more; None: it has them."""
        ...


class MetadataLog(ReplicatedCoordinatorLog):
    """As its base, and ``KeepsState``."""

    def __init__(self, partition: MetadataPartition, clock: Clock) -> None:
        super().__init__(partition, clock)
        self._states = partition

    def state_before(self, applied: int) -> KeptState | None:
        return self._states.state_before(applied)
