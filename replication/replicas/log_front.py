"""``LogFront``: where one replica's log begins: looked at, and raised as its leader's was."""

from __future__ import annotations

from collections.abc import Callable

from logstore.log.replica_log import ReplicaLog


class LogFront:
    """``save_state``: have the log's bounds durable in the partition's state; ``by_snapshots``: the front goes once a
    snapshot of the log's state stands for it, whatever the leader's does. With the replica's lock held."""

    def __init__(self, log: ReplicaLog, save_state: Callable[[], None], *, by_snapshots: bool) -> None:
        self._log = log
        self._save_state = save_state
        self._by_snapshots = by_snapshots

    def look(self) -> int:
        """Errors as ``SyncedLog.sync`` where the log takes nothing more, as ``SyncedLog.read`` where its first batch
        cannot be read."""
        if self._log.poisoned:
            self._log.sync()  # which says why
        return self._log.first_batch()

    def follow(self, leaders_start: int) -> None:
        """Records that the leader's administrator deleted go here, too, as far as they are committed here. Errors as
        ``save_state``."""
        if not self._by_snapshots and self._log.raise_start(leaders_start):
            self._save_state()
            self._log.publish()
