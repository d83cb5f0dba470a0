"""Consumer groups of the embedded backend: members, committed offsets, and who is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from logstore.api.groups import GroupSummary, JoinRequest, MemberIdentity, checked_offsets, validate_group
from logstore.coordination.group_manager import GroupManager, GroupTopic
from logstore.coordination.group_member import GroupMember
from logstore.coordination.membership_task import MembershipTask
from logstore.coordination.offset_expiry import OffsetExpiry
from logstore.coordination.transactional_offsets import OFFSETS_TOPIC, PendingCommit
from logstore.embedded.coordination_parts import CoordinationParts
from logstore.errors import LogStoreError, UnknownGroupError
from logstore.groups.coordinator import GroupCoordinator
from logstore.kafka_directory.broker_machine import BrokerMachine
from logstore.kafka_directory.live_groups import LiveGroups
from logstore.machine import Decision
from logstore.ownership.lock import LockHolder, this_process
from logstore.partition.context import StoreContext
from logstore.partition.partition_log import PartitionLog
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import OffsetAndMetadata, TopicPartition

OFFSETS_CONFIG = {"segment.bytes": str(16 << 20), "cleanup.policy": "compact"}


class EmbeddedGroups:
    """Thread-safe. ``partition`` gives the facade of one partition."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        partition: Callable[[str, int], PartitionLog],
        parts: CoordinationParts,
    ) -> None:
        self._context = context
        self._parts = parts
        self._coordinators = parts.coordinators
        self._registry = registry
        self._topic_id = parts.ends.topic_id
        self._guard = threading.Lock()
        self._topic: GroupTopic | None = None
        broker = context.broker
        self._broker = (
            None
            if broker is None
            else BrokerMachine(broker, OFFSETS_TOPIC, partition, lambda: LiveGroups(broker.name_of))
        )
        self._task = MembershipTask(lambda: self._manager, threads=context.threads)
        self._manager = GroupManager(
            context,
            lambda create: self.topic(create=create),
            self._partition_counts,
            parts.ends,
            self._task.note_member,
            parts.liveness,
            lambda: _described(this_process(context.clock)),
            context.random_bytes,
        )
        self.expiry = self._make_expiry(context)

    def _make_expiry(self, context: StoreContext) -> OffsetExpiry:
        def fresh() -> GroupTopic:
            return self._coordinators.needed(OFFSETS_TOPIC, OFFSETS_CONFIG, GroupCoordinator)

        return OffsetExpiry(
            context,
            lambda: self._registry.has_seen(OFFSETS_TOPIC),
            lambda: self._topic,
            fresh,
            lambda: bool(self._manager.members()),
            self._topic_id,
            self._parts.try_expiry_lock,
        )

    def topic(self, *, create: bool) -> GroupTopic | None:
        """`__consumer_offsets` and its machine; None if it is not there and is not to be made."""
        with self._guard:
            if self._topic is None:
                self._topic = self._coordinators.existing(OFFSETS_TOPIC, GroupCoordinator)
            if self._topic is not None or not create:
                return self._topic
        # Making the topic may wait for the catalogue's lock: calls that only look must not wait behind that.
        made = self._coordinators.needed(OFFSETS_TOPIC, OFFSETS_CONFIG, GroupCoordinator)
        with self._guard:
            self._topic = self._topic or made
            return self._topic

    def _partition_counts(self) -> Mapping[str, int]:
        return {name: entry.partitions for name, entry in self._registry.catalogue.topics.items()}

    # --- members ---

    def join(self, group: str, request: JoinRequest) -> GroupMember:
        return self._manager.join(group, request)

    def resume(self, group: str, member_id: str, request: JoinRequest) -> GroupMember:
        """See ``GroupManager.resume``."""
        return self._manager.resume(group, member_id, request)

    def drop(self, error: LogStoreError) -> None:
        """See ``GroupManager.drop``."""
        self._manager.drop(error)

    def step(self) -> float | None:
        """What is due for the members here; seconds until more will be."""
        return self._task.step()

    # --- offsets ---

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None,
    ) -> None:
        self._context.check_writable()
        member_id, epoch = (None, None) if member is None else member
        self._manager.commit(group, checked_offsets(offsets), member_id, epoch)

    def commit_pending(self, commit: PendingCommit) -> None:
        """See ``GroupManager.commit_pending``."""
        self._manager.commit_pending(commit)

    def committed(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if self._broker is not None:
            self._registry.look_for_changes()  # partitions may have come
            return self._broker.newest().offsets.committed(group)
        topic = self.topic(create=False)
        if topic is None:
            validate_group(group)
            return {}
        topic.confirm()
        return topic.look(lambda machine: machine.committed(group, self._topic_id))

    def unstable(self, group: str) -> Collection[TopicPartition]:
        topic = None if self._broker is not None else self.topic(create=False)
        if topic is None:
            return ()
        topic.confirm()
        return topic.look(lambda machine: machine.pending(group, self._topic_id).keys())

    def forget_topic(self, name: str) -> None:
        """Remove every group's offsets in topics that had the name and are gone: what they say does not count any
        more, as they are bound to those topics' ids."""
        topic = self.topic(create=False)

        def decide(machine: GroupCoordinator) -> Decision[list[str]]:
            return machine.decide_delete_topic(name, self._topic_id)

        if topic is None or topic.lost() is not None:
            return  # whoever coordinates finds them when it looks for expired ones
        if topic.look(lambda machine: decide(machine).records):
            topic.decide(decide)
            self._manager.refresh()

    # --- groups ---

    def list(self) -> list[GroupSummary]:
        if self._broker is not None:
            self._registry.look_for_changes()
            return self._broker.newest().summaries()
        topic = self.topic(create=False)
        if topic is None:
            return []
        topic.confirm()
        found = topic.look(
            lambda machine: [
                (machine.describe(name), machine.committed(name, self._topic_id)) for name in machine.groups()
            ]
        )
        dead = self._manager.find_dead(topic, {one.group for one, _ in found if one.members})
        summaries = []
        for one, offsets in found:
            gone = dead.get(one.group, ())  # whoever acts on the group next takes them out
            members = tuple(member for member in one.members if member.member_id not in gone)
            state = one.state if members else "empty"
            summaries.append(GroupSummary(one.group, state, members, offsets, one.assignor, one.epoch))
        return summaries

    def delete(self, group: str) -> None:
        validate_group(group)
        self._context.check_writable()
        topic = self.topic(create=False)
        if topic is None:
            raise UnknownGroupError(f"group {group!r} has no committed offsets to delete")
        self._manager.without_dead(
            group, lambda: topic.decide(lambda machine: machine.decide_delete_group(group))
        )

    # --- ending ---

    def close(self) -> None:
        self._task.close()
        self.expiry.close()
        self._manager.close()
        with self._guard:
            topic = self._topic
        if topic is not None:
            topic.close()

    def abandon(self) -> None:
        """As if the process had been killed: the members' locks are free."""
        self.expiry.close()
        self._manager.close()


def _described(process: LockHolder) -> str:
    return f"pid {process.pid} on {process.host} ({process.command})"
