"""A consumer's offsets in a transaction: the positions that go into it, and the way back when it is aborted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from logstore.api.backend import Backend
from logstore.api.groups import MemberIdentity
from logstore.client.consumer.assignment import Assignment
from logstore.client.consumer.fetch_state import FetchState
from logstore.client.consumer.offset_commits import OffsetCommits
from logstore.types import OffsetAndMetadata, TopicPartition


class GroupMetadata(NamedTuple):
    """The group of a consumer, and its member id and generation there (None, -1 while it is no member)."""

    group: str
    member_id: str | None
    epoch: int


class TransactionOffsets(NamedTuple):
    """What a transaction needs of a consumer. ``point``: the next offset to read of a partition, as handed out so
    far; ``settle``: takes back what a ``for`` loop was lent and has not come to."""

    backend: Backend
    group: str | None
    assignment: Assignment
    commits: OffsetCommits
    metadata: Callable[[], GroupMetadata]
    point: Callable[[FetchState], OffsetAndMetadata]
    settle: Callable[[], None]

    def points(self) -> tuple[str, MemberIdentity | None, dict[TopicPartition, OffsetAndMetadata]]:
        group, member_id, epoch = self.metadata()
        member = None if member_id is None else MemberIdentity(member_id, epoch)
        return group, member, self.commits.to_send(self.point)

    def note_committed(self, points: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for where, point in points.items():
            state = self.assignment.states.get(where)
            if state is not None:
                state.committed = (point.offset, point.leader_epoch)

    def rewind(self) -> None:
        group = self.metadata().group
        self.settle()
        self.commits.forget_gone()
        committed = self.backend.committed_offsets(group)
        for where, state in self.assignment.states.items():
            point = committed.get(where)
            if point is None:
                state.seek(state.started_at)
            else:
                state.seek(point.offset, point.leader_epoch)
