"""A coordinator's state in a Kafka broker's directory: all partitions of its topic that are here, replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from logstore.kafka_directory.directory import BrokerDirectory
from logstore.log.log_offsets import LogOffsets
from logstore.types import Record


class ReadPartition(Protocol):
    """What is read of a partition (``PartitionLog``)."""

    def bounds(self) -> LogOffsets: ...
    def records(self, start: int, end_exclusive: int | None = None) -> Iterator[Record]: ...


class Replayed(Protocol):
    """What records build (``LiveGroups``, ``TransactionCoordinator``)."""

    def replay(self, key: bytes | None, value: bytes | None) -> None: ...


Machine = TypeVar("Machine", bound=Replayed)


class BrokerMachine(Generic[Machine]):
    """Thread-safe. A group, or a transactional id, is in one partition of ``topic``, which the broker that
    coordinates it leads: those of other brokers are not seen, or as of when this one last followed. ``make``: the
    state before any record."""

    def __init__(
        self,
        broker: BrokerDirectory,
        topic: str,
        partition: Callable[[str, int], ReadPartition],
        make: Callable[[], Machine],
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._partition = partition
        self._lock = threading.Lock()
        self._make = make
        self._machine = make()
        self._applied: dict[int, int] = {}

    def newest(self) -> Machine:
        """All that is there now; what was replayed before is not read again. Errors of reading, and
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
                self._machine, self._applied = self._make(), {}  # cut by a new leader: all of it again
            for number, seen in bounds.items():
                start = max(self._applied.get(number, 0), seen.log_start_offset)
                end = seen.last_stable_offset
                for record in self._partition(self._topic, number).records(start, end):
                    self._machine.replay(record.key, record.value)
                self._applied[number] = end
            return self._machine
