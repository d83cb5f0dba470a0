"""A replicated partition for tests: three logs in memory, a commit index that a script moves, followers that diverge.

There is no election and no network: one node leads for ever, under a term that grows whenever another leader was
heard of. The script decides when records reach the followers. Every few appends one follower takes records of a
leader that nobody else knows, syncs them, and has to cut them off again before it can go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from logstore.config import TopicConfig
from logstore.errors import LogStoreError, ProducerFencedError
from logstore.format.batch import iter_headers
from logstore.log.append_validation import CheckedBatch, check_leader_append, split_checked
from logstore.log.log_offsets import Appended
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.log.replica_log import ReplicaLog
from logstore.partition.data_waiters import DataWaiters
from logstore.partition.partition import Cancel, PendingAppend, Told
from logstore.types import Acks
from tests.log.logs import batch, checked
from tests.log.replicas import ReplicaDesk

_LATE, _DIVERGES = 3, 4  # every so many appends


class ReplicatedAppend:
    """A ``PendingAppend`` that is decided by the commit index."""

    def __init__(self, partition: ReplicatedPartition, appended: Appended, time_ms: int, due: bool) -> None:
        self._partition = partition
        self.base_offset, self.next_offset = appended
        self.append_time_ms = time_ms
        self.error: LogStoreError | None = None
        self._told: list[Told] = []
        self.done = not due

    def decide(self) -> None:
        self.done = True
        told, self._told = self._told, []
        for tell in told:
            tell(self.error)

    def then(self, tell: Told) -> None:
        with self._partition.lock:
            if not self.done:
                self._told.append(tell)
                self._partition.replicate()
                return
        tell(self.error)

    def wait_with(self, others: Sequence[PendingAppend]) -> None:
        del others  # each partition has a commit index of its own
        self._partition.replicate()
        assert self.done


class ReplicatedPartition:
    """See ``Partition``. ``truncations``: how often a follower had to cut off what it had synced."""

    def __init__(self, topic: Any, partition: int) -> None:
        self._of = topic
        self.topic, self.partition = topic.name, partition
        self.where = f"{topic.name}-{partition}"
        self.lock = threading.RLock()
        self.logs = [ReplicaDesk().start() for _ in range(3)]
        self._waiters = DataWaiters()
        self.leader.subscribe(self._waiters)
        self._pending: list[ReplicatedAppend] = []
        self._term = 1
        self._appends = self.truncations = self.most_uncommitted = 0

    @property
    def leader(self) -> ReplicaLog:
        return self.logs[0]

    @property
    def config(self) -> TopicConfig:
        config: TopicConfig = self._of.config
        return config

    # --- write ---

    def append(
        self,
        batches: Sequence[CheckedBatch],
        acks: Acks = "all",
        *,
        expected_offset: int | None = None,
        now_ms: int | None = None,
        until_s: float | None = None,
    ) -> ReplicatedAppend:
        del until_s  # no lock of another process is waited for
        context, config = self._of._context, self.config
        context.check_writable()
        self._of.entry.live_slot(self.partition)
        now_ms = context.clock.wall_ms() if now_ms is None else now_ms
        with self.lock:
            ready = check_leader_append(batches, config, now_ms, self.where)
            self.leader.configure(config)
            appended = self.leader.append(ready, expected_offset, self._term)
            stamped_ms = now_ms if config.timestamp_type == "LogAppendTime" else -1
            return self._pending_of(appended, stamped_ms, acks)

    def append_marker(
        self, marker: Marker, *, once: bool = False, open_since: int = -1, wait: bool = True
    ) -> ReplicatedAppend:
        del wait
        self._of.entry.live_slot(self.partition)
        with self.lock:
            try:
                appended = self.leader.append_marker(
                    marker, once=once, open_since=open_since, term=self._term
                )
            except ProducerFencedError:
                if not once:
                    raise
                appended = Appended(self.leader.log_end_offset, self.leader.log_end_offset)
            return self._pending_of(appended, -1, "all")

    def _pending_of(self, appended: Appended, time_ms: int, acks: Acks) -> ReplicatedAppend:
        due = acks == "all" and self.leader.high_watermark < appended.next_offset
        pending = ReplicatedAppend(self, appended, time_ms, due)
        if due:
            self._pending.append(pending)
        self._appends += 1
        if self._appends % _DIVERGES == 0:
            self._diverge()
        if self._appends % _LATE or acks != "all":
            self.replicate()
        self.most_uncommitted = max(self.most_uncommitted, len(self._pending))
        return pending

    def flush(self) -> None:
        self.replicate()

    def delete_records(self, before_offset: int) -> int:
        self.replicate()
        with self.lock:
            for log in self.logs:
                log.raise_start(before_offset)
            return self.leader.log_start_offset

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]:
        self.replicate()
        with self.lock:
            found = {producer_id: self.leader.producers.entry(producer_id) for producer_id in producer_ids}
        return {producer_id: entry for producer_id, entry in found.items() if entry is not None}

    # --- read ---

    def reader(self, *, looked: bool = False) -> ReplicaLog:
        del looked
        self._of.entry.live_slot(self.partition)
        return self.leader

    def when_more(self, tell: Callable[[], None], *, poll: bool = True) -> Cancel:
        del poll
        return self._waiters.add(tell)

    # --- replication ---

    def replicate(self) -> None:
        """Bring both followers up to the leader's end; commit what a majority has made durable, and tell."""
        with self.lock:
            self.leader.sync()
            for follower in self.logs[1:]:
                self._catch_up(follower)
                follower.sync()
            index = sorted(log.flushed_offset for log in self.logs)[1]
            for log in self.logs:
                log.advance_high_watermark(index)
            decided = [one for one in self._pending if one.next_offset <= self.leader.high_watermark]
            self._pending = [one for one in self._pending if one.next_offset > self.leader.high_watermark]
            for one in decided:
                one.decide()

    def _catch_up(self, follower: ReplicaLog) -> None:
        leader = self.leader
        while True:
            term, end = leader.end_of_term(follower.leader_epoch)
            agreed = min(
                end, follower.log_end_offset, follower.end_of_term(term).end_offset if term >= 0 else 0
            )
            if agreed >= follower.log_end_offset:
                break
            follower.truncate_to(agreed)
            self.truncations += 1
        while follower.log_end_offset < leader.log_end_offset:
            chunk = leader.read(follower.log_end_offset, 1 << 16, leader.log_end_offset)
            assert chunk is not None
            follower.append_as_follower(split_checked(bytes(chunk.data), self.where))

    def _diverge(self) -> None:
        """The second follower hears of a leader of the next term, which is cut off from all others."""
        follower = self.logs[2]
        data = batch(b"nobody may see this", base_offset=follower.log_end_offset, epoch=self._term + 1)
        follower.append_as_follower(checked(data))
        follower.sync()
        self._term += 2  # so says whoever was elected to overrule that one

    def check(self) -> None:
        """All replicas hold the same committed batches; none shows more than is committed."""
        self.replicate()
        contents = []
        for log in self.logs:
            assert log.high_watermark == log.log_end_offset == self.leader.log_end_offset
            offset, found = log.log_start_offset, []
            while offset < log.log_end_offset and (chunk := log.read(offset, 1 << 20, log.log_end_offset)):
                found += [
                    (header.base_offset, header.leader_epoch, header.crc)
                    for _, header in iter_headers(chunk.data)
                ]
                offset = chunk.next_offset
            contents.append(found)
        assert contents[0] == contents[1] == contents[2]
