"""Raft's messages in frames: what comes back is what went in; what is cut off, changed or random has a name."""

from __future__ import annotations

import base64
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.format.batch import encode_batch
from replication.raft.messages import (
    AppendReply,
    AppendRequest,
    Message,
    NodeBeat,
    SnapshotReply,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from replication.raft.types import Entry, Membership, Snapshot
from replication.replicas.entries import entry_of, membership_batch
from replication.transport import METADATA_GROUP, GroupId, GroupMessage
from rpc.errors import MalformedRequestError
from rpc.framing import join
from rpc.pb import peers_pb2 as pb
from rpc.peers.frames import FrameDecoder, FrameEncoder, size_of

SENDER = 3

terms = st.integers(-1, 2**31 - 1)
offsets = st.integers(-1, 2**63 - 1)
nodes = st.integers(0, 2**31 - 1)
flags = st.booleans()
groups = st.builds(
    GroupId,
    st.binary(min_size=16, max_size=16).map(lambda raw: base64.urlsafe_b64encode(raw)[:22].decode()),
    st.integers(0, 2**31 - 1),
)
memberships = st.builds(
    lambda voters, learners: Membership(frozenset(voters), frozenset(learners) - frozenset(voters)),
    st.sets(nodes, min_size=1, max_size=7),
    st.sets(nodes, max_size=4),
)


def records_entry(values: list[bytes], offset: int, term: int) -> Entry:
    rows = [(None, value) for value in values]
    return entry_of(encode_batch(rows, now_ms=1, base_offset=offset, leader_epoch=term))


entries = st.one_of(
    st.builds(
        records_entry,
        st.lists(st.binary(max_size=200), min_size=1, max_size=4),
        st.integers(0, 2**40),
        st.integers(0, 2**31 - 1),
    ),
    st.builds(lambda membership: entry_of(membership_batch(membership, 7)), memberships),
)
snapshots = st.builds(
    Snapshot,
    offsets,
    st.lists(st.tuples(terms, offsets), max_size=5).map(tuple),
    memberships,
    st.none() | st.binary(max_size=300),
)


def piece(sender: int, term: int, snapshot: Snapshot, data: bytes, at: int) -> SnapshotRequest:
    return SnapshotRequest(sender, term, snapshot._replace(data=data), at, at + len(data) + 1)


sender = st.just(SENDER)
messages = st.one_of(
    st.builds(VoteRequest, sender, terms, terms, offsets, flags, flags),
    st.builds(VoteReply, sender, terms, flags, flags),
    st.builds(
        AppendRequest,
        sender,
        terms,
        offsets,
        terms,
        st.lists(entries, max_size=4).map(tuple),
        offsets,
        offsets,
    ),
    st.builds(AppendReply, sender, terms, flags, offsets, offsets, terms, offsets, flags),
    st.builds(SnapshotRequest, sender, terms, snapshots, st.just(0), st.just(0)),
    st.builds(piece, sender, terms, snapshots, st.binary(max_size=300), st.integers(0, 2**62)),
    st.builds(SnapshotReply, sender, terms, offsets, offsets),
    st.builds(TimeoutNow, sender, terms),
    st.builds(NodeBeat, sender, st.integers(0, 2**62), terms, st.booleans()),
)
frames = st.lists(st.builds(GroupMessage, groups, messages, offsets), max_size=5)


def frame_of(*found: GroupMessage) -> bytes:
    return FrameEncoder().encode(found)


def decode(frame: bytes) -> list[GroupMessage]:
    return FrameDecoder(SENDER).decode(frame)


@given(frames)
def test_what_comes_back_is_what_went_in(sent: list[GroupMessage]) -> None:
    frame = frame_of(*sent)
    found = decode(frame)
    assert found == sent
    assert pb.PeerFrame.FromString(frame).messages == b"".join(
        pb.PeerFrame.FromString(frame_of(message)).messages for message in sent
    )
    for message in sent:
        assert size_of(message) >= len(pb.PeerFrame.FromString(frame_of(message)).messages)


@given(st.lists(st.builds(GroupMessage, groups, messages, offsets), min_size=1, max_size=3), st.data())
def test_every_truncation_is_the_messages_before_it_or_a_named_error(
    sent: list[GroupMessage], data: st.DataObject
) -> None:
    body = pb.PeerFrame.FromString(frame_of(*sent)).messages
    cut = data.draw(st.integers(0, len(body) - 1))
    shortened = join(pb.PeerFrame(), (body[:cut],), cut)
    try:
        found = decode(shortened)
    except MalformedRequestError:
        return
    assert found == sent[: len(found)]
    assert len(frame_of(*found)) == len(shortened), "a whole number of messages was left"


@given(st.builds(GroupMessage, groups, messages, offsets), st.data())
def test_a_truncated_frame_is_refused(sent: GroupMessage, data: st.DataObject) -> None:
    frame = frame_of(sent)
    with pytest.raises(MalformedRequestError):
        decode(frame[: data.draw(st.integers(1, len(frame) - 1))])


@given(st.lists(st.builds(GroupMessage, groups, messages, offsets), min_size=1, max_size=2), st.data())
def test_a_changed_byte_is_messages_or_a_named_error(sent: list[GroupMessage], data: st.DataObject) -> None:
    frame = bytearray(frame_of(*sent))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(frame))
    except MalformedRequestError:
        return
    assert all(message.message.sender == SENDER for message in found)


@given(st.binary(max_size=400))
def test_random_bytes_are_messages_or_a_named_error(data: bytes) -> None:
    for frame in (data, join(pb.PeerFrame(), (data,), len(data))):
        try:
            found = decode(frame)
        except MalformedRequestError:
            continue
        assert all(isinstance(message, GroupMessage) for message in found)


def test_entries_are_views_of_the_frame_and_are_not_copied() -> None:
    entry = records_entry([b"x" * 100_000], 5, 1)
    heartbeat = GroupMessage(METADATA_GROUP, AppendRequest(SENDER, 1, 5, 1, (entry,), 5))
    frame = frame_of(heartbeat)
    (found,) = decode(frame)
    assert isinstance(found.message, AppendRequest)
    data = found.message.entries[0].data
    assert isinstance(data, memoryview)
    assert data.obj is frame
    assert data == entry.data


@pytest.mark.parametrize("count", range(3))
def test_numbers_of_a_snapshot_that_cannot_be_allocate_nothing(count: int) -> None:
    snapshot = Snapshot(9, ((1, 0),), Membership(frozenset({1})), b"state")
    frame = bytearray(frame_of(GroupMessage(METADATA_GROUP, SnapshotRequest(SENDER, 1, snapshot))))
    at = len(frame) - len(b"state") - 4 - 12 - 12 + 4 * count
    assert struct.unpack_from(">I", frame, at)[0] in (0, 1)
    struct.pack_into(">I", frame, at, 0xFFFFFFFF)
    tracemalloc.start()
    with pytest.raises(MalformedRequestError, match="a snapshot says"):
        decode(bytes(frame))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("group", "message", "told"),
    [
        (GroupId("short", 0), TimeoutNow(SENDER, 1), "16 bytes|no base64url"),
        (GroupId("*" * 22, 0), TimeoutNow(SENDER, 1), "16 bytes|no base64url"),
        (GroupId("AAAAAAAAAAAAAAAAAAAAAR", 0), TimeoutNow(SENDER, 1), "does not stand for 16 bytes"),
        (METADATA_GROUP, TimeoutNow(SENDER, 1 << 31), "no frame can hold"),
        (METADATA_GROUP, AppendReply(SENDER, 1, True, 1 << 63), "no frame can hold"),
        (METADATA_GROUP._replace(partition=1 << 40), TimeoutNow(SENDER, 1), "no frame can hold"),
    ],
)
def test_what_no_field_can_hold_is_refused(group: GroupId, message: Message, told: str) -> None:
    with pytest.raises(MalformedRequestError, match=told):
        frame_of(GroupMessage(group, message))


def test_kinds_and_flags_of_a_later_version_are_refused() -> None:
    frame = bytearray(frame_of(GroupMessage(METADATA_GROUP, TimeoutNow(SENDER, 1))))
    kind_at = len(frame) - 34
    for at, value in ((kind_at, 9), (kind_at + 1, 1)):
        changed = bytearray(frame)
        changed[at] = value
        with pytest.raises(MalformedRequestError, match="a message of kind"):
            decode(bytes(changed))
