"""``Backend``: what a producer, consumer or admin needs from a store, local or remote.

The embedded store (``embedded.py``) is one backend; the gRPC client (package ``rpc``) is another. The shapes
follow Kafka's requests: many partitions in one call, whole record batches as bytes, an error per partition.
Methods may be called from any thread. An error that concerns the whole call is raised; one that concerns a
single partition is returned in its result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from logstore.errors import LogStoreError
from logstore.format.batch import BatchHeader
from logstore.groups.assignors import Assignor
from logstore.groups.views import GroupState, MemberDescription, MemberView
from logstore.types import (
    Acks,
    Buffer,
    CleaningProgress,
    CompactedPartition,
    ErasureReport,
    Isolation,
    OffsetAndMetadata,
    TopicDescription,
    TopicPartition,
)

OnProgress: TypeAlias = Callable[[TopicPartition, CleaningProgress], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicMetadata:
    """What clients must know of a topic. ``compression``: a codec name, or "producer" (the client's choice).

    ``partitioner``: murmur3, murmur2, crc32 or round_robin; every client of ours obeys it.
    """

    name: str
    topic_id: str
    partitions: int
    partitioner: str
    compression: str
    max_message_bytes: int  # of a batch; ``size_setting`` names the topic's setting that says so
    internal: bool = False
    compacts: bool = False  # every record needs a key
    size_setting: str = "max.message.bytes"


class ProduceItem(NamedTuple):
    """One encoded batch (record batch v2, base offset ignored) for one partition. ``header``: the batch's, of
    who encoded it right here, so that a backend in this process need not parse and prove it; None: unknown."""

    topic: str
    partition: int
    batch: bytes
    header: BatchHeader | None = None


class ProduceResult(NamedTuple):
    """``base_offset``: of the batch's first record (-1 under acks=0 or on error).

    ``append_time_ms``: the time stamped on every record under LogAppendTime, else -1.
    """

    base_offset: int
    append_time_ms: int = -1
    error: LogStoreError | None = None


class FetchRequest(NamedTuple):
    """Read from ``offset``; ``leader_epoch`` is that of the last record read before it (-1: unknown)."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    max_bytes: int


class FetchResult(NamedTuple):
    """Whole batches from the one that contains the offset on; records before the offset are to be dropped.

    ``batches`` is empty when there is nothing new. A first batch larger than the limits is returned whole.
    ``next_offset``: where to read on after these batches; it passes compaction gaps and markers.
    """

    topic: str
    partition: int
    batches: Buffer
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    error: LogStoreError | None = None


OffsetSpec: TypeAlias = Literal["earliest", "latest", "max_timestamp"] | int  # int: a timestamp in ms


class ListedOffset(NamedTuple):
    """Answer to an ``OffsetSpec``. ``offset`` is None where no record is that new (or the log is empty)."""

    offset: int | None
    timestamp_ms: int = -1
    leader_epoch: int = -1


class GroupSummary(NamedTuple):
    """A group as it stands. ``members``: those that are alive, or whose place is kept; ``epoch``: of its
    assignments, 0 for a group that never had members."""

    group: str
    state: GroupState
    members: tuple[MemberDescription, ...]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    assignor: str = "sticky"
    epoch: int = 0


class MemberIdentity(NamedTuple):
    """Who commits: a member, under the generation in which it was given what it commits for."""

    member_id: str
    epoch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinRequest:
    """What a consumer tells a group. ``topics``: names, those that match ``pattern`` now among them; ``instance_id``:
    of a static member, whose place outlives a restart."""

    topics: frozenset[str]
    pattern: str | None = None
    instance_id: str | None = None
    assignor: Assignor = "sticky"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class GroupMembership(Protocol):
    """A member of a group, from ``join_group`` until it leaves, is fenced or expires. Thread-safe.

    The backend keeps it alive by itself for as long as ``polled`` is called every ``max_poll_interval_ms``.
    """

    @property
    def member_id(self) -> str: ...
    def view(self) -> MemberView | None:
        """What it has now, the same object until that changes; None: it is no member any more. Cheap."""
        ...

    def ended_by(self) -> LogStoreError | None:
        """Why ``view`` is None: UnknownMemberError, or MemberFencedError (its instance id was taken over)."""
        ...

    def is_settled(self) -> bool:
        """Whether it has all that it shall have: nothing is on its way here from another member."""
        ...

    def sync(self, owned: Collection[TopicPartition], epoch: int) -> None:
        """It owns just these now; ``epoch``: of the view by which it acted. ``view`` is newer afterwards."""
        ...

    def update(self, topics: Collection[str]) -> None:
        """It wants these topics, or their partitions have changed. ``view`` is newer afterwards."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], epoch: int) -> None:
        """As ``Backend.commit_offsets``; ``epoch``: of the view by which the partitions were read."""
        ...

    def polled(self) -> None:
        """The consumer asks for records. Cheap."""
        ...

    def attach(self, nudge: Callable[[], None] | None) -> None:
        """``nudge`` is called, from another thread, when ``view`` has changed."""
        ...

    def leave(self) -> None:
        """Give up membership; a static member's place is kept until its session ends. Safe to call again."""
        ...

    def abandon(self) -> None:
        """The consumer was dropped: leave soon. Takes no lock, so that a collector of garbage may call it."""
        ...


class ProducerLease(Protocol):
    """Under which ids and epochs a producer's batches travel; its own until ``release``. Thread-safe.

    ``name`` None: an id that nobody else has or will have. A named producer's records in a partition are
    numbered from 0 on, for ever: record n travels under ``producer_id_of(n >> 31)`` with sequence
    n & 0x7fffffff, and the numbers go on where an earlier opening of the name left them.
    """

    @property
    def name(self) -> str | None: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    def producer_id_of(self, era: int) -> int:
        """The id for sequences of this era (unnamed: always the same, its sequences wrap)."""
        ...

    def bump(self) -> None:
        """Unnamed: the next epoch, with a new id where the 16 bits end; sequences begin at 0 again."""
        ...

    def last_sequence(self, topic: str, partition: int) -> int:
        """Named: how many records of the name are in the partition's log, durably."""
        ...

    def spread(self, topic: str) -> int:
        """Named: over how many partitions an import under this name deals the topic's rows; noted durably at
        the first call, so that partitions added later do not move its rows."""
        ...

    def release(self) -> None:
        """Let others open the name. Safe to call again."""
        ...


class TransactionLease(Protocol):
    """A transactional id, its own until ``release`` or until another opening fences it. Thread-safe.

    ``producer_id``, ``epoch``: what the batches of the transaction under way carry; they change between two.
    Each method may raise ProducerFencedError (a newer opening has the id: this one is over) and, but for
    ``begin`` and ``release``, TransactionTimedOutError (the coordinator aborted the transaction).
    """

    @property
    def transactional_id(self) -> str: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    def begin(self) -> None:
        """Be ready for the next transaction: whatever the last one left open is finished first."""
        ...

    def add_partitions(self, places: Collection[TopicPartition], *, offsets: bool = False) -> None:
        """Durable when it returns: only then a batch of the transaction may go to these partitions. ``offsets``:
        and offsets to their log, so that the first ``send_offsets`` needs no step of its own."""
        ...

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None = None,
    ) -> None:
        """Offsets that count once the transaction is committed. ``member``: who commits in the group.
        Errors as for ``Backend.commit_offsets``."""
        ...

    def end(self, *, commit: bool) -> None:
        """Everything that was sent must be durable before. Returns when every partition shows the outcome.

        A commit that raises OutcomeUnknownError may have been decided: call again with ``commit=True``, which asks
        and goes on. After any other error it was not.
        """
        ...

    def ended_by(self) -> LogStoreError | None:
        """Why the transaction under way is over without this lease's doing; None: it is not."""
        ...

    def release(self) -> None:
        """Abort what is open, as far as possible, and let others open the id. Safe to call again."""
        ...


class TransactionSummary(NamedTuple):
    """A transactional id. ``state``: EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT or
    COMPLETE_ABORT; ``places``: partitions of the transaction under way, those without a marker once it is decided;
    ``started_ms``: when the newest one began, -1: there was none; ``holder``: who has the id open; None: nobody."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    places: tuple[TopicPartition, ...]
    holder: str | None


class HangingTransaction(NamedTuple):
    """A transaction open in a partition that no coordinator knows of, so that nothing will ever end it: readers
    of committed records wait at ``start_offset``. ``transactional_id``: whose producer id it is; None: unknown."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    start_offset: int
    transactional_id: str | None


class ProducerSummary(NamedTuple):
    """A named producer. ``producer_ids``: all it ever had; ``holder``: who has it open; None: nobody."""

    name: str
    producer_ids: tuple[int, ...]
    epoch: int
    holder: str | None


class Wakeup:
    """Lets another thread end a waiting fetch. One per consumer. ``trigger``: the user's; ``nudge``: news for the
    consumer itself, which ends the wait just as well, and is no error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._nudged = False
        self._notify: Callable[[], None] | None = None

    def trigger(self) -> None:
        with self._lock:
            self._set = True
            notify = self._notify
        if notify is not None:
            notify()

    def nudge(self) -> None:
        with self._lock:
            self._nudged = True
            notify = self._notify
        if notify is not None:
            notify()

    def calm(self) -> None:
        """Forget nudges: whoever calls this looks at what they were about after it."""
        self._nudged = False

    def take(self) -> bool:
        """True once after a ``trigger``."""
        with self._lock:
            was, self._set = self._set, False
            return was

    def is_set(self) -> bool:
        return self._set or self._nudged

    def attach(self, notify: Callable[[], None] | None) -> None:
        """The backend's wait registers what wakes it; None takes it back."""
        with self._lock:
            self._notify = notify
            fire = (self._set or self._nudged) and notify is not None
        if fire and notify is not None:
            notify()


class Backend(Protocol):
    # --- metadata and admin ---
    def topics(self) -> Mapping[str, TopicMetadata]:
        """All topics by name, internal ones too. Cheap to call often: cached until something changes."""
        ...

    def topic(self, name: str) -> TopicMetadata:
        """UnknownTopicError if there is none."""
        ...

    def metadata_version(self) -> int:
        """Goes up whenever ``topics()`` may answer differently; lets clients cache their routing."""
        ...

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> TopicMetadata: ...
    def add_partitions(self, name: str, total: int, *, allow_keyed: bool) -> None: ...
    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set keys; None puts a key back to its default."""
        ...

    def delete_topic(self, name: str) -> None: ...
    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Move each log start offset up to the offset given (-1: the high watermark), durably; the starts
        afterwards. Past the high watermark: OffsetOutOfRangeError, and nothing is moved."""
        ...

    def compact(
        self, name: str, partition: int | None, *, roll: bool, on_progress: OnProgress | None
    ) -> list[CompactedPartition]:
        """Clean now, at full speed; ``partition`` None: all of them."""
        ...

    def erase_keys(self, name: str, keys: Collection[bytes]) -> ErasureReport:
        """Remove every record of these keys from every file of the topic, and prove it."""
        ...

    def describe_topic(self, name: str) -> TopicDescription: ...

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
        wakeup: Wakeup | None = None,
    ) -> list[FetchResult]:
        """One result per request, in order. Waits up to ``max_wait_s`` until ``min_bytes`` are there, any
        partition has an error, or ``wakeup`` is triggered; no busy loop."""
        ...

    def list_offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        """earliest: log start offset; latest: high watermark, or last stable offset for read_committed;
        a timestamp: the first offset whose record is at least that new."""
        ...

    # --- producers ---
    def init_producer(self, name: str | None) -> ProducerLease:
        """An identity for an idempotent producer. A name is opened by one producer at a time
        (ProducerBusyError names the holder), and its older openings are fenced."""
        ...

    def list_producers(self) -> list[ProducerSummary]: ...
    def delete_producer(self, name: str) -> None:
        """Forget the name: what logs remember of its ids may expire. ProducerBusyError while it is open."""
        ...

    # --- transactions ---
    def init_transactions(self, transactional_id: str, timeout_ms: int) -> TransactionLease:
        """Open the id: an older opening of it is fenced, and what that left open is finished first, aborted
        unless its commit was decided. ProducerBusyError, TopicLockedError: a process that hangs holds it up."""
        ...

    def list_transactions(self) -> list[TransactionSummary]: ...
    def abort_transaction(self, transactional_id: str) -> TransactionSummary:
        """End what the id has open, whoever has it: the producer finds its transaction aborted. A decided commit
        is finished instead. UnknownTransactionError; what it was, as it is afterwards."""
        ...

    def find_hanging(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        """Of these topics (all)."""
        ...

    def end_hanging(self, hanging: HangingTransaction) -> None:
        """Write the abort marker that nobody else will. TransactionStateError if it hangs no more."""
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

    def list_groups(self) -> list[GroupSummary]: ...
    def delete_group(self, group: str) -> None:
        """Forget its offsets. UnknownGroupError; GroupBusyError while it has members."""
        ...

    def close(self) -> None: ...
