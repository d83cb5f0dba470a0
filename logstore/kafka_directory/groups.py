"""Committed offsets in a Kafka broker's directory: its partitions of `__consumer_offsets`, replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from logstore.groups.offsets import OffsetStore
from logstore.kafka_directory.directory import BrokerDirectory
from logstore.log.log_offsets import LogOffsets
from logstore.types import Record


class ReadPartition(Protocol):
    """What is read of a partition (``PartitionLog``)."""

    def bounds(self) -> LogOffsets: ...
    def records(self, start: int, end_exclusive: int | None = None) -> Iterator[Record]: ...


class BrokerGroups:
    """Thread-safe. A group's offsets are in one partition, which the broker that coordinates it leads: groups
    of other brokers are not seen, or as of when this one last followed."""

    def __init__(
        self, broker: BrokerDirectory, topic: str, partition: Callable[[str, int], ReadPartition]
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._partition = partition
        self._lock = threading.Lock()
        self._machine = OffsetStore()
        self._applied: dict[int, int] = {}

    def newest(self) -> OffsetStore:
        """All that is committed now; what was replayed before is not read again. Errors of reading, and
        UnsupportedStoreVersionError for a record of a later version."""
        with self._lock:
            bounds = {
                number: self._partition(self._topic, number).bounds()
                for number in self._broker.partitions(self._topic)
            }
            if any(
                end > bounds[number].last_stable_offset
                for number, end in self._applied.items()
                if number in bounds
            ):
                self._machine, self._applied = OffsetStore(), {}  # cut by a new leader: all of it again
            for number, seen in bounds.items():
                start = max(self._applied.get(number, 0), seen.log_start_offset)
                end = seen.last_stable_offset
                for record in self._partition(self._topic, number).records(start, end):
                    self._machine.replay(record.key, record.value)
                self._applied[number] = end
            return self._machine
