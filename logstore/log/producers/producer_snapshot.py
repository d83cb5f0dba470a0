"""`%020d.snapshot`: the producer state before the offset in its name, in Kafka's layout (ProducerStateManager).

    version i16 = 1 | crc u32 (CRC-32C of what follows) | count i32 |
    [producerId i64, epoch i16, lastSequence i32, lastOffset i64, offsetDelta i32, timestamp i64,
     coordinatorEpoch i32, currentTxnFirstOffset i64]

It keeps one batch per producer: of the others only their being stored is known after a restart. The timestamp is
wall time of the producer's last append (of the batch itself, where that is not known): by it ids grow old across
processes that live for a moment each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from logstore.errors import CorruptBatchError
from logstore.log.producers.producer_state import SEQUENCE_MASK, ProducerEntry, RememberedBatch

SUFFIX = ".snapshot"
VERSION = 1
_HEAD = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_ROW = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    rows = []
    for entry in entries:
        newest = entry.batches[-1] if entry.batches else None
        batch_ms = -1 if newest is None else newest.timestamp_ms
        rows.append(
            _ROW.pack(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_offset,
                0 if newest is None else newest.last_offset - newest.base_offset,
                batch_ms if entry.seen_ms < 0 else entry.seen_ms,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
        )
    rest = _COUNT.pack(len(rows)) + b"".join(rows)
    return struct.pack(">hI", VERSION, crc32c(rest)) + rest


def decode_snapshot(data: bytes, path: str) -> list[ProducerEntry]:
    """CorruptBatchError, with ``path``, unless the bytes are a whole snapshot of this version."""
    if len(data) < _HEAD.size:
        raise _corrupt(path, f"{len(data)} bytes are no producer snapshot")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise _corrupt(path, f"version {version} is not {VERSION}")
    if crc32c(memoryview(data)[6:]) != checksum:
        raise _corrupt(path, "its checksum is wrong")
    if len(data) != _HEAD.size + count * _ROW.size:
        raise _corrupt(path, f"{len(data)} bytes for {count} producers")
    return [_entry(row, path) for row in _ROW.iter_unpack(data[_HEAD.size :])]


def _entry(row: tuple[int, ...], path: str) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, start = row
    if producer_id < 0 or delta < 0 or last_sequence < -1 or last_offset < -1 or start < -1:
        raise _corrupt(path, f"producer {producer_id} has {row}")
    batches = []
    if last_offset >= 0 and last_sequence >= 0:
        base_sequence = (last_sequence - delta) & SEQUENCE_MASK
        batches = [
            RememberedBatch(base_sequence, last_sequence, last_offset - delta, last_offset, timestamp_ms)
        ]
    return ProducerEntry(producer_id, epoch, batches, coordinator_epoch, start, timestamp_ms)


def _corrupt(path: str, reason: str) -> CorruptBatchError:
    return CorruptBatchError(f"{path}: {reason}", path=path)
