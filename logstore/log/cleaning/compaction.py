"""What a cleaning keeps: pure, from batches, the newest offset of every key, and the time.

Offsets never change. A record stays if nothing newer of its key lies below the end of the key map. Tombstones
and markers go in two steps (KIP-534): the first cleaning that could do without one stamps a delete horizon into
its batch, one that comes after the horizon drops it. Records of aborted transactions go at once; a marker is
done without when no data batch of its transaction is left, which may be the same cleaning's work: data lies before
its marker, and goes before it or together with it.

A batch that loses all its records goes, too. Where batches went, one batch without records, of 61 bytes, covers
their offsets up to the next that stays: so the offsets of a log stay without gaps, no checksum has to be
believed for them, and a segment's end says what it replaces. The last batch of a producer that is still
remembered stays with its header, so that epoch and sequence can be told from the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import ge
from typing import NamedTuple

from logstore.format import compression
from logstore.format.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    pack_batch,
    records_section,
    section_view,
)
from logstore.format.control import ControlType, decode_control_batch
from logstore.format.record_spans import kept_section, key_column, rebased, record_bounds
from logstore.format.varint import INT32_MAX, INT64_MAX, INT64_MIN
from logstore.log.cleaning.key_offsets import KeyOffsets
from logstore.log.cleaning.key_table import LIVE_TOMBSTONE
from logstore.log.producers.producer_state import FIRST_NAMED_ID
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.types import Buffer


class SegmentSize(NamedTuple):
    """What grouping needs of a segment. ``next_offset``: the next one's base; sizes in bytes."""

    base_offset: int
    next_offset: int
    size: int
    index_bytes: int


def first_group(segments: Sequence[SegmentSize], *, segment_bytes: int, segment_index_bytes: int) -> int:
    """How many of ``segments`` (at least one) merge into one without passing a limit.

    Sizes are those before the cleaning, so that what comes out is never too large. A relative offset has 32
    bits, and gaps between segments of a foreign log can be wider.
    """
    count, first = 1, segments[0]
    size, index_bytes = first.size, first.index_bytes
    for segment in segments[1:]:
        size += segment.size
        index_bytes += segment.index_bytes
        if (
            size > min(segment_bytes, INT32_MAX)
            or index_bytes > segment_index_bytes
            or segment.next_offset - 1 - first.base_offset > INT32_MAX
        ):
            break
        count += 1
    return count


class AbortedRanges:
    """The aborted transactions of a log, by producer: which data batches do not count, which row is whose."""

    def __init__(self, rows: Iterable[AbortedTransaction]) -> None:
        self._rows: dict[int, list[AbortedTransaction]] = {}
        for row in sorted(set(rows), key=lambda row: row.last_offset):
            self._rows.setdefault(row.producer_id, []).append(row)

    def covers(self, header: BatchHeader) -> bool:
        """Whether the data batch belongs to an aborted transaction. A producer has one transaction at a time,
        so its batches between the first offset and the marker are that one's."""
        if not header.is_transactional or header.is_control:
            return False
        rows = self._rows.get(header.producer_id, ())
        number = bisect_left(rows, header.base_offset, key=lambda row: row.last_offset)
        return number < len(rows) and rows[number].first_offset <= header.base_offset

    def of_marker(self, header: BatchHeader) -> AbortedTransaction | None:
        """The transaction that the marker at this offset aborted."""
        rows = self._rows.get(header.producer_id, ())
        number = bisect_left(rows, header.base_offset, key=lambda row: row.last_offset)
        return rows[number] if number < len(rows) and rows[number].last_offset == header.base_offset else None


class Action(Enum):
    KEEP = "keep"  # as it stands, byte for byte
    WRITE = "write"  # in the form of ``data``
    DROP = "drop"


class Decision(NamedTuple):
    """``records``: how many stay; ``horizon_ms``: when more of it may go, -1 for nothing or not known yet;
    ``tombstones``: how many of the records that stay wait for a horizon; ``removed_tombstones``: how many went
    because theirs has passed."""

    action: Action
    records: int = 0
    data: bytes = b""
    horizon_ms: int = -1
    tombstones: int = 0
    removed_tombstones: int = 0


_DROP = Decision(Action.DROP)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionRules:
    """``now_ms``: wall clock; ``active_producers``: id -> last offset of its last data batch;
    ``producer_expiration_ms``: after how long without a batch a producer is none of these any more."""

    now_ms: int
    delete_retention_ms: int
    active_producers: Mapping[int, int]
    producer_expiration_ms: int = 86_400_000


class _Horizons(NamedTuple):
    """``horizon_ms``: of the batch as it is, -1 for none; ``stamp``: the one that it gets, or None."""

    horizon_ms: int
    stamp: int | None

    def on(self, rewritten: Decision) -> Decision:
        if self.stamp is not None or self.horizon_ms == rewritten.horizon_ms:
            return rewritten
        return rewritten._replace(horizon_ms=self.horizon_ms)


class Compaction:
    """Decides batch after batch, from the log's first to its last: it remembers which transactions had data."""

    def __init__(self, rules: CompactionRules, keys: KeyOffsets, aborted: AbortedRanges) -> None:
        self._rules = rules
        self._keys = keys
        self._aborted = aborted
        self._with_data: set[int] = set()  # producers whose transaction at this place keeps data batches

    def mark(self) -> frozenset[int]:
        """Where it stands; ``return_to`` goes back there."""
        return frozenset(self._with_data)

    def return_to(self, mark: frozenset[int]) -> None:
        self._with_data = set(mark)

    def decide(self, header: BatchHeader, data: memoryview) -> Decision:
        """What becomes of a batch whose CRC was checked. Errors: those of decoding and of the codecs."""
        keep = Decision(Action.KEEP, header.records_count)
        if header.is_control:
            return self._control(header, data, keep)
        if header.base_offset >= self._keys.end_offset:
            decision = keep
        elif header.records_count == 0 or self._aborted.covers(header):
            decision = self._without_records(header)
        else:
            decision = self._data(header, data, keep)
        if header.is_transactional and decision.action is not Action.DROP:
            self._with_data.add(header.producer_id)
        return decision

    def _without_records(self, header: BatchHeader) -> Decision:
        """The last batch of a producer stays, without records, until the producer is forgotten."""
        rules = self._rules
        if rules.active_producers.get(header.producer_id) != header.last_offset:
            return _DROP
        until_ms = -1  # a named producer is never forgotten
        if header.producer_id < FIRST_NAMED_ID:
            until_ms = min(rules.now_ms + rules.producer_expiration_ms, INT64_MAX)
        if header.records_count == 0:
            return Decision(Action.KEEP, horizon_ms=until_ms)
        return Decision(Action.WRITE, 0, emptied(header), until_ms)

    def _control(self, header: BatchHeader, data: memoryview, keep: Decision) -> Decision:
        if header.records_count == 0:
            return keep if header.last_offset >= self._keys.end_offset else _DROP
        record = decode_control_batch(data, 0, header)
        if record.type not in (ControlType.ABORT, ControlType.COMMIT):
            return keep
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if had_data or header.last_offset >= self._keys.end_offset:
            return keep
        if header.has_delete_horizon:
            return _DROP if self._due(header) else keep._replace(horizon_ms=header.base_timestamp)
        return _rewritten(header, section_view(data, 0, header), b"\1", self._new_horizon())

    def _data(self, header: BatchHeader, data: memoryview, keep: Decision) -> Decision:
        live = self._keys.live(header.base_offset, header.last_offset)
        if live is not None:
            if live.count(0) == len(live):
                return self._without_records(header)
            if header.records_count == len(live):
                return self._of_live(header, section_view(data, 0, header), keep, live, True)
        section = records_section(data, 0, header)
        count, base = header.records_count, header.base_offset
        column = key_column(section, count)
        deltas = column.deltas
        whole = header.last_offset < self._keys.end_offset
        past = (
            count if whole else bisect_left(deltas, self._keys.end_offset - base)
        )  # not looked at from here
        offsets = range(base, base + count) if type(deltas) is range else [base + delta for delta in deltas]
        live = bytearray(map(ge, offsets, self._keys.newest(column.keys)))
        live[past:] = b"\1" * (count - past)
        if None in column.keys:
            for number in range(past):
                live[number] &= column.keys[number] is not None
        for number in column.nulls[: bisect_left(column.nulls, past)]:
            live[number] *= LIVE_TOMBSTONE
        return self._of_live(header, section, keep, live, whole)

    def _of_live(
        self, header: BatchHeader, section: Buffer, keep: Decision, live: bytearray, whole: bool
    ) -> Decision:
        """``live``: for each record whether it stays, ``LIVE_TOMBSTONE`` for a tombstone that may go later;
        ``whole``: the map covers all of the batch."""
        stays, removed = live.count(LIVE_TOMBSTONE), 0
        if stays and header.has_delete_horizon and self._due(header):
            live = live.replace(bytes((LIVE_TOMBSTONE,)), b"\0")
            stays, removed = 0, stays
        gone = live.count(0)
        if gone == len(live):
            return self._without_records(header)._replace(removed_tombstones=removed)
        rules = self._horizons(header, stays > 0, whole)
        if not gone and rules.stamp is None:
            return keep._replace(horizon_ms=rules.horizon_ms, tombstones=stays)
        decision = rules.on(_rewritten(header, section, live, rules.stamp))
        return (
            decision._replace(tombstones=stays, removed_tombstones=removed) if stays or removed else decision
        )

    def _horizons(self, header: BatchHeader, stays: bool, whole: bool) -> _Horizons:
        """``stays``: a tombstone that could go later does; ``whole``: the map covers all of the batch."""
        if not stays:
            return _Horizons(-1, None)
        if header.has_delete_horizon:
            return _Horizons(header.base_timestamp, None)
        return _Horizons(-1, self._new_horizon() if whole else None)

    def _due(self, header: BatchHeader) -> bool:
        return self._rules.now_ms >= header.base_timestamp

    def _new_horizon(self) -> int:
        return min(self._rules.now_ms + self._rules.delete_retention_ms, INT64_MAX)


class Erasure:
    """Drops every record with one of ``keys`` below ``end_offset``; all else stays, batches without records
    included. The same interface as ``Compaction``."""

    def __init__(self, keys: frozenset[bytes], end_offset: int) -> None:
        self._keys = keys
        self._end_offset = end_offset

    def mark(self) -> frozenset[int]:
        return frozenset()

    def return_to(self, mark: frozenset[int]) -> None:
        """Nothing is remembered from batch to batch."""

    def decide(self, header: BatchHeader, data: memoryview) -> Decision:
        """As ``Compaction.decide``."""
        keep = Decision(Action.KEEP, header.records_count)
        if header.is_control or header.records_count == 0 or header.base_offset >= self._end_offset:
            return keep
        section = records_section(data, 0, header)
        count = header.records_count
        column = key_column(section, count)
        if self._keys.isdisjoint(column.keys):
            return keep
        last_delta = self._end_offset - 1 - header.base_offset
        live = bytearray(
            key not in self._keys or delta > last_delta
            for key, delta in zip(column.keys, column.deltas, strict=True)
        )
        if not live.count(0):
            return keep
        if not any(live):
            return Decision(Action.WRITE, 0, emptied(header))
        return _rewritten(header, section, live, None)


def _rewritten(
    header: BatchHeader, section: Buffer, live: bytes | bytearray, horizon_ms: int | None
) -> Decision:
    """The batch with the records only that ``live`` has not 0 for, and the horizon stamped unless that is None, or
    too far from a record's time for the format: a tombstone or marker then stays for ever."""
    records, least, most = kept_section(section, live)
    count = len(live) - live.count(0)
    max_timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + most
    header = header._replace(max_timestamp=max_timestamp, records_count=count)
    shift_ms = 0 if horizon_ms is None else header.base_timestamp - horizon_ms
    if horizon_ms is None or least + shift_ms < INT64_MIN or most + shift_ms > INT64_MAX:
        return Decision(Action.WRITE, count, _packed(header, records))
    header = header._replace(base_timestamp=horizon_ms, attributes=header.attributes | DELETE_HORIZON_BIT)
    bounds, _ = record_bounds(records, count)
    data = _packed(header, rebased(records, bounds, range(count), shift_ms))
    return Decision(Action.WRITE, count, data, horizon_ms)


def _packed(header: BatchHeader, records: bytes) -> bytes:
    if header.attributes & CODEC_MASK:
        packed = compression.compress(header.codec, records)
        if len(packed) < len(records):
            return pack_batch(header, packed)
        # A few records are left, and the codec's frame costs more than it saves.
        header = header._replace(attributes=header.attributes & ~CODEC_MASK)
    return pack_batch(header, records)


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records: offsets, epochs, sequence and largest timestamp stay."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return pack_batch(
        header._replace(attributes=attributes, base_timestamp=header.max_timestamp, records_count=0), b""
    )


class Cover(NamedTuple):
    """A run of batches that went, to be covered by one without records. ``max_timestamp`` is that of the run:
    retention by time goes on to see how old a segment is."""

    start_offset: int
    next_offset: int
    leader_epoch: int
    max_timestamp: int
    alone: bool  # the run is one batch that already is what would be written

    @staticmethod
    def of(header: BatchHeader) -> Cover:
        return Cover(
            header.base_offset,
            header.next_offset,
            header.leader_epoch,
            header.max_timestamp,
            header.records_count == 0 and header.producer_id < 0 and header.attributes == 0,
        )

    def extended(self, header: BatchHeader) -> Cover | None:
        """With the next batch that goes; None if it cannot be joined: another epoch, or too many offsets."""
        too_many = header.last_offset - self.start_offset > INT32_MAX - 1
        if header.leader_epoch != self.leader_epoch or too_many:
            return None
        newest = max(self.max_timestamp, header.max_timestamp)
        return Cover(self.start_offset, header.next_offset, self.leader_epoch, newest, False)

    def encoded(self) -> bytes:
        header = BatchHeader(
            base_offset=self.start_offset,
            batch_length=0,
            leader_epoch=self.leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=self.next_offset - self.start_offset - 1,
            base_timestamp=self.max_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            records_count=0,
        )
        return pack_batch(header, b"")
