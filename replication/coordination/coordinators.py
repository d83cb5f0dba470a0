"""``ReplicatedCoordinators``: coordinators of groups and transactions, one on each partition of two internal topics.

Which one has a group or a transactional id follows from its name (``key_partition.py``) and the number of partitions,
which is fixed when the topic is made. A coordinator runs where its partition is led; other nodes say who that is.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.coordination.store_view import StoreView
from logstore.directory.catalogue import Catalogue, TopicEntry
from logstore.errors import LogStoreError, TopicExistsError
from logstore.machine import StateMachine
from logstore.types import TopicPartition
from replication.coordination.key_partition import partition_of
from replication.coordination.led_partition import LedPartition
from replication.coordination.replicated_log import ReplicatedCoordinatorLog
from replication.errors import LeaderNotReadyError

Machine = TypeVar("Machine", bound=StateMachine)
_COMPACT: Final = {"cleanup.policy": "compact"}
"""What coordinators write is state by key, whatever the settings of a directory of its own leave unsaid."""


class InternalTopics(Protocol):
    """The topics of this node's store (``TopicRegistry``)."""

    @property
    def catalogue(self) -> Catalogue: ...

    def create(
        self, name: str, partitions: int, config: Mapping[str, str], *, internal: bool = False
    ) -> TopicEntry: ...


class ReplicatedCoordinators:
    """Thread-safe. ``partition``: one of a topic that there is; ``catch_up``: has this node know what the controller
    knows; ``partitions``: of a coordinators' topic that is made here."""

    def __init__(
        self,
        store: StoreView,
        topics: InternalTopics,
        partition: Callable[[TopicPartition], LedPartition],
        catch_up: Callable[[], None],
        partitions: int,
    ) -> None:
        self._store = store
        self._topics = topics
        self._partition = partition
        self._catch_up = catch_up
        self._partitions = partitions
        self._guard = threading.Lock()
        self._logs: dict[TopicPartition, ReplicatedCoordinatorLog] = {}
        self._runtimes: weakref.WeakValueDictionary[int, CoordinatorRuntime[Any]] = (
            weakref.WeakValueDictionary()
        )
        self._made = itertools.count()
        self._retired = False

    def retire(self) -> None:
        """This node is about to stop: it runs no coordinator from now on, and says so."""
        self._retired = True

    # --- which there are ---

    def count(self, topic: str) -> int:
        """How many partitions the topic has, as far as this node knows; 0: it is not there."""
        entry = self._topics.catalogue.topics.get(topic)
        return 0 if entry is None else entry.partitions

    def known(self, topic: str) -> int:
        """As ``count``, but 0 only once this node knows what the controller knows."""
        found = self.count(topic)
        if not found:
            self._catch_up()
            found = self.count(topic)
        return found

    def made(self, topic: str, config: Mapping[str, str]) -> int:
        """As ``count``, of a topic that is made if it is not there. Errors of ``InternalTopics.create``."""
        found = self.count(topic)
        if not found:
            try:
                self._topics.create(topic, self._partitions, {**config, **_COMPACT}, internal=True)
            except TopicExistsError:
                self._catch_up()  # another node was first, and this one is about to know
            found = self.count(topic)
        if not found:
            raise LeaderNotReadyError(f"topic {topic!r} was just made, and this node does not know it yet")
        return found

    def place(self, topic: str, key: str, config: Mapping[str, str]) -> TopicPartition:
        """The partition whose leader coordinates ``key``; the topic is made if it is not there."""
        return TopicPartition(topic, partition_of(key, self.made(topic, config)))

    def leads(self, place: TopicPartition) -> bool:
        """Whether this node runs the coordinator, of a topic that there is."""
        return not self._retired and self._partition(place).is_leader

    def of(self, number: int) -> PartitionCoordinators:
        """Those on the partition of that number."""
        return PartitionCoordinators(self, number)

    def runtime(self, place: TopicPartition, make: Callable[[], Machine]) -> CoordinatorRuntime[Machine]:
        found = CoordinatorRuntime(self._store, self._log(place), make)
        self._runtimes[next(self._made)] = found
        return found

    def _log(self, place: TopicPartition) -> ReplicatedCoordinatorLog:
        """One for each partition, so that all runtimes on it take turns."""
        with self._guard:
            found = self._logs.get(place)
            if found is None:
                found = self._logs[place] = ReplicatedCoordinatorLog(
                    self._partition(place), self._store.clock, lambda: self._retired
                )
            return found

    # --- loading ---

    def load_some(self) -> bool:
        """What this node runs replays a piece more of its log, what it runs no more is forgotten; True: nothing is
        left to be replayed."""
        done = True
        for runtime in list(self._runtimes.values()):
            if runtime.lost() is not None:
                runtime.unload()
                continue
            try:
                done = runtime.follow_some() and done
            except LogStoreError:
                continue  # its leader is not ready yet, or another one by now: whoever asks for it is told
        return done


class PartitionCoordinators:
    """``Coordinators`` on one partition of each topic."""

    def __init__(self, coordinators: ReplicatedCoordinators, number: int) -> None:
        self._coordinators = coordinators
        self._number = number

    def existing(self, topic: str, make: Callable[[], Machine]) -> CoordinatorRuntime[Machine] | None:
        if not self._coordinators.count(topic):
            return None
        return self._coordinators.runtime(TopicPartition(topic, self._number), make)

    def needed(
        self, topic: str, config: Mapping[str, str], make: Callable[[], Machine]
    ) -> CoordinatorRuntime[Machine]:
        self._coordinators.made(topic, config)
        return self._coordinators.runtime(TopicPartition(topic, self._number), make)
