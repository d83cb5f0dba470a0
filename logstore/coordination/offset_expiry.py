"""Committed offsets that have expired, looked for by any writable store: a group without members has no process.

A process that has members looks at its offsets anyway (``MembershipTask``). One that has none may not know them at
all: it follows the log a piece a step, beside its other chores, and forgets it again afterwards. At one time one
process does so; a process that finds some takes the topic's lock only if that is free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from logstore.coordination.coordinator import Coordinator
from logstore.coordination.store_view import StoreView
from logstore.errors import LogStoreError, RetriableError
from logstore.groups.coordinator import GroupCoordinator
from logstore.groups.offset_values import TopicIds
from logstore.machine import Decision
from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

GroupTopic: TypeAlias = Coordinator[GroupCoordinator]
TryLock: TypeAlias = Callable[[], Callable[[], None] | None]
"""Take the lock that one process at a time has: what gives it back; None: another process has it."""

# Between two looks; as Kafka's offsets.retention.check.interval.ms.
EXPIRY_S: Final = 600.0
_SOON_S: Final = 0.001  # the next piece, after the other chores
_PATIENCE_S: Final = 0.02


def expire_offsets(
    topic: GroupTopic, store: StoreView, topic_ids: TopicIds, patience_s: float | None = None
) -> int:
    """Forget what has expired, and what is of topics that are gone; how many offsets expired. ``patience_s``: as
    ``Coordinator.decide``; and its errors."""
    retention_ms = int(store.offsets_retention_s * 1000)

    def decide(machine: GroupCoordinator) -> Decision[dict[str, list[TopicPartition]]]:
        return machine.decide_expire_offsets(store.clock.wall_ms(), retention_ms, topic_ids)

    expired = 0
    while topic.look(lambda machine: decide(machine).records):
        for group, places in topic.decide(decide, patience_s=patience_s).items():
            logger.info("group %r: %d offsets have expired", group, len(places))
            expired += len(places)
    return expired


class OffsetExpiry:
    """Of a store; one thread (the housekeeper's). ``exists``: whether there is a topic of offsets; ``opened``: as
    this process follows it, None if it does not; ``fresh``: another one, that has seen nothing yet; ``is_watched``:
    this process has members, so their task looks; ``try_lock``: of the process that looks."""

    def __init__(
        self,
        store: StoreView,
        exists: Callable[[], bool],
        opened: Callable[[], GroupTopic | None],
        fresh: Callable[[], GroupTopic],
        is_watched: Callable[[], bool],
        topic_ids: TopicIds,
        try_lock: TryLock,
    ) -> None:
        self._store = store
        self._exists = exists
        self._opened = opened
        self._fresh = fresh
        self._is_watched = is_watched
        self._topic_ids = topic_ids
        self._try_lock = try_lock
        self._next_s: float | None = None
        self.expired = 0  # offsets, since the store was opened
        self._topic: GroupTopic | None = None  # of the look under way
        self._give_back: Callable[[], None] | None = None

    def step(self) -> float | None:
        """What is due; seconds until the next step is, None: there is nothing to look at. Errors as ``look`` and
        ``decide`` of a shared topic: the next look is as far away as ever."""
        if self._store.read_only or not self._exists():
            return None
        now_s = self._store.clock.monotonic_s()
        if self._next_s is None:
            self._next_s = now_s + EXPIRY_S
        if now_s < self._next_s:
            return self._next_s - now_s
        try:
            if self._look():
                return _SOON_S
        except LogStoreError:
            self._end(now_s)
            raise
        self._end(now_s)
        return EXPIRY_S

    def look_now(self, until_s: float) -> bool:
        """A whole look, whenever the last one was; False if time was up first. Errors as ``step``."""
        self._next_s = 0.0
        clock = self._store.clock
        while self.step() == _SOON_S:
            if clock.monotonic_s() >= until_s:
                self._end(clock.monotonic_s())
                return False
        return True

    def _look(self) -> bool:
        """Whether there is more of it to do."""
        if self._topic is None:
            if self._is_watched():
                return False
            self._give_back = self._try_lock()
            if self._give_back is None:
                return False
            self._topic = self._opened() or self._fresh()
        if not self._topic.follow_some():
            return True
        try:
            self.expired += expire_offsets(self._topic, self._store, self._topic_ids, _PATIENCE_S)
        except RetriableError as error:
            if not error.passes:
                raise
            logger.debug("expired offsets wait for the next look: %s", error)
        return False

    def _end(self, now_s: float) -> None:
        self._next_s = now_s + EXPIRY_S
        self.close()

    def close(self) -> None:
        """A look under way is over. Safe to call again."""
        self._topic = None
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
