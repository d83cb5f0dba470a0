"""``ClusterBackend``: the store's backend at a node of a cluster: the embedded one on the cluster's parts.

What it adds: openings and members that come from a former coordinator, and what only the leader of a partition can
say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from logstore.api.groups import GroupSummary, JoinRequest
from logstore.api.records import FetchRequest, FetchResult, ListedOffset, OffsetSpec
from logstore.api.topics import TopicMetadata
from logstore.api.transactions import TransactionSummary
from logstore.coordination.group_member import GroupMember
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.coordination.transactional_offsets import PendingCommit
from logstore.embedded.backend import EmbeddedBackend
from logstore.embedded.coordination_parts import CoordinationParts
from logstore.embedded.groups import EmbeddedGroups
from logstore.embedded.hanging_transactions import ProducerOwner
from logstore.embedded.transaction_services import TransactionServices
from logstore.errors import (
    DataLossError,
    LogStoreError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.machine import TransactionalWriter
from logstore.partition.context import StoreContext
from logstore.partition.log_access import LogAccess
from logstore.partition.partition import Partition
from logstore.partition.partition_log import PartitionLog, description_of
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import (
    Isolation,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from logstore.upkeep.cleaning_manager import CleaningManager
from replication.coordination.groups import ClusterGroups
from replication.coordination.parts import ClusterParts
from replication.coordination.transactions import ClusterTransactions, RoutedOffsets
from replication.errors import NotLeaderError, PeerUnavailableError
from replication.partition import ReplicatedPartition, confirm_leaders
from replication.raft.types import NO_NODE

_CALL_S = 5.0
_CONFIRM_S = 1.0
"""How long a fetch waits for a majority's word."""


def _may_be_behind(found: FetchResult, request: FetchRequest) -> bool:
    """Whether the answer says that there is less than the reader takes for granted. A reader backwards would begin at
    the end that there is, and pass over what is behind that."""
    error = found.error
    if request.reverse and error is None:
        return request.offset > found.last_stable_offset
    if isinstance(error, OffsetOutOfRangeError):
        return request.offset >= max(error.log_start_offset, 0)
    return isinstance(error, DataLossError | UnknownTopicError | UnknownPartitionError)


class ClusterBackend(EmbeddedBackend):
    """Thread-safe."""

    groups: ClusterGroups  # type: ignore[assignment]  # the same methods, of all partitions instead of the only one
    transactions: ClusterTransactions  # type: ignore[assignment]  # as ``groups``

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        partition: Callable[[str, int], PartitionLog],
        cleaning: CleaningManager,
        parts: ClusterParts,
    ) -> None:
        self.parts = parts
        super().__init__(context, registry, partition, cleaning, parts.shard(0))

    def _coordinate(self, parts: CoordinationParts) -> None:
        del parts  # of one partition
        self.groups = ClusterGroups(
            self.parts, lambda shard: EmbeddedGroups(self._context, self._registry, self._partition, shard)
        )
        offsets = RoutedOffsets(self.parts, self.groups)
        self.transactions = ClusterTransactions(
            self._context,
            self._registry,
            self.parts,
            offsets,
            self.parts.network,
            lambda shard, may_forget: TransactionServices(
                self._context, self._registry, self._producer_ids, offsets, shard, may_forget
            ),
        )
        self.parts.mark_offsets = self.groups.mark
        self.parts.calls.serve()
        self.parts.coordinator_calls.serve(lambda: self)

    # --- as the coordinators of this node, for others ---

    def groups_of(self, number: int) -> list[GroupSummary]:
        return self.groups.listed(number)

    def forget_topic_of(self, number: int, topic: str) -> None:
        self.groups.shard(number).forget_topic(topic)

    def transactions_of(self, number: int) -> list[TransactionSummary]:
        return self.transactions.shard(number).admin.summaries()

    def owners_of(self, number: int, producer_ids: Sequence[int]) -> dict[int, ProducerOwner]:
        return self.transactions.shard(number).admin.owners(producer_ids)

    def commit_pending(self, commit: PendingCommit) -> None:
        self.groups.commit_pending(commit)

    def note_leaders(self) -> None:
        """The leaders of partitions have changed: what this node coordinates now is loaded and looked after soon."""
        self.transactions.reaper.soon()
        self.parts.note_opened()

    # --- topics ---

    def _held(self, topic: str, partition: int) -> Partition:
        return self.parts.partition(topic, partition)

    def topic(self, name: str) -> TopicMetadata:
        self.parts.know_of(name)
        return super().topic(name)

    def describe_topic(self, name: str) -> TopicDescription:
        self.parts.know_of(name)
        return super().describe_topic(name)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        self.parts.know_of(name)
        super().alter_topic(name, config)

    def delete_topic(self, name: str) -> None:
        self.parts.know_of(name)
        super().delete_topic(name)

    def add_partitions(self, name: str, total: int, *, allow_keyed: bool) -> None:
        self.parts.know_of(name)
        self._registry.entry(name).refuse_internal()
        if not allow_keyed:
            router = self.parts.router
            self._registry.refuse_keyed(
                name, lambda topic, number: router.is_keyed(TopicPartition(topic, number))
            )
        self._registry.add_partitions(name, total, allow_keyed=True)
        self._settle(name)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Up to offsets that exist by the word of a majority."""
        self._confirm(offsets, _CALL_S)
        return super().delete_records(offsets)

    def describe_partition(self, topic: str, partition: int) -> PartitionDescription:
        """As its leader has it; while none can be asked as this node's replica does, if there is one."""
        try:
            self._held(topic, partition)
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

    def _has(self, topic: str, partition: int) -> bool:
        held = self._registry.get(topic).partition(partition)
        return not isinstance(held, ReplicatedPartition) or held.is_held

    # --- readers in racks ---

    def _fetch_one(self, request: FetchRequest, isolation: Isolation, max_bytes: int) -> FetchResult:
        found = (
            None if request.reverse or not request.rack else self._fetch_near(request, isolation, max_bytes)
        )
        if found is None:
            found = super()._fetch_one(request, isolation, max_bytes)
            if _may_be_behind(found, request):
                found = self._fetch_confirmed(request, isolation, max_bytes)
        return found

    def _fetch_confirmed(self, request: FetchRequest, isolation: Isolation, max_bytes: int) -> FetchResult:
        """A position past the end counts only of a leader that a majority has confirmed: one that was deposed and has
        not heard of it lacks what the reader has read at the new one. An unknown topic or partition likewise, of a node
        that knows what the controller knows."""
        try:
            with self._context.wait_limit.within(_CONFIRM_S):
                self._confirm([TopicPartition(request.topic, request.partition)], _CONFIRM_S)
        except LogStoreError as error:
            return FetchResult(request.topic, request.partition, b"", request.offset, -1, -1, -1, error)
        return super()._fetch_one(request, isolation, max_bytes)

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
        """By the word of a majority: of all that was acknowledged before the call. But for the oldest ones: a fetch
        from there says where the log starts now."""
        if spec == "earliest":
            for place in partitions:
                self._held(*place)
        else:
            self._confirm(partitions, _CALL_S)
        return super().list_offsets(partitions, spec, isolation)

    def _confirm(self, partitions: Collection[TopicPartition], timeout_s: float) -> None:
        """Block until a majority has confirmed that this node leads them. NotLeaderError, LeaderNotReadyError."""
        held = [self._held(topic, number) for topic, number in partitions]
        confirm_leaders([one for one in held if isinstance(one, ReplicatedPartition)], timeout_s)

    # --- what comes from a former coordinator ---

    def init_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> CoordinatedLease:
        return self.transactions.open(
            transactional_id, timeout_ms, coordinator=coordinator, keep_prepared=keep_prepared
        )

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
        return self.transactions.resume(transactional_id, timeout_ms, writer, coordinator)

    def resume_member(self, group: str, member_id: str, request: JoinRequest) -> GroupMember:
        """See ``GroupManager.resume``."""
        return self.groups.resume(group, member_id, request)

    def step_down(self) -> None:
        """Before this node stops: what clients hold here is let go of as it is, and goes on at the next coordinator."""
        self.parts.coordinators.retire()
        moved = NotLeaderError("this broker stops: its coordinators move to another one")
        self.groups.drop(moved)
        self.transactions.drop(moved)
