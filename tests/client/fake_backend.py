"""A faithful in-memory ``Backend``: lists of encoded batches, with faults that a test asks for."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from logstore.api.cancellation import CancelHandle
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
from logstore.directory.named_producers import NamedProducer
from logstore.errors import (
    DataLossError,
    InvalidArgumentError,
    InvalidTimestampError,
    LogStoreError,
    OffsetMismatchError,
    OffsetOutOfRangeError,
    ProducerBusyError,
    RecordTooLargeError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.format.batch import decode_batches, read_header, stamp, stamp_log_append_time
from logstore.types import (
    Acks,
    Isolation,
    PartitionDescription,
    Record,
    TopicDescription,
    TopicPartition,
)
from tests.client.fake_groups import FakeGroups
from tests.client.fake_producers import FakeLease, FakeStates

Fault = LogStoreError | Callable[[Sequence[ProduceItem]], LogStoreError | None]


class FakeLog:
    """One partition: stamped batches by base offset."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.starts: list[int] = []
        self.log_start = 0
        self.end = 0
        self.epoch = 0
        self.producers = FakeStates()

    def append(self, batch: bytes) -> int:
        """The base offset; that of the original for a batch that is in already."""
        header = read_header(batch)
        known = self.producers.known(header)
        if known is not None:
            return known
        base = self.end
        self.producers.note(header, base)
        self.batches.append(stamp(batch, base, self.epoch) + batch[16:])
        self.starts.append(base)
        self.end = base + read_header(batch).last_offset_delta + 1
        return base

    def truncate(self, offset: int) -> None:
        """A crash took what lies at ``offset`` (a batch boundary) and after; the epoch goes up."""
        keep = bisect_left(self.starts, offset)
        del self.batches[keep:], self.starts[keep:]
        self.end = offset
        self.epoch += 1
        self.producers = FakeStates()
        for batch in self.batches:
            header = read_header(batch)
            self.producers.note(header, header.base_offset)

    def first_batch(self, offset: int) -> int:
        place = max(0, bisect_left(self.starts, offset + 1) - 1)
        while place < len(self.batches) and read_header(self.batches[place]).next_offset <= offset:
            place += 1
        return place

    def epoch_end(self, epoch: int) -> int:
        """Where the epoch's records end, in the log as it is now."""
        for batch in self.batches:
            header = read_header(batch)
            if header.leader_epoch > epoch:
                return header.base_offset
        return self.end

    def records(self, topic: str, partition: int) -> list[Record]:
        return decode_batches(b"".join(self.batches), topic, partition, start_offset=self.log_start)


class FakeBackend(FakeGroups):
    """``faults``: what the next produce calls meet, one each (None: nothing). ``gate``: produce waits for
    it. ``calls``: per produce call the partitions and record counts. ``lost``: what to raise, one each, after
    a produce call has done its work: the answer is lost on its way."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.metadata: dict[str, TopicMetadata] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.version = 0
        super().__init__()
        self.faults: deque[Fault | None] = deque()
        self.lost: deque[LogStoreError | None] = deque()
        self.producers: dict[str, NamedProducer] = {}
        self.holders: dict[str, str] = {}
        self.leases: list[FakeLease] = []
        self.wait_limits: list[float] = []
        self.next_producer_id = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)  # released by each produce call that begins
        self.calls: list[list[tuple[str, int, int]]] = []
        self.acks: list[Acks] = []
        self.fetch_faults: dict[TopicPartition, deque[LogStoreError]] = defaultdict(deque)
        self.fetches = 0
        self.largest_timestamp_ms: int | None = None  # a record newer than this is refused
        self.append_time_ms = -1

    # --- metadata ---

    def topics(self) -> Mapping[str, TopicMetadata]:
        return dict(self.metadata)

    def topic(self, name: str) -> TopicMetadata:
        if name not in self.metadata:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return self.metadata[name]

    def metadata_version(self) -> int:
        return self.version

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], replication_factor: int | None = None
    ) -> TopicMetadata:
        if name in self.metadata:
            raise TopicExistsError(f"topic {name!r} exists")
        self.version += 1
        self.configs[name] = dict(config)
        parsed = parse_topic_config(config)
        self.metadata[name] = TopicMetadata(
            name=name,
            topic_id=f"id-{self.version}",
            partitions=partitions,
            partitioner=parsed.partitioner,
            compression=parsed.compression_type,
            max_message_bytes=parsed.max_message_bytes,
            internal=name.startswith("__"),
            compacts=parsed.cleanup_policy.compact,
        )
        for partition in range(partitions):
            self.logs[TopicPartition(name, partition)] = FakeLog()
        return self.metadata[name]

    def add_partitions(self, name: str, total: int, *, allow_keyed: bool) -> None:
        old = self.topic(name)
        for partition in range(old.partitions, total):
            self.logs[TopicPartition(name, partition)] = FakeLog()
        self._replace(old, total)

    def _replace(self, old: TopicMetadata, partitions: int) -> None:
        parsed = parse_topic_config(self.configs[old.name])
        self.version += 1
        self.metadata[old.name] = TopicMetadata(
            name=old.name,
            topic_id=old.topic_id,
            partitions=partitions,
            partitioner=parsed.partitioner,
            compression=parsed.compression_type,
            max_message_bytes=parsed.max_message_bytes,
            internal=old.internal,
            compacts=parsed.cleanup_policy.compact,
        )

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        settings = self.configs[name]
        for key, text in config.items():
            settings.pop(key, None)
            if text is not None:
                settings[key] = text
        self._replace(self.topic(name), self.topic(name).partitions)

    def delete_topic(self, name: str) -> None:
        for partition in range(self.topic(name).partitions):
            del self.logs[TopicPartition(name, partition)]
        del self.metadata[name]
        self.forget_topic(name)
        self.version += 1

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        for place, offset in offsets.items():
            self.logs[place].log_start = self.logs[place].end if offset == -1 else offset
        return {place: self.logs[place].log_start for place in offsets}

    def describe_topic(self, name: str) -> TopicDescription:
        topic = self.topic(name)
        rows = [self._describe(TopicPartition(name, partition)) for partition in range(topic.partitions)]
        return TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            internal=topic.internal,
            config=dict(self.configs[name]),
            partitions=tuple(rows),
        )

    def describe_partitions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionDescription]:
        return {where: self._describe(where) for where in partitions}

    def _describe(self, where: TopicPartition) -> PartitionDescription:
        log = self.logs[where]
        return PartitionDescription(
            partition=where.partition,
            log_start_offset=log.log_start,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_end_offset=log.end,
            leader_epoch=log.epoch,
            segments=1,
            size_bytes=sum(map(len, log.batches)),
        )

    def partition_counts(self) -> Mapping[str, int]:
        return {name: topic.partitions for name, topic in self.metadata.items()}

    def end_offset(self, where: TopicPartition) -> int:
        return self.log(*where).end

    def log(self, topic: str, partition: int) -> FakeLog:
        self.topic(topic)
        log = self.logs.get(TopicPartition(topic, partition))
        if log is None:
            raise UnknownPartitionError(f"topic {topic!r} has no partition {partition}")
        return log

    # --- data ---

    def produce(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> list[ProduceResult]:
        self.entered.release()
        self.gate.wait(60)
        with self.lock:
            self.calls.append([(i.topic, i.partition, read_header(i.batch).records_count) for i in items])
            self.acks.append(acks)
            fault = self.faults.popleft() if self.faults else None
            if isinstance(fault, LogStoreError):
                raise fault
            per_call = fault(items) if callable(fault) else None
            failed: dict[tuple[str, int], LogStoreError] = {}
            results = []
            for item in items:
                error = per_call or failed.get(item[:2]) or self._refusal(item)
                if error is not None:
                    failed[item[:2]] = error  # what is behind it is not tried
                    results.append(ProduceResult(-1, error=error))
                    continue
                batch = item.batch
                if self.append_time_ms >= 0:
                    batch = stamp_log_append_time(batch, self.append_time_ms)
                try:
                    base = self.log(item.topic, item.partition).append(batch)
                except LogStoreError as refused:
                    failed[item[:2]] = refused
                    results.append(ProduceResult(-1, error=refused))
                    continue
                results.append(ProduceResult(-1 if acks == 0 else base, self.append_time_ms))
            self.lock.notify_all()
            lost = self.lost.popleft() if self.lost else None
            if lost is not None:
                raise lost
            return results

    def _refusal(self, item: ProduceItem) -> LogStoreError | None:
        try:
            self.log(item.topic, item.partition)
        except LogStoreError as error:
            return error
        end = self.log(item.topic, item.partition).end
        if item.expected_offset not in (None, end):
            return OffsetMismatchError(f"the log ends at {end}", end_offset=end)
        limit = self.metadata[item.topic].max_message_bytes
        if len(item.batch) > limit:
            return RecordTooLargeError(f"a batch of {len(item.batch)} bytes, the limit is {limit}")
        newest = read_header(item.batch).max_timestamp
        if self.largest_timestamp_ms is not None and newest > self.largest_timestamp_ms:
            return InvalidTimestampError(f"timestamp {newest} is too far in the future")
        return None

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
        def notify() -> None:
            with self.lock:
                self.lock.notify_all()

        end_s = time.monotonic() + max_wait_s
        self.fetches += 1
        if cancel is not None and max_wait_s > 0:
            cancel.on_cancel(notify)
        try:
            while True:
                with self.lock:
                    results = self._collect(requests, max_bytes)
                    total = sum(len(result.batches) for result in results)
                    left_s = end_s - time.monotonic()
                    enough = total >= max(1, min_bytes) or any(result.error for result in results)
                    enough = enough or any(request.reverse for request in requests)
                    if enough or left_s <= 0 or (cancel is not None and cancel.cancelled):
                        return results
                    self.lock.wait(min(left_s, 0.05))
        finally:
            if cancel is not None:
                cancel.on_cancel(None)

    def _collect(self, requests: Sequence[FetchRequest], max_bytes: int) -> list[FetchResult]:
        results = []
        total = 0
        for request in requests:
            result = self._fetch_one(request, max_bytes - total, nothing_yet=not total)
            total += len(result.batches)
            results.append(result)
        return results

    def _fetch_one(self, request: FetchRequest, left_bytes: int, *, nothing_yet: bool) -> FetchResult:
        where = TopicPartition(request.topic, request.partition)
        faults = self.fetch_faults.get(where)
        try:
            if faults:
                raise faults.popleft()
            log = self.log(*where)
            self._check_position(log, request)
        except LogStoreError as error:
            return FetchResult(*where, b"", request.offset, -1, -1, -1, error)
        limit = min(request.max_bytes, left_bytes)
        taken: list[bytes] = []
        size = 0
        next_offset = request.offset
        if request.reverse:
            before = [batch for batch in log.batches if read_header(batch).base_offset < request.offset]
            before = [batch for batch in before if read_header(batch).next_offset > log.log_start]
            first = read_header(before[-1]).base_offset if before else log.log_start
            return FetchResult(*where, b"".join(before[-1:]), first, log.log_start, log.end, log.end)
        for batch in log.batches[log.first_batch(request.offset) :]:
            if size + len(batch) > limit and (taken or not nothing_yet):
                break
            taken.append(batch)
            size += len(batch)
            next_offset = read_header(batch).next_offset
        return FetchResult(*where, b"".join(taken), next_offset, log.log_start, log.end, log.end)

    def _check_position(self, log: FakeLog, request: FetchRequest) -> None:
        if request.leader_epoch >= 0 and request.offset > log.epoch_end(request.leader_epoch):
            lost_from = log.epoch_end(request.leader_epoch)
            raise DataLossError(
                f"epoch {request.leader_epoch} ended at {lost_from}",
                lost_from=lost_from,
                position=request.offset,
            )
        if not log.log_start <= request.offset <= log.end:
            raise OffsetOutOfRangeError(
                f"offset {request.offset}", log_start_offset=log.log_start, end_offset=log.end
            )

    def list_offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        found = {}
        with self.lock:
            for where in partitions:
                log = self.log(*where)
                if spec == "earliest":
                    found[where] = ListedOffset(log.log_start)
                elif spec == "latest":
                    found[where] = ListedOffset(log.end)
                else:
                    found[where] = self._at_time(log, where, spec)
        return found

    def _at_time(self, log: FakeLog, where: TopicPartition, spec: OffsetSpec) -> ListedOffset:
        records = log.records(*where)
        if spec == "max_timestamp":
            records = sorted(records, key=lambda record: record.timestamp_ms)[-1:]
        for record in records:
            if not isinstance(spec, int) or record.timestamp_ms >= spec:
                return ListedOffset(record.offset, record.timestamp_ms)
        return ListedOffset(None)

    # --- producers ---

    def take_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def init_producer(self, name: str | None) -> ProducerLease:
        lease = FakeLease(self, name)
        self.leases.append(lease)
        return lease

    def limit_waits(self, timeout_s: float) -> AbstractContextManager[None]:
        self.wait_limits.append(timeout_s)
        return nullcontext()

    def list_producers(self) -> list[ProducerSummary]:
        return [
            ProducerSummary(
                name, tuple(row.producer_id for row in entry.ids), entry.epoch, self.holders.get(name)
            )
            for name, entry in self.producers.items()
        ]

    def delete_producer(self, name: str) -> None:
        if name in self.holders:
            raise ProducerBusyError(f"producer {name!r} is open: {self.holders[name]}")
        if self.producers.pop(name, None) is None:
            raise InvalidArgumentError(f"there is no producer {name!r}")

    def close(self) -> None:
        with self.lock:
            self.lock.notify_all()
