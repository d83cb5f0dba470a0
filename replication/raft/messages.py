"""Messages between replicas of a partition. Each carries its sender and the sender's term."""

from __future__ import annotations

from typing import NamedTuple

from replication.raft.types import Entry, NodeId, Snapshot


class VoteRequest(NamedTuple):
    """Asks for a vote in ``term``. ``last_term``, ``end_offset``: of the sender's log. ``pre``: only whether the vote
    would be given; ``term`` is the one that the sender would go to. ``transfer``: the leader itself asked the sender to
    stand."""

    sender: NodeId
    term: int
    last_term: int
    end_offset: int
    pre: bool = False
    transfer: bool = False


class VoteReply(NamedTuple):
    """``term``: the voter's; of a pre-vote that is granted: the one that was asked about."""

    sender: NodeId
    term: int
    granted: bool
    pre: bool = False


class AppendRequest(NamedTuple):
    """Entries behind ``prev_end``, the end of an entry of ``prev_term``; without any a heartbeat. ``commit``: how far
    the log is committed; ``round``: of reads that wait for a majority's word, given back in the reply; ``rest``:
    nothing more comes until something happens, and the leader lives as long as its node (``replication/resting.py``).
    """

    sender: NodeId
    term: int
    prev_end: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit: int
    round: int = 0
    rest: bool = False


class AppendReply(NamedTuple):
    """``accepted``: the log agrees with the leader's up to ``end_offset``, and is durable that far. Else: where the two
    may agree, ``hint_end`` at the most, an end of entries of ``hint_term`` (KIP-595, diverging epoch). ``anew``: the
    log was begun anew, and holds less than the sender once acknowledged."""

    sender: NodeId
    term: int
    accepted: bool
    end_offset: int
    hint_end: int = 0
    hint_term: int = -1
    round: int = 0
    anew: bool = False


class SnapshotRequest(NamedTuple):
    """For a follower that lacks records that the leader's log has no more. ``total`` above 0: the snapshot's data are a
    piece, from byte ``at`` of so many on; the follower asks for the next (``SnapshotReply``)."""

    sender: NodeId
    term: int
    snapshot: Snapshot
    at: int = 0
    total: int = 0


class SnapshotReply(NamedTuple):
    """The follower has the first ``received`` bytes of the snapshot of all before ``end_offset``."""

    sender: NodeId
    term: int
    end_offset: int
    received: int


class TimeoutNow(NamedTuple):
    """The leader has its follower stand for election at once: it holds all that the leader has."""

    sender: NodeId
    term: int


class NodeBeat(NamedTuple):
    """A node lives: of no group. ``incarnation``: another one for each start of its process; ``disk_refuses``: it is no
    node to give a place to (``replication/disk_watch.py``)."""

    sender: NodeId
    incarnation: int
    term: int = 0
    disk_refuses: bool = False


Message = (
    VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | SnapshotRequest
    | SnapshotReply
    | TimeoutNow
    | NodeBeat
)
