"""``InSync``: which followers have kept up with their leader."""

from __future__ import annotations

from replication.raft.quorum import has_majority
from replication.raft.state import RaftState
from replication.raft.types import Membership, NodeId, Role


class InSync:
    """Of one replica while it leads; as Kafka's in-sync replicas: a follower counts that held, within ``lag_s``, all
    that the leader held. Not thread-safe: its replica's lock is held."""

    def __init__(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._marks: dict[NodeId, tuple[int, float]] = {}  # the leader's end, and when that was
        self._answers: dict[NodeId, int] = {}
        self._heard_s: dict[NodeId, float] = {}
        self._caught_up_s: dict[NodeId, float] = {}
        self._now_s = 0.0
        # What is known of the followers holds for these members until then, unless one of them is heard of.
        self._members: Membership | None = None
        self._until_s = 0.0

    def reset(self, state: RaftState, now_s: float) -> None:
        """Another role: a new leader believes its voters for a moment."""
        self._marks.clear()
        self._answers.clear()
        self._heard_s.clear()
        self._now_s = now_s
        self._caught_up_s = dict.fromkeys(state.peers, now_s)
        self._members = None

    def note(self, state: RaftState, now_s: float) -> None:
        """At every tick."""
        self._now_s = now_s
        if state.role is not Role.LEADER:
            return
        end = state.trail.end
        heard = self._members is not state.membership or now_s > self._until_s
        for node, progress in state.peers.items():
            if self._answers.get(node) == progress.answers:
                continue  # nothing was heard of it
            heard = True
            self._answers[node] = progress.answers
            self._heard_s[node] = now_s
            if progress.match >= end:
                self._caught_up_s[node] = now_s
                self._marks.pop(node, None)
                continue
            mark_end, mark_s = self._marks.setdefault(node, (end, now_s))
            if progress.match >= mark_end:
                self._caught_up_s[node] = mark_s
                self._marks[node] = (end, now_s)
        if heard:
            self._note_recovering(state)

    def _note_recovering(self, state: RaftState) -> None:
        """Peers that are not in sync are filled out of the budget for recovery, unless a commit waits for them."""
        in_sync = self.nodes(state)
        waits = not has_majority(state.membership, set(in_sync))
        for node, progress in state.peers.items():
            needed = waits and node in state.membership.voters
            progress.recovers = node not in in_sync and not needed
        self._members = state.membership
        marks = [self._caught_up_s[node] for node in in_sync if node != state.node_id]
        self._until_s = min(marks, default=self._now_s) + self._lag_s

    def listen_anew(self, state: RaftState, now_s: float) -> None:
        """The leader has rested: its followers had kept up until now, but what they said before does not tell which of
        them are still there."""
        self._caught_up_s.update(dict.fromkeys(self.nodes(state), now_s))
        self._now_s = now_s
        self._members = None
        self._heard_s.clear()
        self._answers = {node: progress.answers for node, progress in state.peers.items()}

    def hears_all(self, state: RaftState, within_s: float) -> bool:
        """Whether every member has answered lately."""
        since_s = self._now_s - within_s
        return all(self._heard_s.get(node, -1e9) >= since_s for node in state.peers)

    def nodes(self, state: RaftState) -> list[NodeId]:
        """The leader and the voters that have kept up, in order."""
        found = [
            node
            for node in state.membership.voters
            if node == state.node_id or self._now_s - self._caught_up_s.get(node, -1e9) <= self._lag_s
        ]
        return sorted(found)
