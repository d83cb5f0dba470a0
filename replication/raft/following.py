"""The follower's side: entries and snapshots of the leader (Raft, sections 5.3 and 7)."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.invariants import invariant
from replication.errors import DivergedLogError
from replication.raft.effects import Append, Commit, InstallSnapshot, Truncate
from replication.raft.election import become_follower, wait_anew
from replication.raft.messages import AppendReply, AppendRequest, Message, SnapshotReply, SnapshotRequest
from replication.raft.state import IncomingSnapshot, RaftState
from replication.raft.types import Entry, NodeId, Role, Snapshot


def hear(state: RaftState, leader_id: NodeId) -> None:
    """A word of the leader of the own term."""
    invariant(state.role is not Role.LEADER, f"term {state.term} has one leader, not {leader_id}, too")
    if state.role is not Role.FOLLOWER or state.leader_id != leader_id:
        become_follower(state, state.term, leader_id)
    state.heard_tick = state.now
    wait_anew(state)


def on_append_request(state: RaftState, request: AppendRequest) -> None:
    """DivergedLogError: the leader would have what is committed here cut off."""
    if request.term < state.term:
        _reject(state, request, 0, -1)
        return
    hear(state, request.sender)
    trail = state.trail
    position, entries = request.prev_end, request.entries
    if position < trail.start:
        # All before the own start is committed, and the same in every log.
        entries = tuple(entry for entry in entries if entry.end_offset > trail.start)
    elif position > trail.end or trail.term_before(position) != request.prev_term:
        if position <= state.commit:
            raise DivergedLogError(
                f"replica {state.node_id}: leader {request.sender} has term {request.prev_term} before offset "
                f"{position}, where term {trail.term_before(position)} is committed here"
            )
        term, end = trail.end_of_term(request.prev_term)
        _reject(state, request, min(end, position), term)
        return
    agreed = _take(state, entries, position)
    state.accepted_end = max(state.accepted_end, min(agreed, trail.end))
    state.leader_commit = max(state.leader_commit, request.commit)
    raise_commit(state)
    if entries and state.durable < state.accepted_end:
        state.owed = request.round
    else:
        _accept(state, request.round)


def _take(state: RaftState, entries: Sequence[Entry], position: int) -> int:
    """Append what is new, behind what agrees at ``position``; what contradicts the leader's log is cut off. How far the
    two logs agree then.

    A leader that has compacted its log since it sent a piece of it has one entry without records where there were
    several: such a one may begin within this log, and end behind it. All entries of a term are one leader's, so that
    this log agrees with it up to its end, and the leader goes on from there.
    """
    trail = state.trail
    for number, entry in enumerate(entries):
        if entry.end_offset <= trail.end and trail.term_before(entry.end_offset) == entry.term:
            continue  # it is here
        if entry.base_offset < trail.end:
            if entry.end_offset > trail.end and trail.last_term == entry.term:
                return trail.end
            if entry.base_offset < state.commit:
                raise DivergedLogError(
                    f"replica {state.node_id}: leader {state.leader_id} has term {entry.term} at offset "
                    f"{entry.base_offset}, where another one is committed here"
                )
            trail.truncate(entry.base_offset)
            state.durable = min(state.durable, entry.base_offset)
            state.accepted_end = min(state.accepted_end, entry.base_offset)
            state.emit(Truncate(entry.base_offset))
        fresh = tuple(entries[number:])
        for one in fresh:
            trail.append(one)
        state.emit(Append(fresh))
        break
    return entries[-1].end_offset if entries else position


def rests(state: RaftState, message: Message) -> bool:
    """After the message was received."""
    if not isinstance(message, AppendRequest) or not message.rest or state.role is not Role.FOLLOWER:
        return False
    is_leaders = message.term == state.term and message.sender == state.leader_id
    return is_leaders and message.prev_end == message.commit == state.commit == state.trail.end


def _accept(state: RaftState, round_: int) -> None:
    """Never more than is durable: the leader counts it."""
    end = min(state.accepted_end, state.durable)
    state.send(state.leader_id, AppendReply(state.node_id, state.term, True, end, round=round_))


def _reject(state: RaftState, request: AppendRequest, hint_end: int, hint_term: int) -> None:
    """An empty log holds nothing of what another directory under this number may have acknowledged."""
    anew = state.abstains or state.trail.end == 0
    reply = AppendReply(
        state.node_id, state.term, False, request.prev_end, hint_end, hint_term, request.round, anew
    )
    state.send(request.sender, reply)


def raise_commit(state: RaftState) -> None:
    """Readers here see what the leader said is committed, as far as it is here, agrees, and is durable."""
    commit = min(state.leader_commit, state.accepted_end, state.durable)
    if commit > state.commit:
        state.commit = commit
        state.emit(Commit(commit))
    may_vote_again = state.abstains and not state.held_back and state.role is Role.FOLLOWER
    if may_vote_again and state.trail.term_before(state.commit) == state.term:
        state.abstains = False  # it has all that was committed before this leader's term, and what is since


def on_durable(state: RaftState) -> None:
    """The own log is durable further than before."""
    raise_commit(state)
    if state.owed is not None and state.role is Role.FOLLOWER:
        _accept(state, state.owed)
        if state.durable >= state.accepted_end:  # else the next sync's answer is owed, too
            state.owed = None


def on_snapshot_request(state: RaftState, request: SnapshotRequest) -> None:
    if request.term < state.term:
        return
    hear(state, request.sender)
    if request.snapshot.end_offset <= state.commit:
        _accept(state, 0)  # an old one: all of it is here
        return
    if _agrees(state, request.snapshot):
        _take_as_known(state, request.snapshot.end_offset)
        return
    snapshot = _gathered(state, request) if request.total else request.snapshot
    if snapshot is None:
        return
    state.incoming = None
    state.trail.reset(snapshot.end_offset, snapshot.epochs, snapshot.membership)
    state.emit(InstallSnapshot(snapshot))
    state.durable = 0
    state.accepted_end = snapshot.end_offset
    state.leader_commit = max(state.leader_commit, snapshot.end_offset)
    state.owed = 0


def _agrees(state: RaftState, snapshot: Snapshot) -> bool:
    """Whether the own log holds all that the snapshot stands for."""
    trail, end = state.trail, snapshot.end_offset
    return bool(snapshot.epochs) and trail.knows(end) and trail.term_before(end) == snapshot.epochs[-1][0]


def _take_as_known(state: RaftState, end: int) -> None:
    """The log is kept, also behind there: a majority may be counted with it, for entries that this leader has sent
    to nobody yet (rule 6 of figure 13). Up to there it agrees with the leader's, where all is committed."""
    state.incoming = None
    state.accepted_end = max(state.accepted_end, end)
    state.leader_commit = max(state.leader_commit, end)
    raise_commit(state)
    if state.durable < state.accepted_end:
        state.owed = 0
    else:
        _accept(state, 0)


def _gathered(state: RaftState, request: SnapshotRequest) -> Snapshot | None:
    """The snapshot, once its last piece is here; None: its sender is told how much is."""
    snapshot, kept = request.snapshot, state.incoming
    if kept is None or kept[:3] != (request.term, snapshot.end_offset, request.total):
        kept = state.incoming = IncomingSnapshot(
            request.term, snapshot.end_offset, request.total, bytearray()
        )
    data = kept.data
    fits = len(data) + len(snapshot.data) <= min(request.total, state.settings.snapshot_bytes)
    if request.at == len(data) and fits:
        data += snapshot.data
        if len(data) == request.total:
            return snapshot._replace(data=bytes(data))
    reply = SnapshotReply(state.node_id, state.term, snapshot.end_offset, len(data))
    state.send(request.sender, reply)
    return None
