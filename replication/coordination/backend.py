"""``ClusterBackend``: the store's backend at a node of a cluster: the embedded one on the cluster's parts.

What it adds: openings and members that come from a former coordinator, and what only the leader of a partition can
say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from logstore.api.groups import JoinRequest
from logstore.api.records import FetchRequest, FetchResult, ListedOffset, OffsetSpec
from logstore.coordination.group_member import GroupMember
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.embedded.backend import EmbeddedBackend
from logstore.errors import LogStoreError
from logstore.machine import TransactionalWriter
from logstore.partition.context import StoreContext
from logstore.partition.log_access import LogAccess
from logstore.partition.partition_log import PartitionLog, description_of
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import Isolation, PartitionDescription, TopicPartition
from logstore.upkeep.cleaning_manager import CleaningManager
from replication.coordination.parts import ClusterParts
from replication.errors import NotLeaderError, PeerUnavailableError
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
        """As its leader has it; while none can be asked as this node's replica does, if there is one."""
        try:
            return super().describe_partition(topic, partition)
        except NotLeaderError as error:
            place = TopicPartition(topic, partition)
            try:
                if error.leader_id == NO_NODE:
                    raise
                return self.parts.calls.describe(error.leader_id, place, _CALL_S)
            except (NotLeaderError, PeerUnavailableError):
                held = self._registry.get(topic).partition(partition)
                if not isinstance(held, ReplicatedPartition) or not held.is_held:
                    raise
                return description_of(held.replica().log, partition)

    # --- readers in racks ---

    def _fetch_one(self, request: FetchRequest, isolation: Isolation, max_bytes: int) -> FetchResult:
        found = (
            None if request.reverse or not request.rack else self._fetch_near(request, isolation, max_bytes)
        )
        return super()._fetch_one(request, isolation, max_bytes) if found is None else found

    def _fetch_near(self, request: FetchRequest, isolation: Isolation, max_bytes: int) -> FetchResult | None:
        """A replica in the reader's rack by its number, or what this one has where it follows; None: the reader gets
        what all readers get. With whatever a follower cannot tell the reader goes back to the leader: the follower may
        lack what the position was reached by."""
        nothing = FetchResult(request.topic, request.partition, b"", request.offset, -1, -1, -1)
        try:
            held = self._registry.get(request.topic).partition(request.partition)
            if not isinstance(held, ReplicatedPartition):
                return None
            if held.is_leader:
                node = held.near_replica(request.rack, request.offset, self.parts.rack_of)
                return None if node is None else nothing._replace(preferred_replica=node)
            followed = held.followed()
            bounds = followed.reader().bounds()
            if bounds.high_watermark < request.offset <= bounds.log_end_offset:
                return nothing  # it has not heard of the commit yet
            log = PartitionLog(LogAccess(self._context), followed)
            fetched = log.fetch(request.offset, max_bytes, isolation, request.leader_epoch)
        except NotLeaderError as error:
            return nothing._replace(error=error)
        except LogStoreError as error:
            told = f"the follower of {request.topic}-{request.partition} cannot tell: {error.message}"
            return nothing._replace(error=NotLeaderError(told))
        known = fetched.bounds
        return FetchResult(
            request.topic,
            request.partition,
            fetched.data,
            fetched.next_offset,
            known.log_start_offset,
            known.high_watermark,
            known.last_stable_offset,
        )

    # --- offsets ---

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
