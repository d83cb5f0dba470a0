"""``AdminPlane``: what administrators need of a store, local or remote.

As in ``DataPlane``: any thread, errors are raised, and no function of the caller crosses the
protocol: long work gives a handle, whose progress is polled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from logstore.api.groups import GroupSummary
from logstore.api.operations import Operation
from logstore.api.producers import ProducerSummary
from logstore.api.topics import TopicMetadata
from logstore.api.transactions import HangingTransaction, TransactionSummary
from logstore.types import (
    CompactedPartition,
    ErasureReport,
    TopicDescription,
    TopicPartition,
)


class AdminPlane(Protocol):
    # --- topics and their records ---

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], replication_factor: int | None = None
    ) -> TopicMetadata:
        """``replication_factor``: copies of each partition in a cluster; None: 3, or as many as it has brokers."""
        ...

    def add_partitions(self, name: str, total: int, *, allow_keyed: bool) -> None: ...
    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set keys; None puts a key back to its default."""
        ...

    def delete_topic(self, name: str) -> None: ...
    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Move each log start offset up to the offset given (-1: the high watermark), durably; the starts
        afterwards. Past the high watermark: OffsetOutOfRangeError, and nothing is moved."""
        ...

    def start_compaction(
        self, name: str, partition: int | None, *, roll: bool
    ) -> Operation[list[CompactedPartition]]:
        """Clean at full speed; ``partition`` None: all of them. ``roll``: the active segment is closed first."""
        ...

    def start_erasure(self, name: str, keys: Collection[bytes]) -> Operation[ErasureReport]:
        """Remove every record of these keys from every file of the topic, and prove it."""
        ...

    def describe_topic(self, name: str) -> TopicDescription: ...

    # --- producers ---

    def list_producers(self) -> list[ProducerSummary]: ...
    def delete_producer(self, name: str) -> None:
        """Forget the name: what logs remember of its ids may expire. ProducerBusyError while it is open."""
        ...

    # --- transactions ---

    def list_transactions(self) -> list[TransactionSummary]: ...
    def abort_transaction(self, transactional_id: str) -> TransactionSummary:
        """End what the id has open, whoever has it: the producer finds its transaction aborted. A decided commit
        is finished instead. UnknownTransactionError; what it was, as it is afterwards."""
        ...

    def find_hanging(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        """Of these topics (all)."""
        ...

    def end_hanging(self, hanging: HangingTransaction) -> None:
        """Write the abort marker that no coordinator will. TransactionStateError if it hangs no more."""
        ...

    # --- groups ---

    def list_groups(self) -> list[GroupSummary]: ...
    def delete_group(self, group: str) -> None:
        """Forget its offsets. UnknownGroupError; GroupBusyError while it has members."""
        ...
