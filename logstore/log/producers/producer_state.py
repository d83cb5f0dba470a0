"""What a partition knows of its producers: enough to answer a repeated batch with its first offset, to refuse a
gap, to fence an older instance, and to say where the first open transaction begins (Kafka's
ProducerStateManager, KIP-98). Pure: nothing here touches a disk.

A sequence numbers a producer's records in one partition, 31 bits, from 2^31 - 1 back to 0. An id that this
partition does not know may begin at any sequence: its state may have expired, or been dropped with its records.
A newer epoch begins at 0, or goes on where the older one ended, which is what a named producer does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from logstore.errors import (
    CoordinatorFencedError,
    DuplicateSequenceError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionStateError,
)
from logstore.format.batch import TRANSACTIONAL_BIT, BatchHeader
from logstore.log.producers.transaction_index import AbortedTransaction

REMEMBERED_BATCHES = 5
SEQUENCE_MASK = 2**31 - 1
FIRST_NAMED_ID = 1 << 62
"""Ids from here on belong to named producers: their state never expires."""


class RememberedBatch(NamedTuple):
    """A batch that may come again. ``base_offset`` and ``last_offset`` are where it is stored."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class Marker(NamedTuple):
    """The end of a transaction, as a control batch says it."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    committed: bool
    timestamp_ms: int


class ProducerEntry:
    """One producer id. ``last_sequence`` -1: it has sent nothing but markers came; ``transaction_start`` -1: no
    transaction is open; ``seen_ms``: wall time of its last append, -1 if that is not known."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "producer_id", "seen_ms", "transaction_start")

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        batches: Iterable[RememberedBatch] = (),
        coordinator_epoch: int = -1,
        transaction_start: int = -1,
        seen_ms: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches = deque(batches, REMEMBERED_BATCHES)
        self.coordinator_epoch = coordinator_epoch
        self.transaction_start = transaction_start
        self.seen_ms = seen_ms

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Of its newest data record; -1 if none is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def facts(self) -> tuple[object, ...]:
        """All that a snapshot keeps, times apart, for comparisons."""
        newest = self.batches[-1][:4] if self.batches else None
        return (self.producer_id, self.epoch, newest, self.coordinator_epoch, self.transaction_start)


class ProducerStates:
    """Changed only by ``note`` and ``note_marker``, in the order of the log, under the log's lock."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}
        # In the order in which they began, so that the first is the oldest.
        self._open = {
            entry.producer_id: entry.transaction_start
            for entry in sorted(self._entries.values(), key=lambda entry: entry.transaction_start)
            if entry.transaction_start >= 0
        }
        self._ended: list[tuple[int, int]] = []  # (first offset, marker's offset) of those ended lately

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(tuple(self._entries.values()))

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def last_offsets(self) -> dict[int, int]:
        """producer id -> offset of its newest data record, of those that have one."""
        return {entry.producer_id: entry.last_offset for entry in self if entry.batches}

    # --- decisions ---

    def repeated(self, headers: Sequence[BatchHeader], where: str) -> list[RememberedBatch]:
        """Which of the batches, from the first on, are in the log already; the others may be appended.

        Errors: ``OutOfOrderSequenceError``, ``DuplicateSequenceError`` (stored, its offset forgotten),
        ``ProducerFencedError``, ``TransactionStateError``, ``InvalidRecordError``.
        """
        found: list[RememberedBatch] = []
        ahead: dict[
            int, tuple[int, int]
        ] = {}  # producer id -> (epoch, last sequence) once those before are in
        for number, header in enumerate(headers):
            if header.producer_id < 0:
                continue
            known = None
            if header.producer_id in ahead:
                _check_follows(header, *ahead[header.producer_id], where)
            else:
                known = self.repeated_one(header, where)
            if known is not None and len(found) == number:
                found.append(known)
            elif known is not None:
                raise OutOfOrderSequenceError(
                    f"append to {where}: batch {number + 1} of {len(headers)} is in the log already, one before it "
                    "is not",
                    hint="send batches in the order of their sequences",
                    found_sequence=header.base_sequence,
                )
            else:
                ahead[header.producer_id] = (header.producer_epoch, _last_sequence(header))
        return found

    def repeated_one(self, header: BatchHeader, where: str) -> RememberedBatch | None:
        """The same for one batch of a producer: the stored one if it is a repetition. Errors as ``repeated``."""
        entry = self._entries.get(header.producer_id)
        if (
            entry is not None
            and entry.epoch == header.producer_epoch
            and entry.transaction_start < 0
            and entry.batches
            and header.base_sequence == (entry.batches[-1].last_sequence + 1) & SEQUENCE_MASK
        ):
            return None  # the next one, as nearly always
        _check_numbers(header, where)
        if entry is None:
            return None
        _check_epoch(entry, header.producer_epoch, where)
        if header.producer_epoch == entry.epoch:
            last = _last_sequence(header)
            for batch in entry.batches:
                if batch.base_sequence == header.base_sequence and batch.last_sequence == last:
                    return batch
        if entry.transaction_start >= 0:
            self._check_transaction(entry, header, where)
        if entry.batches:
            _check_follows(header, entry.epoch, entry.last_sequence, where)
        return None

    def _check_transaction(self, entry: ProducerEntry, header: BatchHeader, where: str) -> None:
        if not header.is_transactional or header.producer_epoch != entry.epoch:
            raise TransactionStateError(
                f"append to {where}: producer {header.producer_id} has a transaction of epoch {entry.epoch} open since "
                f"offset {entry.transaction_start}; the batch is "
                + (f"of epoch {header.producer_epoch}" if header.is_transactional else "not transactional"),
                hint="end the transaction first",
            )

    def check_marker(self, marker: Marker, where: str) -> None:
        """``ProducerFencedError``: the transaction it means has been over for long; ``CoordinatorFencedError``."""
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return
        _check_epoch(entry, marker.epoch, where)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFencedError(
                f"end a transaction of producer {marker.producer_id} in {where}: coordinator epoch "
                f"{marker.coordinator_epoch} is older than {entry.coordinator_epoch}"
            )

    def aborted_by(self, marker: Marker, offset: int) -> AbortedTransaction | None:
        """The row of the transaction index that the marker at ``offset`` makes; None if it aborts nothing."""
        start = self._open.get(marker.producer_id, -1)
        if marker.committed or start < 0:
            return None
        others = [first for producer, first in self._open.items() if producer != marker.producer_id]
        return AbortedTransaction(marker.producer_id, start, offset, min(others, default=offset + 1))

    # --- what happened ---

    def note(self, header: BatchHeader, base_offset: int, seen_ms: int = -1) -> None:
        """A data batch of a producer is in the log at ``base_offset``. ``seen_ms``: wall time of the append; -1
        takes the batch's own time for it."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.seen_ms = header.max_timestamp if seen_ms < 0 else seen_ms
        delta = header.last_offset_delta
        entry.batches.append(
            RememberedBatch(
                header.base_sequence,
                (header.base_sequence + delta) & SEQUENCE_MASK,
                base_offset,
                base_offset + delta,
                header.max_timestamp,
            )
        )
        if header.attributes & TRANSACTIONAL_BIT and entry.transaction_start < 0:
            entry.transaction_start = base_offset
            self._open[producer_id] = base_offset

    def note_marker(self, marker: Marker, offset: int, seen_ms: int = -1) -> None:
        """The marker is in the log at ``offset``. Its transaction stays unstable until readers see that far."""
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            entry = self._entries[marker.producer_id] = ProducerEntry(marker.producer_id, marker.epoch)
        elif entry.epoch != marker.epoch:
            entry.epoch = marker.epoch
            entry.batches.clear()
        entry.seen_ms = marker.timestamp_ms if seen_ms < 0 else seen_ms
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.transaction_start = -1
        start = self._open.pop(marker.producer_id, None)
        if start is not None:
            self._ended.append((start, offset))

    def first_unstable(self, high_watermark: int) -> int | None:
        """Where the first transaction begins that is open, or whose end nobody may see yet; None: none is."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]
        firsts = [first for first, _ in self._ended]
        if self._open:
            firsts.append(next(iter(self._open.values())))
        return min(firsts) if firsts else None

    def open_transactions(self) -> dict[int, int]:
        """producer id -> offset at which its open transaction begins."""
        return dict(self._open)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget ids without an append for ``expiration_ms``; how many. Named producers and open transactions stay.
        ``now_ms``: wall time that may be believed; a time of an append that is none before it is taken as now."""
        idle = []
        for entry in self._entries.values():
            if not 0 <= entry.seen_ms <= now_ms:
                entry.seen_ms = now_ms
            old = now_ms - entry.seen_ms > expiration_ms
            if old and entry.transaction_start < 0 and entry.producer_id < FIRST_NAMED_ID:
                idle.append(entry.producer_id)
        for producer_id in idle:
            del self._entries[producer_id]
        return len(idle)


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) & SEQUENCE_MASK


def _check_numbers(header: BatchHeader, where: str) -> None:
    if header.producer_epoch < 0 or header.base_sequence < 0:
        raise InvalidRecordError(
            f"append to {where}: a batch of producer {header.producer_id} with epoch {header.producer_epoch} and "
            f"sequence {header.base_sequence}",
            hint="an idempotent batch has an epoch and a sequence of 0 or more",
        )


def _check_epoch(entry: ProducerEntry, epoch: int, where: str) -> None:
    if epoch < entry.epoch:
        raise ProducerFencedError(
            f"append to {where}: producer {entry.producer_id} came with epoch {epoch}, its newest is {entry.epoch}",
            expected_epoch=entry.epoch,
            found_epoch=epoch,
        )


def _check_follows(header: BatchHeader, epoch: int, last_sequence: int, where: str) -> None:
    due = (last_sequence + 1) & SEQUENCE_MASK
    base = header.base_sequence
    if base == due or (base == 0 and header.producer_epoch > epoch):
        return
    if header.producer_epoch == epoch and _not_after(_last_sequence(header), last_sequence):
        raise DuplicateSequenceError(
            f"append to {where}: sequences {base} to {_last_sequence(header)} of producer {header.producer_id} are "
            f"stored, the next is {due}; only the last {REMEMBERED_BATCHES} batches are remembered"
        )
    raise OutOfOrderSequenceError(
        f"append to {where}: producer {header.producer_id} came with sequence {base} in epoch "
        f"{header.producer_epoch}, {due} was due",
        expected_sequence=due,
        found_sequence=base,
    )


def _not_after(sequence: int, other: int) -> bool:
    """Whether ``sequence`` came at or before ``other``, on the circle of 31 bits."""
    return (other - sequence) & SEQUENCE_MASK < 1 << 30
