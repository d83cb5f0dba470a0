"""Values of Raft: who votes, what a log holds, what is durable besides the log, and how a replica is set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from replication.errors import InvalidMembershipError

NodeId = int
NO_NODE: Final[NodeId] = -1


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class EntryKind(Enum):
    """What a batch is to Raft. Other batches are records to it, whatever is in them."""

    RECORDS = "records"
    LEADER_CHANGE = "leader change"
    MEMBERSHIP = "membership"


class Membership(NamedTuple):
    """Who has the log. ``voters`` elect and commit; ``learners`` are sent everything and do neither."""

    voters: frozenset[NodeId]
    learners: frozenset[NodeId] = frozenset()

    def __contains__(self, node: object) -> bool:
        return node in self.voters or node in self.learners

    def checked(self) -> Membership:
        """InvalidMembershipError."""
        if not self.voters:
            raise InvalidMembershipError("a membership without a voter could never commit anything")
        if self.voters & self.learners:
            both = sorted(self.voters & self.learners)
            raise InvalidMembershipError(f"nodes {both} are voters and learners at once")
        return self


class Entry(NamedTuple):
    """One batch of the log, with offsets [``base_offset``, ``end_offset``). ``data``: its records, which Raft passes
    on; ``membership``: of an entry of that kind."""

    base_offset: int
    end_offset: int
    term: int
    kind: EntryKind = EntryKind.RECORDS
    data: Any = None
    membership: Membership | None = None


class VoteState(NamedTuple):
    """What must be durable before a replica speaks in a term: the term, and for whom it voted in it."""

    term: int = 0
    voted_for: NodeId = NO_NODE


class Snapshot(NamedTuple):
    """What stands for all records before ``end_offset``. ``epochs``: (term, start offset) of those records;
    ``data``: the state that goes with them (producers), which Raft passes on."""

    end_offset: int
    epochs: tuple[tuple[int, int], ...]
    membership: Membership
    data: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RaftSettings:
    """Of one replica. Times are ticks, each of which the driver gives."""

    election_ticks: int = 10
    """Without a word of a leader for so long, and up to as much again by chance, a voter stands for election."""
    heartbeat_ticks: int = 2
    """A leader speaks to every peer at least so often."""
    max_entries_bytes: int = 1 << 20
    """Of batches in one message; a first batch that is larger goes alone."""
    max_inflight: int = 8
    """Messages with entries to one peer that are not answered yet."""
    promote_lag: int = 1_000
    """Offsets that a learner may lag behind the leader's log end to be made a voter."""
    snapshot_piece_bytes: int = 1 << 20
    """Of a snapshot's data in one message; the next piece is asked for by its receiver."""
    snapshot_bytes: int = 1 << 30
    """Of a whole snapshot's data: a larger one is not taken."""
    read_requests: int = 10_000
    """Linearizable reads that may wait at a leader."""
    silent_on_empty: bool = False
    """Whether a leader of an empty log writes no leader change: there is nothing of earlier terms to be committed with
    it, and the first record keeps offset 0."""
