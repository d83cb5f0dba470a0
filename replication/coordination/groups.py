"""``ClusterGroups``: the groups of a cluster at one node, by the coordinators that it runs and those of other nodes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping

from logstore.api.groups import GroupSummary, JoinRequest, MemberIdentity, validate_group
from logstore.coordination.group_member import GroupMember
from logstore.coordination.transactional_offsets import OFFSETS_TOPIC, PendingCommit
from logstore.embedded.groups import OFFSETS_CONFIG, EmbeddedGroups
from logstore.errors import LogStoreError, ProducerFencedError, UnknownGroupError
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.coordination.key_partition import partition_of
from replication.coordination.partition_calls import MarkerRequest
from replication.coordination.parts import ClusterParts, ShardParts

logger = logging.getLogger(__name__)

_SOON_S = 0.001
_TELL_S = 2.0
"""How long a coordinator of another node may take to forget a topic."""


class ClusterGroups:
    """The same as ``EmbeddedGroups``, of all partitions of the offsets' topic; one such beneath for each. Thread-safe.

    What concerns one group is done here where this node runs its coordinator; else ``NotLeaderError`` says who does.
    """

    def __init__(self, parts: ClusterParts, make: Callable[[ShardParts], EmbeddedGroups]) -> None:
        self._parts = parts
        self._coordinators = parts.coordinators
        self._make = make
        self._guard = threading.Lock()
        self._shards: dict[int, EmbeddedGroups] = {}
        self.expiry = ClusterExpiry(self)

    # --- which coordinator ---

    def shard(self, number: int) -> EmbeddedGroups:
        with self._guard:
            found = self._shards.get(number)
            if found is None:
                found = self._shards[number] = self._make(self._parts.shard(number))
            return found

    def shards(self) -> list[EmbeddedGroups]:
        """Those that this node runs now, or has run."""
        for number in range(self._coordinators.count(OFFSETS_TOPIC)):
            if number not in self._shards and self._coordinators.leads(TopicPartition(OFFSETS_TOPIC, number)):
                self.shard(number)
        return self._held()

    def _held(self) -> list[EmbeddedGroups]:
        with self._guard:
            return list(self._shards.values())

    def place(self, group: str) -> TopicPartition:
        """The group's partition; the topic is made if it is not there. InvalidGroupError."""
        validate_group(group)
        return self._coordinators.place(OFFSETS_TOPIC, group, OFFSETS_CONFIG)

    def _of(self, group: str) -> EmbeddedGroups:
        return self.shard(self.place(group).partition)

    def _known(self, group: str) -> EmbeddedGroups | None:
        """None: no group has ever committed or been joined."""
        validate_group(group)
        count = self._coordinators.known(OFFSETS_TOPIC)
        return self.shard(partition_of(group, count)) if count else None

    # --- one group ---

    def join(self, group: str, request: JoinRequest) -> GroupMember:
        return self._of(group).join(group, request)

    def resume(self, group: str, member_id: str, request: JoinRequest) -> GroupMember:
        """See ``GroupManager.resume``."""
        return self._of(group).resume(group, member_id, request)

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None,
    ) -> None:
        self._of(group).commit(group, offsets, member)

    def commit_pending(self, commit: PendingCommit) -> None:
        """See ``GroupManager.commit_pending``."""
        self._of(commit.group).commit_pending(commit)

    def committed(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        shard = self._known(group)
        return {} if shard is None else shard.committed(group)

    def unstable(self, group: str) -> Collection[TopicPartition]:
        shard = self._known(group)
        return () if shard is None else shard.unstable(group)

    def delete(self, group: str) -> None:
        shard = self._known(group)
        if shard is None:
            raise UnknownGroupError(f"group {group!r} has no committed offsets to delete")
        shard.delete(group)

    # --- all groups ---

    def forget_topic(self, name: str) -> None:
        """See ``EmbeddedGroups.forget_topic``: of all coordinators, asked once each; one that cannot be asked now finds
        them when it looks for expired offsets."""
        calls = self._parts.coordinator_calls
        for place, error in self._parts.routing.tell_each(
            [
                TopicPartition(OFFSETS_TOPIC, number)
                for number in range(self._coordinators.count(OFFSETS_TOPIC))
            ],
            lambda place: self.shard(place.partition).forget_topic(name),
            lambda node, places: calls.forget_topic(node, [one.partition for one in places], name, _TELL_S),
        ).items():
            logger.info("%s-%d keeps offsets of topic %s for a while: %s", *place, name, error)

    # --- transactions ---

    def mark(self, request: MarkerRequest) -> None:
        """Write a transaction's marker through the coordinator of the partition. Errors of
        ``Coordinator.end_transaction`` and ``end_hanging``."""
        topic = self.shard(request.place.partition).topic(create=True)
        if topic is None:
            return
        marker = request.marker
        if request.open_since >= 0:
            topic.end_hanging(marker.producer_id, marker.epoch, request.open_since)
            return
        try:
            topic.end_transaction(marker.producer_id, marker.epoch, commit=marker.committed)
        except ProducerFencedError:
            return  # a newer epoch was there: it began after this one had its markers

    # --- the work of members, and the end ---

    def step(self) -> float | None:
        """What is due for the members here; seconds until more will be."""
        waits = [shard.step() for shard in self.shards()]
        return min((wait for wait in waits if wait is not None), default=None)

    def drop(self, error: LogStoreError) -> None:
        """See ``GroupManager.drop``."""
        for shard in self._held():
            shard.drop(error)

    def load_some(self) -> bool:
        """See ``ReplicatedCoordinators.load_some``; groups and transactions."""
        for number in range(self._coordinators.count(OFFSETS_TOPIC)):
            if self._coordinators.leads(TopicPartition(OFFSETS_TOPIC, number)):
                self.shard(number).topic(create=False)
        return self._coordinators.load_some()

    def listed(self, number: int) -> list[GroupSummary]:
        """The groups of one coordinator. NotLeaderError."""
        return self.shard(number).list()

    def list(self) -> list[GroupSummary]:
        """Of all coordinators, asked side by side or one after the other. Errors of ``Routing.ask_each``."""
        count = self._coordinators.known(OFFSETS_TOPIC)
        found = self._parts.routing.ask_each(
            [TopicPartition(OFFSETS_TOPIC, number) for number in range(count)],
            lambda place: self.listed(place.partition),
            lambda node, places, left_s: self._parts.coordinator_calls.groups(
                node, [place.partition for place in places], left_s
            ),
        )
        return sorted((one for some in found.values() for one in some), key=lambda one: one.group)

    def close(self) -> None:
        for shard in self._held():
            shard.close()

    def abandon(self) -> None:
        for shard in self._held():
            shard.abandon()


class ClusterExpiry:
    """The same as ``OffsetExpiry``, of all coordinators of this node; and their loading, a piece a step."""

    def __init__(self, groups: ClusterGroups) -> None:
        self._groups = groups

    @property
    def expired(self) -> int:
        return sum(shard.expiry.expired for shard in self._groups.shards())

    def step(self) -> float | None:
        waits = [shard.expiry.step() for shard in self._groups.shards()]
        if not self._groups.load_some():
            return _SOON_S
        return min((wait for wait in waits if wait is not None), default=None)

    def look_now(self, until_s: float) -> bool:
        return all(shard.expiry.look_now(until_s) for shard in self._groups.shards())

    def close(self) -> None:
        """What shards have under way ends with them."""
