"""``ReadOnlyLogs``: the logs by which a process reads partitions of a topic that it does not own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from logstore.directory import topic_state
from logstore.directory.catalogue import TopicEntry
from logstore.directory.partition_folder import folder_is_anothers
from logstore.directory.topic_state import PartitionState, TopicState
from logstore.log.read_only_log import ReadOnlyLog
from logstore.partition.broker_logs import broker_log
from logstore.partition.context import StoreContext


class ReadOnlyLogs:
    """Thread-safe. ``entry``: the topic's newest one that is known."""

    def __init__(self, context: StoreContext, entry: Callable[[], TopicEntry]) -> None:
        self._context = context
        self._entry = entry
        self._lock = threading.Lock()
        self._logs: dict[int, ReadOnlyLog] = {}

    def log(self, partition: int) -> ReadOnlyLog:
        with self._lock:
            log = self._logs.get(partition)
            if log is None:
                log = self._logs[partition] = self._opened(partition)
            return log

    def _opened(self, partition: int) -> ReadOnlyLog:
        context, entry = self._context, self._entry()
        directory = context.partition_directory(entry.name, partition)
        return broker_log(context, entry.name, partition) or ReadOnlyLog(
            where=f"{entry.name}-{partition}",
            directory=directory,
            pool=context.pool,
            live=context.live,
            live_slot=entry.live_slot(partition),
            state=lambda: self._row_of(partition),
            is_anothers=lambda: folder_is_anothers(context.fs, directory, entry.topic_id),
        )

    def _row_of(self, partition: int) -> PartitionState | None:
        state = self.state()
        return None if state is None else state.partitions.get(partition)

    def state(self) -> TopicState | None:
        """What the topic's owner last made durable; None: nothing yet, or of another topic of the name."""
        context, entry = self._context, self._entry()
        state = topic_state.load(context.fs, context.root, entry.name)
        return None if state is None or state.topic_id != entry.topic_id else state

    def clear(self) -> None:
        with self._lock:
            self._logs.clear()
