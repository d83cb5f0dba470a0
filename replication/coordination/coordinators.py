"""``ReplicatedCoordinators``: the coordinators of groups and transactions, each on a replicated internal topic.

Both run on one node: the one that leads ``__consumer_offsets``-0. Where another leads ``__transaction_state``-0 the
controller gives that node's place to it, and calls meanwhile say ``LeaderNotReadyError``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.coordination.store_view import StoreView
from logstore.directory.catalogue import Catalogue, TopicEntry
from logstore.embedded.groups import OFFSETS_CONFIG, OFFSETS_TOPIC
from logstore.errors import TopicExistsError
from logstore.machine import StateMachine
from replication.coordination.led_partition import LedPartition
from replication.coordination.replicated_log import ReplicatedCoordinatorLog

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
    """``Coordinators``. Thread-safe. ``partition``: of a topic that there is, its only one; ``catch_up``: has this node
    know what the controller knows."""

    def __init__(
        self,
        store: StoreView,
        topics: InternalTopics,
        partition: Callable[[str], LedPartition],
        catch_up: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._partition = partition
        self._catch_up = catch_up
        self._guard = threading.Lock()
        self._logs: dict[str, ReplicatedCoordinatorLog] = {}
        self._retired = False

    def retire(self) -> None:
        """This node is about to stop: it runs no coordinator from now on, and says so."""
        self._retired = True

    def existing(self, topic: str, make: Callable[[], Machine]) -> CoordinatorRuntime[Machine] | None:
        if topic not in self._topics.catalogue.topics:
            return None
        return CoordinatorRuntime(self._store, self._log(topic), make)

    def needed(
        self, topic: str, config: Mapping[str, str], make: Callable[[], Machine]
    ) -> CoordinatorRuntime[Machine]:
        if topic != OFFSETS_TOPIC:
            self._make_sure(OFFSETS_TOPIC, OFFSETS_CONFIG)  # its leader runs this coordinator, too
        self._make_sure(topic, config)
        return CoordinatorRuntime(self._store, self._log(topic), make)

    def _make_sure(self, topic: str, config: Mapping[str, str]) -> None:
        if topic in self._topics.catalogue.topics:
            return
        try:
            self._topics.create(topic, 1, {**config, **_COMPACT}, internal=True)
        except TopicExistsError:
            self._catch_up()  # another node was first, and this one is about to know

    def _log(self, topic: str) -> ReplicatedCoordinatorLog:
        """One for each topic, so that all runtimes on it take turns."""
        with self._guard:
            found = self._logs.get(topic)
            if found is None:
                anchor = None if topic == OFFSETS_TOPIC else self._anchor
                found = self._logs[topic] = ReplicatedCoordinatorLog(
                    self._partition(topic), anchor, lambda: self._retired
                )
            return found

    def _anchor(self) -> LedPartition | None:
        return self._partition(OFFSETS_TOPIC) if OFFSETS_TOPIC in self._topics.catalogue.topics else None

    def may_look_for_expired(self) -> bool:
        """Whether this node runs the coordinator of groups."""
        anchor = self._anchor()
        return anchor is not None and anchor.is_leader
