"""``ClusterReplication``: what a node of a cluster puts into the store that it opens, its backend among it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from logstore.embedded.backend import EmbeddedBackend
from logstore.partition.context import StoreContext
from logstore.partition.partition_log import PartitionLog
from logstore.partition.store_replication import StoreReplication
from logstore.partition.topic_registry import TopicRegistry
from logstore.upkeep.cleaning_manager import CleaningManager


class ClusterReplication(StoreReplication, Protocol):
    def backend(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        partition: Callable[[str, int], PartitionLog],
        cleaning: CleaningManager,
    ) -> EmbeddedBackend:
        """The store's backend, with the cluster's coordinators. Nothing of it runs yet."""
        ...
