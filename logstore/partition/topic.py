"""One topic in this process: its ownership (lock, state file, recovery) and its partitions' logs.

A process takes the topic's lock at its first append, recovers what an earlier owner left, marks the state
"in use" durably, and keeps the lock until it releases the topic (or it was idle for long). All writing goes
through ``using()``, so that an idle release never happens under an append. Reading needs no lock: from this
process's own log while it owns the topic, else as an observer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from logstore.config import TopicConfig, parse_topic_config
from logstore.directory import topic_state
from logstore.directory.catalogue import TopicEntry
from logstore.directory.partition_folder import folder_is_mine
from logstore.directory.topic_state import PartitionState, TopicState
from logstore.errors import LockLostError, LogStoreError, TopicLockedError, UnknownTopicError
from logstore.log.checkpoint_round import checkpoint_together
from logstore.log.owned_log import OwnedLog
from logstore.log.read_only_log import ReadOnlyLog
from logstore.ownership.lock import TURNS
from logstore.ownership.lock_turns import acquire_in_process
from logstore.ownership.topic_turn import DRAIN_S, TopicTurn
from logstore.ownership.topic_use import CleaningUnderWay, Unshared, Using
from logstore.partition import log_opening
from logstore.partition.context import StoreContext
from logstore.partition.fan_out import MANY, fan_out
from logstore.partition.local_partition import LocalPartition
from logstore.partition.partition import Partition
from logstore.partition.read_only_logs import ReadOnlyLogs
from logstore.partition.state_rows import refuse_lost, row_of
from logstore.partition.topic_users import TopicUsers

logger = logging.getLogger(__name__)


class Topic(TopicUsers, Unshared):
    """Thread-safe. ``entry`` is replaced when the catalogue changes; ``lookup`` gives the newest one.

    ``_owning`` is held while the topic is taken, given up or checkpointed, which may wait for another process
    or for users; ``_lock`` guards a few fields and is never held while anything is waited for, so that
    readers go on. Order of locks: ``_owning``, the registry's, ``_lock``; or ``_owning`` (or ``_opening``),
    a log's, ``_state_lock``.
    """

    def __init__(self, context: StoreContext, entry: TopicEntry, lookup: Callable[[str], TopicEntry]) -> None:
        lock = threading.Lock()
        super().__init__(context, lock, threading.Condition(lock))
        self._lookup = lookup
        self.entry = entry
        self.config: TopicConfig = parse_topic_config(entry.config)
        self._owning = threading.Lock()
        self._opening = threading.Lock()  # one thread at a time opens logs
        self._state_lock = threading.Lock()  # one writer of the state file; taken under a log's lock, too
        self.cleaning: CleaningUnderWay | None = None
        self._twin: OwnedLog | None = None  # whose small files a new partition may share
        self._observed = ReadOnlyLogs(context, lambda: self.entry)
        self._partitions: dict[int, Partition] = {}
        self._rows: dict[int, PartitionState] = {}  # what the state file says of partitions not open here
        self._saved: TopicState | None = None  # as this process last wrote it
        self._found: TopicState | None = None  # as this owner found it: which partitions were closed in order
        self.pinned = False
        self._turn = TopicTurn()
        self.last_checkpoint_s = 0.0

    @property
    def name(self) -> str:
        return self.entry.name

    def update(self, entry: TopicEntry) -> None:
        """Take over changed settings or partitions; logs that are open obey from their next append on."""
        self.entry = entry
        self.config = parse_topic_config(entry.config)
        for log in list(self._logs.values()):
            log.configure(self.config)
            log.tail.limit_bytes = self.config.tail_cache_bytes

    # --- ownership ---

    def using(self, *, counts_as_use: bool = True) -> Using[Topic]:
        """``counts_as_use=False``: the housekeeper's own visits must not keep an idle topic."""
        return Using(self, counts_as_use)

    def note_cleaning(self, cleaning: CleaningUnderWay | None) -> bool:
        """A cleaning begins (only by who is inside) or ends (None): while it goes on the topic is in use, and
        ``cleaning`` is told before the topic goes. False if there is one already, or the topic was deleted."""
        with self._lock:
            if cleaning is not None and (self.cleaning is not None or self._deleted):
                return False
            self.cleaning = cleaning
            return True

    def end_cleaning(self) -> None:
        """End the cleaning that is under way, in order."""
        cleaning = self.cleaning
        if cleaning is not None:
            cleaning.end_early()

    def _own(self, timeout_s: float) -> None:
        """Take the topic, unless another thread just did. ``timeout_s`` bounds the whole wait."""
        context, slot = self._context, self.entry.lock_slot
        started_s = context.clock.monotonic_s()
        acquire_in_process(self._owning, timeout_s, f"topic {self.name!r}", context.locks, slot)
        try:
            if not self.owned:
                self._acquire(max(timeout_s - (context.clock.monotonic_s() - started_s), 0.0))
        finally:
            self._owning.release()

    def own_if_free(self) -> bool:
        """Own the topic if nobody else does, without waiting; True if it is owned now."""
        if self._owning.acquire(blocking=False):
            try:
                if not self.owned:
                    self._acquire(0.0)
            except TopicLockedError:
                return False
            finally:
                self._owning.release()
        return self.owned

    def pin_if_free(self) -> bool:
        """Own the topic until it is released, also while it is idle, if no other process owns it."""
        context, slot = self._context, self.entry.lock_slot
        acquire_in_process(self._owning, context.lock_timeout_s, f"topic {self.name!r}", context.locks, slot)
        try:
            if not self.owned:
                self._acquire(0.0)
            self.pinned = True
        except TopicLockedError:
            return False
        finally:
            self._owning.release()
        return True

    def _acquire(self, timeout_s: float) -> None:
        context = self._context
        if not context.replicated:
            self.entry.refuse_internal()
        context.locks.acquire_in_turn(self.entry.lock_slot, timeout_s, f"topic {self.name!r}", TURNS)
        started_s = context.clock.monotonic_s()
        try:
            self._take_over()
        except BaseException:
            context.locks.release(self.entry.lock_slot)
            raise
        self.last_used_s = self.last_checkpoint_s = now_s = context.clock.monotonic_s()
        self._turn.begin(now_s, now_s - started_s)
        self.owned = True
        context.note_owned()

    def _take_over(self) -> None:
        """The lock is ours: recover what needs it, then say durably that the topic is in use."""
        context = self._context
        self.update(self._newest_entry())
        state = topic_state.load(context.fs, context.root, self.name)
        if state is not None and state.topic_id != self.entry.topic_id:
            state = None  # an earlier topic of this name
        if state is None or state != self._saved:
            self._forget_logs()
        clean = state is not None and all(map(state.is_clean, (-1, *state.partitions)))
        context.note_taken(self.name, state is None or clean)
        self._rows = dict(state.partitions) if state is not None else {}
        self._found = state
        if not clean:
            self._recover_all(state)
        self.save_state(clean=False)

    def _newest_entry(self) -> TopicEntry:
        """The topic as the catalogue has it now. ``UnknownTopicError`` if it was deleted."""
        entry = self._lookup(self.name)
        if self._deleted or entry.topic_id != self.entry.topic_id:
            raise UnknownTopicError(
                f"topic {self.name!r} was deleted and made anew; this handle is the old one's",
                hint="ask the store for the topic again",
            )
        return entry

    def _recover_all(self, state: TopicState | None) -> None:
        """Every partition that has a folder and was not closed in order. Many at a time where threads are allowed:
        each waits for a few syncs, and the file system commits those of all together."""
        context = self._context

        def recover(partition: int) -> None:
            if state is not None and state.is_clean(partition):
                return
            directory = context.partition_directory(self.name, partition)
            same_boot = state is not None and state.boot_of(partition) == context.clock.boot_id()
            if partition in self._rows or folder_is_mine(context.fs, directory, self.entry.topic_id):
                with log_opening.repaired_by_others(context, directory):
                    self._open(partition, clean=False, same_boot=same_boot, known=state is not None)
            elif state is None:
                refuse_lost(context.live.read(self.entry.live_slot(partition)), self.name, directory)

        fan_out(recover, range(self.entry.partitions), context.recovery_threads)

    def release(self) -> None:
        """Close in order: everything durable, the state marked clean, the lock given up. Waits for appends
        that are under way.

        A poisoned partition cannot be closed in order: the topic is then left as after a power loss, and the
        next owner recovers it.
        """
        with self._owning:
            try:
                with self._lock:
                    if not self.owned:
                        return
                    self.pinned = False
                    self._draining = True
                    self._unused.wait_for(lambda: self._users == 0)
                    self._leaving = True
                self._give_up()
            finally:
                self._draining = self._leaving = False

    def _give_up(self) -> None:
        """``_owning`` is held, and nobody is inside or can come in."""
        try:
            self._context.locks.check(now=True)
            self.end_cleaning()
            self._close_in_order()
        except LockLostError:
            self.cleaning = None
            self._forget_logs()  # nothing is written: the topic may have another owner
            raise
        finally:
            self.owned = False
            self._context.locks.release(self.entry.lock_slot)
            for log in self.open_logs():
                log.wake_waiters()  # who waits here must look at the next owner's slot instead

    def _close_in_order(self) -> None:
        """Every partition gets its chance; a failure that nobody was told of yet is raised at the end."""
        failed: LogStoreError | None = None
        try:
            self._checkpoint_each([log for log in self._logs.values() if not log.poisoned])
        except LogStoreError as error:
            failed = error
        if any(log.dirty and not log.poisoned for log in self._logs.values()):
            self._forget_logs()  # the state stays "in use": recovery will look at what is there
        else:
            self.save_state(clean=True)
            if any(log.poisoned for log in self._logs.values()):
                self._forget_logs()
        if failed is not None:
            raise failed

    def _checkpoint_each(self, logs: list[OwnedLog]) -> None:
        """Many logs side by side, as their syncs share journal commits. Each gets its chance, then the first failure
        is raised."""
        fan_out(OwnedLog.checkpoint, logs, self._context.recovery_threads if len(logs) >= MANY else 1)

    def abandon(self) -> None:
        """Forget everything without any input or output: what a killed process does."""
        self.owned = False
        self._logs.clear()
        self._saved = None
        self._observed.clear()

    def discard(self) -> None:
        """The topic was deleted: forget its logs; what waits for them is woken. The lock stays ours."""
        self._deleted = True  # no cleaning begins any more
        self.end_cleaning()
        with self._opening:
            self._deleted = True  # from here on no log is opened, and no state written
            self._forget_logs(UnknownTopicError(f"topic {self.name!r} was deleted"))
        with self._state_lock:
            pass  # a state that was being written is in place now, to be removed with all else
        self.forget_files()

    def forget_files(self) -> None:
        """The topic was deleted: a later one may have files of the same names."""
        self._deleted = True
        self._observed.clear()
        for partition in range(self.entry.partitions):
            self._context.pool.forget(self._context.partition_directory(self.name, partition))

    def give_up_lock(self) -> None:
        """After ``discard``: nothing is saved, the lock goes."""
        with self._owning:
            if self.owned:  # else a release or the idle one came first
                self.owned = False
                self._context.locks.release(self.entry.lock_slot)

    def _forget_logs(self, why: UnknownTopicError | None = None) -> None:
        for log in self._logs.values():
            log.close(why)
        self._logs.clear()
        self._twin = self._saved = None

    def idle_release(self, idle_s: float) -> bool:
        """Release if nobody used the topic for ``idle_s`` and it is not pinned; True if it was released."""
        clock = self._context.clock
        return self._give_up_if(
            lambda: (
                self.cleaning is None
                and self._users == 0
                and clock.monotonic_s() - self.last_used_s >= idle_s
            )
        )

    def pass_on(self) -> bool:
        """Give the topic up to a process that waits for it, once this one's turn is over and those inside have
        left; a pinned topic stays, and so does one under work that takes long. True if it was given up."""
        context, cleaning = self._context, self.cleaning
        now_s = context.clock.monotonic_s()
        if not self.owned or self.pinned or not self._turn.is_over(now_s, self.last_used_s):
            return False
        if not context.locks.wanted(self.entry.lock_slot) or (
            cleaning is not None and cleaning.keeps_topic()
        ):
            return False

        def drained() -> bool:
            self._draining = True
            if self._unused.wait_for(lambda: self._users == 0, DRAIN_S):
                return True
            self._turn.put_off(now_s)
            return False

        return self._give_up_if(drained)

    def _give_up_if(self, condition: Callable[[], bool]) -> bool:
        """Give the topic up if it is owned, not pinned, and ``condition`` holds under the lock."""
        if not self._owning.acquire(blocking=False):
            return False  # it is being taken or given up
        try:
            with self._lock:
                if not (self.owned and condition()) or self.pinned:
                    return False
                self._leaving = True
            self._give_up()
            return True
        finally:
            self._draining = self._leaving = False
            self._owning.release()

    # --- state ---

    def checkpoint(self) -> None:
        """Make the recovery points durable where they moved (the owner, every few seconds and at rolls)."""
        if not self._owning.acquire(blocking=False):
            return  # it is being taken or given up, which writes the state, too
        try:
            if not self.owned:
                return
            self.last_checkpoint_s = self._context.clock.monotonic_s()
            logs = tuple(self._logs.values())
            due = [log for log in logs if not log.poisoned and log.log_end_offset > log.recovery_point]
            failures = checkpoint_together(self._context.fs, due)
            saved = self._saved.partitions if self._saved is not None else {}
            moved = any(
                partition not in saved or saved[partition].recovery_point != log.recovery_point
                for partition, log in self._logs.items()
            )
            if moved:
                self.save_state(clean=False)
            for failure in failures:
                if failure is not None:
                    raise failure
        finally:
            self._owning.release()

    def save_state(self, *, clean: bool = False) -> None:
        """Make the offsets of all partitions durable as they now are; ``clean``: closed in order."""
        with self._state_lock:
            if self._deleted:
                return
            context = self._context
            context.locks.check(now=True)
            rows = dict(self._rows)
            for partition, log in tuple(self._logs.items()):
                rows[partition] = row_of(log)
            state = TopicState(self.entry.topic_id, context.clock.boot_id(), clean, rows)
            topic_state.save(context.fs, context.root, self.name, state)
            self._saved = state

    def _note_poisoned(self) -> None:
        """Say it durably if the disk lets us: recovery trusts nothing of the page cache then."""
        try:
            self.save_state(clean=False)
        except LogStoreError as error:
            logger.error("topic %s: a partition failed, and the state could not say so: %s", self.name, error)

    # --- logs ---

    def partition(self, number: int) -> Partition:
        """The partition for those who write and read records. Whether there is one is found out by its first use."""
        found = self._partitions.get(number)
        if found is None:
            make = self._context.make_partition
            found = LocalPartition(self._context, self, number) if make is None else make(self, number)
            if 0 <= number < self.entry.partitions:
                found = self._partitions.setdefault(number, found)
        return found

    def live_slot(self, partition: int) -> int:
        return self.entry.live_slot(partition)

    def log(self, partition: int) -> OwnedLog:
        """The partition's log; only inside ``using()``. UnknownPartitionError, DamagedStoreError."""
        log = self._logs.get(partition)
        if log is not None:
            return log
        with self._opening:
            log = self._logs.get(partition)
            if log is None:
                self._newest_entry()
                log = self._open(partition)
            return log

    def log_to_append(self, partition: int) -> OwnedLog:
        """``log``, with what its first append needs made in one go."""
        if partition not in self._logs:
            self.open_many((partition,))
        return self._logs[partition]

    def open_many(self, partitions: Collection[int]) -> None:
        """``log_to_append`` for many, whose names become durable together; the first failure is raised at the end."""
        failures: list[LogStoreError] = []
        with self._opening:
            self._newest_entry()
            opened: dict[int, OwnedLog] = {}
            for partition in [one for one in partitions if one not in self._logs]:
                try:
                    opened[partition] = self._opened_to_append(partition)
                except LogStoreError as error:
                    failures.append(error)
            log_opening.make_durable(self._context, opened.values())
            self._logs.update(opened)
        if failures:
            raise failures[0]

    def _opened_to_append(self, partition: int) -> OwnedLog:
        """The log with its names not durable yet."""
        twin = log_opening.twin_folder(self._twin)
        folder = log_opening.see_to_folder(self._context, self.entry, partition, self._row(partition), twin)
        log = self._opened(partition, folder=folder)
        log.prepare(twin if folder == "new" else None)
        self._twin = self._twin or log
        return log

    def _row(self, partition: int) -> PartitionState:
        return self._rows.get(partition, log_opening.NEW_ROW)

    def open_logs(self) -> list[OwnedLog]:
        """The partitions open for writing in this process."""
        return list(self._logs.values())

    def owned_log(self, partition: int) -> OwnedLog | None:
        """The partition's log if this process owns the topic and has it open."""
        return self._logs.get(partition) if self.owned else None

    def reader(self, partition: int, *, looked: bool = False) -> OwnedLog | ReadOnlyLog:
        """What to read the partition from, right now. ``looked``: the caller has just seen the catalogue."""
        if self.owned and (log := self._logs.get(partition)) is not None:
            return log
        if not looked:
            self._newest_entry()
        return self._observed.log(partition)

    def _open(
        self, partition: int, *, clean: bool = True, same_boot: bool = True, known: bool = True
    ) -> OwnedLog:
        log = self._logs[partition] = self._opened(partition, clean=clean, same_boot=same_boot, known=known)
        return log

    def _opened(
        self,
        partition: int,
        *,
        clean: bool = True,
        same_boot: bool = True,
        known: bool = True,
        folder: log_opening.Folder = "unseen",
    ) -> OwnedLog:
        found = self._found
        log = log_opening.open_log(
            self._context,
            self.entry,
            self.config,
            partition,
            self._row(partition),
            folder=folder,
            known=known,
            clean=clean and found is not None and found.is_clean(partition) and partition in self._rows,
            same_boot=same_boot,
            before_roll=lambda _: self.save_state(clean=False),
            on_poison=lambda _: self._note_poisoned(),
        )
        log.configure(self.config)  # the settings may have changed since it was made
        return log

    def forget_row(self, partition: int, *, recover: bool = False) -> None:
        """A log that is closed as it is. It begins anew, filled by other replicas, and is not in the state; or the next
        to open it is to ``recover`` it as after a power loss, since its disk failed it."""
        log = self._logs.pop(partition, None)
        self._rows.pop(partition, None)
        if log is not None:
            self._rows.update({partition: row_of(log)} if recover else {})
            log.close()
        self.save_state()

    def cleaner_points(self) -> dict[int, int]:
        """Before which offset each partition is clean, as far as this process knows, else as its owner last
        made durable."""
        if not self.owned:
            state = self._observed.state()
            return {} if state is None else {at: row.cleaner_point for at, row in state.partitions.items()}
        points = {at: row.cleaner_point for at, row in self._rows.items()}
        return points | {at: log.cleaner_point for at, log in tuple(self._logs.items())}
