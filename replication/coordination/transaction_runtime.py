"""``ClusterTransactionRuntime``: what transactions stand on at the node that runs their coordinator."""

from __future__ import annotations

from collections.abc import Callable

from logstore.config import parse_topic_config
from logstore.directory.catalogue import Catalogue, TopicEntry
from logstore.errors import UnknownPartitionError, UnknownTopicError
from logstore.types import TopicPartition
from replication.coordination.id_locks import NodeIdLock, NodeIdLocks
from replication.coordination.routed_partition import RoutedPartition, Router


class ClusterTransactionRuntime:
    """A ``TransactionRuntime``. Thread-safe. ``catalogue``: as this node knows it now; ``catch_up``: has it know what
    the controller knows: only then is a topic that it does not have really gone."""

    def __init__(
        self,
        catalogue: Callable[[], Catalogue],
        catch_up: Callable[[], None],
        router: Router,
        locks: NodeIdLocks,
        take_producer_id: Callable[[], int],
        note_opened: Callable[[], None],
    ) -> None:
        self._catalogue = catalogue
        self._router = router
        self._locks = locks
        self.look_for_changes = catch_up
        self.take_producer_id = take_producer_id
        self.note_opened = note_opened

    def id_lock(self, transactional_id: str) -> NodeIdLock:
        return self._locks.of(transactional_id)

    def partition(self, topic: str, partition: int) -> RoutedPartition:
        try:
            entry = self._entry(topic, partition)
        except (UnknownTopicError, UnknownPartitionError):
            self.look_for_changes()
            entry = self._entry(topic, partition)
        place = TopicPartition(topic, partition)
        return RoutedPartition(self._router, place, entry.topic_id, parse_topic_config(entry.config))

    def _entry(self, topic: str, partition: int) -> TopicEntry:
        entry = self._catalogue().topic(topic)
        entry.live_slot(partition)
        return entry

    def holder_of(self, topic: str) -> str:
        return f"a leader of topic {topic!r}"
