"""A partition's log without its appends: its three positions (``commit_policy``), sync, checkpoints and reads.

A sync runs beside appends (``_sync_lock`` lets one run at a time) and moves ``flushed_offset``; the high watermark
moves in ``advance_high_watermark`` alone. After a failed sync the log is poisoned: it accepts nothing more until it
has been reopened and recovered, while reads below the high watermark go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from logstore.config import TopicConfig
from logstore.errors import (
    LogStoreError,
    OutcomeUnknownError,
    PartitionPoisonedError,
    StorageError,
    UnknownTopicError,
    from_os_error,
)
from logstore.format.batch import first_offset
from logstore.log.append_path import AppendPath
from logstore.log.commit_policy import ChoosePolicy, CommitPolicy, by_visibility
from logstore.log.epochs import Epochs
from logstore.log.log_offsets import Waiter
from logstore.log.producers.producer_journal import Pending, ProducerJournal
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.recovery.recovery import Loaded
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.held_file import HeldFile
from logstore.log.segments.read_path import ReadPath
from logstore.log.segments.segment import Chunk, LentIndex, Segment
from logstore.log.segments.segment_list import Back, SegmentList
from logstore.log.segments.tail_cache import TailCache
from logstore.seams.clock import Clock
from logstore.seams.fs import File
from logstore.types import Buffer

_FEW_BYTES: Final = 1 << 20
_FEW_SHARE: Final = 64  # of a segment's
"""Of producers' batches since their last snapshot, for which a checkpoint leaves no other one."""


class BegunSync(NamedTuple):
    """A sync under way. ``target``: the log's end when it began; ``file``: the segment's, lent; None: not held."""

    target: int
    segment: Segment
    file: File | None


class BegunCheckpoint(NamedTuple):
    """A checkpoint under way, all before ``target`` being durable. ``indexes``: its segment's files to be synced;
    ``cuts``: of the log when it began."""

    target: int
    segment: Segment
    indexes: tuple[LentIndex, ...]
    cuts: int


class SyncedLog(AppendPath):
    """``where``: "topic-partition", for messages. ``before_roll`` makes the recovery point durable: it is called,
    under the log's lock, after a segment was synced and before the next one exists, and before a truncation.
    ``commits``: the commit policy under the topic's settings."""

    gapless = True  # our compaction leaves batches without records where others went

    def __init__(
        self,
        *,
        where: str,
        directory: str,
        pool: FilePool,
        config: TopicConfig,
        clock: Clock,
        loaded: Loaded,
        tail: TailCache,
        publish: Callable[[Any], None],
        before_roll: Callable[[Any], None],
        on_dirty: Callable[[Any], None],
        on_poison: Callable[[Any], None],
        roll_jitter_ms: int = 0,
        commits: ChoosePolicy = by_visibility,
    ) -> None:
        super().__init__()
        self.where = where
        self.directory = directory
        self._commits = commits
        self._pool = pool
        self._clock = clock
        self._publish = publish
        self._before_roll = before_roll
        self._on_dirty = on_dirty
        self._on_poison = on_poison
        self._roll_jitter_ms = roll_jitter_ms
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._waiters: dict[Waiter, None] = {}
        self._installing = loaded.installing
        self._cuts = 0  # how often records went: what was begun before that counts no more
        self._held = HeldFile(pool)
        self.segments: SegmentList = loaded.segments
        self.epochs = loaded.epochs
        self.log_end_offset = loaded.log_end_offset
        self.flushed_offset = loaded.log_end_offset
        self.recovery_point = loaded.log_end_offset
        self.high_watermark = loaded.high_watermark
        self.log_start_offset = loaded.log_start_offset
        self.cleaner_point = 0  # compaction has been through all before it; kept in the topic's state
        self.tail = tail
        self._reads = ReadPath(where, tail, lambda: self.segments, self._lock)
        self.look = self._reads.look  # at the list of segments: see there
        self.producers = ProducerJournal(
            pool, directory, where, loaded.producers, clock.wall_ms, loaded.high_watermark
        )
        if loaded.segments.active is not None:
            loaded.segments.active.active_since_s = clock.monotonic_s()
        self.configure(config)
        publish(self)

    def configure(self, config: TopicConfig) -> None:
        """Obey these settings from the next append on."""
        self.config = config
        self.commit_policy = self._commits(config)
        self.shows_appended = self.commit_policy is CommitPolicy.APPEND

    # --- what it is ---

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    @property
    def poisoned(self) -> bool:
        return self._failure is not None

    @property
    def end_position(self) -> tuple[int, int]:
        """(base offset of the active segment, valid bytes in it); (next offset, 0) while there is none."""
        active = self.segments.active
        return (active.base_offset, active.size) if active is not None else (self.log_end_offset, 0)

    def refresh(self) -> None:
        """The list of segments is this process's own, and current."""

    def epoch_table(self) -> Epochs:
        return self.epochs

    def publish(self) -> None:
        """Show other processes what this log has now."""
        with self._lock:
            self._publish(self)

    # --- sync (``AppendPath.sync``) ---

    def _sync_now(self) -> None:
        """``sync`` with its lock held."""
        begun = self.begin_sync()
        if begun is None:
            return
        try:
            if begun.file is None:
                begun.segment.sync()
            else:
                begun.file.sync()
        except OSError as error:
            raise self.failed_sync(begun, error) from error
        self.end_sync(begun)

    # Its parts, for one sync of many logs (``sync_round.py``).

    def syncing(self) -> threading.Lock:
        """Held from ``begin_sync`` until the sync has ended."""
        return self._sync_lock

    def begin_sync(self) -> BegunSync | None:
        """None: there is nothing to sync. Errors as ``sync``."""
        with self._lock:
            if self._failure is not None:
                self._check_durable()
            segment = self.segments.active
            if self.log_end_offset == self.flushed_offset or segment is None:
                return None
            return BegunSync(self.log_end_offset, segment, self._held.lend())

    def end_sync(self, begun: BegunSync) -> None:
        with self._lock:
            self._held.take_back()
            self._synced_up_to(begun.target)

    def failed_sync(self, begun: BegunSync, error: OSError) -> LogStoreError:
        """What ``sync`` raises."""
        failure = from_os_error(error, "sync", begun.segment.path())
        with self._lock:
            try:
                self._check_there()
            except UnknownTopicError as gone:
                return gone
            self._held.take_back()
            self._poison(failure)
        return OutcomeUnknownError(failure.message)

    def checkpoint(self) -> int:
        """Sync log and index rows, leave a producer snapshot and move the recovery point; returns it (not yet
        in the state file). Nothing is cut meanwhile: the snapshot would be of records that are gone."""
        with self._sync_lock:
            with self._lock:
                pending = self.producers.take(self.log_end_offset)
            self._sync_now()
            with self._lock:
                segment, target = self.segments.active, self.flushed_offset
                if segment is not None and target > self.recovery_point:
                    self._write_indexes(segment)
                self.recovery_point = max(self.recovery_point, target)
            self._store_producers(pending)
            return self.recovery_point

    def _write_indexes(self, segment: Segment) -> None:
        try:
            self._store_indexes(segment)
        except OSError as error:
            raise from_os_error(error, "write the indexes of", self.directory) from error

    # Its parts, for one checkpoint of many logs (``checkpoint_round.py``). No lock is held between them, so that the
    # log may be cut meanwhile: then nothing is said of what was begun.

    def begin_checkpoint(self) -> BegunCheckpoint | None:
        """Of what is synced: its index rows are in their files. None: nothing is to be made durable. Errors as
        ``checkpoint``."""
        with self._lock:
            if self._failure is not None:
                self._check_usable()
            segment, target = self.segments.active, self.flushed_offset
            if segment is None or target <= self.recovery_point:
                return None
            if segment.owes_aborted:
                # With what transactions need beside the rows; few segments owe that, so that each has its own sync.
                self._write_indexes(segment)
                return BegunCheckpoint(target, segment, (), self._cuts)
            try:
                segment.store_indexes()
                return BegunCheckpoint(target, segment, segment.begin_index_sync(), self._cuts)
            except OSError as error:
                raise from_os_error(error, "write the indexes of", self.directory) from error

    def end_checkpoint(self, begun: BegunCheckpoint) -> None:
        """The indexes are durable."""
        with self._lock:
            whole = begun.cuts == self._cuts
            begun.segment.end_index_sync(begun.indexes, synced=whole)
            if whole:
                self.recovery_point = max(self.recovery_point, begun.target)

    def drop_checkpoint(self, begun: BegunCheckpoint) -> None:
        """It was cut short: what it began is as if it had not been, and its files are given back."""
        with self._lock:
            begun.segment.end_index_sync(begun.indexes, synced=False)

    def failed_checkpoint(self, begun: BegunCheckpoint, error: OSError) -> LogStoreError:
        """What ``checkpoint`` raises."""
        with self._lock:
            begun.segment.end_index_sync(begun.indexes, synced=False)
            return self._failed_indexes(begun.segment, error)

    def checkpoint_producers(self) -> None:
        """Leave a snapshot of producers that did much since their last one, and sync what it tells of. Errors as
        ``checkpoint``."""
        few = min(self.config.segment_bytes // _FEW_SHARE, _FEW_BYTES)
        with self._lock:
            if self.producers.is_told(self.log_end_offset, few) and self.dirty:
                return
        with self._sync_lock:
            with self._lock:
                pending = self.producers.take(self.log_end_offset, few_bytes=few)
            if pending is None:
                return
            self._sync_now()
            with self._lock:
                active = self.segments.active
                if active is not None and active.owes_aborted:
                    self._write_indexes(active)
            self._store_producers(pending)

    def _store_producers(self, pending: Pending | None) -> None:
        """Last: whoever finds the snapshot believes the transaction index before it."""
        self.producers.store(pending, {segment.base_offset for segment in self.segments.segments})

    def expire_producers(self, now_ms: int) -> int:
        """Forget ids without an append for ``producer.id.expiration.ms``; how many. ``now_ms``: wall time, which the
        caller has reason to believe. The next checkpoint says it durably."""
        with self._lock:
            return self.producers.expire(now_ms, self.config.producer_expiration_ms)

    # --- commit ---

    def advance_high_watermark(self, offset: int) -> int:
        """What lies below ``offset`` is committed: let readers see it. Returns the high watermark, which never goes
        back, never passes the log's end, and lies between two batches: a batch that is committed in part is not.
        For whoever knows the commit index of a replicated partition. Raises ``OSError``, ``CorruptBatchError``."""
        with self._lock:
            target = min(offset, self.log_end_offset)
            if target > self.high_watermark:
                if target not in (self.log_end_offset, self.flushed_offset):
                    target = self._batch_start(target)
                self._advance_high_watermark(target)
                self._publish(self)
            return self.high_watermark

    def _batch_start(self, offset: int) -> int:
        """Base offset of the batch that holds ``offset``, which is below the log's end."""
        cached = self.tail.read(offset, 1, offset + 1)
        if cached is not None:
            return first_offset(cached[0])
        chunk = self.segments.read(offset, 1, offset + 1)
        return offset if chunk is None else min(first_offset(chunk.data), offset)

    def _poison(self, failure: LogStoreError) -> None:
        if self._failure is None:
            self._failure = failure
            self._on_poison(self)
        self.wake_waiters()

    def _cut_short(self, what: str, interrupt: BaseException) -> StorageError:
        return StorageError(f"{what} of {self.where} was cut short by {interrupt!r}")

    def _check_usable(self) -> None:
        if self._failure is not None:
            self._check_there()
            raise PartitionPoisonedError(f"{self.where} accepts nothing more: {self._failure.message}")

    def _check_there(self) -> None:
        """Of a deleted topic nothing is left to be in doubt about. Each caller gets an error of its own."""
        if isinstance(self._failure, UnknownTopicError):
            raise UnknownTopicError(self._failure.message, hint=self._failure.advice)

    def _check_durable(self) -> None:
        """Before a sync. What was appended and not synced before the failure may be in all the same."""
        self._check_there()
        if self._failure is not None and self.dirty:
            raise OutcomeUnknownError(
                f"{self.where}: records from offset {self.flushed_offset} on may not be durable: "
                f"{self._failure.message}"
            )
        self._check_usable()

    def _snapshot_producers(self) -> None:
        """At a roll: the next segment begins here, and so does what a later recovery has to read."""
        bases = {segment.base_offset for segment in self.segments.segments} | {self.log_end_offset}
        pending = self.producers.take(self.log_end_offset)
        self.producers.store(pending, bases)

    def _store_indexes(self, segment: Segment) -> None:
        """Index rows into their files, durably. A failed write may be tried again, a failed sync may not."""
        segment.store_indexes()
        try:
            segment.sync_indexes()
        except OSError as error:
            raise self._failed_indexes(segment, error) from error
        segment.count_aborted()

    def _failed_indexes(self, segment: Segment, error: OSError) -> LogStoreError:
        failure = from_os_error(error, "sync the indexes of", segment.path())
        self._poison(failure)
        return PartitionPoisonedError(f"{self.where} accepts nothing more: {failure.message}")

    def _sync_segment(self, segment: Segment) -> None:
        try:
            segment.sync()
        except OSError as error:
            failure = from_os_error(error, "sync", segment.path())
            self._poison(failure)
            raise OutcomeUnknownError(failure.message) from error

    # --- read ---

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        """Whole batches from the one holding ``offset`` on that start below ``limit_offset``; None if none.

        The caller keeps ``limit_offset`` at or below what its reader may see. Raises ``OSError``, and
        ``SegmentVanishedError`` when retention took the offset while it was read.
        """
        return self._reads.read(offset, max_bytes, limit_offset)

    def read_back(self, end_offset: int) -> Back | None:
        """Batches that end at ``end_offset``, for reading backwards; None at the front. Errors as ``read``."""
        return self._reads.read_back(end_offset)

    def aborted(
        self,
        start_offset: int,
        end_offset: int,
        data: Buffer | None = None,  # noqa: ARG002 - the rows are in memory
    ) -> list[AbortedTransaction]:
        """The aborted transactions that may have data in [start_offset, end_offset). Errors as ``read``."""
        return self._reads.aborted(start_offset, end_offset)

    def subscribe(self, waiter: Waiter) -> None:
        """``waiter.set()`` is called whenever the high watermark moves or the log is poisoned."""
        with self._lock:
            self._waiters[waiter] = None

    def unsubscribe(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiters.pop(waiter, None)

    def wake_waiters(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.set()

    def close(self, why: UnknownTopicError | None = None) -> None:
        """Forget open files. The caller has checkpointed; a poisoned log is closed as it is. ``why``: what calls
        under way get when the topic was deleted under them."""
        with self._lock:
            self._held.let_go()
            self._reads.forget()
            self._pool.forget(self.directory)
            if self._failure is None:
                closed = PartitionPoisonedError(f"{self.where} was closed", hint="open it again")
                self._failure = closed if why is None else why
            self.wake_waiters()
