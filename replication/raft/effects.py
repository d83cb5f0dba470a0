"""What a step asks of its driver, in the order given.

Messages go out as they come: none is among the effects before what it promises is durable. The driver tells when that
is so: ``RaftCore.vote_stored`` and ``RaftCore.log_durable``.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.errors import LogStoreError
from replication.raft.messages import Message
from replication.raft.types import Entry, NodeId, Role, Snapshot, VoteState


class StoreVote(NamedTuple):
    """Make it durable in two copies, then call ``vote_stored`` with it."""

    state: VoteState


class Truncate(NamedTuple):
    """Cut the log from ``offset`` on; it is never committed. What is left is durable as far as it was."""

    offset: int


class Append(NamedTuple):
    """Append these at the log's end, and sync; then call ``log_durable`` with the end that is durable."""

    entries: tuple[Entry, ...]


class InstallSnapshot(NamedTuple):
    """Give up the log and begin anew behind the snapshot, durably; then call ``log_durable`` with its end."""

    snapshot: Snapshot


class Send(NamedTuple):
    to: NodeId
    message: Message


class SendSnapshot(NamedTuple):
    """Make a snapshot of the log's start and send it as a ``SnapshotRequest`` of this term; a large one in pieces, from
    byte ``at`` on."""

    to: NodeId
    term: int
    at: int = 0


class Commit(NamedTuple):
    """Readers may see the log up to ``offset`` now."""

    offset: int


class RoleChanged(NamedTuple):
    """``leader_id``: of ``term``, -1 while none is known."""

    role: Role
    term: int
    leader_id: NodeId


class ReadReady(NamedTuple):
    """A linearizable read may be answered from what is committed up to ``offset``."""

    read_id: int
    offset: int


class ReadFailed(NamedTuple):
    read_id: int
    error: LogStoreError


Effect = (
    StoreVote
    | Truncate
    | Append
    | InstallSnapshot
    | Send
    | SendSnapshot
    | Commit
    | RoleChanged
    | ReadReady
    | ReadFailed
)
