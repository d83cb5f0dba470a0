"""The log of an internal topic that many processes write, each for a moment.

Nobody owns it for long. Whoever writes holds the topic's lock, catches up with what others appended, appends,
syncs, and gives the lock back. Where the log ended is handed from process to process in `.live`: as long as the
slot is of this boot, says that all was synced, and agrees with the size of the file, there is nothing to
recover, and what was appended to the same segment is just counted. In any other case (the machine restarted, a
process died half way) the log is recovered first, like any other.

Closed segments may be put in the place of others at any time, by the process that cleans. So the list of an
open log is believed for its last segment alone; the others are read through ``observed``, which knows how.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logstore.config import TopicConfig, parse_topic_config
from logstore.directory import topic_state
from logstore.directory.catalogue import TopicEntry
from logstore.directory.partition_folder import ensure_folder
from logstore.directory.topic_state import PartitionState, TopicState
from logstore.errors import (
    CorruptBatchError,
    LockLostError,
    LogStoreError,
    OutcomeUnknownError,
    StorageError,
    from_os_error,
)
from logstore.log.log_offsets import LogOffsets
from logstore.log.owned_log import OwnedLog
from logstore.log.read_only_log import ReadOnlyLog
from logstore.log.recovery.recovery import Loaded, LoadRules, load
from logstore.log.segments.segment import LOG_SUFFIX, Chunk
from logstore.log.segments.tail_cache import TailCache
from logstore.ownership.cleaning_lease import cleaner_of
from logstore.ownership.live import LiveSlot
from logstore.ownership.lock_turns import acquire_in_process
from logstore.partition.context import StoreContext
from logstore.partition.held_partition import HeldPartition

logger = logging.getLogger(__name__)

_NEW = PartitionState(recovery_point=0, log_start_offset=0, high_watermark=0, log_end_offset=0)


class CoordinatorLog:
    """Thread-safe. One for each internal topic of an opened store: see ``CoordinatorLogs``."""

    def __init__(self, context: StoreContext, entry: TopicEntry) -> None:
        self._context = context
        self.entry = entry
        self.config: TopicConfig = parse_topic_config(entry.config)
        self.directory = context.partition_directory(entry.name, 0)
        self._slot = entry.live_slot(0)
        self._holding = threading.Lock()
        self._log: OwnedLog | None = None
        self.before_drop: Callable[[], None] = _nothing  # told before an open log is given up
        self.observed = ReadOnlyLog(
            where=entry.name,
            directory=self.directory,
            pool=context.pool,
            live=context.live,
            live_slot=self._slot,
            state=self.row,
        )

    @property
    def where(self) -> str:
        return self.entry.name

    era = 0  # what is synced stays: a machine that follows this log is never told to begin anew

    # --- writing ---

    def await_turn(self, turn: threading.Lock, timeout_s: float) -> None:
        """Take a lock that a thread of this process releases when it is done with the log. TopicLockedError."""
        acquire_in_process(turn, timeout_s, self._what, self._context.locks, self.entry.lock_slot)

    @property
    def _what(self) -> str:
        return f"internal topic {self.where!r}"

    @contextmanager
    def held(self, timeout_s: float, *, fresh: bool = False) -> Iterator[HeldPartition]:
        """The partition, caught up, with the topic's lock held meanwhile. What is appended inside has to be decided
        inside. ``fresh``: also its closed segments are those that there are now. TopicLockedError after
        ``timeout_s``; errors of opening and recovering a log; ``OSError`` of what happens inside becomes a
        StorageError."""
        context, slot = self._context, self.entry.lock_slot
        started_s = context.clock.monotonic_s()
        what = self._what
        acquire_in_process(self._holding, timeout_s, what, context.locks, slot)
        try:
            left_s = timeout_s - (context.clock.monotonic_s() - started_s)
            context.locks.acquire_in_turn(slot, left_s, what)
            try:
                yield HeldPartition(self.where, self._caught_up(fresh), self._unsettled)
            except OSError as error:
                raise from_os_error(error, "read", self.directory) from error
            finally:
                context.locks.release(slot)
        finally:
            self._holding.release()

    def _caught_up(self, fresh: bool) -> OwnedLog:
        try:
            return self._newest(fresh)
        except CorruptBatchError as error:
            raise damaged(self.where, error) from error

    def _newest(self, fresh: bool) -> OwnedLog:
        slot = self._context.live.read(self._slot)
        log = self._log
        sound = slot is not None and (log is None or not log.poisoned) and self._agrees(slot)
        if log is not None and slot is not None and sound and not fresh and not self._was_rolled(slot):
            if _is_at(log, slot):
                return log
            if _may_follow(log, slot) and log.follow_to(slot.log_end_offset, slot.end_position):
                return log
        self._drop()
        self._log = self._load(slot if sound else None)
        return self._log

    @contextmanager
    def _unsettled(self, log: OwnedLog) -> Iterator[None]:
        """What is written inside is more than the log's file tells by its size (an abort's row comes before its
        marker): who finds that this process died inside has to recover the log."""
        self._publish_unsettled(log)
        try:
            yield
        except LogStoreError:
            if not log.dirty and not log.poisoned:
                log.publish()  # nothing was written
            raise

    def _publish_unsettled(self, log: OwnedLog) -> None:
        """A slot with which no log agrees: the next process to take the lock has to recover the log."""
        bounds, (base, position) = log.bounds(), log.end_position
        self._context.live.publish(
            self._slot,
            log_start_offset=bounds.log_start_offset,
            high_watermark=bounds.high_watermark,
            last_stable_offset=bounds.last_stable_offset,
            log_end_offset=bounds.log_end_offset + 1,
            segment_base=base,
            end_position=position,
            leader_epoch=bounds.leader_epoch,
        )

    def _drop(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            self.before_drop()
            log.close()

    def _agrees(self, slot: LiveSlot) -> bool:
        """Whether the slot describes a log that needs no recovery: all synced, the active segment's file as long
        as that (no file is as good as an empty one), and nothing in a segment that follows it: one that a process
        wrote to and did not live, or was not able, to sync."""
        if slot.high_watermark != slot.log_end_offset:
            return False
        if slot.segment_base != slot.log_end_offset and self._size_of(slot.log_end_offset):
            return False
        return (self._size_of(slot.segment_base) or 0) == slot.end_position

    def _was_rolled(self, slot: LiveSlot) -> bool:
        """Whether a process that did not live to say so has made the next segment: to append to the one before
        it would hide what is appended."""
        return slot.segment_base != slot.log_end_offset and self._size_of(slot.log_end_offset) is not None

    def _size_of(self, base: int) -> int | None:
        """Bytes in the segment with that base offset; None: there is no such file."""
        path = f"{self.directory}/{base:020d}{LOG_SUFFIX}"
        try:
            return self._context.fs.stat(path).size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os_error(error, "look at", path) from error

    def _load(self, slot: LiveSlot | None) -> OwnedLog:
        """``slot``: the log's if the log agrees with it, else None."""
        context = self._context
        state = self._state()
        same_boot = state is not None and state.boot_of(0) == context.clock.boot_id()
        # A process whose sync failed has taken its boot out of the state.
        clean = slot is not None and same_boot
        row = _NEW if state is None else state.partitions.get(0, _NEW)
        rules = LoadRules(
            recovery_point=slot.log_end_offset if clean and slot is not None else row.recovery_point,
            log_start_offset=row.log_start_offset,
            clean=clean,
            same_boot=same_boot,
            interval_bytes=self.config.index_interval_bytes,
            max_batch_bytes=self.config.max_message_bytes,
            now_ms=context.clock.wall_ms(),
            no_producers_at=row.no_producers_at,
            leave_cleaned=cleaner_of(context, self.where) is not None,
        )
        try:
            ensure_folder(context.fs, context.root, self.directory, self.entry.topic_id)
            loaded = load(context.pool, self.directory, self.where, 0, rules)
            if not clean:
                # Only now: a state of this boot promises that nothing of an earlier one is left to be cut.
                self._write_state(
                    loaded.log_end_offset,
                    rules.log_start_offset,
                    loaded.producers.no_producers_at,
                    min(row.cleaner_point, loaded.log_end_offset),
                )
        except OSError as error:
            raise from_os_error(error, "open", self.directory) from error
        if not clean and loaded.log_end_offset > 0:
            context.note_recovered(loaded.report)
        log = self._made(loaded)
        if log.segments.active is not None:
            log.segments.active.forget_aborted()  # what another process put there may be in memory alone
        log.cleaner_point = min(row.cleaner_point, loaded.log_end_offset)
        return log

    def _made(self, loaded: Loaded) -> OwnedLog:
        context = self._context
        return OwnedLog(
            where=self.where,
            directory=self.directory,
            pool=context.pool,
            config=self.config,
            clock=context.clock,
            loaded=loaded,
            tail=TailCache(context.tails, self.config.tail_cache_bytes),
            publish=lambda log: context.show(self._slot, log),
            before_roll=self.save_state,
            on_dirty=lambda _: None,  # every append here is synced before the lock goes
            on_poison=self._note_poisoned,
        )

    def doubt(self, why: BaseException, *, wrote: bool) -> LogStoreError:
        """What a failed sync means for one whose records it was to cover, or who was told what rests on them."""
        if wrote:
            return OutcomeUnknownError(f"a write to {self.where} may or may not be durable: {why}")
        return StorageError(
            f"{self.where}: nothing was written; it was decided on what may not be durable: {why}",
            hint="try again",
        )

    def lost(self) -> None:
        """Any process of the directory may act as the coordinator."""

    # --- reading ---

    def offsets(self) -> LogOffsets:
        """As the process that wrote last has published them."""
        return self.observed.bounds()

    def confirm(self) -> None:
        """What is acknowledged is in `.live` already."""

    def has_more(self, applied: int) -> bool:
        """A look at `.live`."""
        slot = self._context.live.read(self._slot)
        if slot is None:
            return self.observed.bounds().high_watermark != applied
        return slot.high_watermark != applied

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        """Whole batches from the one that holds ``offset`` on, below ``limit_offset``, which is at most what
        this process knows to be synced. Errors as ``ReadOnlyLog.read``."""
        log = self._log
        active = None if log is None else log.segments.active
        if log is None or active is None:
            return self.observed.read(offset, max_bytes, limit_offset)
        if active.base_offset <= offset and limit_offset <= log.flushed_offset:
            return log.read(offset, max_bytes, limit_offset)
        return self.observed.read(offset, max_bytes, limit_offset)

    # --- the state ---

    def _state(self) -> TopicState | None:
        state = topic_state.load(self._context.fs, self._context.root, self.where)
        return None if state is None or state.topic_id != self.entry.topic_id else state

    def row(self) -> PartitionState | None:
        state = self._state()
        return None if state is None else state.partitions.get(0)

    def save_state(self, log: OwnedLog) -> None:
        """With the lock held. How far others have cleaned is in the file alone."""
        row = self.row()
        cleaned = log.cleaner_point if row is None else max(log.cleaner_point, row.cleaner_point)
        self._write_state(log.recovery_point, log.log_start_offset, log.producers.no_producers_at, cleaned)

    def _note_poisoned(self, log: OwnedLog) -> None:
        """So that whoever comes next recovers the log, and trusts nothing of the page cache: the slot for this
        boot, the state (if the disk lets us) also for what comes after it."""
        try:
            self._publish_unsettled(log)
        except LogStoreError as error:
            logger.error("%s failed, and %s could not say so: %s", self.where, ".live", error)
        try:
            self._write_state(
                log.recovery_point,
                log.log_start_offset,
                min(log.producers.no_producers_at, log.recovery_point),
                log.cleaner_point,
                boot_id="",
            )
        except LogStoreError as error:
            logger.error("%s failed, and its state could not say so: %s", self.where, error)

    def _write_state(
        self,
        recovery_point: int,
        log_start_offset: int,
        no_producers_at: int,
        cleaner_point: int,
        boot_id: str | None = None,
    ) -> None:
        context = self._context
        row = PartitionState(
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=recovery_point,
            log_end_offset=recovery_point,
            no_producers_at=no_producers_at,
            cleaner_point=cleaner_point,
        )
        boot_id = context.clock.boot_id() if boot_id is None else boot_id
        state = TopicState(self.entry.topic_id, boot_id, False, {0: row})
        topic_state.save(context.fs, context.root, self.where, state)

    # --- the end ---

    def close(self) -> None:
        """Leave a recovery point behind, so that the next boot has little to scan. Best effort by design: the
        log is durable as it is, and a busy lock or a full disk changes nothing about that."""
        with self._holding:
            log = self._log
            if log is None:
                return
            context = self._context
            try:
                if not log.poisoned and context.locks.try_acquire(self.entry.lock_slot):
                    try:
                        slot = context.live.read(self._slot)
                        if slot is not None and _is_at(log, slot) and self._agrees(slot):
                            log.checkpoint()
                            self.save_state(log)
                    finally:
                        context.locks.release(self.entry.lock_slot)
            except LockLostError as error:  # the directory was removed, or another process may have it
                logger.info("no recovery point left for %s: %s", self.where, error)
            except LogStoreError as error:
                logger.warning("no recovery point left for %s: %s", self.where, error)
            self._drop()


class CoordinatorLogs:
    """The logs of a store's internal topics, one ``CoordinatorLog`` for each. Thread-safe."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._logs: dict[str, CoordinatorLog] = {}  # by topic id

    def of(self, entry: TopicEntry) -> CoordinatorLog:
        with self._lock:
            found = self._logs.get(entry.topic_id)
            if found is None:
                found = self._logs[entry.topic_id] = CoordinatorLog(self._context, entry)
            return found

    def close(self) -> None:
        for log in list(self._logs.values()):
            log.close()


def damaged(topic: str, error: CorruptBatchError) -> CorruptBatchError:
    """What a damaged batch of an internal topic means for whoever meets it, which may be any call."""
    if error.advice:
        return error
    return CorruptBatchError(
        f"internal topic {topic!r} is damaged: {error.message}",
        hint="`logstore log verify` says what else is; `logstore log salvage` copies all that is readable into a new "
        "store",
        path=error.path,
        position=error.position,
    )


def _nothing() -> None:
    """Nobody has to be told."""


def _is_at(log: OwnedLog, slot: LiveSlot) -> bool:
    return (slot.segment_base, slot.end_position) == log.end_position and (
        slot.log_end_offset,
        slot.leader_epoch,
    ) == (log.log_end_offset, log.leader_epoch)


def _may_follow(log: OwnedLog, slot: LiveSlot) -> bool:
    """Whether all that is new lies in the segment that the log appends to, too."""
    base, position = log.end_position
    return (
        not log.dirty
        and slot.segment_base == base
        and 0 < position < slot.end_position
        and slot.log_end_offset > log.log_end_offset
        and slot.leader_epoch == log.leader_epoch
        and slot.log_start_offset == log.log_start_offset
    )
