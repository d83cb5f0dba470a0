"""Entries as batches: what comes back is what went in, and bytes that are none have a name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptBatchError
from logstore.format.batch import STAMP_SIZE, encode_batch, read_header, stamp
from logstore.format.control import (
    ControlType,
    decode_control_batch,
    encode_control_batch,
    encode_leader_change,
)
from replication.errors import InvalidMembershipError
from replication.raft.types import EntryKind, Membership
from replication.replicas.entries import (
    decode_membership,
    encode_membership,
    entries_of,
    entry_of,
    membership_batch,
)

nodes = st.integers(0, 2**31 - 1)
memberships = st.builds(
    lambda voters, learners: Membership(frozenset(voters), frozenset(learners) - frozenset(voters)),
    st.sets(nodes, min_size=1, max_size=9),
    st.sets(nodes, max_size=200),
)


def stamped(batch: bytes, offset: int, term: int) -> bytes:
    return bytes(stamp(memoryview(batch), offset, term)) + batch[STAMP_SIZE:]


@given(memberships)
def test_a_membership_comes_back_from_its_batch(membership: Membership) -> None:
    entry = entry_of(stamped(membership_batch(membership, 5), 7, 3))
    assert (entry.base_offset, entry.end_offset, entry.term) == (7, 8, 3)
    assert (entry.kind, entry.membership) == (EntryKind.MEMBERSHIP, membership)


@given(memberships, st.data())
def test_a_membership_that_is_cut_short_is_refused(membership: Membership, data: st.DataObject) -> None:
    value = encode_membership(membership)
    size = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises((CorruptBatchError, InvalidMembershipError)):
        decode_membership(value[:size])


@given(st.binary(max_size=64))
def test_any_bytes_are_a_membership_or_a_named_error(value: bytes) -> None:
    try:
        found = decode_membership(value)
    except (CorruptBatchError, InvalidMembershipError):
        return
    assert found.voters


def test_records_markers_and_leader_changes_are_told_apart() -> None:
    records = encode_batch([(None, b"a"), (b"k", b"b")], now_ms=1)
    marker = encode_control_batch(
        ControlType.COMMIT, bytes(6), timestamp_ms=1, producer_id=5, producer_epoch=0
    )
    change = encode_control_batch(
        ControlType.LEADER_CHANGE, encode_leader_change(2, [1, 2, 3]), timestamp_ms=1
    )
    data = stamped(records, 0, 1) + stamped(marker, 2, 1) + stamped(change, 3, 2)
    found = entries_of(data)
    assert [(one.base_offset, one.end_offset, one.term, one.kind) for one in found] == [
        (0, 2, 1, EntryKind.RECORDS),
        (2, 3, 1, EntryKind.RECORDS),
        (3, 4, 2, EntryKind.LEADER_CHANGE),
    ]
    assert b"".join(one.data for one in found) == data


def test_a_batch_that_is_cut_off_is_refused() -> None:
    data = stamped(encode_batch([(None, b"a")], now_ms=1), 0, 1)
    with pytest.raises(CorruptBatchError):
        entries_of(data + data[:-1])


def test_kafka_reads_the_layout_of_the_voters() -> None:
    """Byte by byte, version 0 of the record: no endpoint, no directory, feature versions 0."""
    batch = membership_batch(Membership(frozenset({1, 2})), 0)
    record = decode_control_batch(batch, 0, read_header(batch))
    voter = bytes(16) + b"\x01" + bytes(4) + b"\x00\x00"
    assert record.type == 6
    assert (
        record.value
        == b"\x00\x00" + b"\x03" + bytes([0, 0, 0, 1]) + voter + bytes([0, 0, 0, 2]) + voter + b"\x00"
    )
