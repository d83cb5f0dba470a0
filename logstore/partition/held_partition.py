"""``HeldPartition``: the one partition of an internal topic, while this process holds the topic's lock.

Other processes write the topic before and after. So every append has to be decided before the lock is given back:
the holder waits for all of them together, which costs one sync.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from logstore.config import TopicConfig
from logstore.errors import LogStoreError
from logstore.log.append_validation import CheckedBatch
from logstore.log.log_offsets import Appended
from logstore.log.owned_log import OwnedLog
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.partition.partition import PendingAppend, Told
from logstore.types import Acks


class HeldAppend:
    """A ``PendingAppend`` that is decided by a sync of the lock's holder."""

    __slots__ = ("_log", "append_time_ms", "base_offset", "done", "error", "next_offset")

    def __init__(self, log: OwnedLog, appended: Appended, acks: Acks) -> None:
        self._log = log
        self.base_offset, self.next_offset = appended
        self.append_time_ms = -1
        self.done = acks != "all"
        self.error: LogStoreError | None = None

    def wait_with(self, others: Sequence[PendingAppend]) -> None:
        failure: LogStoreError | None = None
        try:
            self._log.sync()
        except LogStoreError as error:
            failure = error
        for one in others:
            if isinstance(one, HeldAppend) and one._log is self._log and not one.done:
                one.error = failure if self._log.flushed_offset < one.next_offset else None
                one.done = True

    def then(self, tell: Told) -> None:
        if not self.done:
            self.wait_with((self,))
        tell(self.error)


class HeldPartition:
    """A ``PartitionWriter``, of one thread. ``log``: caught up with what other processes appended; ``unsettled``:
    around an append of which the size of the log's file does not tell all."""

    partition = 0

    def __init__(
        self, topic: str, log: OwnedLog, unsettled: Callable[[OwnedLog], AbstractContextManager[None]]
    ) -> None:
        self.topic = self.where = topic
        self.log = log
        self._unsettled = unsettled

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def append(
        self,
        batches: Sequence[CheckedBatch],
        acks: Acks = "all",
        *,
        expected_offset: int | None = None,
        now_ms: int | None = None,
        until_s: float | None = None,
    ) -> HeldAppend:
        """Batches of a coordinator, which obeys no settings but its own."""
        del now_ms, until_s  # no time is stamped; the lock is held
        return HeldAppend(self.log, self.log.append(batches, expected_offset), acks)

    def append_marker(
        self, marker: Marker, *, once: bool = False, open_since: int = -1, wait: bool = True
    ) -> HeldAppend:
        del wait  # the lock is held
        with self._unsettled(self.log):
            return HeldAppend(
                self.log, self.log.append_marker(marker, once=once, open_since=open_since), "all"
            )

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]:
        """Of all that was appended: nothing of it is seen outside before it is durable."""
        found = {producer_id: self.log.producers.entry(producer_id) for producer_id in producer_ids}
        return {producer_id: entry for producer_id, entry in found.items() if entry is not None}
