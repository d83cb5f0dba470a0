"""What the parts of one opened store share: the seams, the pool, the boards, the two threads' owners."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from logstore.directory.reserve import Reserve
from logstore.errors import ForkedStoreError, LogStoreError, ReadOnlyStoreError, StoreClosedError
from logstore.kafka_directory.directory import BrokerDirectory
from logstore.log.owned_log import OwnedLog
from logstore.log.recovery.recovery import RecoveredPartition
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.tail_cache import TailBudget
from logstore.native import compiled
from logstore.ownership.heartbeats import HeartbeatBoard
from logstore.ownership.live import LiveBoard
from logstore.ownership.lock import Locks
from logstore.ownership.wait_limit import WaitLimit
from logstore.partition.committer import Committer
from logstore.partition.data_waiters import LiveWatch
from logstore.partition.leadership import Leadership
from logstore.partition.partition import Partition
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class StoreContext:
    """``recovery_threads``: how many partitions are recovered at a time (their syncs share journal commits);
    ``longest_lock_wait_s``: for a lock of another process, as the store was opened;
    ``commit``: make logs durable up to their ends, sharing syncs;
    ``note_dirty``: a log has unsynced records from now on; ``longest_dirty``: up to so many that have;
    ``note_owned``: some topic was taken (the housekeeper has work); ``reserve``: room for what frees more of it on a
    full disk."""

    root: str
    fs: FileSystem
    clock: Clock
    locks: Locks
    live: LiveBoard
    pool: FilePool
    tails: TailBudget
    read_only: bool
    longest_lock_wait_s: float
    recovery_threads: int
    committer: Committer
    note_dirty: Callable[[OwnedLog], None]
    longest_dirty: Callable[[int], list[OwnedLog]]
    note_owned: Callable[[], None]
    reserve: Reserve
    make_partition: Callable[[Any, int], Partition] | None = None  # of a topic; None: ``LocalPartition``
    leadership: Leadership | None = None  # of a cluster's node
    broker: BrokerDirectory | None = None  # set when the root is a Kafka broker's directory
    threads: bool = True  # whether background work has threads of its own
    heartbeats: HeartbeatBoard | None = None  # of group members; None: a file, or memory, as the locks are
    offsets_retention_s: float = 7 * 86_400.0  # of groups without members; Kafka's offsets.retention.minutes
    prepared_max_age_s: float = 86_400.0  # that a prepared transaction waits for its coordinator
    random_bytes: Callable[[int], bytes] = os.urandom  # of ids of topics and members
    recovered: list[RecoveredPartition] = field(default_factory=list)
    closed: bool = False
    forked: bool = False
    commit: Callable[[list[tuple[OwnedLog, int]]], None] = field(init=False)
    wait_limit: WaitLimit = field(init=False)
    watch: LiveWatch = field(init=False)  # of what other processes write, for those that wait by callback

    def __post_init__(self) -> None:
        self.commit = self.committer.commit
        self.wait_limit = WaitLimit(self.clock)
        self.watch = LiveWatch(lambda: self.live, enabled=self.threads)

    def make_room(self) -> None:
        """Unsynced logs keep their files open. Where those take most places of the pool, sync half of them side by
        side: a log each time, by the append that finds the pool so, would let no two syncs share anything."""
        if not self.pool.crowded:
            return
        logs = self.longest_dirty(self.pool.capacity // 2)
        try:
            self.commit([(log, log.log_end_offset) for log in logs])
        except LogStoreError as error:  # its log is poisoned, and tells its own writers
            logger.warning("a log could not be synced to make room for open files: %s", error)

    @property
    def replicated(self) -> bool:
        """Whether partitions are a cluster's, and internal topics this process's like all."""
        return self.leadership is not None

    @property
    def lock_timeout_s(self) -> float:
        """How long this thread may wait for a lock of another process that it asks for now."""
        return self.wait_limit.left_s(self.longest_lock_wait_s)

    def check_usable(self) -> None:
        if self.forked:
            raise ForkedStoreError(f"the store at {self.root} was opened before os.fork()")
        if self.closed:
            raise StoreClosedError(f"the store at {self.root} is closed")

    def check_writable(self) -> None:
        if not (self.forked or self.closed or self.read_only):
            self.locks.check()
            return
        self.check_usable()
        if self.read_only:
            raise ReadOnlyStoreError(f"the store at {self.root} was opened read-only")

    def note_taken(self, topic: str, clean: bool) -> None:
        """The topic is owned from now on. ``clean``: nothing is to be recovered."""
        how = (
            "its former owner gave it up in order"
            if clean
            else "its former owner did not give it up in order"
        )
        logger.info("topic %s is taken over: %s", topic, how)

    def note_recovered(self, report: RecoveredPartition) -> None:
        """A partition that was not closed in order was recovered."""
        self.recovered.append(report)
        logger.log(
            logging.WARNING if report.cut_bytes else logging.INFO,
            "recovered %s-%d up to offset %d: %d bytes scanned, %d cut%s",
            report.topic,
            report.partition,
            report.end_offset,
            report.scanned_bytes,
            report.cut_bytes,
            f" ({report.cut_reason})" if report.cut_reason else "",
        )

    def show(self, slot: int, log: OwnedLog) -> None:
        """Publish what a log has now, for readers in other processes and for its next owner. LockLostError where
        the slot may be another process's."""
        self.locks.check()
        self.live.publish(slot, *log.shown())

    def partition_directory(self, topic: str, partition: int) -> str:
        if self.broker is not None:
            return self.broker.folder(topic, partition)
        return f"{self.root}/{topic}-{partition}"


@compiled("partition.live")
class SlotPublisher:
    """Publishes a log's state in its slot of ``.live``."""

    def __init__(self, context: StoreContext, slot: int) -> None:
        self._context = context
        self._slot = slot

    def __call__(self, log: OwnedLog) -> None:
        self._context.show(self._slot, log)
