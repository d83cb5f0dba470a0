"""``FetchState``: one partition's position, what was fetched beyond it, and what to ask for next.

No I/O: a fetch result goes in, slices of records come out. The position is the next offset to hand out; it
moves by what was handed out and by nothing else, except over offsets that hold no record for this reader
(compaction gaps, markers), once everything before them has been handed out.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from logstore.api.records import FetchRequest, FetchResult
from logstore.errors import CorruptBatchError, LogStoreError
from logstore.format.batch import HEADER_SIZE, LOG_OVERHEAD, decode_batches
from logstore.invariants import invariant
from logstore.types import Buffer, OffsetAndMetadata, Record, TopicPartition

UNKNOWN_EPOCH = -1

_BATCH_HEAD = struct.Struct(">qii")  # base offset, batch length, leader epoch: see format/batch.py


class EpochStart(NamedTuple):
    """From ``offset`` on, records were written under ``epoch``."""

    offset: int
    epoch: int


class FetchState:
    """See the module. ``end_offset``: hand out nothing from there on (until_end); None: no end."""

    __slots__ = (
        "_cursor",
        "_epochs",
        "_next_offset",
        "_position",
        "_proven",
        "_records",
        "ask_again_s",
        "behind",
        "committed",
        "end_offset",
        "epoch",
        "failed",
        "failing_since_s",
        "may_pass",
        "paused",
        "queued",
        "started_at",
        "topic_id",
        "where",
    )

    def __init__(self, where: TopicPartition, position: int, epoch: int, topic_id: str) -> None:
        self.where = where
        self.topic_id = topic_id
        self.started_at = position  # by this consumer; there a reader without a commit begins again
        self.end_offset: int | None = None
        self.paused = False
        self.queued = False  # in the fetcher's queue of those that may have a turn
        self.failed = False  # its last fetch gave an error; asked again when nothing else is there
        self.failing_since_s = self.ask_again_s = 0.0  # of an error that may pass (``may_pass``)
        self.committed: tuple[int, int] | None = None  # position and epoch of the last commit we know
        self.seek(position, epoch)

    def seek(self, position: int, epoch: int = UNKNOWN_EPOCH) -> None:
        """Go to ``position``; what was fetched and not handed out is dropped."""
        self._records: list[Record] = []
        self._cursor = 0
        self._epochs: list[EpochStart] = []
        self._position = self._next_offset = position
        self.behind = (
            position  # right behind the last record handed out; the position may be past a gap there
        )
        self.epoch = epoch  # of the last record before the position
        self.failed = False
        self.may_pass = False  # the last fetch gave an error that may pass
        self._proven = False  # no fetch has been at the position yet

    # --- what is here ---

    @property
    def position(self) -> int:
        return self._position

    @property
    def waiting(self) -> int:
        """Records fetched and not handed out."""
        return len(self._records) - self._cursor

    @property
    def at_end(self) -> bool:
        """Whether everything up to ``end_offset`` was handed out. A position past it counts once a fetch has
        found nothing wrong with it: it may lie outside the log."""
        end = self.end_offset
        return end is not None and (self._position == end or (self._position > end and self._proven))

    def commit_point(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self._position, self.epoch)

    # --- in ---

    def request(self, max_bytes: int) -> FetchRequest:
        invariant(not self.waiting, "records at hand are handed out before more are fetched")
        topic, partition = self.where
        return FetchRequest(topic, partition, self._next_offset, self.epoch, max_bytes)

    def take(self, result: FetchResult) -> None:
        """Keep what a fetch brought. Raises the result's error and those of ``decode_batches``; the position
        stays then."""
        if result.error is not None:
            self.failed = True
            raise result.error
        topic, partition = self.where
        buffer = result.batches
        if not len(buffer):
            self._arrive([], result.next_offset)
            return
        try:
            records = decode_batches(
                buffer, topic, partition, start_offset=self._next_offset, end_offset=self.end_offset
            )
        except CorruptBatchError as error:
            self.failed = True
            raise error.found_in(f"{topic}-{partition}") from error
        except LogStoreError:
            self.failed = True
            raise
        self._epochs = epoch_starts(buffer)
        self._arrive(records, result.next_offset)

    def _arrive(self, records: list[Record], next_offset: int) -> None:
        self.failed = self.may_pass = False
        self._proven = True
        self._records = records
        self._cursor = 0
        if self.end_offset is not None:
            next_offset = min(next_offset, self.end_offset)  # what lies beyond was not decoded
        self._next_offset = max(self._next_offset, next_offset)
        if not records:
            self._pass_gap()

    # --- out ---

    def peek(self, most: int) -> list[Record]:
        """Up to ``most`` records at the position, to be confirmed with ``advance``."""
        records = self._records
        cursor = self._cursor
        if cursor == 0 and len(records) <= most:
            return records
        return records[cursor : cursor + most]

    def advance(self, count: int) -> None:
        """The first ``count`` records at the position were handed out."""
        if not count:
            return
        records = self._records
        self._cursor += count
        invariant(self._cursor <= len(records), "no more is handed out than was fetched")
        self._position = self.behind = records[self._cursor - 1].offset + 1
        self._note_epoch()
        if self._cursor == len(records):
            self._records = []
            self._cursor = 0
            self._pass_gap()

    def position_after(self, count: int) -> OffsetAndMetadata:
        """What ``commit_point`` would be after ``advance(count)``."""
        if not count:
            return self.commit_point()
        at = self._cursor + count
        offset = self._records[at - 1].offset + 1
        epoch = _epoch_at(self._epochs, offset - 1, self.epoch)
        return OffsetAndMetadata(self._next_offset if at == len(self._records) else offset, epoch)

    def _pass_gap(self) -> None:
        """Everything fetched was handed out: the position goes on over what holds no record for us."""
        if self._next_offset > self._position:
            self._position = self._next_offset
            self._note_epoch()

    def _note_epoch(self) -> None:
        self.epoch = _epoch_at(self._epochs, self._position - 1, self.epoch)


def epoch_starts(buffer: Buffer) -> list[EpochStart]:
    """Where leader epochs begin in whole batches: one entry, unless a failover or restart lies between."""
    starts: list[EpochStart] = []
    last = None
    position = 0
    end = len(buffer) - HEADER_SIZE
    unpack = _BATCH_HEAD.unpack_from
    while position <= end:
        base_offset, length, epoch = unpack(buffer, position)
        if epoch != last:
            starts.append(EpochStart(base_offset, epoch))
            last = epoch
        position += length + LOG_OVERHEAD
    return starts


def _epoch_at(starts: list[EpochStart], offset: int, before: int) -> int:
    """The epoch that the record at ``offset`` was written under; ``before``: if it is before all starts."""
    epoch = before
    for start in starts:
        if start.offset > offset:
            break
        epoch = start.epoch
    return epoch
