"""``TransactionalOffsets``: what groups commit in transactions, pending at their coordinators until the marker.

Where the group's coordinator runs in the same process as the transaction's they are a decision of its machine; on a
cluster it may be another node's, and is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from logstore.api.groups import MemberIdentity
from logstore.coordination.coordinator import Coordinator
from logstore.coordination.offset_ends import OffsetEnds
from logstore.errors import UnknownTransactionError
from logstore.groups.coordinator import GroupCoordinator
from logstore.groups.offset_values import SeenEnds
from logstore.machine import TransactionalWriter
from logstore.seams.clock import Clock
from logstore.types import OffsetAndMetadata, TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PLACE: Final = TopicPartition(OFFSETS_TOPIC, 0)
"""Where offsets lie in a store whose topic of offsets has one partition."""


class TransactionalOffsets(Protocol):
    """Thread-safe."""

    @property
    def only_place(self) -> TopicPartition | None:
        """Where the offsets of all groups lie; None: that depends on the group."""
        ...

    @property
    def coordinator(self) -> Callable[[], Coordinator[GroupCoordinator] | None] | None:
        """Of all groups, in this process: it appends the markers to its log. None: they go to the leaders of the
        partitions, like those of any other topic."""
        ...

    def place(self, group: str) -> TopicPartition:
        """Where the group's offsets lie; the topic is made if it is not there."""
        ...

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        writer: TransactionalWriter,
        member: MemberIdentity | None,
    ) -> None:
        """Durable, and pending until the writer's marker. ``ProducerFencedError``: the transaction is over there; the
        errors of ``GroupCoordinator.decide_transactional_commit``. May be repeated."""
        ...


class LocalOffsets:
    """``TransactionalOffsets`` of the one group coordinator of this process. ``coordinator``: made if it is not there;
    ``ends``: of the partitions for which offsets are committed."""

    only_place: TopicPartition | None = OFFSETS_PLACE

    def __init__(
        self, clock: Clock, coordinator: Callable[[], Coordinator[GroupCoordinator] | None], ends: OffsetEnds
    ) -> None:
        self._clock = clock
        self._ends = ends
        self.coordinator = coordinator

    def place(self, group: str) -> TopicPartition:
        del group
        return OFFSETS_PLACE

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        writer: TransactionalWriter,
        member: MemberIdentity | None,
    ) -> None:
        shared = self.coordinator()
        if shared is None:
            raise UnknownTransactionError("this store keeps no committed offsets")
        seen = self._ends.of(offsets)
        commit_pending(shared, self._clock, self._ends, PendingCommit(group, offsets, writer, member, seen))


class PendingCommit(NamedTuple):
    """Offsets of a group that a transaction commits, for the group's coordinator. ``seen``: the ends of the partitions,
    wherever they were looked up."""

    group: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    writer: TransactionalWriter
    member: MemberIdentity | None
    seen: SeenEnds


def commit_pending(
    shared: Coordinator[GroupCoordinator], clock: Clock, ends: OffsetEnds, commit: PendingCommit
) -> None:
    """See ``TransactionalOffsets.commit``, at the group's coordinator."""
    member_id, epoch = (None, None) if commit.member is None else commit.member
    now_ms, seen = clock.wall_ms(), commit.seen
    shared.decide(
        lambda machine: machine.decide_transactional_commit(
            commit.group,
            commit.offsets,
            commit.writer,
            now_ms,
            seen.ends,
            ends.still(seen),
            member_id=member_id,
            epoch=epoch,
        )
    )
