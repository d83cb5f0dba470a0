"""``Following``: how a consumer's partitions change while it reads, and who is told."""

from __future__ import annotations

from logstore.client.consumer.assignment import Assignment
from logstore.client.consumer.settings import PartitionsHook
from logstore.errors import InvalidArgumentError
from logstore.types import TopicPartition


class Hooks:
    """The caller's ``on_assigned``, ``on_revoked`` and ``on_lost``; called by the thread that polls."""

    def __init__(
        self,
        on_assigned: PartitionsHook | None,
        on_revoked: PartitionsHook | None,
        on_lost: PartitionsHook | None,
    ) -> None:
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._running = False

    def check_outside(self) -> None:
        """InvalidArgumentError inside a hook: its partitions are between two states."""
        if self._running:
            raise InvalidArgumentError(
                "records are asked for inside on_assigned, on_revoked or on_lost",
                hint="return from it first; commit(), seek() and pause() may be called there",
            )

    def check_close(self) -> None:
        """InvalidArgumentError inside a hook: the poll that called it goes on afterwards."""
        if self._running:
            raise InvalidArgumentError(
                "close() inside on_assigned, on_revoked or on_lost",
                hint="return from it first; to end the loop around poll() from there, call wakeup()",
            )

    @property
    def running(self) -> bool:
        return self._running

    def assigned(self, places: list[TopicPartition]) -> None:
        self._call(self._on_assigned, places)

    def revoked(self, places: list[TopicPartition]) -> None:
        self._call(self._on_revoked, places)

    def lost(self, places: list[TopicPartition]) -> None:
        self._call(self._on_lost, places)

    def _call(self, hook: PartitionsHook | None, places: list[TopicPartition]) -> None:
        if hook is None or not places:
            return
        self._running = True
        try:
            hook(places)
        finally:
            self._running = False


class Following:
    """A consumer that reads all of what it subscribed to. Belongs to the consumer's thread."""

    def __init__(self, assignment: Assignment, hooks: Hooks) -> None:
        self._assignment = assignment
        self._hooks = hooks
        self._news: list[TopicPartition] = []  # picked up; the hook has not heard of them

    def start(self) -> None:
        """Pick up what is there now. Errors of ``Assignment.start``."""
        self._news = self._assignment.start()

    def follow(self) -> None:
        """Before records are handed out: take note of what changed. UnknownTopicError, once, for a named topic that
        was deleted."""
        added, lost = self._assignment.refresh()
        if self._news:
            added = self._news + added
            self._news = []
        self._hooks.lost(lost)
        self._hooks.assigned(added)
        self._assignment.tell_missing()

    def leave(self) -> None:
        """The consumer closes. Safe to call again."""
