"""``LocalAppend``, ``LocalAppends``: an append to a partition of this directory, from its topic's door to its outcome.

Every step counts here, after a sync above all, when code and objects are cold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from logstore.config import TopicConfig
from logstore.errors import LogStoreError, OffsetMismatchError
from logstore.log.append_validation import CheckedBatch, check_leader_append
from logstore.log.log_offsets import Appended
from logstore.log.owned_log import OwnedLog
from logstore.native import compiled
from logstore.partition.context import StoreContext
from logstore.partition.partition import PendingAppend, Told
from logstore.types import Acks, RecordMetadata


class AppendLease(Protocol):
    """What an append needs of its topic (``TopicUsers``)."""

    config: TopicConfig

    def enter(self, until_s: float | None = None) -> None: ...
    def leave(self) -> None: ...
    def leave_later(self) -> Callable[[], None]: ...
    def stay(self, more: int) -> None: ...
    def log_to_append(self, partition: int) -> OwnedLog: ...


@compiled("partition.local_append")
class LocalAppend:
    """A ``PendingAppend`` that is decided by syncs of this process. ``must_sync``: it waits for one; ``promised``: its
    failure is the append's (``acks="all"``), and not just the next one's."""

    __slots__ = (
        "_context",
        "_log",
        "_must_sync",
        "_promised",
        "_topic",
        "append_time_ms",
        "base_offset",
        "done",
        "error",
        "next_offset",
    )

    def __init__(
        self,
        context: StoreContext,
        topic: AppendLease,
        log: OwnedLog,
        appended: Appended,
        append_time_ms: int,
        must_sync: bool,
        promised: bool,
    ) -> None:
        self._context = context
        self._topic = topic
        self._log = log
        self.base_offset, self.next_offset = appended
        self.append_time_ms = append_time_ms
        self._must_sync = must_sync
        self._promised = promised
        self.done = False
        self.error: LogStoreError | None = None

    def wait_with(self, others: Sequence[PendingAppend]) -> None:
        if len(others) == 1:
            self._wait()
            return
        mine = [other for other in others if type(other) is LocalAppend and not other.done]
        wants = [(one._log, one.next_offset) for one in mine if one._must_sync]
        failure: LogStoreError | None = None
        try:
            if wants:
                self._context.commit(wants)
        except LogStoreError as error:
            failure = error
        finally:
            for one in mine:
                one._decide(failure)
                one._topic.leave()

    def _wait(self) -> None:
        failure: LogStoreError | None = None
        try:
            if self._must_sync:
                self._context.committer.commit_one(self._log, self.next_offset)
        except LogStoreError as error:
            failure = error
        finally:
            self._decide(failure)
            self._topic.leave()

    def _decide(self, failure: LogStoreError | None) -> None:
        if failure is not None and self._promised and self._log.flushed_offset < self.next_offset:
            self.error = failure
        self.done = True

    def then(self, tell: Told) -> None:
        if not self.done and not self._must_sync:
            self.done = True
            self._topic.leave()
        if self.done:
            tell(self.error)
            return
        leave = self._topic.leave_later()  # by the thread that syncs

        def decided(failure: LogStoreError | None) -> None:
            self._decide(failure)
            leave()
            tell(self.error)

        self._context.committer.commit_later([(self._log, self.next_offset)], decided)


@compiled("partition.local_append")
class LocalAppends:
    """The appends of a partition whose only copy is in this directory."""

    def __init__(self, context: StoreContext, topic: AppendLease, partition: int, where: str) -> None:
        self._context = context
        self._topic = topic
        self.partition = partition
        self.where = where

    if TYPE_CHECKING:

        def _show_winner(self, log: OwnedLog, error: OffsetMismatchError) -> None: ...

    def append(
        self,
        batches: Sequence[CheckedBatch],
        acks: Acks = "all",
        *,
        expected_offset: int | None = None,
        now_ms: int | None = None,
        until_s: float | None = None,
    ) -> LocalAppend:
        topic, context = self._topic, self._context
        topic.enter(until_s)
        try:
            log = topic.log_to_append(self.partition)
            config = topic.config
            if now_ms is None:
                now_ms = context.clock.wall_ms()
            checked = check_leader_append(batches, config, now_ms, self.where)
            try:
                appended = log.append(checked, expected_offset)
            except OffsetMismatchError as error:
                self._show_winner(log, error)
                raise
        except BaseException:
            topic.leave()
            raise
        if context.pool.crowded:
            context.make_room()
        promised = acks == "all"
        return LocalAppend(
            context,
            topic,
            log,
            appended,
            now_ms if config.timestamp_type == "LogAppendTime" else -1,
            promised or log.unsynced_records >= config.flush_messages,
            promised,
        )

    def append_each(
        self, batches: Sequence[CheckedBatch], acks: Acks, until_s: float | None, made: list[LocalAppend]
    ) -> None:
        """Append one batch after the other, each for itself, into ``made``; the first error ends it. Those that a log
        takes together are written together: then none of them is in after an error."""
        now_ms = self._context.clock.wall_ms()
        at, together = 0, len(batches) > 1
        while at < len(batches):
            written = self._run(list(batches[at:]), acks, until_s, now_ms, made) if together else 0
            if not written:
                made.append(self.append([batches[at]], acks, now_ms=now_ms, until_s=until_s))
                written, together = 1, False
            at += written

    def _run(
        self,
        batches: list[CheckedBatch],
        acks: Acks,
        until_s: float | None,
        now_ms: int,
        made: list[LocalAppend],
    ) -> int:
        """Append as many of the batches as the log takes together; 0: they are to go one by one."""
        topic, context = self._topic, self._context
        topic.enter(until_s)
        appended: list[Appended] = []
        try:
            log = topic.log_to_append(self.partition)
            config = topic.config
            try:
                checked = check_leader_append(batches, config, now_ms, self.where)
            except LogStoreError:
                checked = []  # one of them is refused: those before it go in, one by one
            if checked:
                appended = log.append_run(checked)
            topic.stay(len(appended))
        finally:
            topic.leave()
        if not appended:
            return 0
        if context.pool.crowded:
            context.make_room()
        append_time_ms = now_ms if config.timestamp_type == "LogAppendTime" else -1
        promised, end_offset = acks == "all", appended[-1].next_offset
        for place in appended:
            due = log.unsynced_records - (end_offset - place.next_offset) >= config.flush_messages
            made.append(LocalAppend(context, topic, log, place, append_time_ms, promised or due, promised))
        return len(appended)


@compiled("partition.local_append")
def append_row(*_appended: object) -> RecordMetadata | None:
    """``PartitionLog.append(log, rows, acks)`` of one plain row to a partition of this directory, where that is quicker
    than the usual way; None: it is not, and nothing was done."""
    return None


@compiled("partition.local_append")
def append_proved(*_appended: object) -> RecordMetadata | None:
    """``PartitionLog.append_batch(log, buffer, acks)`` likewise."""
    return None
