"""``LedPartition``: a replicated partition as coordinators and the controller need it (``ReplicatedPartition``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from logstore.config import TopicConfig
from logstore.log.append_validation import CheckedBatch
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.partition.partition import Cancel, LogReader, PendingAppend
from logstore.types import Acks
from replication.raft.types import NodeId


class LedPartition(Protocol):
    """Thread-safe. ``is_leader``, ``leader_id`` (-1: not known), ``term``: at this moment, without a wait."""

    @property
    def where(self) -> str: ...

    @property
    def config(self) -> TopicConfig: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_id(self) -> NodeId: ...

    @property
    def term(self) -> int: ...

    def wait_committed(self, timeout_s: float) -> None:
        """Block until all of this leader's log is committed. NotLeaderError; LeaderNotReadyError: not in time."""
        ...

    def confirm_leader(self, timeout_s: float) -> int:
        """Block until a majority has confirmed that this node leads. NotLeaderError, LeaderNotReadyError."""
        ...

    def append(
        self, batches: Sequence[CheckedBatch], acks: Acks = "all", *, expected_offset: int | None = None
    ) -> PendingAppend: ...

    def append_marker(
        self, marker: Marker, *, once: bool = False, open_since: int = -1, wait: bool = True
    ) -> PendingAppend: ...

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]: ...

    def reader(self) -> LogReader:
        """What is committed. NotLeaderError, unless followers may be read."""
        ...

    def when_more(self, tell: Callable[[], None]) -> Cancel | None:
        """``tell`` is called once, when more is committed than now, or the replica's role has changed."""
        ...
