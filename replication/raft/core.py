"""``RaftCore``: one replica of one partition as a pure step function: something happens, and effects come out.

No I/O, no clock, no thread, no chance but what is given. The log is the Raft log: an entry's index is its offset, its
term the leader epoch of its batch. Properties that a simulator checks after every step (``tests/replication/sim``):

1. Election safety: at most one leader in a term.
2. A leader never changes or cuts its own log.
3. Log matching: logs that have an entry of the same offset and term agree up to there.
4. Leader completeness: what is committed is in the log of every later leader.
5. State machine safety: no two replicas show different records at an offset.
6. Durable before reply: votes and entries that a message speaks of are on the sender's disk.
7. What a replica shows never goes back, and is durable there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from typing import Any

from replication.errors import LeaderNotReadyError, NotLeaderError
from replication.raft import election, following, leading, membership
from replication.raft.effects import Effect
from replication.raft.messages import (
    AppendReply,
    AppendRequest,
    Message,
    SnapshotReply,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from replication.raft.state import LogView, RaftState, SendBudget
from replication.raft.trail import Trail
from replication.raft.types import NO_NODE, Entry, Membership, NodeId, RaftSettings, Role, VoteState


class RaftCore:
    """Single-threaded: its driver calls it, carries the effects out in their order, and tells what became durable.

    ``trail``, ``vote`` and ``commit`` are what the replica's disk holds; all of the trail is durable. Its last term may
    be newer than the vote's, since logs are written beside votes: the replica is in that term then, without a vote, as
    none is spoken of before it is durable. ``commit`` may be behind what was committed, never ahead. ``abstains``: the
    log may hold less than this replica once acknowledged: it gives no vote, and does not stand, before it has what a
    leader committed in its own term, and so all of it. ``held_back``: what the replica promised is not known: it
    abstains until ``readmit``, too.
    """

    def __init__(
        self,
        node_id: NodeId,
        settings: RaftSettings,
        trail: Trail,
        log: LogView,
        vote: VoteState,
        commit: int,
        randomness: random.Random,
        *,
        abstains: bool = False,
        held_back: bool = False,
        recovery: SendBudget | None = None,
    ) -> None:
        known = max(vote, VoteState(trail.last_term))
        self.state = RaftState(
            node_id, settings, trail, log, known, commit, randomness, abstains, held_back, recovery
        )
        election.wait_anew(self.state)

    # --- time and messages ---

    def tick(self, behind: Set[NodeId] = frozenset()) -> list[Effect]:
        """``behind``: nodes of which messages wait to be delivered here, so that they are not silent."""
        state = self.state
        state.now += 1
        if behind:
            election.wait_for(state, behind)
        if state.role is Role.LEADER:
            leading.on_leader_tick(state)
        elif state.now >= state.deadline_tick and state.vote == state.stored_vote:
            election.stand(state)  # else what it asked would wait for the disk, too
        return state.take_effects()

    def stand(self) -> list[Effect]:
        """Ask for the votes now, without waiting for a leader that may come: where none has led before."""
        election.stand(self.state)
        return self.state.take_effects()

    def may_rest(self) -> bool:
        """Leader: whether all that have the log have all of it, know that it is committed, and nothing is asked."""
        return leading.may_rest(self.state)

    def rest(self) -> list[Effect]:
        """Leader: tell the peers that nothing more comes until something happens; no tick is needed until then."""
        leading.rest(self.state)
        return self.state.take_effects()

    def rests(self, message: Message) -> bool:
        """Follower: whether the leader's word says that this replica may rest, and it is as the leader believes."""
        return following.rests(self.state, message)

    def leader_is_gone(self) -> list[Effect]:
        """Follower that rested: the leader's node is silent. An election comes within moments."""
        election.leader_is_gone(self.state)
        return self.state.take_effects()

    def receive(self, message: Message) -> list[Effect]:
        """DivergedLogError: see there; nothing was changed."""
        state = self.state
        if message.term > state.term and not isinstance(message, VoteRequest):
            if isinstance(message, VoteReply) and message.pre and message.granted:
                pass  # the term that was asked about, which nobody is in
            else:
                leads = isinstance(message, AppendRequest | SnapshotRequest)
                election.become_follower(state, message.term, message.sender if leads else NO_NODE)
        match message:
            case VoteRequest():
                election.on_vote_request(state, message)
            case VoteReply():
                election.on_vote_reply(state, message)
            case AppendRequest():
                following.on_append_request(state, message)
            case AppendReply():
                leading.on_append_reply(state, message)
            case SnapshotRequest():
                following.on_snapshot_request(state, message)
            case SnapshotReply():
                leading.on_snapshot_reply(state, message)
            case TimeoutNow():
                election.on_timeout_now(state, message)
        return self._effects()

    def _effects(self) -> list[Effect]:
        """Entries are sent beside the own sync, not behind it."""
        if self.state.role is Role.LEADER:
            leading.replicate(self.state)
        return self.state.take_effects()

    def readmit(self, *, never_promised: bool = False) -> None:
        """Its group has counted this replica out as a voter since: it votes once it has caught up. ``never_promised``:
        at once, as the group is only about to begin."""
        self.state.held_back = False
        if never_promised:
            self.state.abstains = False

    # --- what became durable ---

    def vote_stored(self, vote: VoteState) -> list[Effect]:
        self.state.note_vote_stored(vote)
        election.on_vote_stored(self.state)
        return self._effects()

    def log_durable(self, end: int, term: int) -> list[Effect]:
        """The log is durable up to the position ``end``, behind a record of ``term``; passed over where the log was cut
        since."""
        state = self.state
        if end <= state.durable or end > state.trail.end or state.trail.term_before(end) != term:
            return state.take_effects()
        state.durable = end
        if state.role is Role.LEADER:
            leading.advance_commit(state)
            if state.role is Role.LEADER:
                leading.confirm_reads(state)
        else:
            following.on_durable(state)
        return self._effects()

    def log_appended(self) -> list[Effect]:
        """The driver has appended what the last effects said: it can be read, and sent."""
        return self._effects()

    def log_start_raised(self, position: int) -> list[Effect]:
        """Records before ``position``, all committed, are gone from the own log."""
        self.state.trail.raise_start(position)
        return self.state.take_effects()

    # --- what callers ask of a leader ---

    def check_leads(self) -> None:
        """Errors of ``propose``."""
        state = self.state
        if state.role is not Role.LEADER:
            raise NotLeaderError(f"replica {state.node_id} does not lead", leader_id=state.leader_id)
        if state.transfer_to != NO_NODE:
            raise LeaderNotReadyError(f"leader {state.node_id} gives its place to node {state.transfer_to}")

    def propose(self, batches: Sequence[tuple[int, Any]]) -> tuple[list[Entry], list[Effect]]:
        """Append batches, each (count of offsets, data); the entries. NotLeaderError; LeaderNotReadyError while the
        leader gives its place to another."""
        self.check_leads()
        state = self.state
        entries = [state.append_own(count, data=data) for count, data in batches]
        return entries, state.take_effects()

    def read(self, read_id: int) -> list[Effect]:
        """Ask for a position to read at that holds all that was acknowledged before; ``ReadReady`` or ``ReadFailed``
        tells it."""
        leading.on_read(self.state, read_id)
        return self.state.take_effects()

    def change_membership(self, wanted: Membership) -> tuple[Entry, list[Effect]]:
        """See ``membership.change_membership``."""
        entry = membership.change_membership(self.state, wanted)
        return entry, self.state.take_effects()

    def transfer(self, to: NodeId) -> list[Effect]:
        """Give the place to a voter that follows. NotLeaderError, LeaderNotReadyError."""
        leading.on_transfer(self.state, to)
        return self.state.take_effects()
