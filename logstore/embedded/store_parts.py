"""``StoreParts``: what an open store consists of, apart from the ``LogStore`` that its caller holds.

Background threads hold the parts and never the ``LogStore``, so that a store which its caller drops is collected:
that is reported (a log line and a ``ResourceWarning``), and the parts are closed.
"""

from __future__ import annotations

import _thread
import logging
import threading
import warnings
import weakref

from logstore import arguments
from logstore.embedded.backend import EmbeddedBackend
from logstore.embedded.cluster_replication import ClusterReplication
from logstore.errors import LogStoreError
from logstore.partition.context import StoreContext
from logstore.partition.log_access import LogAccess
from logstore.partition.partition_log import PartitionLog
from logstore.partition.topic_registry import TopicRegistry
from logstore.upkeep.cleaning_manager import CleaningManager
from logstore.upkeep.housekeeper import Housekeeper
from logstore.upkeep.maintenance import Maintenance
from logstore.upkeep.retention_task import RetentionTask

logger = logging.getLogger(__name__)


class StoreParts:
    """Filled by the ``LogStore`` that opens; ``lock`` is held by the one thread that closes."""

    context: StoreContext
    registry: TopicRegistry
    retention: RetentionTask
    cleaning: CleaningManager
    backend: EmbeddedBackend
    maintenance: Maintenance
    housekeeper: Housekeeper

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def make_backend(self, replication: ClusterReplication | None) -> EmbeddedBackend:
        """Once all but the backend is there. ``replication``: of a cluster's node."""
        make = EmbeddedBackend if replication is None else replication.backend
        self.backend = make(self.context, self.registry, self.partition, self.cleaning)
        return self.backend

    def partition(self, topic: str, partition: int, store: object = None) -> PartitionLog:
        """One partition; ``store`` lives as long as what is returned. ``UnknownTopicError``,
        ``UnknownPartitionError``."""
        self.context.check_usable()
        held = self.registry.get(topic)
        if type(partition) is not int:
            partition = arguments.whole(partition, "partition", high=2**31 - 1)
        if partition >= held.entry.partitions:
            self.registry.look_for_changes()  # another process may have added partitions to what we own
        held.entry.live_slot(partition)
        return PartitionLog(LogAccess(self.context, store), held.partition(partition))

    def close(self, *, maintain: bool) -> list[LogStoreError]:
        """Release every topic and end the threads; ``lock`` is held and clients are closed. The failures."""
        context, failures = self.context, []
        self.housekeeper.close()
        if maintain:
            self.maintenance.before_close(self.cleaning.cleaner)
        context.closed = True  # from here on no new append gets in; those under way are waited for
        context.committer.close()
        context.watch.close()
        for closing in (self.backend.close, self.registry.close):
            try:
                closing()
            except LogStoreError as error:
                failures.append(error)
        context.pool.close()
        context.live.close()
        context.locks.close()
        return failures

    def close_dropped(self) -> None:
        """As ``close``, by a thread of its own and without a caller to tell."""
        with self.lock:
            failures = [] if self.context.closed else self.close(maintain=False)
        for failure in failures:
            logger.error("closing the dropped store at %s failed: %s", self.context.root, failure)


def watch(store: object, parts: StoreParts, *, warn: bool) -> None:
    """From now on it is noticed that the store is dropped. ``warn``: it holds what others wait for, or would miss."""
    dropped = weakref.finalize(store, _note_dropped, parts, warn)
    dropped.atexit = False  # the end of the process frees all of it


def _note_dropped(parts: StoreParts, warn: bool) -> None:
    """A store was collected. Takes no lock, not even those of ``threading``: a collection may run anywhere."""
    if parts.context.closed or parts.context.forked:
        return
    _thread.start_new_thread(parts.close_dropped, ())
    if warn:
        text = f"the store at {parts.context.root} was dropped without close(): it is closed late"
        logger.warning(text)
        warnings.warn(text, ResourceWarning, stacklevel=2)
