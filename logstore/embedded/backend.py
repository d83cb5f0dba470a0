"""The embedded backend: a store's own topics, logs and offsets behind the ``Backend`` protocol."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from logstore.api.cancellation import CancelHandle
from logstore.api.groups import GroupMembership, GroupSummary, JoinRequest, MemberIdentity
from logstore.api.operations import Operation
from logstore.api.producers import ProducerLease, ProducerSummary
from logstore.api.records import (
    FetchRequest,
    FetchResult,
    ListedOffset,
    OffsetSpec,
    ProduceItem,
    ProduceResult,
)
from logstore.api.topics import TopicMetadata
from logstore.config import parse_topic_config
from logstore.coordination.embedded_coordinators import EmbeddedCoordinators
from logstore.coordination.transactional_offsets import LocalOffsets
from logstore.directory.catalogue import TopicEntry
from logstore.directory.producer_ids import ProducerIds
from logstore.embedded.appends import Appends
from logstore.embedded.coordination_parts import CoordinationParts, EmbeddedParts
from logstore.embedded.groups import EmbeddedGroups
from logstore.embedded.operation import EmbeddedOperation
from logstore.embedded.producer_lease import NamedLease, ProducerHold, UnnamedLease, producer_holder
from logstore.embedded.transaction_services import TransactionServices
from logstore.embedded.transactions import EmbeddedTransactions
from logstore.embedded.upkeep_everywhere import UpkeepEverywhere
from logstore.errors import (
    InvalidArgumentError,
    LogStoreError,
    OffsetOutOfRangeError,
)
from logstore.partition.cleaned_topic import CleanedTopic
from logstore.partition.context import StoreContext
from logstore.partition.partition import Cancel, Partition
from logstore.partition.partition_log import PartitionLog, limit_of
from logstore.partition.topic import Topic
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import (
    Acks,
    CompactedPartition,
    ErasureReport,
    Isolation,
    OffsetAndMetadata,
    PartitionCompaction,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from logstore.upkeep.cleaning_manager import CleaningManager
from logstore.upkeep.compactor import Steps
from logstore.upkeep.erasure import checked_keys

logger = logging.getLogger(__name__)

_FIRST_POLL_S = 0.001
_LONGEST_POLL_S = 0.05
_LONGEST_SLEEP_S = 1.0


class EmbeddedBackend(EmbeddedTransactions):
    """Thread-safe. ``partition`` gives the facade of one partition; ``parts``: what groups and transactions stand on,
    None: the directory and its locks."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        partition: Callable[[str, int], PartitionLog],
        cleaning: CleaningManager,
        parts: CoordinationParts | None = None,
    ) -> None:
        self._cleaning = cleaning
        self._appends = Appends(context, registry, self._held)
        self._context = context
        self._registry = registry
        self._partition = partition
        if parts is None:
            parts = EmbeddedParts(context, registry, partition, EmbeddedCoordinators(context, registry))
        self._parts = parts
        leadership = context.leadership
        self.everywhere = (
            None
            if leadership is None
            else UpkeepEverywhere(leadership, self._compact, self._erase, self._clean)
        )
        self._producer_ids = ProducerIds(registry.take_producer_ids)
        self._coordinate(parts)

    def _coordinate(self, parts: CoordinationParts) -> None:
        """Make what runs groups and transactions."""
        context, registry = self._context, self._registry
        self.groups = EmbeddedGroups(context, registry, self._partition, parts)
        offsets = LocalOffsets(context.clock, lambda: self.groups.topic(create=True), parts.ends)
        self.transactions = TransactionServices(context, registry, self._producer_ids, offsets, parts)

    # --- metadata and admin ---

    def topics(self) -> Mapping[str, TopicMetadata]:
        return {name: self._told(entry) for name, entry in self._registry.catalogue.topics.items()}

    def topic(self, name: str) -> TopicMetadata:
        return self._told(self._registry.entry(name))

    def _told(self, entry: TopicEntry) -> TopicMetadata:
        broker = self._context.broker
        told = _metadata(entry, () if broker is None else broker.missing(entry.name))
        leadership = self._context.leadership
        if leadership is None:
            return told
        nodes, terms = leadership.leaders(entry)
        return replace(told, leaders=nodes, leader_epochs=terms)

    def metadata_version(self) -> int:
        leadership = self._context.leadership
        moved = 0 if leadership is None else leadership.leaders_moved()
        return self._registry.recent_revision() + moved

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], replication_factor: int | None = None
    ) -> TopicMetadata:
        self._context.check_writable()
        if isinstance(name, str) and name not in self._registry.catalogue.topics:
            self.groups.forget_topic(name)  # older versions bound offsets to the name alone
        made = self._registry.create(name, partitions, config, replication_factor=replication_factor)
        self._settle(name)
        return self._told(made)

    def _settle(self, name: str) -> None:
        if self._context.leadership is not None:
            self._context.leadership.settle(name)

    def add_partitions(self, name: str, total: int, *, allow_keyed: bool) -> None:
        self._registry.add_partitions(name, total, allow_keyed=allow_keyed)
        self._settle(name)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        self._registry.alter(name, config)
        self._settle(name)

    def delete_topic(self, name: str) -> None:
        """The topic, its records, and every group's offsets in it (a new topic of that name starts anew): gone once
        the catalogue forgets its id, as offsets are bound to it."""
        entry = self._registry.delete(name)
        self._cleaning.kit.ledger.forget(entry.topic_id)
        self._settle(name)
        try:
            self.groups.forget_topic(name)
        except LogStoreError as error:
            # They count no more; a later look for expired offsets removes them.
            logger.warning(
                "topic %s is deleted, the offsets of its groups are not removed yet: %s", name, error
            )

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._context.check_writable()
        targets = {
            place: self._start_target(TopicPartition(*place), offset) for place, offset in offsets.items()
        }
        starts: dict[TopicPartition, int] = {}
        with self._context.reserve.opened():
            for (name, partition), target in targets.items():
                held = self._held(name, partition)
                starts[TopicPartition(name, partition)] = held.delete_records(target)
        return starts

    def _start_target(self, place: TopicPartition, offset: int) -> int:
        if self._registry.entry(place.topic).internal:
            raise InvalidArgumentError(
                f"{place.topic} is internal: its records are not yours to delete",
                hint="delete its groups instead",
            )
        policy = parse_topic_config(self._registry.entry(place.topic).config).cleanup_policy
        if not policy.delete:
            raise InvalidArgumentError(
                f"{place.topic} compacts and does not delete: its oldest records may be the last of their keys",
                hint="set cleanup.policy=compact,delete, or erase keys (`logstore topic erase-key`)",
            )
        if type(offset) is not int or offset < -1:
            raise InvalidArgumentError(
                f"cannot delete the records of {place.topic}-{place.partition} before {offset!r}",
                hint="give an offset, or -1 for the high watermark",
            )
        bounds = self._partition(*place).bounds()
        if offset > bounds.high_watermark:
            raise OffsetOutOfRangeError(
                f"cannot delete the records of {place.topic}-{place.partition} before {offset}: the high watermark "
                f"is {bounds.high_watermark}",
                hint="give at most the high watermark, or -1 for it",
                log_start_offset=bounds.log_start_offset,
                end_offset=bounds.high_watermark,
            )
        return bounds.high_watermark if offset == -1 else offset

    def start_compaction(
        self, name: str, partition: int | None, *, roll: bool
    ) -> Operation[list[CompactedPartition]]:
        self._context.check_writable()
        compact = self._compact if self.everywhere is None else self.everywhere.compact
        return EmbeddedOperation(f"compacting {name}", self._with_names(compact(name, partition, roll)))

    def _compact(self, name: str, partition: int | None, roll: bool) -> Steps[list[CompactedPartition]]:
        topic = self._cleaned_topic(name)
        places = range(topic.entry.partitions) if partition is None else [partition]
        return self._cleaning.compactor.compact(topic, places, roll=roll)

    def _with_names(self, steps: Steps[list[CompactedPartition]]) -> Steps[list[CompactedPartition]]:
        done = yield from steps
        return [self.transactions.admin.with_names(row) for row in done]

    def start_erasure(self, name: str, keys: Collection[bytes]) -> Operation[ErasureReport]:
        self._context.check_writable()
        erase = self._erase if self.everywhere is None else self.everywhere.erase
        return EmbeddedOperation(f"erasing keys of {name}", erase(name, keys))

    def _erase(self, name: str, keys: Collection[bytes]) -> Steps[ErasureReport]:
        return self._cleaning.eraser.erase(self._registry.get(name), checked_keys(keys))

    def _cleaned_topic(self, name: str) -> CleanedTopic:
        shared = self._registry.is_shared(self._registry.entry(name))
        return self._registry.shared_cleaning(name) if shared else self._registry.get(name)

    def describe_topic(self, name: str) -> TopicDescription:
        entry = self._registry.entry(name)
        holder = self._context.locks.holder(entry.lock_slot)
        broker = self._context.broker
        numbers = range(entry.partitions) if broker is None else broker.partitions(name)
        partitions = [self.describe_partition(name, number) for number in numbers]
        compacts = parse_topic_config(entry.config).cleanup_policy.compact or entry.internal
        if compacts and broker is None:
            rows = self._clean(name) if self.everywhere is None else self.everywhere.clean(name)
            partitions = [replace(row, compaction=rows.get(row.partition)) for row in partitions]
        return TopicDescription(
            name=name,
            topic_id=entry.topic_id,
            internal=entry.internal,
            config=dict(entry.config),
            owner=None if holder is None else holder.describe(),
            partitions=tuple(partitions),
            missing=() if broker is None else broker.missing(name),
            config_known=broker is None or broker.settings_known,
        )

    def _clean(self, name: str) -> dict[int, PartitionCompaction]:
        """How clean the partitions are that this process has copies of."""
        topic = self._cleaned_topic(name)
        points = topic.cleaner_points()
        return {
            number: self._cleaning.cleaner.describe(topic, number, points)
            for number in range(topic.entry.partitions)
            if self._has(name, number)
        }

    def _has(self, topic: str, partition: int) -> bool:
        del topic, partition
        return True

    # --- produce ---

    def produce(
        self,
        items: Sequence[ProduceItem],
        acks: Acks,
        timeout_s: float,
    ) -> list[ProduceResult]:
        return self._appends.produce(items, acks, timeout_s)

    def start_produce(
        self,
        items: Sequence[ProduceItem],
        acks: Acks,
        timeout_s: float,
        tell: Callable[[list[ProduceResult]], None],
    ) -> None:
        """As ``produce``, for servers: returns when the batches are written, and ``tell`` is called with the results
        when all are decided, from any thread; it must not wait. Not after an error."""
        self._appends.start(items, acks, timeout_s, tell)

    def _held(self, topic: str, partition: int) -> Partition:
        """A partition that a caller names. UnknownTopicError."""
        return self._registry.get(topic).partition(partition)

    # --- fetch ---

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
        clock = self._context.clock
        results, enough = self.collect(requests, isolation, min_bytes, max_bytes)
        if enough or max_wait_s <= 0 or (cancel is not None and cancel.cancelled):
            return results
        deadline_s = clock.monotonic_s() + max_wait_s
        event = threading.Event()
        if cancel is not None:
            cancel.on_cancel(event.set)
        pause_s = _FIRST_POLL_S
        waits: list[Cancel] = []
        try:
            while True:
                event.clear()
                alone = self._wait_for(requests, event, waits)
                results, enough = self.collect(requests, isolation, min_bytes, max_bytes)
                left_s = deadline_s - clock.monotonic_s()
                if enough or left_s <= 0 or (cancel is not None and cancel.cancelled):
                    return results
                if alone:
                    event.wait(min(left_s, _LONGEST_SLEEP_S))
                else:
                    # Another process writes: its slot in `.live` is looked at, less and less often.
                    event.wait(min(left_s, pause_s))
                    pause_s = min(pause_s * 2, _LONGEST_POLL_S)
        finally:
            for forget in waits:
                forget()
            if cancel is not None:
                cancel.on_cancel(None)

    def _wait_for(
        self, requests: Sequence[FetchRequest], event: threading.Event, waits: list[Cancel]
    ) -> bool:
        """Have ``event`` set when there is more in any of the partitions; False if some have to be looked at again and
        again. ``waits``: those of the round before, replaced."""
        while waits:
            waits.pop()()
        places = {(request.topic, request.partition) for request in requests}
        for topic, partition in places:
            try:
                wait = self._registry.get(topic).partition(partition).when_more(event.set, poll=False)
            except LogStoreError:
                continue  # deleted: the look that follows says so of its partition, and of no other
            if wait is not None:
                waits.append(wait)
        return bool(places) and len(waits) == len(places)

    def when_more(self, places: Collection[TopicPartition], tell: Callable[[], None]) -> Cancel:
        """For servers: ``tell`` is called, from any thread and perhaps several times, when readers may see more in any
        of the partitions than now; it must not wait. What is given ends that."""
        waits: list[Cancel] = []
        for topic, partition in places:
            try:
                wait = self._registry.get(topic).partition(partition).when_more(tell)
            except LogStoreError:
                tell()  # the look that follows says why
                continue
            if wait is not None:
                waits.append(wait)

        def cancel() -> None:
            for forget in waits:
                forget()

        return cancel

    def collect(
        self, requests: Sequence[FetchRequest], isolation: Isolation, min_bytes: int, max_bytes: int
    ) -> tuple[list[FetchResult], bool]:
        """What is there now; whether it is worth an answer (enough bytes, or an error to tell)."""
        results: list[FetchResult] = []
        total, failed = 0, False
        for request in requests:
            limit = min(request.max_bytes, max_bytes - total)
            if limit <= 0 < total:
                results.append(_nothing(request))
                continue
            result = self._fetch_one(request, isolation, limit)
            total += len(result.batches)
            # What was read over (aborted records) is worth an answer, too: the reader goes on behind it.
            failed = failed or result.error is not None
            failed = failed or (not result.batches and result.next_offset > request.offset) or request.reverse
            failed = failed or result.preferred_replica >= 0
            results.append(result)
        return results, failed or total >= max(min_bytes, 1)

    def _fetch_one(self, request: FetchRequest, isolation: Isolation, max_bytes: int) -> FetchResult:
        topic, partition, offset, epoch, _, reverse, _ = request
        self._context.check_usable()
        try:
            log = self._partition(topic, partition)
            if reverse:
                fetched = log.fetch_back(offset, isolation)
            else:
                fetched = log.fetch(offset, max_bytes, isolation, epoch)
        except LogStoreError as error:
            return FetchResult(topic, partition, b"", offset, -1, -1, -1, error)
        bounds = fetched.bounds
        return FetchResult(
            topic,
            partition,
            fetched.data,
            fetched.next_offset,
            bounds.log_start_offset,
            bounds.high_watermark,
            bounds.last_stable_offset,
        )

    # --- offsets ---

    def list_offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        if spec in ("earliest", "latest"):
            return self._list_bounds(partitions, spec == "latest", isolation)
        return {TopicPartition(*place): self._list_one(self._partition(*place), spec) for place in partitions}

    def _list_bounds(
        self, partitions: Collection[TopicPartition], latest: bool, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        """The catalogue is looked at once a topic: of 10,000 partitions each look would be a tenth of a second."""
        self._context.check_usable()
        listed: dict[TopicPartition, ListedOffset] = {}
        topics: dict[str, Topic] = {}
        for place in partitions:
            name, partition = place
            topic = topics.get(name) if type(name) is str else None
            if topic is not None and type(partition) is int and 0 <= partition < topic.entry.partitions:
                bounds = topic.partition(partition).reader(looked=True).bounds()
            else:
                log = self._partition(name, partition)
                topics[name] = self._registry.get(name)
                bounds = log.bounds()
            listed[TopicPartition(name, partition)] = (
                ListedOffset(limit_of(bounds, isolation), -1, bounds.leader_epoch)
                if latest
                else ListedOffset(bounds.log_start_offset, -1, -1)
            )
        return listed

    def _list_one(self, log: PartitionLog, spec: OffsetSpec) -> ListedOffset:
        if spec == "max_timestamp":
            record = log.record_of_max_timestamp()
        elif type(spec) is int:
            record = log.record_at_or_after(spec)
        else:
            raise InvalidArgumentError(
                f"offset spec {spec!r} is not known",
                hint="use 'earliest', 'latest', 'max_timestamp' or a timestamp in ms",
            )
        if record is None:
            return ListedOffset(None)
        return ListedOffset(record.offset, record.timestamp_ms, -1)

    def describe_partitions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionDescription]:
        return {TopicPartition(*place): self.describe_partition(*place) for place in partitions}

    def describe_partition(self, topic: str, partition: int) -> PartitionDescription:
        return self._partition(topic, partition).describe()

    # --- producers ---

    def init_producer(self, name: str | None) -> ProducerLease:
        if name is None:
            return UnnamedLease(self._producer_ids)
        return NamedLease(self._context, self._registry, name, self._last_sequences)

    def limit_waits(self, timeout_s: float) -> AbstractContextManager[None]:
        return self._context.wait_limit.within(timeout_s)

    def _last_sequences(self, topic: str, partition: int, ids: Sequence[int]) -> dict[int, int]:
        """What the partition's log knows of these ids, once all of it is durable."""
        entries = self._parts.writer(topic, partition).producer_entries(ids)
        return {key: entry.last_sequence for key, entry in entries.items()}

    def list_producers(self) -> list[ProducerSummary]:
        summaries = []
        for name, entry in self._registry.catalogue.producers.items():
            holder = producer_holder(self._context, name)
            ids = tuple(row.producer_id for row in entry.ids)
            who = None if holder is None else holder.describe()
            summaries.append(ProducerSummary(name, ids, entry.epoch, who))
        return summaries

    def delete_producer(self, name: str) -> None:
        hold = ProducerHold(self._context, name)
        try:
            self._registry.change_producers(lambda catalogue: catalogue.without_producer(name))
        finally:
            hold.release()

    # --- groups ---

    def join_group(self, group: str, request: JoinRequest) -> GroupMembership:
        return self.groups.join(group, request)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member: MemberIdentity | None = None,
    ) -> None:
        self.groups.commit(group, offsets, member)

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.groups.committed(group)

    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        return self.groups.unstable(group)

    def list_groups(self) -> list[GroupSummary]:
        return self.groups.list()

    def delete_group(self, group: str) -> None:
        self.groups.delete(group)

    def close(self) -> None:
        self.transactions.close()
        self.groups.close()


def _nothing(request: FetchRequest) -> FetchResult:
    """The call's byte limit was reached by the partitions before; this one waits for the next call."""
    return FetchResult(request.topic, request.partition, b"", request.offset, -1, -1, -1)


def _metadata(entry: TopicEntry, missing: tuple[int, ...] = ()) -> TopicMetadata:
    config = parse_topic_config(entry.config)
    max_message_bytes, size_setting = config.largest_batch()
    return TopicMetadata(
        name=entry.name,
        topic_id=entry.topic_id,
        partitions=entry.partitions,
        partitioner=config.partitioner,
        compression=config.compression_type,
        max_message_bytes=max_message_bytes,
        size_setting=size_setting,
        internal=entry.internal,
        compacts=config.cleanup_policy.compact,
        missing=missing,
    )
