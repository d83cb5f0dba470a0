"""``TopicUsers``: those that are inside an owned topic, which is not given up under them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from logstore.config import TopicConfig
from logstore.log.owned_log import OwnedLog
from logstore.native import compiled
from logstore.ownership.topic_use import inside
from logstore.partition.context import StoreContext


@compiled("partition.topic_users")
class TopicUsers:
    """What an append touches of its topic. ``_lock`` guards the fields; ``_draining``: a release waits for the users,
    and only those that are inside already come in; ``_leaving``: it has seen the last one go."""

    def __init__(self, context: StoreContext, lock: threading.Lock, unused: threading.Condition) -> None:
        self._context = context
        self._lock, self._unused = lock, unused
        self._users = 0
        self._draining = self._leaving = self._deleted = self.owned = False
        self.last_used_s = 0.0
        self._logs: dict[int, OwnedLog] = {}

    config: TopicConfig

    if TYPE_CHECKING:

        def _own(self, timeout_s: float) -> None: ...

    def enter(self, until_s: float | None = None) -> None:
        """Own the topic (taking its lock if need be) and count one more user. ``TopicLockedError`` after the
        store's ``lock_timeout_s``, or at ``until_s`` of the monotonic clock."""
        depth = getattr(inside, "topics", 0)
        while True:
            self._context.check_writable()
            with self._lock:
                if self.owned and not self._leaving and (depth or not self._draining):
                    self._users += 1
                    inside.topics = depth + 1
                    return
            now_s = self._context.clock.monotonic_s()
            until_s = now_s + self._context.lock_timeout_s if until_s is None else until_s
            self._own(max(until_s - now_s, 0.0))

    def try_enter(self) -> bool:
        """``enter`` for who will not wait: only if the topic is owned and nobody is about to give it up."""
        with self._lock:
            if not self.owned or self._leaving or self._draining or self._deleted:
                return False
            self._users += 1
            inside.topics = getattr(inside, "topics", 0) + 1
            return True

    def stay(self, more: int) -> None:
        """Count the thread, which is inside, as so many users more."""
        with self._lock:
            self._users += more
        inside.topics += more

    def leave(self, counts_as_use: bool = True) -> None:
        inside.topics -= 1
        self._left(counts_as_use)

    def leave_later(self) -> Callable[[], None]:
        """This thread is not inside any more, but the topic stays in use until what is returned is called."""
        inside.topics -= 1
        return self._left

    def _left(self, counts_as_use: bool = True) -> None:
        with self._lock:
            self._users -= 1
            if counts_as_use:
                self.last_used_s = self._context.clock.monotonic_s()
            if self._users == 0 and self._draining:
                self._unused.notify_all()
