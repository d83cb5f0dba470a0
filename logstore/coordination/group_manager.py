"""``GroupManager``: the members of consumer groups that live in this process, and what they ask of the coordinator.

The coordinator is no process: the one that acts takes the short lock of `__consumer_offsets`, decides, and appends what
was decided. Members learn of others' decisions by replaying them (``MembershipTask`` looks, up to 50 ms later).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from logstore.api.groups import validate_group
from logstore.coordination.coordinator import Coordinator
from logstore.coordination.group_member import GroupMember
from logstore.coordination.liveness import MemberLiveness
from logstore.coordination.offset_ends import OffsetEnds
from logstore.coordination.offset_expiry import expire_offsets
from logstore.coordination.store_view import StoreView
from logstore.coordination.transactional_offsets import PendingCommit, commit_pending
from logstore.errors import (
    GroupBusyError,
    LogStoreError,
    MemberFencedError,
    StoreClosedError,
    UnknownMemberError,
)
from logstore.groups.coordinator import GroupCoordinator
from logstore.groups.views import GroupDescription
from logstore.machine import Decision
from logstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from logstore.api.groups import JoinRequest

logger = logging.getLogger(__name__)

GroupTopic: TypeAlias = Coordinator[GroupCoordinator]


class _News:
    """Whether the topic was written or replayed. A flag that wakes no thread, as commits are many."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def take(self) -> bool:
        was, self._is_set = self._is_set, False
        return was


class GroupManager:
    """Thread-safe. ``topic(create)``: `__consumer_offsets`, None while there is none; ``partition_counts``: of all
    topics; ``ends``: of the partitions for which offsets are committed; ``on_member``: a member joined (the task
    has work); ``client``: what a member's description says of this process; ``random_bytes``: of member ids."""

    def __init__(
        self,
        store: StoreView,
        topic: Callable[[bool], GroupTopic | None],
        partition_counts: Callable[[], Mapping[str, int]],
        ends: OffsetEnds,
        on_member: Callable[[], None],
        liveness: MemberLiveness,
        client: Callable[[], str],
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._store = store
        self._topic = topic
        self._ends = ends
        self._on_member = on_member
        self.partition_counts = partition_counts
        self.clock = store.clock
        self.liveness = liveness
        self._client = client
        self._random_bytes = random_bytes
        self._guard = threading.Lock()  # around members, and around refreshing: an older view never wins
        self._members: dict[str, GroupMember] = {}
        self._news = _News()

    # --- joining and leaving ---

    def join(self, group: str, request: JoinRequest) -> GroupMember:
        """A new member, with its view. Members of the group that are dead make way first."""
        self._store.check_writable()
        validate_group(group)
        topic = self._need_topic()
        topic.subscribe(self._news)
        self.expire_dead({group})
        member_id = self._random_bytes(16).hex()
        client, liveness = self._client(), self.liveness.begin(member_id)
        try:
            topic.decide(
                lambda machine: machine.decide_join(
                    group,
                    member_id,
                    instance_id=request.instance_id,
                    client=client,
                    topics=request.topics,
                    pattern=request.pattern,
                    assignor=request.assignor,
                    session_timeout_ms=request.session_timeout_ms,
                    max_poll_interval_ms=request.max_poll_interval_ms,
                    liveness=liveness,
                    partitions=self.partition_counts(),
                    now_ms=self.clock.wall_ms(),
                )
            )
        except BaseException:
            self.liveness.end(liveness)
            raise
        member = GroupMember(self, group, request, member_id, liveness, self.clock.monotonic_s())
        with self._guard:
            self._members[member_id] = member
        try:
            self.refresh()
        except BaseException:
            self.leave(member)  # its caller will never hear of it
            raise
        self._on_member()
        return member

    def resume(self, group: str, member_id: str, request: JoinRequest) -> GroupMember:
        """A member that joined where the coordinator was before, as the group has it. UnknownMemberError,
        MemberFencedError: it has it no more."""
        self._store.check_writable()
        topic = self._need_topic()
        topic.subscribe(self._news)
        topic.confirm()  # a coordinator that was deposed and has not heard of it may lack the member
        topic.look(lambda machine: machine.check_member(group, member_id))
        with self._guard:
            member = self._members.get(member_id)
            if member is None:
                liveness = self.liveness.begin(member_id)
                member = GroupMember(self, group, request, member_id, liveness, self.clock.monotonic_s())
                self._members[member_id] = member
        self.refresh()
        self._on_member()
        return member

    def leave(self, member: GroupMember, ended_by: LogStoreError | None = None) -> None:
        """Safe to call again. What cannot be told to the coordinator, others find out: the member's lock is free."""
        with self._guard:
            if self._members.pop(member.member_id, None) is None:
                return
            member.show(None, ended_by)
        try:
            self._need_topic().decide(
                lambda machine: machine.decide_leave(member.group, member.member_id, self.clock.wall_ms())
            )
            self.refresh()
        except StoreClosedError:
            pass  # its locks are free by now, or will be in a moment
        except LogStoreError as error:
            logger.warning("member %s leaves group %r untold: %s", member.member_id, member.group, error)
        finally:
            self._free(member)

    def _free(self, member: GroupMember) -> None:
        try:
            self.liveness.end(member.liveness)
        except StoreClosedError:
            pass  # then it is free

    def lost(self) -> LogStoreError | None:
        """Why the members here have their coordinator elsewhere now; None: they have it here."""
        topic = self._topic(False)
        return None if topic is None else topic.lost()

    def drop(self, error: LogStoreError) -> None:
        """No member is this process's any more: the group has them still, and they go on elsewhere."""
        with self._guard:
            members = list(self._members.values())
            self._members.clear()
        for member in members:
            member.show(None, error)
            self._free(member)
            member.nudge()

    def members(self) -> list[GroupMember]:
        with self._guard:
            return list(self._members.values())

    # --- acting ---

    def act(self, decide: Callable[[GroupCoordinator, int], Decision[Any]]) -> None:
        """A member's own doing; its view is newer afterwards, None if it is no member any more."""
        try:
            self._need_topic().decide(lambda machine: decide(machine, self.clock.wall_ms()))
        except (UnknownMemberError, MemberFencedError) as error:
            logger.debug("a member finds that it is none: %s", error)
        self.refresh()

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member_id: str | None = None,
        epoch: int | None = None,
    ) -> None:
        """Durable when it returns. Without a member, those of the group that are dead make way."""
        self._store.check_writable()
        seen = self._ends.of(offsets)
        topic = self._need_topic()

        def decide(machine: GroupCoordinator) -> Decision[Any]:
            now_ms = self.clock.wall_ms()
            topic_ids = self._ends.still(seen)
            return machine.decide_commit(
                group, offsets, now_ms, seen.ends, topic_ids, member_id=member_id, epoch=epoch
            )

        try:
            self.without_dead(group, lambda: topic.decide(decide))
        except (UnknownMemberError, MemberFencedError):
            self.refresh()
            raise

    def commit_pending(self, commit: PendingCommit) -> None:
        """See ``TransactionalOffsets.commit``."""
        self._store.check_writable()
        commit_pending(self._need_topic(), self.clock, self._ends, commit)

    def without_dead(self, group: str, act: Callable[[], Any]) -> None:
        """Try again without those members that are dead, if members are in the way."""
        try:
            act()
        except GroupBusyError:
            if not self.expire_dead({group}):
                raise
            act()

    def _need_topic(self) -> GroupTopic:
        topic = self._topic(True)
        if topic is None:
            raise StoreClosedError("groups are used after their store was closed")
        return topic

    # --- what others did ---

    def follow(self) -> bool:
        """``refresh`` if anything was written since, here or elsewhere."""
        topic = self._topic(False)
        return topic is not None and (self._news.take() or topic.changed()) and self.refresh()

    def refresh(self) -> bool:
        """Show every member here what it has now, and wake those for whom that is news. Whether there was any."""
        changed: list[GroupMember] = []
        with self._guard:
            members = list(self._members.values())
            topic = self._topic(False)
            if not members or topic is None:
                return False
            views = topic.look(lambda machine: [machine.view(one.group, one.member_id) for one in members])
            for member, view in zip(members, views, strict=True):
                ended_by = None if view is not None else self._why_ended(topic, member)
                if member.show(view, ended_by):
                    changed.append(member)
                if view is None:
                    del self._members[member.member_id]
                    self._free(member)
        for member in changed:
            _tell(member)
            member.nudge()
        return bool(changed)

    def _why_ended(self, topic: GroupTopic, member: GroupMember) -> LogStoreError | None:
        try:
            topic.look(lambda machine: machine.check_member(member.group, member.member_id))
        except (UnknownMemberError, MemberFencedError) as error:
            return error
        return None

    def is_settled(self, group: str, member_id: str) -> bool:
        """Whether the member has all that it shall have."""
        topic = self._need_topic()
        return topic.look(lambda machine: is_settled(machine.describe(group), member_id))

    def awaited(self, members: Collection[GroupMember]) -> dict[str, dict[str, list[TopicPartition]]]:
        """By member id what each waits for, as ``GroupCoordinator.awaited``."""
        topic = self._topic(False)
        if topic is None:
            return {}
        return topic.look(
            lambda machine: {one.member_id: machine.awaited(one.group, one.member_id) for one in members}
        )

    def expire_dead(self, groups: Collection[str]) -> bool:
        """Decide the end of every member of these groups that is dead. Whether there was one."""
        topic = self._topic(False)
        if topic is None:
            return False
        dead = self.find_dead(topic, groups)
        for group, ids in dead.items():
            logger.info("group %r: %d members are dead: %s", group, len(ids), ", ".join(ids))
            topic.decide(partial(self._expire, group, ids))
        if dead:
            self.refresh()
        return bool(dead)

    def expire_offsets(self) -> None:
        """Forget the offsets of groups that have long been without members, and these groups."""
        topic = self._topic(False)
        if topic is not None:
            expire_offsets(topic, self._store, self._ends.topic_id)

    def _expire(self, group: str, ids: list[str], machine: GroupCoordinator) -> Decision[list[str]]:
        return machine.decide_expire(group, ids, self.clock.wall_ms())

    def find_dead(self, topic: GroupTopic, groups: Collection[str]) -> dict[str, list[str]]:
        """Member ids by group; those that live here are not asked about."""
        members = topic.look(lambda machine: machine.sessions())
        mine = self._members
        others = [one for one in members if one.member_id not in mine]
        if not any(one.group in groups for one in others):
            return {}
        return self.liveness.dead(others, groups)

    def close(self) -> None:
        self.liveness.close()


def _tell(member: GroupMember) -> None:
    """What a rebalance means for a member."""
    view = member.view()
    if view is None:
        logger.info(
            "group %r: member %s is none any more: %s", member.group, member.member_id, member.ended_by()
        )
        return
    logger.info(
        "group %r: member %s has %d partitions in generation %d, and %d to give up",
        member.group,
        member.member_id,
        len(view.assigned),
        view.epoch,
        len(view.revoking),
    )


def is_settled(group: GroupDescription, member_id: str) -> bool:
    """Whether this member of the group has all that it shall have."""
    return all(
        set(member.target) <= set(member.assigned)
        for member in group.members
        if member.member_id == member_id
    )
