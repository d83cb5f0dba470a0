"""``ReplicatedCoordinatorLog``: the log of a coordinator that the leader of a replicated partition writes alone.

The machine on it only ever replays what is committed, and its own group of appends while it holds the log: the hold
begins when all of the leader's log is committed, and each append says where it expects the log to end. Raft's own
entries (a change of the members, the first one of a term) need no hold: where one came between, or the lead was lost
and won again, nothing is appended that was decided before, and the runtime decides anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from logstore.errors import LogStoreError, OffsetMismatchError, OutcomeUnknownError, TopicLockedError
from logstore.log.append_validation import CheckedBatch
from logstore.log.log_offsets import LogOffsets
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.log.segments.segment import Chunk
from logstore.partition.partition import PendingAppend
from logstore.seams.clock import Clock
from replication.coordination.led_partition import LedPartition
from replication.errors import LeaderNotReadyError, NotLeaderError


class LeaderHold:
    """A ``HeldLog``, of one thread: the log of a leader, all committed but for what was appended here."""

    def __init__(self, partition: LedPartition, term: int, log_end_offset: int) -> None:
        self._partition = partition
        self._term = term
        self.log_end_offset = log_end_offset

    def append(self, batches: Sequence[CheckedBatch]) -> PendingAppend:
        pending = self._partition.append(batches, "all", expected_offset=self.log_end_offset)
        self.log_end_offset = pending.next_offset
        return pending

    def append_marker(self, marker: Marker, *, once: bool = False, open_since: int = -1) -> PendingAppend:
        """As ``append``; what is in then, behind others' records, is a marker that does no harm there."""
        if self._partition.term != self._term:
            raise self._overtaken(-1)
        pending = self._partition.append_marker(marker, once=once, open_since=open_since)
        if pending.base_offset != self.log_end_offset:
            raise self._overtaken(pending.base_offset)
        self.log_end_offset = pending.next_offset
        return pending

    def _overtaken(self, end_offset: int) -> OffsetMismatchError:
        return OffsetMismatchError(
            f"{self._partition.where} went on behind offset {self.log_end_offset} while its coordinator held it",
            expected_offset=self.log_end_offset,
            end_offset=end_offset,
        )

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]:
        return self._partition.producer_entries(producer_ids)


class ReplicatedCoordinatorLog:
    """A ``CoordinatedLog``. ``retired``: this node runs no coordinator any more, whatever it leads."""

    def __init__(
        self, partition: LedPartition, clock: Clock, retired: Callable[[], bool] = lambda: False
    ) -> None:
        self._clock = clock
        self._retired = retired
        self._partition = partition
        self._holding = threading.Lock()
        self._ready_term = -1  # in which all that this node found in its log is known to be committed
        self.where = partition.where
        self.directory = partition.where

    @property
    def era(self) -> int:
        return self._partition.term

    # --- who leads ---

    def lost(self) -> LogStoreError | None:
        if not self._partition.is_leader:
            return NotLeaderError(
                f"this node does not run the coordinator of {self.where}", leader_id=self._partition.leader_id
            )
        if self._retired():
            return NotLeaderError(f"this node gives the coordinator of {self.where} up")
        return None

    def _check_leads(self) -> None:
        """NotLeaderError."""
        lost = self.lost()
        if lost is not None:
            raise lost

    def _wait_ready(self, timeout_s: float) -> int:
        """The term in which this node leads, once all that it found in its log is committed."""
        self._check_leads()
        term = self._partition.term
        if term != self._ready_term:
            self._partition.wait_committed(timeout_s)
            if self._partition.term != term:
                raise LeaderNotReadyError(f"{self.where} has just changed its leader")
            self._ready_term = term
        return term

    def _settled(self, timeout_s: float) -> tuple[int, int]:
        """Term and end of a log that is committed as a whole, in a term that this node leads. With the log held: other
        holders' appends would have it wait for ever."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            term, left_s = self._partition.term, deadline_s - self._clock.monotonic_s()
            self._partition.wait_committed(max(left_s, 0.0))
            offsets = self._partition.reader().bounds()
            if offsets.high_watermark == offsets.log_end_offset and self._partition.term == term:
                return term, offsets.log_end_offset
            if left_s <= 0:
                raise LeaderNotReadyError(f"{self.where} changes its leader or its members all the time")

    # --- writing ---

    def await_turn(self, turn: threading.Lock, timeout_s: float) -> None:
        if not turn.acquire(timeout=max(min(timeout_s, threading.TIMEOUT_MAX), 0)):
            raise TopicLockedError(
                f"the coordinator of {self.where} is busy; waited {timeout_s:.1f} s for its turn",
                hint="try again",
            )

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[LeaderHold]:
        self._check_leads()
        self.await_turn(self._holding, timeout_s)
        try:
            term, end = self._settled(timeout_s)
            self._ready_term = term
            yield LeaderHold(self._partition, term, end)
        finally:
            self._holding.release()

    def doubt(self, why: BaseException, *, wrote: bool) -> LogStoreError:
        """Where the lead was lost the next leader knows: who asks there finds what is in, or asks anew."""
        if not self._partition.is_leader or isinstance(why, NotLeaderError | LeaderNotReadyError):
            return NotLeaderError(
                f"the coordinator of {self.where} moved before it had an answer: {why}",
                leader_id=self._partition.leader_id,
            )
        if wrote:
            return OutcomeUnknownError(f"a write to {self.where} may or may not be committed: {why}")
        return LeaderNotReadyError(
            f"{self.where}: nothing was written; it was decided on what may not be committed: {why}"
        )

    # --- reading ---

    def offsets(self) -> LogOffsets:
        self._wait_ready(_LOOK_WAIT_S)
        return self._partition.reader().bounds()

    def confirm(self) -> None:
        """A majority is asked: a leader that was cut off must not answer with what is out of date."""
        self._wait_ready(_LOOK_WAIT_S)
        self._partition.confirm_leader(_LOOK_WAIT_S)

    def has_more(self, applied: int) -> bool:
        if self.lost() is not None or not self._partition.is_leader:
            return False
        return self._partition.reader().bounds().high_watermark != applied

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        return self._partition.reader().read(offset, max_bytes, limit_offset)

    def close(self) -> None:
        """The partition is its node's to close."""


_LOOK_WAIT_S = 5.0  # that a look waits for a leader that has just been elected
