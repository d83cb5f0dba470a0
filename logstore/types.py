"""The values that cross the public API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, final

from logstore.native import compiled

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of the type checker's own: Python has defaults from 3.13 on

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Buffer: TypeAlias = bytes | bytearray | memoryview
Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Sequence[Header]
Acks: TypeAlias = Literal[0, 1, "all"]
Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]

# (key, value), (key, value, headers) or (key, value, headers, timestamp_ms)
Row: TypeAlias = (
    tuple[bytes | None, bytes | None]
    | tuple[bytes | None, bytes | None, Headers | None]
    | tuple[bytes | None, bytes | None, Headers | None, int | None]
)


@final
@compiled("format.record")
class Record(NamedTuple, Generic[K, V]):
    """One record as read. ``timestamp_ms``: ms since 1970 UTC; ``headers``: tuple of (name, bytes | None).

    Keys and values are ``bytes | None`` unless the consumer has deserializers; a value of None is a tombstone.

    It is a sequence of its seven fields and compares as a tuple of them. Whether it *is* a tuple is left open: here
    it is one, the compiled twin is not. ``tuple(record)`` makes one.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: tuple[Header, ...] = ()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """By a call of the class, in every protocol: so a pickle of one twin is read by the other."""
        return Record, tuple(self)


class TopicPartition(NamedTuple):
    topic: str
    partition: int


COUNTER_TOPIC: Final = "__counter"
"""No topic: what a group commits under this name is a number of the caller's own, such as the next batch of a job,
kept with the offsets and, in a transaction, decided with its records. It has no end that it could pass."""


class RecordMetadata(NamedTuple):
    """Where a record landed. ``offset`` is -1 under ``acks=0``, and for a record that was sent again and is in
    since so long that the log has forgotten where (see ``DuplicateSequenceError``)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class OffsetRange(NamedTuple):
    """Records that landed together: offsets [start, end_exclusive) of one partition; -1, -1 under acks=0
    and for duplicates whose place the log has forgotten."""

    topic: str
    partition: int
    start: int
    end_exclusive: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, the leader epoch it was read under (-1: unknown)."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class CleaningProgress(NamedTuple):
    """A cleaning under way. ``phase``: map, write, swap or done."""

    phase: str
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LastCleaning:
    """The newest cleaning of a partition that this process finished. ``finished_ms``: wall clock."""

    finished_ms: int
    took_ms: int
    cleaned_to: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionCompaction:
    """How far a compacted partition is clean. ``dirty_ratio``: dirty bytes by all that a cleaning would go
    through (closed segments below the last stable offset).

    ``running``, ``last``, ``error`` (why the newest cleaning failed) and ``retry_in_s`` are those of this
    process; the owner's are not seen from another one. ``exact_from``: states of the partition before this
    offset may lack records: the cleaner point, or more where a cleaning is under way or ended early.
    """

    cleaner_point: int
    dirty_bytes: int
    dirty_ratio: float
    exact_from: int = 0
    running: CleaningProgress | None = None
    last: LastCleaning | None = None
    error: str | None = None
    retry_in_s: float | None = None


class OpenTransaction(NamedTuple):
    """One that is under way in a partition, since ``first_offset``. ``transactional_id`` None: not known."""

    first_offset: int
    producer_id: int
    transactional_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactedPartition:
    """What ``admin.compact`` did to one partition. ``segments_before`` and the like are those it went through;
    all zero where there was nothing to clean. ``rounds``: how often it went through the log: once, unless the keys
    did not fit ``cleaner_key_map_bytes``. ``tombstones``: those that stay until their ``delete.retention.ms`` has
    passed; ``removed_tombstones``: those for which it had. ``held_by``: the open transaction before which it had
    to stop, None if there was none."""

    partition: int
    cleaned_to: int
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    rounds: int = 0
    tombstones: int = 0
    removed_tombstones: int = 0
    held_by: OpenTransaction | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasedPartition:
    """What ``admin.erase_keys`` did to one partition. ``removed_files``: retired and cut-off files that had to
    go; ``scanned_bytes``: what the proof read afterwards."""

    partition: int
    records_removed: int
    segments_rewritten: int
    removed_files: tuple[str, ...]
    scanned_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureReport:
    """``proven``: every file of every partition was read again, and none holds a record of the keys."""

    topic: str
    keys: int
    partitions: tuple[ErasedPartition, ...]
    proven: bool

    @property
    def records_removed(self) -> int:
        return sum(row.records_removed for row in self.partitions)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintainedTopic:
    """What a pass of maintenance did to one topic. ``compacted``: one row for each cleaning that came to its end;
    ``owner``: the process that owns the topic, and looks after it; ``left``: why work is left, "" if none is:
    ``"time"`` was up, the topic is ``"too large"`` for the time there was, or ``"another process waits for it"``;
    ``error``: what failed."""

    topic: str
    retired_segments: int = 0
    retired_bytes: int = 0
    compacted: tuple[CompactedPartition, ...] = ()
    owner: str | None = None
    left: str = ""
    error: str | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing was done, left or failed."""
        return not (self.retired_segments or self.compacted or self.left or self.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceReport:
    """What ``store.maintain`` did. ``by_time``: whether the wall clock was believed; where it was not (the first
    pass after a restart of the machine, or after the clock was set) nothing went because of its age."""

    topics: tuple[MaintainedTopic, ...]
    expired_offsets: int
    by_time: bool
    took_s: float

    @property
    def is_complete(self) -> bool:
        """Whether all that was due is done."""
        return not any(row.left or row.error for row in self.topics)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionDescription:
    """State of one partition. Offsets count records, ``size_bytes`` counts segment bytes on disk."""

    partition: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    leader_epoch: int
    segments: int
    size_bytes: int
    compaction: PartitionCompaction | None = None  # None: the topic does not compact


class SegmentDescription(NamedTuple):
    """One segment's offsets [base_offset, next_offset) and the newest timestamp in it (ms; -1: no records).

    ``closed``: it lies below the durable recovery point and never changes in place; a cleaned one that takes
    its place has another size or end.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp_ms: int
    closed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicDescription:
    """A topic: its uuid (base64, as Kafka prints it), settings that differ from the defaults, partitions.

    Of a part of a Kafka broker's directories: ``missing``, the partitions that lie elsewhere; ``config_known`` is
    False where the settings are in none of these directories.
    """

    name: str
    topic_id: str
    internal: bool
    config: dict[str, str] = field(default_factory=dict)
    owner: str | None = None
    partitions: tuple[PartitionDescription, ...] = ()
    missing: tuple[int, ...] = ()
    config_known: bool = True
