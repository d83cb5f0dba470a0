"""Entries of the Raft log as the batches that they are, and back.

The term is the leader epoch in a batch's head. What Raft itself writes are control batches: the first of a term is a
leader change (type 2, KIP-595), a membership is a record of voters (type 6, the layout of Kafka's ``VotersRecord``
version 0; directory ids and endpoints are left empty, and learners are a tagged field that Kafka's tools pass over).
"""

from __future__ import annotations

import struct
from typing import Final

from logstore.errors import CorruptBatchError
from logstore.format.batch import BatchHeader, read_header
from logstore.format.control import ControlType, decode_control_batch, encode_control_batch
from logstore.format.varint import VARINT_MAX_BYTES, encode_raw, read_raw
from logstore.types import Buffer
from replication.raft.types import Entry, EntryKind, Membership

_VOTER: Final = struct.Struct(
    ">i16sBhhBB"
)  # id, directory, no endpoint, feature versions, its tags, the voter's tags
_LEARNERS_TAG: Final = 0
_ID: Final = struct.Struct(">i")
_VERSION: Final = struct.Struct(">h")


def entry_of(batch: Buffer) -> Entry:
    """The entry that a whole, stamped batch is; its checksum is not looked at. ``CorruptBatchError``."""
    return _entry(memoryview(batch), read_header(batch))


def entries_of(data: Buffer) -> tuple[Entry, ...]:
    """The entries of whole batches that follow each other. ``CorruptBatchError``, also for one that is cut off."""
    view, at, found = memoryview(data), 0, []
    while at < len(view):
        header = read_header(view, at)
        if at + header.size > len(view):
            raise CorruptBatchError(
                f"the batch at byte {at} says {header.size} bytes, {len(view) - at} are there", position=at
            )
        found.append(_entry(view[at : at + header.size], header))
        at += header.size
    return tuple(found)


def _entry(data: memoryview, header: BatchHeader) -> Entry:
    kind, membership = EntryKind.RECORDS, None
    if header.is_control and header.producer_id < 0 and header.records_count:
        record = decode_control_batch(data, 0, header)
        if record.type == ControlType.LEADER_CHANGE:
            kind = EntryKind.LEADER_CHANGE
        elif record.type == ControlType.VOTERS:
            kind, membership = EntryKind.MEMBERSHIP, decode_membership(record.value)
    return Entry(header.base_offset, header.next_offset, header.leader_epoch, kind, data, membership)


def membership_batch(membership: Membership, timestamp_ms: int) -> bytes:
    """The control batch that says who has the log; offset and term are stamped when it is appended."""
    return encode_control_batch(ControlType.VOTERS, encode_membership(membership), timestamp_ms=timestamp_ms)


def encode_membership(membership: Membership) -> bytes:
    """``version i16``, voters (compact array), tagged field 0: learners (compact array of i32)."""
    voters = b"".join(_VOTER.pack(node, bytes(16), 1, 0, 0, 0, 0) for node in sorted(membership.voters))
    fields = _VERSION.pack(0) + encode_raw(len(membership.voters) + 1) + voters
    if not membership.learners:
        return fields + b"\x00"
    ids = b"".join(map(_ID.pack, sorted(membership.learners)))
    learners = encode_raw(len(membership.learners) + 1) + ids
    return fields + b"\x01" + encode_raw(_LEARNERS_TAG) + encode_raw(len(learners)) + learners


def decode_membership(value: bytes) -> Membership:
    """``CorruptBatchError`` where these bytes were not written by ``encode_membership``."""
    try:
        return _decode(value)
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptBatchError(f"a record of voters that is none: {error}") from error


def _decode(value: bytes) -> Membership:
    (version,) = _VERSION.unpack_from(value)
    if version != 0:
        raise CorruptBatchError(f"a record of voters has version {version}, this code reads version 0")
    count, at = _unsigned(value, _VERSION.size)
    if (count - 1) * _VOTER.size > len(value):
        raise CorruptBatchError(f"a record of {len(value)} bytes cannot name {count - 1} voters")
    voters, learners = set(), set()
    for _ in range(count - 1):
        voters.add(_VOTER.unpack_from(value, at)[0])
        at += _VOTER.size
    tags, at = _unsigned(value, at)
    for _ in range(min(tags, 16)):
        tag, at = _unsigned(value, at)
        size, at = _unsigned(value, at)
        if tag == _LEARNERS_TAG:
            found, ids = _unsigned(value, at)
            if (found - 1) * _ID.size > size:
                raise CorruptBatchError(f"{size} bytes cannot name {found - 1} learners")
            learners = {_ID.unpack_from(value, ids + number * _ID.size)[0] for number in range(found - 1)}
        at += size
    if at != len(value):
        raise CorruptBatchError(f"a record of voters ends at byte {at} of {len(value)}")
    return Membership(frozenset(voters), frozenset(learners)).checked()


def _unsigned(value: bytes, at: int) -> tuple[int, int]:
    """A length or a tag, and the position after it."""
    return read_raw(value, at, VARINT_MAX_BYTES)
