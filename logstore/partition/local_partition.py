"""``LocalPartition``: a partition whose only copy is in this directory. What is durable here is committed.

It takes its topic's ownership for every write and keeps it until the write is decided; the group commit (``Committer``)
makes the appends of many threads durable together. Readers need no ownership.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from logstore.config import TopicConfig
from logstore.errors import LogStoreError, OffsetMismatchError, ProducerFencedError, TopicLockedError
from logstore.log.log_offsets import Appended
from logstore.log.owned_log import OwnedLog
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.partition.context import StoreContext
from logstore.partition.data_waiters import DataWaiters
from logstore.partition.local_append import AppendLease, LocalAppend, LocalAppends
from logstore.partition.partition import Cancel, LogReader

logger = logging.getLogger(__name__)


class TopicLease(AppendLease, Protocol):
    """What a partition needs of its topic (``Topic``)."""

    @property
    def name(self) -> str: ...
    def using(self) -> AbstractContextManager[object]: ...
    def try_enter(self) -> bool: ...
    def own_if_free(self) -> bool: ...
    def log(self, partition: int) -> OwnedLog: ...
    def owned_log(self, partition: int) -> OwnedLog | None: ...
    def reader(self, partition: int, *, looked: bool = False) -> LogReader: ...
    def live_slot(self, partition: int) -> int: ...
    def save_state(self) -> None: ...


class LocalPartition(LocalAppends):
    """See ``Partition``, and ``LocalAppends`` for ``append``."""

    _topic: TopicLease

    def __init__(self, context: StoreContext, topic: TopicLease, partition: int) -> None:
        super().__init__(context, topic, partition, f"{topic.name}-{partition}")
        self.topic = topic.name
        self._waiters = DataWaiters()
        self._waiting = threading.Lock()  # so that none unsubscribes what another one has just subscribed

    @property
    def config(self) -> TopicConfig:
        return self._topic.config

    # --- write ---

    def _show_winner(self, log: OwnedLog, error: OffsetMismatchError) -> None:
        """Have readers see the records that a conditional append lost against: a caller that decides again at once
        would otherwise meet the same end again and again, for as long as the winner's sync takes."""
        if log.high_watermark >= error.end_offset:
            return
        try:
            self._context.commit([(log, error.end_offset)])
        except (
            LogStoreError
        ) as failure:  # the winner's trouble; of this append nothing was written either way
            error.add_note(f"what was appended since is not visible: {failure.message}")

    def append_marker(
        self, marker: Marker, *, once: bool = False, open_since: int = -1, wait: bool = True
    ) -> LocalAppend:
        topic = self._topic
        if wait:
            topic.enter()
        elif not (topic.own_if_free() and topic.try_enter()):
            raise TopicLockedError(f"topic {topic.name!r} is another process's")
        try:
            log = topic.log(self.partition)
            try:
                appended = log.append_marker(marker, once=once, open_since=open_since)
            except ProducerFencedError:
                if not once:
                    raise
                appended = None  # a newer epoch is there: the marker came before it
            if appended is None or appended.base_offset == appended.next_offset:
                appended = Appended(log.log_end_offset, log.log_end_offset)
        except BaseException:
            topic.leave()
            raise
        return LocalAppend(self._context, topic, log, appended, -1, True, True)

    def flush(self) -> None:
        log = self._topic.owned_log(self.partition)
        if log is not None:
            self._context.commit([(log, log.log_end_offset)])
        else:
            self._topic.reader(self.partition)  # nothing to flush: but a deleted topic is told

    def delete_records(self, before_offset: int) -> int:
        with self._topic.using():
            log = self._topic.log(self.partition)
            # A start past the durable end would outlive the records it stands on.
            self._context.commit([(log, log.log_end_offset)])
            start = log.log_start_offset
            if log.raise_start(before_offset):
                self._topic.save_state()
                log.publish()
                logger.info(
                    "%s: records deleted, offsets %d to %d", log.where, start, log.log_start_offset - 1
                )
            return log.log_start_offset

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]:
        with self._topic.using():
            log = self._topic.log(self.partition)
            self._context.commit([(log, log.log_end_offset)])
            found = {producer_id: log.producers.entry(producer_id) for producer_id in producer_ids}
        return {producer_id: entry for producer_id, entry in found.items() if entry is not None}

    # --- read ---

    def reader(self, *, looked: bool = False) -> LogReader:
        return self._topic.reader(self.partition, looked=looked)

    def when_more(self, tell: Callable[[], None], *, poll: bool = True) -> Cancel | None:
        topic, waiters = self._topic, self._waiters
        with self._waiting:
            forget = waiters.add(tell)
            log = topic.owned_log(self.partition)
            if log is not None:
                log.subscribe(waiters)
                if topic.owned_log(self.partition) is not log:
                    log = None  # given up before it knew of us: whoever has it now is looked at
        if log is None and not poll:
            forget()
            return None
        if log is None:
            self._context.watch.watch(topic.live_slot(self.partition), waiters)

        def cancel() -> None:
            forget()
            with self._waiting:
                if log is not None and not waiters:
                    log.unsubscribe(waiters)

        return cancel
