"""Raft's messages as frames and back; the layout stands in ``proto/logstore/v1/peers.proto``.

A frame is made of buffers that are joined once: batches of entries are among them as they are, and a decoded frame's
entries are views of it. Nothing is allocated on the word of a frame before the frame is seen to be that long.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable
from typing import Final

from logstore.errors import LogStoreError
from logstore.types import Buffer
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
from replication.raft.types import Membership, NodeId, Snapshot
from replication.replicas.entries import entries_of
from replication.transport import GroupId, GroupMessage
from rpc.errors import MalformedRequestError
from rpc.framing import join, split
from rpc.pb import peers_pb2 as pb

_HEAD: Final = struct.Struct(">IBB16siqi")
_SIZE: Final = struct.Struct(">I")
_VOTE_REQUEST: Final = struct.Struct(">iq")
_APPEND_REQUEST: Final = struct.Struct(">qiqq")
_APPEND_REPLY: Final = struct.Struct(">qqiq")
_SNAPSHOT: Final = struct.Struct(">qIII")
_PIECE: Final = struct.Struct(">QQ")
_SNAPSHOT_REPLY: Final = struct.Struct(">qq")
_EPOCH: Final = struct.Struct(">iq")
_NODE: Final = struct.Struct(">i")
_NODE_BEAT: Final = struct.Struct(">q")

_REQUEST_VOTE, _REPLY_VOTE, _APPEND, _REPLY_APPEND, _INSTALL, _STAND, _BEAT, _REPLY_INSTALL = range(1, 9)
_FIRST, _SECOND = 1, 2  # bits of the flags
_REMEMBERED: Final = 100_000

OVERHEAD_BYTES: Final = 128
"""At least what a message is long in a frame, without the batches of its entries and the data of its snapshot."""


class FrameEncoder:
    """Makes frames. Of one thread at a time; it remembers how topics' ids are written."""

    def __init__(self) -> None:
        self._topics: dict[str, bytes] = {}

    def encode(self, messages: Iterable[GroupMessage]) -> bytes:
        """The serialized ``PeerFrame``. MalformedRequestError where a number of a message is larger than its field."""
        buffers: list[Buffer] = []
        for message in messages:
            self._add(message, buffers)
        return join(pb.PeerFrame(), buffers, sum(map(len, buffers)))

    def _add(self, message: GroupMessage, buffers: list[Buffer]) -> None:
        kind, flags, parts = _parts(message.message)
        size = _HEAD.size - _SIZE.size + sum(map(len, parts))
        group = message.group
        try:
            head = _HEAD.pack(
                size,
                kind,
                flags,
                self._topic(group.topic_id),
                group.partition,
                message.log_start,
                message.message.term,
            )
        except struct.error as error:
            raise MalformedRequestError(f"no frame can hold a message to {group}: {error}") from error
        buffers.append(head)
        buffers += parts

    def _topic(self, topic_id: str) -> bytes:
        found = self._topics.get(topic_id)
        if found is None:
            if len(self._topics) >= _REMEMBERED:
                self._topics.clear()
            found = self._topics[topic_id] = _topic_bytes(topic_id)
        return found


class FrameDecoder:
    """Reads the frames of one ``sender``. Of one thread at a time."""

    def __init__(self, sender: NodeId) -> None:
        self._sender = sender
        self._groups: dict[tuple[bytes, int], GroupId] = {}

    def decode(self, frame: bytes) -> list[GroupMessage]:
        """The messages of a serialized ``PeerFrame``. MalformedRequestError."""
        _, view = split(frame, pb.PeerFrame)
        found, at, end = [], 0, len(view)
        try:
            while at < end:
                size, kind, flags, topic, partition, log_start, term = _HEAD.unpack_from(view, at)
                body, at = at + _HEAD.size, at + _SIZE.size + size
                if body > at or at > end:
                    raise MalformedRequestError(
                        f"a message of {size} bytes does not fit into the {end} bytes of its frame"
                    )
                decode = _DECODERS.get((kind, flags))
                if decode is None:
                    raise MalformedRequestError(f"a message of kind {kind} with flags {flags:#x}")
                message = decode(self._sender, term, flags, view[body:at])
                found.append(GroupMessage(self._group(topic, partition), message, log_start))
        except (struct.error, LogStoreError) as error:
            if isinstance(error, MalformedRequestError):
                raise
            raise MalformedRequestError(f"a message of node {self._sender} is none: {error}") from error
        return found

    def _group(self, topic: bytes, partition: int) -> GroupId:
        found = self._groups.get((topic, partition))
        if found is None:
            if len(self._groups) >= _REMEMBERED:
                self._groups.clear()
            text = base64.urlsafe_b64encode(topic)[:22].decode("ascii")
            found = self._groups[topic, partition] = GroupId(text, partition)
        return found


def size_of(message: GroupMessage) -> int:
    """About the bytes that the message takes in a frame, and rather more than less."""
    inner = message.message
    if isinstance(inner, AppendRequest):
        return OVERHEAD_BYTES + sum([len(entry.data) for entry in inner.entries])
    if isinstance(inner, SnapshotRequest):
        snapshot = inner.snapshot
        nodes = len(snapshot.membership.voters) + len(snapshot.membership.learners)
        data = 0 if snapshot.data is None else len(snapshot.data)
        return OVERHEAD_BYTES + len(snapshot.epochs) * _EPOCH.size + nodes * _NODE.size + data
    return OVERHEAD_BYTES


def _topic_bytes(topic_id: str) -> bytes:
    """The 16 bytes of an id in base64url. MalformedRequestError."""
    try:
        raw = base64.urlsafe_b64decode(topic_id + "==")
    except ValueError as error:
        raise MalformedRequestError(f"topic id {topic_id!r} is no base64url") from error
    if len(topic_id) != 22 or len(raw) != 16 or base64.urlsafe_b64encode(raw)[:22] != topic_id.encode():
        raise MalformedRequestError(f"topic id {topic_id!r} does not stand for 16 bytes")
    return raw


# --- writing ---


def _parts(message: Message) -> tuple[int, int, list[Buffer]]:
    """(kind, flags, what follows the head)."""
    try:
        if isinstance(message, AppendRequest):
            fields = _APPEND_REQUEST.pack(message.prev_end, message.prev_term, message.commit, message.round)
            return _APPEND, _FIRST * message.rest, [fields, *[entry.data for entry in message.entries]]
        if isinstance(message, AppendReply):
            fields = _APPEND_REPLY.pack(
                message.end_offset, message.hint_end, message.hint_term, message.round
            )
            flags = _FIRST * message.accepted | _SECOND * message.anew
            return _REPLY_APPEND, flags, [fields]
        if isinstance(message, VoteRequest):
            fields = _VOTE_REQUEST.pack(message.last_term, message.end_offset)
            return _REQUEST_VOTE, _FIRST * message.pre | _SECOND * message.transfer, [fields]
        if isinstance(message, VoteReply):
            return _REPLY_VOTE, _FIRST * message.granted | _SECOND * message.pre, []
        if isinstance(message, SnapshotRequest):
            flags = _FIRST * (message.snapshot.data is not None) | _SECOND * (message.total > 0)
            return _INSTALL, flags, _snapshot_parts(message)
        if isinstance(message, SnapshotReply):
            return _REPLY_INSTALL, 0, [_SNAPSHOT_REPLY.pack(message.end_offset, message.received)]
        if isinstance(message, NodeBeat):
            return _BEAT, _FIRST * message.disk_refuses, [_NODE_BEAT.pack(message.incarnation)]
        return _STAND, 0, []
    except struct.error as error:
        raise MalformedRequestError(f"no frame can hold a {type(message).__name__}: {error}") from error


def _snapshot_parts(request: SnapshotRequest) -> list[Buffer]:
    snapshot = request.snapshot
    voters, learners = sorted(snapshot.membership.voters), sorted(snapshot.membership.learners)
    fields = bytearray(_SNAPSHOT.pack(snapshot.end_offset, len(snapshot.epochs), len(voters), len(learners)))
    for epoch in snapshot.epochs:
        fields += _EPOCH.pack(*epoch)
    for node in (*voters, *learners):
        fields += _NODE.pack(node)
    if request.total:
        fields += _PIECE.pack(request.at, request.total)
    return [bytes(fields)] if snapshot.data is None else [bytes(fields), snapshot.data]


# --- reading ---


def _exactly(fields: memoryview, size: int) -> None:
    if len(fields) != size:
        raise MalformedRequestError(f"a message has {len(fields)} bytes of fields, its kind has {size}")


def _vote_request(sender: NodeId, term: int, flags: int, fields: memoryview) -> Message:
    _exactly(fields, _VOTE_REQUEST.size)
    last_term, end_offset = _VOTE_REQUEST.unpack(fields)
    return VoteRequest(sender, term, last_term, end_offset, bool(flags & _FIRST), bool(flags & _SECOND))


def _vote_reply(sender: NodeId, term: int, flags: int, fields: memoryview) -> Message:
    _exactly(fields, 0)
    return VoteReply(sender, term, bool(flags & _FIRST), bool(flags & _SECOND))


def _append_request(sender: NodeId, term: int, flags: int, fields: memoryview) -> Message:
    prev_end, prev_term, commit, round_ = _APPEND_REQUEST.unpack_from(fields)
    entries = entries_of(fields[_APPEND_REQUEST.size :]) if len(fields) > _APPEND_REQUEST.size else ()
    return AppendRequest(sender, term, prev_end, prev_term, entries, commit, round_, bool(flags & _FIRST))


def _append_reply(sender: NodeId, term: int, flags: int, fields: memoryview) -> Message:
    _exactly(fields, _APPEND_REPLY.size)
    end_offset, hint_end, hint_term, round_ = _APPEND_REPLY.unpack(fields)
    accepted, anew = bool(flags & _FIRST), bool(flags & _SECOND)
    return AppendReply(sender, term, accepted, end_offset, hint_end, hint_term, round_, anew)


def _snapshot_request(sender: NodeId, term: int, flags: int, fields: memoryview) -> Message:
    end_offset, epochs, voters, learners = _SNAPSHOT.unpack_from(fields)
    nodes_at = _SNAPSHOT.size + epochs * _EPOCH.size
    data_at = nodes_at + (voters + learners) * _NODE.size
    if data_at > len(fields):
        raise MalformedRequestError(
            f"a snapshot says that it has {epochs} epochs and {voters + learners} nodes, in {len(fields)} bytes"
        )
    nodes = [node for (node,) in _NODE.iter_unpack(fields[nodes_at:data_at])]
    membership = Membership(frozenset(nodes[:voters]), frozenset(nodes[voters:])).checked()
    if nodes != sorted(membership.voters) + sorted(membership.learners):
        raise MalformedRequestError("the nodes of a snapshot do not rise")
    at = total = 0
    if flags & _SECOND:
        at, total = _PIECE.unpack_from(fields, data_at)
        data_at += _PIECE.size
    data = bytes(fields[data_at:]) if flags & _FIRST else None
    if data is None and data_at != len(fields):
        raise MalformedRequestError("a snapshot without data has some")
    if flags & _SECOND and (data is None or at + len(data) > total):
        raise MalformedRequestError(f"a piece of a snapshot from byte {at} on is no piece of {total} bytes")
    epoch_rows = tuple(_EPOCH.iter_unpack(fields[_SNAPSHOT.size : nodes_at]))
    return SnapshotRequest(sender, term, Snapshot(end_offset, epoch_rows, membership, data), at, total)


def _snapshot_reply(sender: NodeId, term: int, flags: int, fields: memoryview) -> Message:
    del flags
    _exactly(fields, _SNAPSHOT_REPLY.size)
    return SnapshotReply(sender, term, *_SNAPSHOT_REPLY.unpack(fields))


def _timeout_now(sender: NodeId, term: int, flags: int, fields: memoryview) -> Message:
    del flags
    _exactly(fields, 0)
    return TimeoutNow(sender, term)


def _node_beat(sender: NodeId, term: int, flags: int, fields: memoryview) -> Message:
    _exactly(fields, _NODE_BEAT.size)
    (incarnation,) = _NODE_BEAT.unpack(fields)
    return NodeBeat(sender, incarnation, term, bool(flags & _FIRST))


_DECODERS: Final[dict[tuple[int, int], Callable[[NodeId, int, int, memoryview], Message]]] = {
    **{(_REQUEST_VOTE, flags): _vote_request for flags in range(4)},
    **{(_REPLY_VOTE, flags): _vote_reply for flags in range(4)},
    **{(_APPEND, flags): _append_request for flags in range(2)},
    **{(_REPLY_APPEND, flags): _append_reply for flags in range(4)},
    **{(_INSTALL, flags): _snapshot_request for flags in range(4)},
    (_REPLY_INSTALL, 0): _snapshot_reply,
    (_STAND, 0): _timeout_now,
    **{(_BEAT, flags): _node_beat for flags in range(2)},
}
"""By kind and flags: what is not here is no message of this version."""
