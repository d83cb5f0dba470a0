"""``RemoteMembership``: a consumer's membership in a group, kept alive by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from logstore.api.cancellation import CancelHandle
from logstore.api.groups import JoinRequest, MemberIdentity, MemberView
from logstore.errors import ClientClosedError, LogStoreError, MemberFencedError, UnknownMemberError
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.errors import NotLeaderError
from rpc.client.arguments import member_text
from rpc.client.routing.role import Role
from rpc.framing import parse
from rpc.pb import groups_pb2 as pb
from rpc.pb import offsets_pb2
from rpc.wire.errors import from_wire
from rpc.wire.offsets import committed_to_wire
from rpc.wire.values import fill

_GRACE_S: Final = 5.0
_PAUSE_S: Final = 0.1
_ENDS: Final = (UnknownMemberError, MemberFencedError)


class RemoteMembership:
    """A ``GroupMembership``. Thread-safe. A broker that cannot be reached ends it after the session timeout: its places
    may be another member's by then. A coordinator that becomes another broker goes on with the member as it is."""

    def __init__(self, coordinator: Role, group: str, request: JoinRequest) -> None:
        self._coordinator = coordinator
        self._group = group
        self._request = request
        self._lock = threading.Lock()
        self._resuming = threading.Lock()
        self._view: MemberView | None = None
        self._settled = False
        self._version = 0
        self._coordinators = 0  # that have had the member: each counts versions of its own
        self._ended_by: LogStoreError | None = None
        self._waiting: CancelHandle | None = None
        self._closing = threading.Event()
        self._polled_s = self._heard_s = time.monotonic()
        self.member_id = ""
        self._take(coordinator.call("GroupService/JoinGroup", _join(group, request), pb.MemberState), 0)
        self._thread = threading.Thread(
            target=self._beat, name=f"logstore-member-{self.member_id[:8]}", daemon=True
        )
        self._thread.start()

    def view(self) -> MemberView | None:
        return self._view

    def ended_by(self) -> LogStoreError | None:
        return self._ended_by

    def is_settled(self) -> bool:
        return self._view is None or self._settled

    def sync(self, owned: Collection[TopicPartition], epoch: int) -> None:
        request = pb.SyncMemberRequest(group=self._group, member_id=self.member_id, epoch=epoch)
        for place in owned:
            fill(request.owned.add(), place)
        self._act("GroupService/SyncMember", request)

    def update(self, topics: Collection[str]) -> None:
        request = pb.UpdateMemberRequest(group=self._group, member_id=self.member_id, topics=sorted(topics))
        self._request = replace(self._request, topics=frozenset(topics))
        self._act("GroupService/UpdateMember", request)

    def _act(self, path: str, request: pb.SyncMemberRequest | pb.UpdateMemberRequest) -> None:
        seen = self._coordinators
        try:
            try:
                self._take(self._coordinator.call(path, request, pb.MemberState), seen)
            except UnknownMemberError as error:
                self._resume(error, seen)
                seen = self._coordinators
                self._take(self._coordinator.call(path, request, pb.MemberState), seen)
        except _ENDS as error:
            self._end(error)

    def _resume(self, unknown: UnknownMemberError, seen: int) -> None:
        """Have the coordinator, which does not know the member, take it up from its log. Raises ``unknown`` where there
        is only one broker; UnknownMemberError, MemberFencedError: the group has it no more. ``seen``: how many
        coordinators there had been when it was asked."""
        if not self._coordinator.moves:
            raise unknown
        with self._resuming:
            if self._coordinators != seen:
                return  # another thread has
            request = _join(self._group, self._request, self.member_id)
            state = self._coordinator.call("GroupService/JoinGroup", request, pb.MemberState)
            with self._lock:
                self._coordinators, self._version = seen + 1, 0
            self._take(state, seen + 1)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], epoch: int) -> None:
        if self._ended_by is not None:
            raise self._ended_by
        request = offsets_pb2.CommitOffsetsRequest(group=self._group, offsets=committed_to_wire(offsets))
        request.member.member_id, request.member.epoch = MemberIdentity(self.member_id, epoch)
        self._coordinator.call("OffsetService/CommitOffsets", request, offsets_pb2.CommitOffsetsResponse)

    def polled(self) -> None:
        self._polled_s = time.monotonic()

    def cancel_on_change(self, handle: CancelHandle | None, seen: MemberView | None) -> None:
        with self._lock:
            self._waiting = handle
            changed = self._view is not seen
        if changed and handle is not None:
            handle.cancel()

    def leave(self) -> None:
        self._closing.set()
        if self._ended_by is None:
            self._end(UnknownMemberError(f"member {self.member_id!r} has left"))
            self._leave()

    def _leave(self) -> None:
        request = pb.LeaveGroupRequest(group=self._group, member_id=self.member_id)
        seen = self._coordinators
        with suppress(*_ENDS):  # it is over already
            try:
                self._coordinator.call("GroupService/LeaveGroup", request, pb.LeaveGroupResponse)
            except UnknownMemberError as error:
                self._resume(error, seen)
                self._coordinator.call("GroupService/LeaveGroup", request, pb.LeaveGroupResponse)

    def abandon(self) -> None:
        self._closing.set()  # the broker takes the member out when its session ends

    # --- heartbeats ---

    def _beat(self) -> None:
        wait_s = min(self._request.session_timeout_ms, 3 * self._request.heartbeat_interval_ms) / 3000
        while not self._closing.is_set() and self._ended_by is None:
            seen = self._coordinators
            try:
                try:
                    self._beat_once(wait_s)
                except UnknownMemberError as error:
                    self._resume(error, seen)
            except ClientClosedError as error:
                self._end(error)
            except LogStoreError as error:
                if not error.retriable or self._is_over():
                    self._end(error if isinstance(error, _ENDS) else _silent(self, error))
                self._closing.wait(_PAUSE_S)

    def _beat_once(self, wait_s: float) -> None:
        """Say that the member lives, and take what the broker answers within ``wait_s``."""
        seen = self._coordinators
        request = pb.HeartbeatRequest(
            group=self._group,
            member_id=self.member_id,
            known_version=self._version,
            polled_ms_ago=int((time.monotonic() - self._polled_s) * 1000),
            max_wait_ms=int(wait_s * 1000),
        )
        data = self._coordinator.send(
            "GroupService/Heartbeat", request.SerializeToString(), wait_s + _GRACE_S
        )
        self._take(parse(data, pb.MemberState), seen)

    def _is_over(self) -> bool:
        return time.monotonic() - self._heard_s > self._request.session_timeout_ms / 1000

    def _take(self, state: pb.MemberState, coordinator: int) -> None:
        """The newest state, unless a newer one has come on another call, or a newer coordinator has the member.
        NotLeaderError: the broker coordinates the group no more."""
        ended = from_wire(state.ended_by) if state.HasField("ended_by") else None
        if isinstance(ended, NotLeaderError):
            self._coordinator.redirect(ended)
            raise ended
        with self._lock:
            self._heard_s = time.monotonic()
            if self._ended_by is not None or coordinator != self._coordinators:
                return
            if state.version <= self._version:
                return
            self.member_id, self._version, self._settled = state.member_id, state.version, state.settled
            view = None if ended is not None else _view(state)
            if view == self._view and ended is None:
                return
            self._view, self._ended_by = view, ended
            waiting = self._waiting
        if waiting is not None:
            waiting.cancel()

    def _end(self, reason: LogStoreError) -> None:
        with self._lock:
            if self._ended_by is not None:
                return
            self._view, self._ended_by = None, reason
            waiting = self._waiting
        if waiting is not None:
            waiting.cancel()


def _silent(member: RemoteMembership, error: LogStoreError) -> UnknownMemberError:
    return UnknownMemberError(
        f"member {member.member_id!r} could not be kept alive, its partitions may be read by others: {error.message}"
    )


def _join(group: str, request: JoinRequest, member_id: str | None = None) -> pb.JoinGroupRequest:
    """``member_id``: of a member that goes on, at another coordinator; None: a new one."""
    message = pb.JoinGroupRequest(group=group)
    return fill(
        message,
        request,
        group=group,
        topics=sorted(request.topics),
        pattern=member_text(request.pattern, "a pattern"),
        instance_id=member_text(request.instance_id, "an instance_id"),
        member_id=member_id,
    )


def _view(state: pb.MemberState) -> MemberView:
    return MemberView(
        state.member_id,
        state.epoch,
        state.group_epoch,
        frozenset(TopicPartition(one.topic, one.partition) for one in state.assigned),
        frozenset(TopicPartition(one.topic, one.partition) for one in state.revoking),
        dict(state.initial),
    )
