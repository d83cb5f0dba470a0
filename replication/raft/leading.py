"""The leader's side: what peers are sent, what is committed, reads, and giving the place up."""

from __future__ import annotations

from replication.errors import LeaderNotReadyError, NotLeaderError
from replication.raft.effects import Commit, ReadFailed, ReadReady, SendSnapshot
from replication.raft.election import become_follower
from replication.raft.messages import AppendReply, AppendRequest, SnapshotReply, TimeoutNow
from replication.raft.progress import Mode, Progress
from replication.raft.quorum import has_majority, quorum_end
from replication.raft.state import RaftState, WaitingRead
from replication.raft.types import NO_NODE, NodeId, Role

_SNAPSHOT_PATIENCE = 4
"""Election times until a snapshot that nothing was heard of is sent again."""
_FIRST_ANSWERS = 4
"""Election times until a majority must have answered a new leader."""


# --- sending ---


def replicate(state: RaftState) -> None:
    """Send every peer what it lacks and may be sent."""
    for peer, progress in state.peers.items():
        send_entries(state, peer, progress)


def send_entries(state: RaftState, peer: NodeId, progress: Progress) -> None:
    settings, trail = state.settings, state.trail
    if progress.mode is Mode.PROBE and progress.is_silent(state.now, settings.election_ticks):
        return  # heartbeats find it when it comes back: what is sent until then is lost, and others lack it
    budget = state.recovery if progress.recovers else None
    while progress.next < trail.end and progress.can_send(settings.max_inflight):
        if budget is not None and not budget.has_room():
            return  # a later tick sends it
        if progress.next < trail.start:
            progress.note_snapshot(state.now)
            state.emit(SendSnapshot(peer, state.term))
            return
        entries = state.log.entries(progress.next, settings.max_entries_bytes)
        if not entries:
            return  # the driver has not appended them yet
        if budget is not None:
            budget.take(sum(len(entry.data or b"") for entry in entries))
        previous = trail.term_before(progress.next)
        request = AppendRequest(
            state.node_id, state.term, progress.next, previous, entries, state.commit, state.round
        )
        progress.note_sent(entries[-1].end_offset, state.now)
        state.send(peer, request)


def send_piece(state: RaftState, peer: NodeId, progress: Progress) -> None:
    """The snapshot's next piece, unless a later tick has to."""
    if progress.recovers and state.recovery is not None and not state.recovery.has_room():
        return
    progress.note_piece_sent(state.now)
    state.emit(SendSnapshot(peer, state.term, progress.sent_piece))


def heartbeat(state: RaftState, peer: NodeId, progress: Progress) -> None:
    """A word to the peer: behind what agrees, or where the logs may agree while that is looked for."""
    position = progress.next if progress.mode is Mode.PROBE else progress.match
    term = state.trail.term_before(position)
    if not state.trail.knows(position):
        position, term = 0, -1  # what every log agrees with
    progress.sent_tick = state.now
    state.send(peer, AppendRequest(state.node_id, state.term, position, term, (), state.commit, state.round))


def on_leader_tick(state: RaftState) -> None:
    settings = state.settings
    if state.now - state.quorum_tick >= _quorum_patience(state):
        state.quorum_tick = state.now
        heard = [peer for peer, progress in state.peers.items() if progress.active]
        if not has_majority(state.membership, {*heard, state.node_id}):
            become_follower(state, state.term, NO_NODE)  # it may be cut off, and another one elected
            return
        for progress in state.peers.values():
            progress.active = False
    if state.transfer_to != NO_NODE and state.now - state.transfer_tick >= settings.election_ticks:
        state.transfer_to = NO_NODE  # it did not come to it: go on
    for peer, progress in state.peers.items():
        patience = settings.election_ticks * (_SNAPSHOT_PATIENCE if progress.mode is Mode.SNAPSHOT else 1)
        if progress.piece_due:
            send_piece(state, peer, progress)
        elif progress.is_stuck(state.now, patience):
            progress.begin_again(state.now)
            send_entries(state, peer, progress)
        elif progress.recovers:
            send_entries(state, peer, progress)  # what the budget held back
        if state.now - progress.sent_tick >= _pause(state, progress):
            heartbeat(state, peer, progress)


def _quorum_patience(state: RaftState) -> int:
    """Until a leader that hears of no majority gives up. Where answers to its first words take longer than an election
    its followers would hear it by then, and elect the next one in vain, for ever."""
    answered = [peer for peer, progress in state.peers.items() if progress.answers]
    is_known = has_majority(state.membership, {*answered, state.node_id})
    return state.settings.election_ticks * (1 if is_known else _FIRST_ANSWERS)


def _pause(state: RaftState, progress: Progress) -> int:
    """Between two words to a peer. One that has not answered the last yet is behind with what it was sent, or gone: of
    many groups each further word would only have all of them wait longer, until leaders who are there seem silent."""
    settings = state.settings
    if progress.heard_tick >= progress.sent_tick:
        return settings.heartbeat_ticks
    return max(settings.heartbeat_ticks, settings.election_ticks // 2)


# --- resting ---


def may_rest(state: RaftState) -> bool:
    end = state.trail.end
    if state.role is not Role.LEADER or state.commit != end or state.reads or state.transfer_to != NO_NODE:
        return False
    return state.knows_committed and all(
        progress.match == end and progress.mode is Mode.STREAM for progress in state.peers.values()
    )


def rest(state: RaftState) -> None:
    end = state.trail.end
    term = state.trail.term_before(end)
    for peer, progress in state.peers.items():
        progress.sent_tick = state.now
        request = AppendRequest(
            state.node_id, state.term, end, term, (), state.commit, state.round, rest=True
        )
        state.send(peer, request)


# --- answers ---


def on_append_reply(state: RaftState, reply: AppendReply) -> None:
    progress = state.peers.get(reply.sender)
    if state.role is not Role.LEADER or reply.term != state.term or progress is None:
        return
    progress.note_heard(state.now)
    progress.answers += 1
    progress.round = max(progress.round, reply.round)
    if reply.accepted:
        further = progress.note_accepted(reply.end_offset, state.now)
        if progress.mode is Mode.SNAPSHOT and progress.match >= state.trail.start:
            progress.note_installed()
        if further:
            advance_commit(state)
    elif reply.anew:
        progress.forget(_agreeing(state, reply))
    elif _is_news(progress, reply):
        progress.note_rejected(_agreeing(state, reply))
    if state.role is Role.LEADER:
        send_entries(state, reply.sender, progress)
        hand_over(state)
        confirm_reads(state)


def on_snapshot_reply(state: RaftState, reply: SnapshotReply) -> None:
    """The next piece goes, unless that was sent before: what is lost on its way goes again with the whole."""
    progress = state.peers.get(reply.sender)
    if state.role is not Role.LEADER or reply.term != state.term or progress is None:
        return
    progress.note_heard(state.now)
    if progress.mode is Mode.SNAPSHOT and reply.received != progress.sent_piece:
        progress.note_piece(reply.received, state.now)
        send_piece(state, reply.sender, progress)


def _is_news(progress: Progress, reply: AppendReply) -> bool:
    """Whether the refusal is of what the leader believes now; ``end_offset`` is where the refused entries went."""
    if progress.mode is Mode.SNAPSHOT or reply.end_offset <= progress.match:
        return False
    return progress.mode is Mode.STREAM or reply.end_offset == progress.next


def _agreeing(state: RaftState, reply: AppendReply) -> int:
    """Where the two logs may agree: the end of the newest term that both have, by what the follower told."""
    _, end = state.trail.end_of_term(reply.hint_term)
    if reply.hint_term < 0:
        end = 0
    return min(reply.hint_end, end)


def advance_commit(state: RaftState) -> None:
    """What a majority has durably, and this leader, too, if it is of this term (section 5.4.2): entries of earlier
    terms are committed with it, never by being counted."""
    ends = {peer: progress.match for peer, progress in state.peers.items()}
    ends[state.node_id] = state.durable
    end = min(quorum_end(state.membership, ends), state.durable)
    if end <= state.commit or state.trail.term_before(end) != state.term:
        return
    state.commit = end
    state.emit(Commit(end))
    if not state.is_voter and end >= state.trail.membership_end:
        for peer, progress in state.peers.items():
            heartbeat(state, peer, progress)  # they learn that its removal is committed
        become_follower(state, state.term, NO_NODE)


# --- reads ---


def on_read(state: RaftState, read_id: int) -> None:
    """Ready once a majority says that there is no newer leader (section 6.4): what was committed when it was asked is
    then all that was acknowledged before."""
    if state.role is not Role.LEADER:
        error = NotLeaderError(f"replica {state.node_id} does not lead", leader_id=state.leader_id)
        state.emit(ReadFailed(read_id, error))
        return
    if not state.knows_committed or len(state.reads) >= state.settings.read_requests:
        reason = "too many reads wait" if state.knows_committed else "nothing of its term is committed"
        state.emit(ReadFailed(read_id, LeaderNotReadyError(f"leader {state.node_id}: {reason}")))
        return
    state.round += 1
    state.reads.append(WaitingRead(read_id, state.commit, state.round))
    for peer, progress in state.peers.items():
        heartbeat(state, peer, progress)
    confirm_reads(state)


def confirm_reads(state: RaftState) -> None:
    while state.reads:
        read = state.reads[0]
        heard = [peer for peer, progress in state.peers.items() if progress.round >= read.round]
        if not has_majority(state.membership, {*heard, state.node_id}):
            return
        state.reads.pop(0)
        state.emit(ReadReady(read.read_id, read.position))


# --- giving the place up ---


def on_transfer(state: RaftState, to: NodeId) -> None:
    """NotLeaderError; LeaderNotReadyError where ``to`` is no voter that follows."""
    if state.role is not Role.LEADER:
        raise NotLeaderError(f"replica {state.node_id} does not lead", leader_id=state.leader_id)
    if to not in state.peers or to not in state.membership.voters:
        raise LeaderNotReadyError(f"node {to} is no voter that follows leader {state.node_id}")
    state.transfer_to, state.transfer_tick = to, state.now
    hand_over(state)


def hand_over(state: RaftState) -> None:
    """To the chosen one, once it has all of the log."""
    to = state.transfer_to
    if to != NO_NODE and to in state.peers and state.peers[to].match == state.trail.end:
        state.send(to, TimeoutNow(state.node_id, state.term))
