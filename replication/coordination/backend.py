"""``ClusterBackend``: the store's backend at a node of a cluster: the embedded one on the cluster's parts.

What it adds: openings and members that come from a former coordinator, and what only the leader of a partition can
say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from logstore.api.groups import JoinRequest
from logstore.api.records import ListedOffset, OffsetSpec
from logstore.coordination.group_member import GroupMember
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.embedded.backend import EmbeddedBackend
from logstore.errors import LogStoreError
from logstore.log.log_offsets import LogOffsets
from logstore.machine import TransactionalWriter
from logstore.partition.context import StoreContext
from logstore.partition.partition_log import PartitionLog, description_of
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import Isolation, PartitionDescription, TopicPartition
from logstore.upkeep.cleaning_manager import CleaningManager
from replication.coordination.parts import ClusterParts
from replication.errors import NotLeaderError
from replication.partition import ReplicatedPartition, confirm_leaders
from replication.raft.types import NO_NODE

_CALL_S = 5.0


class ClusterBackend(EmbeddedBackend):
    """Thread-safe."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        partition: Callable[[str, int], PartitionLog],
        cleaning: CleaningManager,
        parts: ClusterParts,
    ) -> None:
        super().__init__(context, registry, partition, cleaning, parts)
        self.parts = parts

    # --- topics ---

    def add_partitions(self, name: str, total: int, *, allow_keyed: bool) -> None:
        self._registry.entry(name).refuse_internal()
        if not allow_keyed:
            router = self.parts.router
            self._registry.refuse_keyed(
                name, lambda topic, number: router.is_keyed(TopicPartition(topic, number))
            )
        self._registry.add_partitions(name, total, allow_keyed=True)
        self._settle(name)

    def describe_partition(self, topic: str, partition: int) -> PartitionDescription:
        """By its leader, else as this node's replica has it, else the offsets that its leader tells."""
        try:
            return super().describe_partition(topic, partition)
        except NotLeaderError as error:
            held = self._registry.get(topic).partition(partition)
            if isinstance(held, ReplicatedPartition):
                try:
                    return description_of(held.replica().log, partition)
                except NotLeaderError:
                    return self._told_by(error.leader_id, TopicPartition(topic, partition), error)
            raise

    def _told_by(self, node: int, place: TopicPartition, why: LogStoreError) -> PartitionDescription:
        if node == NO_NODE:
            raise why
        (found,) = self.parts.calls.ends(node, [place], _CALL_S)
        if not isinstance(found, LogOffsets):
            raise found
        return PartitionDescription(partition=place.partition, **found._asdict(), segments=0, size_bytes=0)

    def list_offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        """The newest ones by the word of a majority: never less than what was acknowledged before the call."""
        if spec == "latest":
            held = [self._registry.get(topic).partition(number) for topic, number in partitions]
            confirm_leaders([one for one in held if isinstance(one, ReplicatedPartition)], _CALL_S)
        return super().list_offsets(partitions, spec, isolation)

    # --- what comes from a former coordinator ---

    def resume_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        epoch: int,
        coordinator: str | None = None,
    ) -> CoordinatedLease:
        """See ``TransactionManager.resume``."""
        writer = TransactionalWriter(producer_id, epoch)
        return self.transactions.manager.resume(transactional_id, timeout_ms, writer, coordinator=coordinator)

    def resume_member(self, group: str, member_id: str, request: JoinRequest) -> GroupMember:
        """See ``GroupManager.resume``."""
        return self.groups.resume(group, member_id, request)

    def step_down(self) -> None:
        """Before this node stops: what clients hold here is let go of as it is, and goes on at the next coordinator."""
        self.parts.coordinators.retire()
        moved = NotLeaderError("this broker stops: its coordinators move to another one")
        self.groups.drop(moved)
        self.transactions.manager.drop(moved)
