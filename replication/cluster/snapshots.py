"""``MetadataSnapshots``: when this node takes a snapshot of its metadata, and cuts its log.

Each node does so for itself, of what is committed there: the newest snapshot is sent to nodes that lack what the log
has no more (``replicas/state_snapshots.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from logstore.errors import LogStoreError
from logstore.seams.clock import Clock
from replication.cluster.follower import MetadataFollower
from replication.cluster.image import ClusterImage
from replication.replicas.replica import Replica
from replication.replicas.standalone_log import StandaloneLog
from replication.replicas.state_snapshots import SnapshotId, encode_state

logger = logging.getLogger(__name__)

LEAST_BYTES: Final = 1 << 20
"""Of the log behind a snapshot before the next one is taken; at least as many as that one has."""


class MetadataSnapshots:
    """``look``: of one thread. ``replica``: this node's of the metadata, whose log ``files`` are."""

    def __init__(
        self,
        follower: MetadataFollower,
        replica: Callable[[], Replica | None],
        files: StandaloneLog,
        clock: Clock,
        *,
        least_bytes: int = LEAST_BYTES,
    ) -> None:
        self._follower = follower
        self._replica = replica
        self._files = files
        self._clock = clock
        self._least_bytes = least_bytes
        self._last_bytes = 0  # of the last snapshot that was taken
        self._logged_then = 0  # bytes of the log that lie before its end, in segments that are still there

    def follow(self, image: ClusterImage) -> None:
        """Of every newer image."""
        del image
        self.look()

    def look(self) -> bool:
        """Take a snapshot if one is due; whether one was taken. What fails is logged, and tried again by a later
        call."""
        replica, states = self._replica(), self._files.states
        if replica is None or states is None or replica.failure is not None:
            return False
        is_lacking = states.newest is None and self._files.log.log_start_offset > 0
        if not is_lacking and self._bytes_since() < max(self._least_bytes, self._last_bytes):
            return False
        try:
            return self._take(replica)
        except LogStoreError as error:
            logger.error("%s: no snapshot of the metadata could be taken: %s", replica.where, error)
            return False

    def _take(self, replica: Replica) -> bool:
        log, states = self._files.log, self._files.states
        end, changes = self._follower.state()
        if (
            states is None
            or end <= log.log_start_offset
            or (states.newest and states.newest.end_offset >= end)
        ):
            return False
        snapshot = SnapshotId(end, log.term_at(end - 1))
        data = encode_state(changes, snapshot.term, self._clock.wall_ms())
        logged = self._log_bytes()
        states.save(snapshot, data)
        with replica.lock:
            before = self._log_bytes()
            self._files.cut_front()
            self._logged_then = max(logged - (before - self._log_bytes()), 0)
        self._last_bytes = len(data)
        logger.info("%s: a snapshot of all before offset %d: %d bytes", replica.where, end, len(data))
        return True

    def _log_bytes(self) -> int:
        return sum(segment.size for segment in self._files.log.segments.segments)

    def _bytes_since(self) -> int:
        return self._log_bytes() - self._logged_then
