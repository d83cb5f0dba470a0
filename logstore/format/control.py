"""Control records: what the log says to its readers in batches that users never see.

Key: ``version i16, type i16``; a type unknown here is skipped by readers, as Kafka's do. The value of a
transaction marker (type 0 abort, 1 commit; KIP-98): ``version i16, coordinatorEpoch i32``. Type 2 is a
leader change (KIP-595), types 3 and 4 begin and end a snapshot of a log's state (KIP-630), type 6 the voters of a
replicated log (KIP-853). A control batch holds one record and uses up one offset.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from logstore.errors import CorruptBatchError
from logstore.format.batch import (
    CONTROL_BIT,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_batch,
    records_section,
)
from logstore.format.record import decode_rows, encode_rows
from logstore.format.varint import encode_raw
from logstore.types import Buffer

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_LEADER = struct.Struct(">hi")
_VOTER = struct.Struct(">iB")
_KEY_VERSION = 0
_MARKER_VERSION = 0
_LEADER_VERSION = 0


class ControlType(IntEnum):
    """What a control record says."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    VOTERS = 6


class ControlRecord(NamedTuple):
    """A control record as read. ``type`` is a plain int, since others than ``ControlType`` may come."""

    offset: int
    timestamp_ms: int
    type: int
    value: bytes

    @property
    def is_marker(self) -> bool:
        """It ends a transaction: commit or abort."""
        return self.type in (ControlType.ABORT, ControlType.COMMIT)


def encode_key(control_type: int) -> bytes:
    """The key of a control record."""
    return _KEY.pack(_KEY_VERSION, control_type)


def decode_key(key: bytes | None) -> int:
    """The type that a key names. ``CorruptBatchError`` if it is too short or of a negative version."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError(f"the key {key!r} of a control record is shorter than {_KEY.size} bytes")
    version, control_type = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatchError(f"the key of a control record has version {version}")
    return int(control_type)


def encode_marker(coordinator_epoch: int) -> bytes:
    """The value of a transaction marker."""
    return _MARKER.pack(_MARKER_VERSION, coordinator_epoch)


def decode_marker(value: bytes | None) -> int:
    """The coordinator's epoch in a transaction marker. ``CorruptBatchError`` if the value is none."""
    if value is None or len(value) < _MARKER.size:
        raise CorruptBatchError(
            f"the value {value!r} of a transaction marker is shorter than {_MARKER.size} bytes"
        )
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatchError(f"a transaction marker has version {version}")
    return int(coordinator_epoch)


def encode_leader_change(leader_id: int, voters: Sequence[int]) -> bytes:
    """The value of a leader change, version 0 of Kafka's ``LeaderChangeMessage``: ``version i16, leaderId i32``, the
    voters and those of them that granted their vote (compact arrays of ``id i32`` and no tagged field), no tagged
    field. Who granted is not kept: that array is empty."""
    ids = b"".join(_VOTER.pack(voter, 0) for voter in voters)
    return _LEADER.pack(_LEADER_VERSION, leader_id) + encode_raw(len(voters) + 1) + ids + b"\x01\x00"


def encode_control_batch(
    control_type: int,
    value: bytes,
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytes:
    """A batch of one control record; transaction markers are transactional too, as Kafka has it.

    ``value``: ``encode_marker(epoch)`` for a marker, the message's bytes for other types.
    """
    encoded = encode_rows([(encode_key(control_type), value)], timestamp_ms)
    marker = control_type in (ControlType.ABORT, ControlType.COMMIT)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=CONTROL_BIT | (TRANSACTIONAL_BIT if marker else 0),
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        records_count=1,
    )
    return pack_batch(header, encoded.records)


def decode_control_batch(buffer: Buffer, position: int, header: BatchHeader) -> ControlRecord:
    """The record of a control batch whose CRC was checked. ``CorruptBatchError`` if it holds not one."""
    records = decode_rows(
        records_section(buffer, position, header),
        header.records_count,
        header.base_offset,
        header.base_timestamp,
        "",
        0,
        header.max_timestamp if header.is_log_append_time else None,
    )
    if len(records) != 1:
        raise CorruptBatchError(
            f"the control batch at byte {position} holds {len(records)} records, not one", position=position
        )
    record = records[0]
    return ControlRecord(record.offset, record.timestamp_ms, decode_key(record.key), record.value or b"")
