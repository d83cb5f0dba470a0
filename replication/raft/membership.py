"""Changes of who has the log: one voter at a time, so that majorities before and after share a voter.

After chapter 4 of Ongaro's dissertation, and its erratum.
"""

from __future__ import annotations

from replication.errors import MembershipChangeError, NotLeaderError
from replication.raft.leading import heartbeat, replicate
from replication.raft.progress import Mode, Progress
from replication.raft.state import RaftState
from replication.raft.types import Entry, EntryKind, Membership, NodeId, Role


def change_membership(state: RaftState, wanted: Membership) -> Entry:
    """The entry that makes it so, which counts from now on, committed or not. NotLeaderError, InvalidMembershipError;
    MembershipChangeError: not now, or not in one step."""
    if state.role is not Role.LEADER:
        raise NotLeaderError(f"replica {state.node_id} does not lead", leader_id=state.leader_id)
    wanted.checked()
    before = state.membership
    if not state.has_committed:
        if state.trail.end == 0:
            state.append_own(1, EntryKind.LEADER_CHANGE)  # left out when it was elected
            replicate(state)
        # Two leaders could each begin a change that the other does not know of (the erratum to chapter 4).
        raise MembershipChangeError(
            f"leader {state.node_id} has committed nothing of its term yet", hint="try again in a moment"
        )
    if state.trail.membership_end > state.commit:
        raise MembershipChangeError("another change is not committed yet", hint="wait until it is")
    _check_step(state, before, wanted)
    entry = state.append_own(1, EntryKind.MEMBERSHIP, membership=wanted)
    for peer in before.voters & wanted.learners & set(state.peers):
        del state.peers[peer]  # its directory was exchanged: what it held does not count
    for peer in sorted(set(state.others) - set(state.peers)):
        progress = state.peers[peer] = Progress(state.trail.end, state.now)
        heartbeat(state, peer, progress)  # it answers where its log ends
    for peer in set(state.peers) - set(state.others):
        del state.peers[peer]
    replicate(state)
    return entry


def _check_step(state: RaftState, before: Membership, wanted: Membership) -> None:
    added, removed = wanted.voters - before.voters, before.voters - wanted.voters
    if len(added) + len(removed) > 1:
        raise MembershipChangeError(
            f"voters {sorted(added)} come and {sorted(removed)} go at once", hint="change one voter at a time"
        )
    for node in added:
        _check_caught_up(state, before, node)


def _check_caught_up(state: RaftState, before: Membership, node: NodeId) -> None:
    """A new voter that lacks the log would hold up every commit."""
    progress = state.peers.get(node)
    if node not in before.learners or progress is None:
        raise MembershipChangeError(f"node {node} is no learner", hint="add it as a learner first")
    lag = state.trail.end - progress.match
    if progress.mode is not Mode.STREAM or lag > state.settings.promote_lag:
        raise MembershipChangeError(
            f"learner {node} is {lag} offsets behind, {state.settings.promote_lag} are allowed",
            hint="wait until it has caught up",
        )
