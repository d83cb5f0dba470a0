"""``GroupMember``: one consumer's membership in a group, as its store holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from logstore.api.cancellation import CancelHandle
from logstore.api.groups import JoinRequest, MemberView
from logstore.errors import LogStoreError, UnknownMemberError
from logstore.groups.coordinator import GroupCoordinator
from logstore.machine import Decision
from logstore.seams.clock import Clock
from logstore.types import OffsetAndMetadata, TopicPartition


class MembershipOperations(Protocol):
    """What a member asks for: see ``GroupManager``."""

    @property
    def clock(self) -> Clock: ...

    @property
    def partition_counts(self) -> Callable[[], Mapping[str, int]]: ...

    def act(self, decide: Callable[[GroupCoordinator, int], Decision[Any]]) -> None: ...

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member_id: str | None = None,
        epoch: int | None = None,
    ) -> None: ...

    def is_settled(self, group: str, member_id: str) -> bool: ...

    def leave(self, member: GroupMember, ended_by: LogStoreError | None = None) -> None: ...


class GroupMember:
    """A ``GroupMembership``. The manager refreshes ``view`` after every change of the group; the task
    beats.

    ``polled_s``: when the consumer last asked for records; ``next_beat_s``: monotonic times; ``abandoned``: its
    consumer was dropped.
    """

    def __init__(
        self,
        manager: MembershipOperations,
        group: str,
        request: JoinRequest,
        member_id: str,
        liveness: bytes,
        now_s: float,
    ) -> None:
        self._manager = manager
        self._monotonic_s = manager.clock.monotonic_s
        self.group = group
        self.request = request
        self.member_id = member_id
        self.liveness = liveness
        self.polled_s = now_s
        self.next_beat_s = now_s + request.heartbeat_interval_ms / 1000
        self.abandoned = False
        self._view: MemberView | None = None
        self._ended_by: LogStoreError | None = None
        self._guard = threading.Lock()
        self._waiting: CancelHandle | None = None

    def view(self) -> MemberView | None:
        return self._view

    def ended_by(self) -> LogStoreError | None:
        return self._ended_by

    def show(self, view: MemberView | None, ended_by: LogStoreError | None = None) -> bool:
        """Called by the manager. Whether this is news."""
        if self._ended_by is not None or view == self._view:
            return False
        self._view = view
        if view is None:
            self._ended_by = ended_by or UnknownMemberError(f"member {self.member_id!r} has left")
        return True

    def is_settled(self) -> bool:
        return self._view is None or self._manager.is_settled(self.group, self.member_id)

    def sync(self, owned: Collection[TopicPartition], epoch: int) -> None:
        self._manager.act(
            lambda machine, now_ms: machine.decide_sync(self.group, self.member_id, epoch, owned, now_ms)
        )

    def update(self, topics: Collection[str]) -> None:
        view, facts = self._view, self._manager.partition_counts()
        if view is not None:
            self._manager.act(
                lambda machine, now_ms: machine.decide_update(
                    self.group, self.member_id, view.epoch, topics, facts, now_ms
                )
            )

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], epoch: int) -> None:
        if self._ended_by is not None:
            raise self._ended_by
        self._manager.commit(self.group, offsets, self.member_id, epoch)

    def polled(self) -> None:
        self.polled_s = self._monotonic_s()

    def cancel_on_change(self, handle: CancelHandle | None, seen: MemberView | None) -> None:
        with self._guard:
            self._waiting = handle
            changed = self._view is not seen
        if changed and handle is not None:
            handle.cancel()

    def nudge(self) -> None:
        """``view`` has changed: the consumer's wait ends."""
        with self._guard:
            handle = self._waiting
        if handle is not None:
            handle.cancel()

    def leave(self) -> None:
        self._manager.leave(self)

    def abandon(self) -> None:
        self.abandoned = True  # the task sees it at its next step
