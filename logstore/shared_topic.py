"""An internal topic that many processes write, a record or two at a time.

Nobody owns it for long. Each write is: take the topic's lock, catch up with what others appended, decide,
append, sync, replay, give the lock back. Where the log ended is handed from process to process in `.live`:
as long as the slot is of this boot, says that all was synced, and agrees with the size of the file, there is
nothing to recover. In any other case (the machine restarted, or a process died half way) the log is
recovered first, like any other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from logstore import topic_state
from logstore.catalogue import TopicEntry
from logstore.config import TopicConfig, parse_topic_config
from logstore.context import StoreContext
from logstore.errors import LogStoreError, from_os_error
from logstore.format.batch import as_produced, decode_batches, encode_batch, iter_headers
from logstore.format.control import ControlType, decode_control_batch
from logstore.live import LiveSlot
from logstore.log.append_validation import split_checked
from logstore.log.observed_log import ObservedLog
from logstore.log.owned_log import OwnedLog
from logstore.log.producer_state import Marker
from logstore.log.recovery import LoadRules, load
from logstore.log.segment import LOG_SUFFIX
from logstore.log.tail_cache import TailCache
from logstore.machine import Decision, StateMachine
from logstore.partition_folder import ensure_folder
from logstore.topic_state import PartitionState, TopicState

logger = logging.getLogger(__name__)

Reply = TypeVar("Reply")
Machine = TypeVar("Machine", bound=StateMachine)
_READ_BYTES = 1 << 20


class SharedTopic(Generic[Machine]):
    """One-partition internal topic with the state machine that its records feed. Thread-safe.

    ``make_machine``: an empty machine; it is replayed from the start if records that were seen are lost.
    """

    def __init__(self, context: StoreContext, entry: TopicEntry, make_machine: Callable[[], Machine]) -> None:
        self._context = context
        self._entry = entry
        self._make_machine = make_machine
        self._machine = make_machine()
        self._config: TopicConfig = parse_topic_config(entry.config)
        self._mutex = threading.Lock()
        self._log: OwnedLog | None = None
        self._applied = 0  # first offset not yet replayed into the machine
        self._directory = context.partition_directory(entry.name, 0)
        self._slot = entry.live_slot(0)
        self._observed = ObservedLog(
            where=entry.name,
            directory=self._directory,
            pool=context.pool,
            live=context.live,
            live_slot=self._slot,
            state=self._row,
        )

    # --- the two operations ---

    def decide(self, decide: Callable[[Machine], Decision[Reply]]) -> Reply:
        """Run ``decide`` on the newest state, make its records durable, replay them, give its reply.

        Errors: those of ``decide``, ``TopicLockedError``, ``DiskFullError``, ``OutcomeUnknownError``.
        """
        context = self._context
        with self._mutex:
            context.check_writable()
            context.locks.acquire(
                self._entry.lock_slot, context.lock_timeout_s, f"internal topic {self._entry.name!r}"
            )
            try:
                log = self._caught_up()
                self._replay(log.next_offset)
                decision = decide(self._machine)
                if decision.records:
                    writer = decision.producer
                    batch = encode_batch(decision.records, now_ms=context.clock.wall_ms())
                    if writer is not None:
                        entry = log.producers.entry(writer.producer_id)
                        same = entry is not None and entry.epoch == writer.epoch
                        batch = as_produced(
                            batch,
                            producer_id=writer.producer_id,
                            epoch=writer.epoch,
                            base_sequence=entry.last_sequence + 1 if entry is not None and same else 0,
                            transactional=True,
                        )
                    log.append(split_checked(batch, self._entry.name))
                    log.sync()
                    self._replay(log.next_offset)
                return decision.reply
            except OSError as error:
                raise from_os_error(error, "read", self._directory) from error
            finally:
                context.locks.release(self._entry.lock_slot)

    def end_transaction(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> None:
        context = self._context
        with self._mutex:
            context.check_writable()
            context.locks.acquire(
                self._entry.lock_slot, context.lock_timeout_s, f"internal topic {self._entry.name!r}"
            )
            try:
                log = self._caught_up()
                self._replay(log.next_offset)
                entry = log.producers.entry(producer_id)
                if entry is None or entry.epoch < epoch:
                    log.append_marker(
                        Marker(producer_id, epoch, coordinator_epoch, commit, context.clock.wall_ms())
                    )
                    log.sync()
                    self._replay(log.next_offset)
            finally:
                context.locks.release(self._entry.lock_slot)

    def look(self, look: Callable[[Machine], Reply]) -> Reply:
        """Replay what others have appended and synced, and read the state; needs no lock of the store."""
        with self._mutex:
            self._context.check_usable()
            try:
                end = self._observed.bounds().high_watermark
                if end < self._applied:
                    self._start_over()
                self._replay(end)
            except OSError as error:
                raise from_os_error(error, "read", self._directory) from error
            return look(self._machine)

    def _start_over(self) -> None:
        """Records that were replayed are gone: all of it again is the safe way."""
        self._machine = self._make_machine()
        self._applied = 0

    def _replay(self, end: int) -> None:
        while self._applied < end:
            reader: OwnedLog | ObservedLog = self._observed if self._log is None else self._log
            if isinstance(reader, OwnedLog) and reader.next_offset < end:
                reader = self._observed
            chunk = reader.read(self._applied, _READ_BYTES, end)
            if chunk is None:
                return
            for position, header in iter_headers(chunk.data):
                one = memoryview(chunk.data)[position : position + header.size]
                if header.last_offset < self._applied:
                    continue
                if header.is_control:
                    control = decode_control_batch(one, 0, header)
                    self._machine.replay_marker(
                        header.producer_id, header.producer_epoch, control.type == ControlType.COMMIT
                    )
                    continue
                for record in decode_batches(one, self._entry.name, 0, start_offset=self._applied):
                    if header.is_transactional:
                        self._machine.replay_pending(
                            header.producer_id, header.producer_epoch, record.key, record.value
                        )
                    else:
                        self._machine.replay(record.key, record.value)
            self._applied = chunk.next_offset

    # --- catching up, with the lock held ---

    def _caught_up(self) -> OwnedLog:
        slot = self._context.live.read(self._slot)
        log = self._log
        if log is not None and not log.poisoned and slot is not None and self._agrees(slot):
            base, position = log.end_position
            if (slot.log_end_offset, slot.segment_base, slot.end_position) == (
                log.next_offset,
                base,
                position,
            ):
                return log
        if log is not None:
            log.close()
            self._log = None
        self._log = self._load(slot)
        return self._log

    def _agrees(self, slot: LiveSlot) -> bool:
        """Whether the slot describes a log that needs no recovery: all synced, and the file as long."""
        if slot.high_watermark != slot.log_end_offset:
            return False
        if slot.end_position == 0:
            return True
        path = f"{self._directory}/{slot.segment_base:020d}{LOG_SUFFIX}"
        try:
            size = self._context.fs.stat(path).size
        except FileNotFoundError:
            return False
        except OSError as error:
            raise from_os_error(error, "look at", path) from error
        return size == slot.end_position

    def _load(self, slot: LiveSlot | None) -> OwnedLog:
        context = self._context
        state = topic_state.load(context.fs, context.root, self._entry.name)
        if state is not None and state.topic_id != self._entry.topic_id:
            state = None
        clean = slot is not None and self._agrees(slot)
        row = state.partitions.get(0) if state is not None else None
        point = row.recovery_point if row is not None else 0
        rules = LoadRules(
            recovery_point=slot.log_end_offset if clean and slot is not None else point,
            log_start_offset=row.log_start_offset if row is not None else 0,
            clean=clean,
            same_boot=state is not None and state.boot_id == context.clock.boot_id(),
            interval_bytes=self._config.index_interval_bytes,
            max_batch_bytes=self._config.max_message_bytes,
            now_ms=context.clock.wall_ms(),
            no_producers_at=row.no_producers_at if row is not None else 0,
            seen_s=context.clock.monotonic_s(),
        )
        try:
            ensure_folder(context.fs, context.root, self._directory, self._entry.topic_id)
            loaded = load(context.pool, self._directory, self._entry.name, 0, rules)
            if not clean:
                # Only now: a state of this boot promises that nothing of an earlier one is left to be cut.
                self._save_state(loaded.next_offset, rules.log_start_offset)
        except OSError as error:
            raise from_os_error(error, "open", self._directory) from error
        if not clean and loaded.next_offset > 0:
            context.recovered.append(loaded.report)
        if loaded.next_offset < self._applied:
            self._start_over()
        return OwnedLog(
            where=self._entry.name,
            directory=self._directory,
            pool=context.pool,
            config=self._config,
            clock=context.clock,
            loaded=loaded,
            log_start_offset=rules.log_start_offset,
            tail=TailCache(context.tails, self._config.tail_cache_bytes),
            publish=lambda log: context.show(self._slot, log),
            before_roll=lambda log: self._save_state(log.recovery_point, log.log_start_offset),
            on_dirty=lambda _: None,  # every append here is synced before the lock goes
            on_poison=self._note_poisoned,
        )

    def _note_poisoned(self, log: OwnedLog) -> None:
        """Say it durably if the disk lets us, so that recovery trusts nothing of the page cache."""
        try:
            self._save_state(log.recovery_point, log.log_start_offset, boot_id="")
        except LogStoreError as error:
            logger.error("%s failed, and its state could not say so: %s", self._entry.name, error)

    def _row(self) -> PartitionState | None:
        state = topic_state.load(self._context.fs, self._context.root, self._entry.name)
        if state is None or state.topic_id != self._entry.topic_id:
            return None
        return state.partitions.get(0)

    def _save_state(self, recovery_point: int, log_start_offset: int, boot_id: str | None = None) -> None:
        context = self._context
        boot_id = context.clock.boot_id() if boot_id is None else boot_id
        row = PartitionState(
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=recovery_point,
            log_end_offset=recovery_point,
            no_producers_at=0,
        )
        state = TopicState(self._entry.topic_id, boot_id, False, {0: row})
        topic_state.save(context.fs, context.root, self._entry.name, state)

    def close(self) -> None:
        """Leave a recovery point behind, so that the next boot has little to scan. Best effort by design: the
        log is durable as it is, and a busy lock or a full disk changes nothing about that."""
        with self._mutex:
            log, self._log = self._log, None
            if log is None:
                return
            context = self._context
            if not log.poisoned and context.locks.try_acquire(self._entry.lock_slot):
                try:
                    slot = context.live.read(self._slot)
                    if slot is not None and slot.log_end_offset == log.next_offset and self._agrees(slot):
                        self._save_state(log.checkpoint(), log.log_start_offset)
                except LogStoreError as error:
                    logger.warning("no recovery point left for %s: %s", self._entry.name, error)
                finally:
                    context.locks.release(self._entry.lock_slot)
            log.close()
