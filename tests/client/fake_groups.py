"""The groups of ``FakeBackend``: the coordinator's machine, without a log, and members without heartbeats."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any

from logstore.api.cancellation import CancelHandle
from logstore.api.groups import GroupMembership, GroupSummary, JoinRequest, MemberIdentity, MemberView
from logstore.coordination.group_manager import is_settled
from logstore.errors import LogStoreError
from logstore.groups.coordinator import GroupCoordinator
from logstore.machine import Decision
from logstore.types import OffsetAndMetadata, TopicPartition

NOW_MS = 1_000


class FakeMember:
    """``polls``: how often the consumer asked for records."""

    def __init__(self, groups: FakeGroups, group: str, member_id: str) -> None:
        self._groups = groups
        self._group = group
        self.member_id = member_id
        self.polls = 0
        self.abandoned = False
        self.waiting: CancelHandle | None = None
        self._shown: MemberView | None = None

    def view(self) -> MemberView | None:
        view = self._groups.machine.view(self._group, self.member_id)
        if view != self._shown:
            self._shown = view
        return self._shown

    def ended_by(self) -> LogStoreError | None:
        try:
            self._groups.machine.check_member(self._group, self.member_id)
        except LogStoreError as error:
            return error
        return None

    def is_settled(self) -> bool:
        return is_settled(self._groups.machine.describe(self._group), self.member_id)

    def sync(self, owned: Collection[TopicPartition], epoch: int) -> None:
        self._groups.decide(
            lambda machine: machine.decide_sync(self._group, self.member_id, epoch, owned, NOW_MS)
        )

    def update(self, topics: Collection[str]) -> None:
        view, facts = self.view(), self._groups.partition_counts()
        assert view is not None
        self._groups.decide(
            lambda machine: machine.decide_update(
                self._group, self.member_id, view.epoch, topics, facts, NOW_MS
            )
        )

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], epoch: int) -> None:
        self._groups.commit_offsets(self._group, offsets, member=MemberIdentity(self.member_id, epoch))

    def polled(self) -> None:
        self.polls += 1

    def cancel_on_change(self, handle: CancelHandle | None, seen: MemberView | None) -> None:
        self.waiting = handle
        if handle is not None and self.view() is not seen:
            handle.cancel()

    def leave(self) -> None:
        self._groups.decide(lambda machine: machine.decide_leave(self._group, self.member_id, NOW_MS))

    def abandon(self) -> None:
        self.abandoned = True


class FakeGroups(ABC):
    """``commit_faults``: what the next commits meet, one each. ``commits``: what was committed, in order.
    ``commit_gate``: commits wait for it."""

    def __init__(self) -> None:
        self.machine = GroupCoordinator()
        self.group_members: list[FakeMember] = []
        self.commit_faults: list[LogStoreError] = []
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.commit_gate = threading.Event()
        self.commit_gate.set()
        self._machine_lock = threading.RLock()
        self._numbers = itertools.count()

    @abstractmethod
    def partition_counts(self) -> Mapping[str, int]: ...

    @abstractmethod
    def end_offset(self, where: TopicPartition) -> int: ...

    def decide(self, decide: Callable[[GroupCoordinator], Decision[Any]]) -> Any:
        with self._machine_lock:
            decision = decide(self.machine)
            for key, value in decision.records:
                if decision.producer is None:
                    self.machine.replay(key, value)
                else:
                    self.machine.replay_pending(*decision.producer, key, value)
        for member in self.group_members:
            if member.waiting is not None:
                member.waiting.cancel()
        return decision.reply

    def join_group(self, group: str, request: JoinRequest) -> GroupMembership:
        member = FakeMember(self, group, f"{next(self._numbers):032x}")
        self.decide(
            lambda machine: machine.decide_join(
                group,
                member.member_id,
                instance_id=request.instance_id,
                client="pid 1 on here (test)",
                topics=request.topics,
                pattern=request.pattern,
                assignor=request.assignor,
                session_timeout_ms=request.session_timeout_ms,
                max_poll_interval_ms=request.max_poll_interval_ms,
                liveness=bytes(4),
                partitions=self.partition_counts(),
                now_ms=NOW_MS,
            )
        )
        self.group_members.append(member)
        return member

    def expire(self, group: str, member_id: str) -> None:
        """Its session ended."""
        self.decide(lambda machine: machine.decide_expire(group, [member_id], NOW_MS))

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member: MemberIdentity | None = None,
    ) -> None:
        self.commit_gate.wait(60)
        if self.commit_faults:
            raise self.commit_faults.pop(0)
        ends = {where: self.end_offset(where) for where in offsets}
        member_id, epoch = (None, None) if member is None else member
        self.decide(
            lambda machine: machine.decide_commit(
                group, offsets, NOW_MS, ends, member_id=member_id, epoch=epoch
            )
        )
        self.commits.append(dict(offsets))

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.machine.committed(group)

    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        return self.machine.pending(group).keys()

    def list_groups(self) -> list[GroupSummary]:
        found = [
            (self.machine.describe(name), self.machine.committed(name)) for name in self.machine.groups()
        ]
        return [
            GroupSummary(one.group, one.state, one.members, offsets, one.assignor, one.epoch)
            for one, offsets in found
        ]

    def delete_group(self, group: str) -> None:
        self.decide(lambda machine: machine.decide_delete_group(group))

    def forget_topic(self, topic: str) -> None:
        self.decide(lambda machine: machine.decide_delete_topic(topic, lambda _: None))
