"""``GroupHandler``: consumer groups for callers, who keep their members alive by heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from logstore.api.cancellation import CancelHandle
from logstore.api.groups import GroupMembership, GroupSummary, JoinRequest, MemberView
from logstore.errors import LogStoreError, UnknownMemberError
from logstore.types import COUNTER_TOPIC, TopicPartition
from replication.errors import NotLeaderError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import Authorizer, Caller, Operation, Resource
from rpc.handlers.engine import Engine, Resuming
from rpc.handlers.waits import Waits

_LOOK_S: Final = 0.5
"""How often sessions are looked at."""

_SETTLING_S: Final = 0.05
"""How often a member that waits for partitions of others asks whether they have come."""


@dataclass(slots=True)
class RemoteMember:
    """A member whose consumer is a client. ``heard_s``, ``polled_s``: of the loop's clock; ``version`` goes up with the
    view."""

    group: str
    principal: str
    request: JoinRequest
    membership: GroupMembership
    heard_s: float
    polled_s: float
    version: int = 1
    view: MemberView | None = None
    settled: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)


class GroupHandler:
    """Of the event loop alone. A member whose heartbeats stop for its session timeout leaves; one that does not poll is
    taken out by the coordinator, as ``polled`` is not passed on."""

    def __init__(self, engine: Engine, blocking: Blocking, authorizer: Authorizer, waits: Waits) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._waits = waits
        self._members: dict[tuple[str, str], RemoteMember] = {}
        self._watching: asyncio.Task[None] | None = None

    async def join(self, caller: Caller, group: str, request: JoinRequest) -> RemoteMember:
        self._authorizer.check(caller, Operation.READ, Resource.GROUP, group)
        for topic in request.topics:
            self._authorizer.check(caller, Operation.READ, Resource.TOPIC, topic)
        return await self._keep(
            caller, group, request, await self._blocking.run(self._engine.join_group, group, request)
        )

    async def resume(self, caller: Caller, group: str, member_id: str, request: JoinRequest) -> RemoteMember:
        """A member that was another broker's. UnknownMemberError: the group has it no more, or coordinators stay."""
        self._authorizer.check(caller, Operation.READ, Resource.GROUP, group)
        with suppress(UnknownMemberError):
            member = self.find(caller, group, member_id)
            if not self._has_moved(member):
                return member
        for topic in request.topics:
            self._authorizer.check(caller, Operation.READ, Resource.TOPIC, topic)
        engine = self._engine
        if not isinstance(engine, Resuming):
            raise UnknownMemberError(f"{member_id!r} is no member of group {group!r}")
        return await self._keep(
            caller, group, request, await self._blocking.run(engine.resume_member, group, member_id, request)
        )

    async def _keep(
        self, caller: Caller, group: str, request: JoinRequest, membership: GroupMembership
    ) -> RemoteMember:
        """Look after a member from now on."""
        now_s = asyncio.get_running_loop().time()
        member = RemoteMember(group, caller.principal, request, membership, now_s, now_s)
        self._members[group, membership.member_id] = member
        if self._watching is None:  # whatever fails from here on, the member ends by its session
            self._watching = asyncio.create_task(self._watch_sessions())
        await self._refresh(member)
        self._watch_for_changes(member)
        return member

    def find(self, caller: Caller, group: str, member_id: str) -> RemoteMember:
        """UnknownMemberError unless it is a member of the caller's; AccessDeniedError where the caller may not read
        with the group any more."""
        self._authorizer.check(caller, Operation.READ, Resource.GROUP, group)
        member = self._members.get((group, member_id))
        if member is None or member.principal != caller.principal:
            raise UnknownMemberError(f"{member_id!r} is no member of group {group!r}")
        return member

    async def heartbeat(
        self,
        caller: Caller,
        group: str,
        member_id: str,
        *,
        known_version: int,
        polled_s_ago: float,
        max_wait_s: float,
    ) -> RemoteMember:
        """The member, once there is news of it, or the time is over."""
        loop = asyncio.get_running_loop()
        member = self.find(caller, group, member_id)
        self._hear(member, polled_s_ago)
        if member.membership.view() is not member.view:  # the word of the change is on its way to the loop
            await self._refresh(member)
        wait_s = min(max_wait_s, member.request.session_timeout_ms / 3000)
        deadline_s = loop.time() + wait_s
        while member.version == known_version and loop.time() < deadline_s and not self._waits.over:
            pause_s = deadline_s - loop.time()
            if not member.settled:
                pause_s = min(pause_s, _SETTLING_S)
            await self._waits.wait(member.news.wait(), pause_s)
            if not member.settled and member.version == known_version:
                await self._refresh(member)
        member.heard_s = loop.time()
        if self._has_moved(member):
            self._forget(member)
        return member

    def _has_moved(self, member: RemoteMember) -> bool:
        """Whether another node coordinates the group now."""
        return isinstance(member.membership.ended_by(), NotLeaderError)

    def _forget(self, member: RemoteMember) -> None:
        """It goes on elsewhere."""
        self._members.pop((member.group, member.membership.member_id), None)
        member.membership.cancel_on_change(None, None)

    def _hear(self, member: RemoteMember, polled_s_ago: float) -> None:
        now_s = asyncio.get_running_loop().time()
        member.heard_s = now_s
        polled_s = now_s - max(polled_s_ago, 0.0)
        if polled_s > member.polled_s + 1e-3:
            member.polled_s = polled_s
            member.membership.polled()

    async def sync(
        self, caller: Caller, group: str, member_id: str, owned: Collection[TopicPartition], epoch: int
    ) -> RemoteMember:
        member = self.find(caller, group, member_id)
        await self._blocking.run(member.membership.sync, owned, epoch)
        await self._refresh(member)
        return member

    async def update(
        self, caller: Caller, group: str, member_id: str, topics: Collection[str]
    ) -> RemoteMember:
        member = self.find(caller, group, member_id)
        for topic in topics:
            self._authorizer.check(caller, Operation.READ, Resource.TOPIC, topic)
        await self._blocking.run(member.membership.update, topics)
        await self._refresh(member)
        return member

    async def leave(self, caller: Caller, group: str, member_id: str) -> None:
        """UnknownMemberError where the group may have it all the same: from another coordinator's time."""
        try:
            self.find(caller, group, member_id)
        except UnknownMemberError:
            if isinstance(self._engine, Resuming):
                raise
            return  # it is over already
        await self._end(self._members.pop((group, member_id)))

    async def list(self, caller: Caller) -> list[GroupSummary]:
        """Groups that the caller may see, and of them what belongs to topics that the caller may see."""
        found = await self._blocking.run(self._engine.list_groups)
        return [
            self._seen_by(caller, one)
            for one in found
            if self._authorizer.allows(caller, Operation.DESCRIBE, Resource.GROUP, one.group)
        ]

    def _seen_by(self, caller: Caller, group: GroupSummary) -> GroupSummary:
        def sees(topic: str) -> bool:
            counter = topic == COUNTER_TOPIC  # the group's own
            return counter or self._authorizer.allows(caller, Operation.DESCRIBE, Resource.TOPIC, topic)

        def seen(places: Collection[TopicPartition]) -> tuple[TopicPartition, ...]:
            return tuple(place for place in places if sees(place.topic))

        return group._replace(
            members=tuple(
                member._replace(
                    topics=tuple(filter(sees, member.topics)),
                    assigned=seen(member.assigned),
                    revoking=seen(member.revoking),
                    target=seen(member.target),
                )
                for member in group.members
            ),
            offsets={place: one for place, one in group.offsets.items() if sees(place.topic)},
        )

    async def delete(self, caller: Caller, group: str) -> None:
        self._authorizer.check(caller, Operation.DELETE, Resource.GROUP, group)
        await self._blocking.run(self._engine.delete_group, group)

    # --- news ---

    async def _refresh(self, member: RemoteMember) -> None:
        """See what the member has now."""
        view = member.membership.view()
        settled = await self._blocking.run(member.membership.is_settled)
        if view is not member.view or settled != member.settled:
            member.view, member.settled = view, settled
            member.version += 1
            member.news.set()
            member.news = asyncio.Event()

    def _watch_for_changes(self, member: RemoteMember) -> None:
        """Have the member refreshed when its view changes, from whatever thread."""
        loop = asyncio.get_running_loop()
        handle = CancelHandle()

        def changed() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._note_change(member)))

        handle.on_cancel(changed)
        member.membership.cancel_on_change(handle, member.view)

    async def _note_change(self, member: RemoteMember) -> None:
        await self._refresh(member)
        if member.view is not None and (member.group, member.membership.member_id) in self._members:
            self._watch_for_changes(member)

    # --- ends ---

    async def _watch_sessions(self) -> None:
        """Members that are silent for their session timeout leave; those that have ended are forgotten later."""
        loop = asyncio.get_running_loop()
        while self._members:
            await asyncio.sleep(_LOOK_S)
            for key, member in list(self._members.items()):
                if self._has_moved(member):
                    self._forget(member)
                elif loop.time() - member.heard_s > member.request.session_timeout_ms / 1000:
                    self._members.pop(key, None)
                    with suppress(
                        LogStoreError
                    ):  # the coordinator takes the member out without its leaving, too
                        await self._end(member)
        self._watching = None

    async def _end(self, member: RemoteMember) -> None:
        member.membership.cancel_on_change(None, None)
        await self._blocking.run(member.membership.leave)

    async def close(self) -> None:
        """All members leave, unless another node can go on with them."""
        moves = isinstance(self._engine, Resuming)
        while self._members:
            _, member = self._members.popitem()
            with suppress(LogStoreError):  # the store's own close frees their places
                if moves:
                    member.membership.cancel_on_change(None, None)
                else:
                    await self._end(member)
        if self._watching is not None:
            self._watching.cancel()
