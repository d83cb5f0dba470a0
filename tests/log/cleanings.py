"""Cleaning a log on the in-memory file system: requests, histories with transactions, and what may be read."""

from __future__ import annotations

from typing import Any

from logstore.format.batch import encode_batch, iter_headers
from logstore.format.control import ControlType, encode_control_batch, encode_marker
from logstore.log.append_validation import split_checked
from logstore.log.cleaning.cleaning import Cleaning, CleanRequest, CleanResult
from logstore.log.cleaning.retirement import Retirement
from logstore.log.producers.transaction_index import SUFFIX, read_rows
from logstore.log.replica_log import ReplicaLog
from logstore.types import Record
from tests.log.logs import NOW_MS, Desk

RETENTION_MS = 1000
FOREVER = 1 << 62


def request(**changes: Any) -> CleanRequest:
    known: dict[str, Any] = {
        "start_offset": 0,
        "end_offset": FOREVER,
        "now_ms": NOW_MS,
        "delete_retention_ms": RETENTION_MS,
        "segment_bytes": 1 << 20,
        "segment_index_bytes": 1 << 20,
        "index_interval_bytes": 100,
        "key_map_bytes": 1 << 20,
        "active_producers": {},
        "file_delete_delay_s": 0.0,
    }
    return CleanRequest(**(known | changes))


def cleaning(desk: Desk, log: ReplicaLog, **changes: Any) -> Cleaning:
    largest = changes.pop("largest_bytes", (1 << 31) - 1)
    return Cleaning(
        log, desk.pool, desk.clock, Retirement(desk.pool), request(**changes), largest_bytes=largest
    )


def clean(desk: Desk, log: ReplicaLog, **changes: Any) -> CleanResult:
    """One whole cleaning."""
    result = cleaning(desk, log, **changes).step(1e9)
    assert result is not None
    return result


def put(
    log: ReplicaLog,
    *rows: tuple[bytes | None, bytes | None],
    codec: str = "none",
    producer_id: int = -1,
    transactional: bool = False,
    at_ms: int = NOW_MS,
) -> int:
    """One batch of these rows at the end of the log, synced; its base offset."""
    base = log.log_end_offset
    data = encode_batch(
        list(rows),
        now_ms=at_ms,
        base_offset=base,
        leader_epoch=max(log.epochs.latest, 0),
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional,
    )
    log.append_as_follower(split_checked(data, "t-0"))
    log.sync()
    return base


def end_transaction(log: ReplicaLog, producer_id: int, *, commit: bool) -> int:
    """A marker; the log adds the row of an abort to the transaction index by itself."""
    offset = log.log_end_offset
    data = encode_control_batch(
        ControlType.COMMIT if commit else ControlType.ABORT,
        encode_marker(0),
        timestamp_ms=NOW_MS,
        base_offset=offset,
        leader_epoch=max(log.epochs.latest, 0),
        producer_id=producer_id,
        producer_epoch=0,
    )
    log.append_as_follower(split_checked(data, "t-0"))
    log.sync()
    return offset


def batches(log: Any, start: int = 0) -> list[tuple[int, int, int]]:
    """(base offset, last offset, records) of every batch."""
    found, offset, limit = [], start, log.bounds().high_watermark
    while offset < limit:
        chunk = log.read(offset, 1 << 20, limit)
        found += [
            (header.base_offset, header.last_offset, header.records_count)
            for _, header in iter_headers(bytes(chunk.data))
        ]
        offset = chunk.next_offset
    return found


def pairs(found: list[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in found]


def aborted_rows(desk: Desk, log: ReplicaLog) -> list[tuple[int, int, int]]:
    """(producer id, first offset, marker's offset) in the transaction indexes."""
    return [
        row[:3]
        for segment in log.segments.segments
        for row in read_rows(desk.fs, segment.path(SUFFIX), segment.base_offset)
    ]
