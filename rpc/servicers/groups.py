"""``GroupService``: consumer groups and their members."""

from __future__ import annotations

from logstore.api.groups import JoinRequest
from logstore.errors import InvalidArgumentError, UnknownMemberError
from rpc.handlers.caller import Caller
from rpc.handlers.groups import GroupHandler, RemoteMember
from rpc.pb import groups_pb2 as pb
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.errors import to_wire
from rpc.wire.values import fill, places


class GroupService(Service):
    def __init__(self, handler: GroupHandler, identify: Identify, observe: Observer) -> None:
        super().__init__("GroupService", identify, observe)
        self._handler = handler
        self.once("JoinGroup", pb.JoinGroupRequest, self._join)
        self.unary("Heartbeat", pb.HeartbeatRequest, self._heartbeat)
        self.once("SyncMember", pb.SyncMemberRequest, self._sync)
        self.once("UpdateMember", pb.UpdateMemberRequest, self._update)
        self.once("LeaveGroup", pb.LeaveGroupRequest, self._leave)
        self.unary("ListGroups", pb.ListGroupsRequest, self._list)
        self.once("DeleteGroup", pb.DeleteGroupRequest, self._delete)

    async def _join(self, caller: Caller, request: pb.JoinGroupRequest) -> pb.MemberState:
        wanted = _join_request(request)
        if request.HasField("member_id"):
            return _state(await self._handler.resume(caller, request.group, request.member_id, wanted))
        return _state(await self._handler.join(caller, request.group, wanted))

    async def _heartbeat(self, caller: Caller, request: pb.HeartbeatRequest) -> pb.MemberState:
        return _state(
            await self._handler.heartbeat(
                caller,
                request.group,
                request.member_id,
                known_version=request.known_version,
                polled_s_ago=request.polled_ms_ago / 1000,
                max_wait_s=max(request.max_wait_ms, 0) / 1000,
            )
        )

    async def _sync(self, caller: Caller, request: pb.SyncMemberRequest) -> pb.MemberState:
        owned = places(request.owned)
        return _state(
            await self._handler.sync(caller, request.group, request.member_id, owned, request.epoch)
        )

    async def _update(self, caller: Caller, request: pb.UpdateMemberRequest) -> pb.MemberState:
        topics = list(request.topics)
        return _state(await self._handler.update(caller, request.group, request.member_id, topics))

    async def _leave(self, caller: Caller, request: pb.LeaveGroupRequest) -> pb.LeaveGroupResponse:
        await self._handler.leave(caller, request.group, request.member_id)
        return pb.LeaveGroupResponse()

    async def _list(self, caller: Caller, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        del request
        message = pb.ListGroupsResponse()
        for one in await self._handler.list(caller):
            fill(message.groups.add(), one)
        return message

    async def _delete(self, caller: Caller, request: pb.DeleteGroupRequest) -> pb.DeleteGroupResponse:
        await self._handler.delete(caller, request.group)
        return pb.DeleteGroupResponse()


def _join_request(request: pb.JoinGroupRequest) -> JoinRequest:
    """InvalidArgumentError names the setting."""
    assignor = request.assignor or "sticky"
    if assignor not in ("range", "round_robin", "sticky"):
        raise InvalidArgumentError(f"assignor={assignor!r}", hint="it is range, round_robin or sticky")
    for name in ("session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms"):
        if getattr(request, name) <= 0:
            raise InvalidArgumentError(f"{name}={getattr(request, name)}", hint="it is a time in ms")
    return JoinRequest(
        topics=frozenset(request.topics),
        pattern=request.pattern if request.HasField("pattern") else None,
        instance_id=request.instance_id if request.HasField("instance_id") else None,
        assignor=assignor,  # type: ignore[arg-type]  # checked above
        session_timeout_ms=request.session_timeout_ms,
        heartbeat_interval_ms=request.heartbeat_interval_ms,
        max_poll_interval_ms=request.max_poll_interval_ms,
    )


def _state(member: RemoteMember) -> pb.MemberState:
    membership, view = member.membership, member.view
    message = pb.MemberState(member_id=membership.member_id, version=member.version, settled=member.settled)
    if view is None:
        reason = membership.ended_by() or UnknownMemberError(f"{membership.member_id!r} is no member")
        message.ended_by.CopyFrom(to_wire(reason))
        return message
    message.epoch, message.group_epoch = view.epoch, view.group_epoch
    for place in sorted(view.assigned):
        fill(message.assigned.add(), place)
    for place in sorted(view.revoking):
        fill(message.revoking.add(), place)
    message.initial.update(view.initial)
    return message
