"""``DataPlane``: what producers, consumers and tables need of a store, local or remote.

The embedded store (``logstore/embedded/backend.py``) is one implementation; a client of brokers is another. The
shapes follow Kafka's requests: many partitions in one call, whole record batches as bytes, an error per partition.
Methods may be called from any thread. An error that concerns the whole call is raised; one that concerns a single
partition is returned in its result. No function of the caller crosses this protocol: a wait ends at its deadline or
by a cancel handle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from logstore.api.cancellation import CancelHandle
from logstore.api.groups import GroupMembership, JoinRequest, MemberIdentity
from logstore.api.producers import ProducerLease
from logstore.api.records import (
    FetchRequest,
    FetchResult,
    ListedOffset,
    OffsetSpec,
    ProduceItem,
    ProduceResult,
)
from logstore.api.topics import TopicMetadata
from logstore.api.transactions import TransactionLease
from logstore.types import Acks, Isolation, OffsetAndMetadata, PartitionDescription, TopicPartition


class DataPlane(Protocol):
    # --- metadata ---

    def topics(self) -> Mapping[str, TopicMetadata]:
        """All topics by name, internal ones too. Cheap to call often: cached until something changes."""
        ...

    def topic(self, name: str) -> TopicMetadata:
        """UnknownTopicError if there is none."""
        ...

    def metadata_version(self) -> int:
        """Goes up whenever ``topics()`` may answer differently; lets clients cache their routing."""
        ...

    # --- data ---
    def produce(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> list[ProduceResult]:
        """Append each batch; under ``acks="all"`` return when all are durable (one shared sync).

        After a failed item of a partition, later items of that partition are not tried: they get the same
        error, so that a retry of all of them keeps the order.
        A batch with a producer id that is in already is answered with its first place. An error raised for the
        whole call leaves open what was appended.
        """
        ...

    def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_s: float,
        cancel: CancelHandle | None = None,
    ) -> list[FetchResult]:
        """One result per request, in order. Waits up to ``max_wait_s`` until ``min_bytes`` are there, any
        partition has an error, or ``cancel`` is cancelled; no busy loop."""
        ...

    def list_offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        """earliest: log start offset; latest: high watermark, or last stable offset for read_committed;
        a timestamp: the first offset whose record is at least that new."""
        ...

    def describe_partitions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionDescription]:
        """All offsets of each log at one moment, its segments and its size."""
        ...

    # --- producers and transactions ---

    def init_producer(self, name: str | None) -> ProducerLease:
        """An identity for an idempotent producer. A name is opened by one producer at a time
        (ProducerBusyError names the holder), and its older openings are fenced."""
        ...

    def limit_waits(self, timeout_s: float) -> AbstractContextManager[None]:
        """In the block what the calling thread asks of this backend, its leases included, waits no longer than
        this, all in all, for what other processes hold: then TopicLockedError. The store's own limit holds, too."""
        ...

    def init_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> TransactionLease:
        """Open the id: an older opening of it is fenced, and what that left open is finished first, aborted
        unless its commit was decided; so are transactions of participants that name the id as their coordinator,
        unless ``keep_prepared`` leaves them to be decided by this opening. ``coordinator``: the id is a participant
        of that one, and prepares what that commits. ProducerBusyError, TopicLockedError: a process that hangs holds
        it up."""
        ...

    # --- groups ---

    def join_group(self, group: str, request: JoinRequest) -> GroupMembership:
        """Become a member: its view says which partitions may be read now. Members that are dead make way."""
        ...

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member: MemberIdentity | None = None,
    ) -> None:
        """Durable when it returns. An offset past the end of its partition is refused.

        A group with members takes commits of members only (GroupBusyError), each for partitions of its own
        (UnknownMemberError, MemberFencedError, StaleGenerationError).
        """
        ...

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]: ...
    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        """Partitions with an offset in an open transaction: where to read on is not decided yet."""
        ...
