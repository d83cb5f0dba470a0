"""``Admin``: topics and groups, over any ``Backend``. May be shared by threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, TypeVar

from logstore.api.backend import Backend
from logstore.api.groups import GroupState, GroupSummary, MemberDescription, validate_group
from logstore.api.operations import Operation
from logstore.api.producers import ProducerSummary
from logstore.api.topics import TopicMetadata
from logstore.api.transactions import HangingTransaction, TransactionSummary
from logstore.arguments import function_or_none, shown, truth, whole
from logstore.client.consumer.settings import timestamp_ms
from logstore.config import parse_topic_config
from logstore.errors import (
    GroupBusyError,
    InvalidArgumentError,
    TopicDiffersError,
    TopicExistsError,
    UnknownGroupError,
    UnknownTransactionError,
)
from logstore.types import (
    CleaningProgress,
    CompactedPartition,
    ErasureReport,
    OffsetAndMetadata,
    TopicDescription,
    TopicPartition,
)

SeekTarget: TypeAlias = Literal["earliest", "latest"] | datetime | int
"""An int is an offset; a datetime stands for the first record at least that new."""


OnProgress: TypeAlias = Callable[[TopicPartition, CleaningProgress], object]
Result = TypeVar("Result")
_TELL_S = 0.05  # longest time between two looks at an operation's progress


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPartition:
    """Where a group is in one partition. ``member``: who reads it now (a member id); ``committed``: None if it has
    committed nothing there. ``lag`` counts offsets up to ``end_offset`` (the last stable offset)."""

    topic: str
    partition: int
    member: str | None
    committed: OffsetAndMetadata | None
    log_start_offset: int
    end_offset: int
    lag: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupDescription:
    """``state``: "empty", "stable" or "reconciling" (partitions are on their way from member to member);
    ``epoch``: of its assignments, 0 if it never had members; ``partitions``: with an offset or a member;
    ``elsewhere``: offsets in partitions that cannot be read here, so that their lag is not known (None: a member
    reads it and nothing is committed)."""

    group: str
    state: GroupState
    assignor: str
    epoch: int
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...]
    elsewhere: Mapping[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        return sum(row.lag for row in self.partitions)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMove:
    """One partition of a ``seek_group``: the committed offset before (None: none) and after."""

    topic: str
    partition: int
    before: int | None
    after: int


class Admin:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    # --- topics ---

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
        exist_ok: bool = False,
    ) -> TopicMetadata:
        """Make a topic, durably. ``replication_factor``: on how many brokers of a cluster each partition is; None: on
        3, or on all where there are fewer. ``exist_ok``: one of that name that is there is given if it has as many
        partitions and the settings that ``config`` names (others may differ), else TopicDiffersError.

        TopicExistsError, InvalidTopicError, InvalidPartitionsError, InvalidConfigError (an unknown key names the
        nearest)."""
        wanted = {} if config is None else config
        factor = None if replication_factor is None else whole(replication_factor, "replication_factor", 1)
        if truth(exist_ok, "exist_ok") and isinstance(name, str) and name in self._backend.topics():
            return self._existing(name, partitions, wanted)
        try:
            return self._backend.create_topic(name, partitions, wanted, factor)
        except TopicExistsError:
            if not exist_ok:
                raise
            return self._existing(name, partitions, wanted)  # another process was faster

    def _existing(self, name: str, partitions: int, config: Mapping[str, str]) -> TopicMetadata:
        found = self._backend.topic(name)
        if found.partitions != partitions:
            raise TopicDiffersError(
                f"topic {name!r} is there with {found.partitions} partitions, not {partitions}"
            )
        given = self._backend.describe_topic(name).config
        has, wants = parse_topic_config(given), parse_topic_config({**given, **config})
        if has != wants:
            odd = sorted(key for key, value in config.items() if given.get(key) != value)
            raise TopicDiffersError(
                f"topic {name!r} is there with other settings: "
                + ", ".join(f"{key}={given.get(key, 'default')!s}, not {config[key]}" for key in odd)
            )
        return found

    def list_topics(self, internal: bool = False) -> list[str]:
        """Names, sorted; ``internal``: with the internal ones."""
        truth(internal, "internal")
        topics = self._backend.topics()
        return sorted(name for name, topic in topics.items() if internal or not topic.internal)

    def describe_topic(self, name: str) -> TopicDescription:
        """UnknownTopicError if there is none."""
        return self._backend.describe_topic(name)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set these settings; None puts one back to its default."""
        self._backend.alter_topic(name, config)

    def add_partitions(self, name: str, total: int, allow_keyed: bool = False) -> None:
        """Grow the topic to ``total`` partitions. Keys then go to other partitions than before, so a topic
        that holds keyed records needs ``allow_keyed=True``."""
        self._backend.add_partitions(name, total, allow_keyed=truth(allow_keyed, "allow_keyed"))

    def delete_topic(self, name: str) -> None:
        self._backend.delete_topic(name)

    def delete_records(
        self, topic: str, before: Mapping[int, int] | int | datetime, /
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset: ``{partition: offset}``, one offset for all partitions (-1: all
        that is visible now), or a datetime. The log starts afterwards, by partition; they hold at once and
        survive a restart, the files go with the next retention pass. Errors: ``OffsetOutOfRangeError`` past
        the high watermark (nothing is deleted then), ``TopicLockedError``, ``InvalidArgumentError`` for a topic
        whose cleanup.policy does not name "delete" (as Kafka does it: the records may be the last of their
        keys) and for internal ones."""
        places = [TopicPartition(topic, number) for number in range(self._backend.topic(topic).partitions)]
        if isinstance(before, datetime):
            listed = self._backend.list_offsets(places, timestamp_ms(before), "read_uncommitted")
            offsets = {place: -1 if at.offset is None else at.offset for place, at in listed.items()}
        elif isinstance(before, Mapping):
            offsets = {TopicPartition(topic, number): offset for number, offset in before.items()}
        else:
            offsets = dict.fromkeys(places, before)
        return self._backend.delete_records(offsets)

    # --- producers ---

    def list_producers(self) -> list[ProducerSummary]:
        """Named producers, by name."""
        return sorted(self._backend.list_producers())

    def delete_producer(self, name: str) -> None:
        """Forget the name, so that one opened under it later begins at 0. ProducerBusyError while it is open;
        InvalidArgumentError if there is none."""
        self._backend.delete_producer(name)

    # --- transactions ---

    def list_transactions(self) -> list[TransactionSummary]:
        """All transactional ids, by name."""
        return sorted(self._backend.list_transactions())

    def describe_transaction(self, transactional_id: str) -> TransactionSummary:
        """UnknownTransactionError if there is none."""
        for summary in self._backend.list_transactions():
            if summary.transactional_id == transactional_id:
                return summary
        raise UnknownTransactionError(f"there is no transactional id {transactional_id!r}")

    def abort_transaction(self, transactional_id: str) -> TransactionSummary:
        """Abort what the id has open, also under a live producer, which finds it aborted and may go on. A commit
        that is decided is finished instead. What is afterwards; partitions that another process owns are marked
        by that one's housekeeper, within a second or so. UnknownTransactionError."""
        return self._backend.abort_transaction(transactional_id)

    def find_hanging(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        """Transactions that nothing will ever end, of these topics (all); the first of each partition."""
        return self._backend.find_hanging(_names(topics))

    def end_hanging(self, hanging: HangingTransaction) -> None:
        """Write the abort marker for one that ``find_hanging`` gave, so that readers go on behind it.
        TransactionStateError if it hangs no more; TopicLockedError."""
        if not isinstance(hanging, HangingTransaction):
            raise InvalidArgumentError(
                f"end_hanging() of {shown(hanging)}", hint="pass one that find_hanging() gave"
            )
        self._backend.end_hanging(hanging)

    # --- compaction and erasure ---

    def compact(
        self,
        topic: str,
        partition: int | None = None,
        *,
        roll: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[CompactedPartition]:
        """Clean a compacted topic now, at full speed, whatever its dirty ratio: all partitions, or one.

        The active segment is left alone unless ``roll`` closes it first. ``on_progress(partition, progress)``
        is called about twenty times a second, on this thread. A partition that had failed is tried at once.
        An open transaction holds back what follows its first record: ``held_by`` of the row names it.
        Errors: ``InvalidArgumentError`` if the topic does not compact; ``TopicLockedError`` names another
        process that owns it; ``CorruptBatchError``, ``DiskFullError``, ``StorageError``: that partition is as
        it was before."""
        truth(roll, "roll")
        function_or_none(on_progress, "on_progress")
        if partition is not None:
            partition = whole(partition, "partition", 0, 2**31 - 1)
        return _finish(self._backend.start_compaction(topic, partition, roll=roll), on_progress)

    def erase_keys(self, topic: str, keys: Collection[bytes]) -> ErasureReport:
        """Remove every record that has one of these keys from every partition, and prove that none is left.

        Offsets of other records do not change. The active segment is closed where it holds such a record, the
        segments are written anew without them, the old files are removed at once, and so are retired files and
        cut-off ends that may hold a key. Then every file is read again. Records of these keys that are sent
        while this runs are not looked at. Works under any cleanup policy.

        What is out of reach: copies (backups, consumers' memory, the disk's own blocks), and another process
        that has an old file open or mapped: it may go on reading that until it looks at the log again.

        Errors: ``ErasureIncompleteError`` if the proof fails, ``TopicLockedError`` if another process owns the
        topic, else as ``compact``. It may be called again."""
        return _finish(self._backend.start_erasure(topic, keys), None)

    # --- groups ---

    def list_groups(self) -> list[GroupSummary]:
        """Groups that have committed offsets or a member, by name."""
        return sorted(self._backend.list_groups(), key=lambda summary: summary.group)

    def describe_group(self, group: str) -> GroupDescription:
        """Members, committed offsets and lag, by partition. UnknownGroupError if there is no such group."""
        summary = self._summary(group)
        topics = self._backend.topics()
        readers = {
            where: member.member_id
            for member in summary.members
            for where in (*member.assigned, *member.revoking)
        }
        known, elsewhere = [], {}
        for where in sorted({*summary.offsets, *readers}):
            if _exists(where, topics):
                if where.partition in topics[where.topic].missing:
                    elsewhere[where] = summary.offsets.get(where)
                else:
                    known.append(where)
        starts = self._offsets(known, "earliest")
        ends = self._offsets(known, "latest")
        rows = []
        for where in known:
            committed = summary.offsets.get(where)
            position = starts[where] if committed is None else max(starts[where], committed.offset)
            rows.append(
                GroupPartition(
                    topic=where.topic,
                    partition=where.partition,
                    member=readers.get(where),
                    committed=committed,
                    log_start_offset=starts[where],
                    end_offset=ends[where],
                    lag=max(0, ends[where] - position),
                )
            )
        return GroupDescription(
            group=group,
            state=summary.state,
            assignor=summary.assignor,
            epoch=summary.epoch,
            members=summary.members,
            partitions=tuple(rows),
            elsewhere=elsewhere,
        )

    def seek_group(
        self,
        group: str,
        to: SeekTarget | None = None,
        *,
        shift: int | None = None,
        topics: Collection[str] | None = None,
        dry_run: bool = False,
    ) -> list[GroupMove]:
        """Move committed offsets: ``to`` "earliest", "latest", an offset or a datetime, or by ``shift``
        offsets (negative: back). The result is kept within the log's start and end.

        ``topics``: all partitions of these, also without an offset so far (then the group may be new);
        None: the partitions with committed offsets. ``dry_run``: only tell. GroupBusyError, dry run or not, while
        the group has members: they would go on from where they are and commit over the change.
        """
        truth(dry_run, "dry_run")
        if (to is None) == (shift is None):
            raise InvalidArgumentError("seek_group() takes either to= or shift=", hint="give one of the two")
        if shift is not None and (isinstance(shift, bool) or not isinstance(shift, int)):
            raise InvalidArgumentError(f"shift={shown(shift)}", hint="it is a whole number of offsets")
        validate_group(group)
        self._check_idle(group)
        committed = self._backend.committed_offsets(group)
        partitions = self._seek_partitions(group, committed, topics)
        before = {where: committed[where].offset for where in partitions if where in committed}
        after = self._seek_offsets(partitions, before, to, shift)
        moves = [
            GroupMove(topic=at.topic, partition=at.partition, before=before.get(at), after=after[at])
            for at in partitions
        ]
        if not dry_run and after:
            # Refused by the coordinator, too, should a member join at this very moment.
            offsets = {where: OffsetAndMetadata(offset) for where, offset in after.items()}
            self._backend.commit_offsets(group, offsets)
        return moves

    def _check_idle(self, group: str) -> None:
        for summary in self._backend.list_groups():
            if summary.group == group and summary.members:
                who = ", ".join(member.client for member in summary.members[:3])
                raise GroupBusyError(
                    f"group {group!r} has members: {who}",
                    hint="close these consumers first; a static member's place is kept until its session ends",
                )

    def _seek_partitions(
        self,
        group: str,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        topics: Collection[str] | None,
    ) -> list[TopicPartition]:
        topics = _names(topics)
        if topics is None:
            if not committed:
                raise UnknownGroupError(
                    f"group {group!r} has no committed offsets", hint="name the topics to make some"
                )
            known = self._backend.topics()
            return [where for where in sorted(committed) if _exists(where, known)]
        return [
            TopicPartition(name, partition)
            for name in sorted(set(topics))
            for partition in range(self._backend.topic(name).partitions)
        ]

    def _seek_offsets(
        self,
        partitions: list[TopicPartition],
        before: Mapping[TopicPartition, int],
        to: SeekTarget | None,
        shift: int | None,
    ) -> dict[TopicPartition, int]:
        starts = self._offsets(partitions, "earliest")
        ends = self._offsets(partitions, "latest")
        if shift is not None:
            wanted = {where: before.get(where, starts[where]) + shift for where in partitions}
        elif isinstance(to, str) and to == "earliest":
            wanted = starts
        elif isinstance(to, str) and to == "latest":
            wanted = ends
        elif isinstance(to, datetime):
            found = self._backend.list_offsets(partitions, timestamp_ms(to), "read_committed")
            offsets = {where: found[where].offset for where in partitions}
            wanted = {where: ends[where] if at is None else at for where, at in offsets.items()}
        elif isinstance(to, int) and not isinstance(to, bool) and to >= 0:
            wanted = dict.fromkeys(partitions, to)
        else:
            raise InvalidArgumentError(
                f"seek_group(to={shown(to)})", hint='use "earliest", "latest", an offset or a datetime'
            )
        return {where: min(max(wanted[where], starts[where]), ends[where]) for where in partitions}

    def delete_group(self, group: str) -> None:
        """Forget the group and its offsets. GroupBusyError while it has members; UnknownGroupError."""
        self._backend.delete_group(group)

    def _summary(self, group: str) -> GroupSummary:
        for summary in self._backend.list_groups():
            if summary.group == group:
                return summary
        raise UnknownGroupError(f"there is no group {shown(group)}", hint="`logstore group list` shows them")

    def _offsets(
        self, partitions: list[TopicPartition], spec: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        found = self._backend.list_offsets(partitions, spec, "read_committed")
        return {where: found[where].offset or 0 for where in partitions}


def _exists(where: TopicPartition, topics: Mapping[str, TopicMetadata]) -> bool:
    return where.topic in topics and where.partition < topics[where.topic].partitions


def _names(topics: Collection[str] | None) -> Collection[str] | None:
    """One name stands for a list of it. InvalidArgumentError for what is no list of names."""
    if isinstance(topics, str):
        return [topics]
    if topics is None or (isinstance(topics, Collection) and all(isinstance(name, str) for name in topics)):
        return topics
    raise InvalidArgumentError(f"topics={shown(topics)}", hint="it is a list of topic names")


def _finish(operation: Operation[Result], on_progress: OnProgress | None) -> Result:
    """The operation's result. It is cancelled by whatever takes the caller away: Ctrl-C, an error of
    ``on_progress``."""
    told: dict[TopicPartition, CleaningProgress] = {}
    try:
        done = False
        while not done:
            done = operation.wait(_TELL_S)
            if on_progress is not None:
                for place, progress in operation.state().progress.items():
                    if told.get(place) != progress:
                        told[place] = progress
                        on_progress(place, progress)
    except BaseException:
        operation.cancel()
        raise
    return operation.result()
