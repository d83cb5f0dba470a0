"""An internal topic as the cleaner sees it: cleaned by one process at a time, written by all of them meanwhile.

To own it means to hold its cleaner's lock, for as long as a cleaning is under way. The topic's own lock, which
every write takes, is held for one slice of work after the other, in turn with those who write; whatever goes
into place does so within a slice. If another process rolled or recovered the log between two slices, the
cleaning is ended, its temporary files go, and the next one begins with what there is then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from logstore.config import CleanupPolicy
from logstore.directory.catalogue import TopicEntry
from logstore.errors import LogStoreError, TopicLockedError, UnknownPartitionError
from logstore.invariants import invariant
from logstore.log.owned_log import OwnedLog
from logstore.log.read_only_log import ReadOnlyLog
from logstore.ownership.cleaning_lease import CleaningLease, cleaner_of
from logstore.ownership.topic_use import CleaningUnderWay
from logstore.partition.context import StoreContext
from logstore.partition.coordinator_log import CoordinatorLog

_PATIENCE_S: Final = 0.02  # how long a slice in the background waits for its turn


class SharedCleaning:
    """Thread-safe as far as ``Topic`` is: who is inside is one thread at a time."""

    shared = True
    last_used_s = 0.0

    def __init__(self, context: StoreContext, log: CoordinatorLog) -> None:
        self._context = context
        self._shared_log = log
        # Whatever its settings say, or said when it was made: what coordinators write is state by key.
        self.config = replace(log.config, cleanup_policy=CleanupPolicy(compact=True, delete=False))
        self.cleaning: CleaningUnderWay | None = None
        self._guard = threading.Lock()
        self._hold: CleaningLease | None = None
        self._by_hand = False  # somebody cleans by hand: the hold outlives a cleaning that was ended early
        self._inside: ExitStack | None = None  # guarded by the log's own lock, which it holds
        self._entered: OwnedLog | None = None
        log.before_drop = self.end_cleaning

    @property
    def entry(self) -> TopicEntry:
        return self._shared_log.entry

    @property
    def name(self) -> str:
        return self.entry.name

    # --- the cleaner's lock ---

    @property
    def owned(self) -> bool:
        return self._hold is not None

    def own_if_free(self) -> bool:
        with self._guard:
            if self._hold is None and not self._context.closed:
                self._hold = CleaningLease.taken(self._context, self.name)
            return self._hold is not None

    def idle_release(self, idle_s: float) -> bool:
        del idle_s
        return self._release_if_unused()

    def _release_if_unused(self) -> bool:
        with self._guard:
            if self.cleaning is not None or self._inside is not None or self._hold is None or self._by_hand:
                return False
            hold, self._hold = self._hold, None
            hold.release()
            return True

    # --- slices ---

    def try_enter(self) -> bool:
        """Hold the log for a slice; False if it cannot be had soon, or the topic is not ours to clean."""
        if not self.owned:
            return False
        try:
            self._enter(_PATIENCE_S)
        except TopicLockedError:
            self._release_if_unused()
            return False
        return True

    def _enter(self, timeout_s: float) -> None:
        stack = ExitStack()
        # A cleaning begins with the segments as they are now, whoever has put them there.
        held = stack.enter_context(self._shared_log.held(timeout_s, fresh=self.cleaning is None))
        self._inside, self._entered = stack, held.log
        lease = self._hold
        try:
            if lease is None:  # given back meanwhile, when the cleaning that it was held for was ended
                raise TopicLockedError(f"internal topic {self.name!r} is not ours to clean any more")
            lease.check()
        except LogStoreError:
            self._leave()
            raise

    def leave(self, counts_as_use: bool = True) -> None:
        del counts_as_use
        self._leave()
        self._release_if_unused()

    def _leave(self) -> None:
        stack, self._inside, self._entered = self._inside, None, None
        if stack is not None:
            stack.close()

    @contextmanager
    def using(self, *, counts_as_use: bool = True) -> Iterator[SharedCleaning]:
        """To clean by hand. TopicLockedError names the process that is cleaning, or writing."""
        del counts_as_use
        if not self.own_if_free():
            holder = cleaner_of(self._context, self.name)
            who = "another process" if holder is None else holder.describe()
            raise TopicLockedError(f"internal topic {self.name!r} is being cleaned by {who}")
        self._by_hand = True
        try:
            self._enter(self._context.lock_timeout_s)
            yield self
        finally:
            self._by_hand = False
            self._leave()
            self._release_if_unused()

    def breathe(self) -> None:
        self._leave()
        self._enter(self._context.lock_timeout_s)

    def pass_on(self) -> bool:
        """Nothing to give up: other processes write the topic between two slices."""
        return False

    def note_cleaning(self, cleaning: CleaningUnderWay | None) -> bool:
        with self._guard:
            if cleaning is not None and self.cleaning is not None:
                return False
            self.cleaning = cleaning
        if cleaning is None:
            self._release_if_unused()
        return True

    def end_cleaning(self) -> None:
        cleaning = self.cleaning
        if cleaning is not None:
            cleaning.end_early()

    # --- the log ---

    def log(self, partition: int) -> OwnedLog:
        """Only inside."""
        _check(self.name, partition)
        invariant(self._entered is not None, "an internal topic is cleaned with its lock held")
        return self._entered  # type: ignore[return-value]

    def owned_log(self, partition: int) -> OwnedLog | None:
        _check(self.name, partition)
        return self._entered

    def reader(self, partition: int) -> ReadOnlyLog:
        _check(self.name, partition)
        return self._shared_log.observed

    def cleaner_points(self) -> dict[int, int]:
        row = self._shared_log.row()
        return {} if row is None else {0: row.cleaner_point}

    def save_state(self) -> None:
        """Only inside."""
        self._shared_log.save_state(self.log(0))

    # --- the end ---

    def close(self) -> None:
        """End what is under way, in order."""
        self.end_cleaning()
        self._release_if_unused()

    def abandon(self) -> None:
        """What the system does for a killed process."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.give_back()


def _check(topic: str, partition: int) -> None:
    if partition != 0:
        raise UnknownPartitionError(f"internal topic {topic!r} has partition 0 alone, not {partition}")
