"""What the quick path of ``send`` touches of a batch, a partition's queue and a topic's route; and the lock on them.

The base classes of ``PendingBatch``, ``PartitionQueue`` and ``TopicRoute``: compiled, their fields are read and written
without a step of Python. ``SendPath`` (``send_path.py``) is what does so, with the accumulator's lock held.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from logstore.native import compiled

if TYPE_CHECKING:
    from logstore.client.partitioner import KeyPartitioner
    from logstore.client.producer.pending import PartitionQueue, PendingBatch


@compiled("sending")
class OpenBatch:
    """``rows``, ``size`` and ``room`` are guarded by the accumulator's lock. ``room``: up to this size the quick path
    adds rows, which reckons ``RECORD_OVERHEAD`` a row. ``done`` is written once, with that lock held, after every other
    field of the outcome, and read without it; ``parts``: a refused batch cut in two."""

    __slots__ = ("done", "parts", "room", "rows", "size")

    def __init__(self, size: int) -> None:
        self.rows: list[Any] = []
        self.size = size
        self.room = 0
        self.done = False
        self.parts: tuple[PendingBatch, PendingBatch] | None = None


@compiled("sending")
class OpenQueue:
    """``open``: the batch that takes rows, guarded by the accumulator's lock."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: PendingBatch | None = None


@compiled("sending")
class QuickRoute:
    """``queues``, by partition, and ``sticky``, where null keys go, are guarded by the accumulator's lock; the rest
    never changes. ``compacts``: a key is due."""

    __slots__ = ("choose", "compacts", "murmur3", "queues", "sticky")

    def __init__(self, compacts: bool, murmur3: bool, choose: KeyPartitioner) -> None:
        self.compacts = compacts
        self.murmur3 = murmur3
        self.choose = choose
        self.queues: list[PartitionQueue] = []
        self.sticky: PartitionQueue


@compiled("sending")
def send_lock() -> threading.Lock:
    """The accumulator's lock. The compiled twin's is one that compiled code takes without a step of Python."""
    return threading.Lock()
