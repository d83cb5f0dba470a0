"""Elections: when a replica stands, how it votes, and what it becomes.

Sections are of "In Search of an Understandable Consensus Algorithm" (5.2, 5.4) and of
Ongaro's dissertation (3.10, 6.4, 9.6).
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from replication.errors import NotLeaderError
from replication.raft.effects import ReadFailed
from replication.raft.messages import TimeoutNow, VoteReply, VoteRequest
from replication.raft.progress import Progress
from replication.raft.quorum import has_majority
from replication.raft.state import RaftState
from replication.raft.types import NO_NODE, EntryKind, NodeId, Role, VoteState

RELUCTANCE = 5
"""For so many election times without a leader a reluctant replica leaves the others to stand."""
_MOST_DOUBLINGS: Final = 3
"""Of the time by which the replicas of a group go apart; see ``wait_anew``."""


def wait_anew(state: RaftState) -> None:
    """The next election is a while away, by chance longer than that of others. Where elections end with nothing the
    replicas of a group go further apart: of many groups that elect at one time, on machines that are busy, answers may
    take longer than an election time, and the next that stands would undo each of them, for ever."""
    ticks = state.settings.election_ticks
    doublings = min(state.crowded, _MOST_DOUBLINGS)
    state.deadline_tick = state.now + ticks + state.randomness.randrange(ticks << doublings)


def _note_end(state: RaftState) -> None:
    """Another election begins here, so that the one before came to nothing. What nobody answered tells nothing: the
    others may be cut off, and come back at any time."""
    state.crowded = state.crowded + 1 if state.has_rivals else 0
    state.has_rivals = False


def hears_leader(state: RaftState) -> bool:
    """Whether there is a leader, as far as this replica knows: then nobody is elected (section 9.6, check-quorum)."""
    if state.role is Role.LEADER:
        return True
    return state.leader_id != NO_NODE and state.now - state.heard_tick < state.settings.election_ticks


def wait_for(state: RaftState, behind: Set[NodeId]) -> None:
    """A tick that does not count for what waits for words of those nodes: they are there, and not heard yet."""
    if state.role is Role.LEADER:
        for node in behind & state.peers.keys():
            state.peers[node].note_heard(state.now)
    elif state.leader_id in behind or (state.leader_id == NO_NODE and behind & state.membership.voters):
        state.heard_tick += 1
        state.deadline_tick += 1


def leader_is_gone(state: RaftState) -> None:
    """Its node was not heard of for an election time: no second one is waited for."""
    if state.role is Role.FOLLOWER:
        state.heard_tick = min(state.heard_tick, state.now - state.settings.election_ticks)
        state.deadline_tick = state.now + 1 + state.randomness.randrange(state.settings.election_ticks)


# --- what a replica becomes ---


def become_follower(state: RaftState, term: int, leader_id: NodeId) -> None:
    """Of ``leader_id`` (-1: not known) in ``term``, which is the own one or newer."""
    before = (state.role, state.term, state.leader_id)
    if term > state.term:
        state.store_vote(VoteState(term))
    if before[1:] != (term, leader_id) or state.role is not Role.FOLLOWER:
        state.accepted_end, state.owed, state.leader_commit = state.commit, None, 0
        state.incoming = None
    state.role, state.leader_id = Role.FOLLOWER, leader_id
    state.pre_votes.clear()
    state.peers.clear()
    state.transfer_to, state.transferring = NO_NODE, False
    if leader_id != NO_NODE:
        state.crowded, state.has_rivals = 0, False
    reads, state.reads = state.reads, []
    for read in reads:
        error = NotLeaderError("the replica leads no more", leader_id=leader_id)
        state.emit(ReadFailed(read.read_id, error))
    wait_anew(state)
    if before != (state.role, state.term, state.leader_id):
        state.show_role()


def stand(state: RaftState) -> None:
    """Ask whether an election would be won, before one is held: a replica that was cut off must not raise the term
    (section 9.6)."""
    _note_end(state)
    wait_anew(state)
    if not state.is_voter or state.abstains or holds_off(state):
        _ask(state, state.term + 1, pre=True)  # wakes a leader that rests; the answers count for nothing
        return
    state.role, state.leader_id = Role.PRE_CANDIDATE, NO_NODE
    state.pre_votes = {state.node_id: True}
    state.show_role()
    _ask(state, state.term + 1, pre=True)
    _count_pre_votes(state)


def holds_off(state: RaftState) -> bool:
    """A leader that cannot append is none; but one that can by then, or serves readers, is better than none at all."""
    if not state.reluctant or state.membership.voters == {state.node_id}:
        return False
    return state.now - state.heard_tick < RELUCTANCE * state.settings.election_ticks


def campaign(state: RaftState, *, transfer: bool = False) -> None:
    wait_anew(state)
    state.role, state.leader_id = Role.CANDIDATE, NO_NODE
    state.transferring = transfer
    state.store_vote(VoteState(state.term + 1, state.node_id))
    state.ballots = {}  # the own vote counts once it is durable
    state.show_role()
    _ask(state, state.term, pre=False)


def _ask(state: RaftState, term: int, *, pre: bool) -> None:
    trail = state.trail
    for voter in sorted(state.membership.voters - {state.node_id}):
        request = VoteRequest(
            state.node_id, term, trail.last_term, trail.end, pre, state.transferring and not pre
        )
        state.send(voter, request)


def become_leader(state: RaftState) -> None:
    """The first entry of the term commits, with it, all that earlier leaders left (section 5.4.2)."""
    state.role, state.leader_id = Role.LEADER, state.node_id
    state.pre_votes, state.reads, state.round = {}, [], 0
    state.ballots = None
    state.crowded, state.has_rivals = 0, False
    state.quorum_tick = state.now
    state.peers = {peer: Progress(state.trail.end, state.now) for peer in state.others}
    state.led_from_empty = state.settings.silent_on_empty and state.trail.end == 0
    state.show_role()
    if not state.led_from_empty:
        state.append_own(1, EntryKind.LEADER_CHANGE)


# --- votes ---


def on_vote_stored(state: RaftState) -> None:
    """The own vote counts now. An election has its time from here on, whatever the disk took: where many groups elect
    at once, each would else be over before its votes were told, and the next one begin, for ever."""
    if state.role is not Role.LEADER and state.vote == state.stored_vote:
        wait_anew(state)
    if state.ballots is not None and state.stored_vote == VoteState(state.term, state.node_id):
        state.ballots[state.node_id] = True
        _count_ballots(state, state.ballots)


def on_vote_request(state: RaftState, request: VoteRequest) -> None:
    state.has_rivals = True
    if state.abstains:
        if not request.pre and request.term > state.term and not hears_leader(state):
            become_follower(state, request.term, NO_NODE)
        return  # no answer: a refusal would count like that of a replica that knows
    if request.pre:
        granted = request.term > state.term and _is_up_to_date(state, request) and not hears_leader(state)
        term = request.term if granted else state.term
        state.send(request.sender, VoteReply(state.node_id, term, granted, pre=True))
        return
    if request.term > state.term:
        if hears_leader(state) and not request.transfer:
            return  # a replica that does not hear the leader must not end its term for all
        become_follower(state, request.term, NO_NODE)
    granted = (
        request.term == state.term
        and state.vote.voted_for in (NO_NODE, request.sender)
        and state.role is Role.FOLLOWER
        and _is_up_to_date(state, request)
    )
    if granted:
        state.store_vote(VoteState(state.term, request.sender))
        wait_anew(state)
    state.send(request.sender, VoteReply(state.node_id, state.term, granted))


def _is_up_to_date(state: RaftState, request: VoteRequest) -> bool:
    """Section 5.4.1: the log that ends in the newer term, or is longer in the same one, holds all that is committed."""
    return (request.last_term, request.end_offset) >= (state.trail.last_term, state.trail.end)


def on_vote_reply(state: RaftState, reply: VoteReply) -> None:
    state.has_rivals = True  # also where it comes late
    if reply.pre:
        if state.role is Role.PRE_CANDIDATE and not (reply.granted and reply.term != state.term + 1):
            state.pre_votes[reply.sender] = reply.granted
            _count_pre_votes(state)
    elif state.ballots is not None and reply.term == state.term:
        state.ballots[reply.sender] = reply.granted
        _count_ballots(state, state.ballots)


def _count_pre_votes(state: RaftState) -> None:
    if _has_majority(state, state.pre_votes, granted=True):
        campaign(state)
    elif _has_majority(state, state.pre_votes, granted=False):
        become_follower(state, state.term, NO_NODE)


def _count_ballots(state: RaftState, ballots: dict[NodeId, bool]) -> None:
    """Also where it has given up to wait for them, and asks for the next election, or was refused that: it is in the
    term still, in which nobody else can lead once a majority has voted for it. Where votes take longer than an election
    time each election would else come to nothing as the next one begins."""
    if _has_majority(state, ballots, granted=True):
        become_leader(state)
    elif state.role is Role.CANDIDATE and _has_majority(state, ballots, granted=False):
        become_follower(state, state.term, NO_NODE)


def _has_majority(state: RaftState, votes: dict[NodeId, bool], *, granted: bool) -> bool:
    return has_majority(state.membership, [node for node, one in votes.items() if one is granted])


def on_timeout_now(state: RaftState, request: TimeoutNow) -> None:
    """The leader gives its place to this replica, which holds all of its log."""
    may_stand = state.is_voter and not state.abstains and not state.reluctant
    if request.term == state.term and state.role is Role.FOLLOWER and may_stand:
        campaign(state, transfer=True)
