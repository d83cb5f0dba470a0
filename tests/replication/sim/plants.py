"""Planted bugs of Raft, as switches: each is a mistake that others made, and the simulator finds it within ``SEEDS``.

    python -m tests.replication.sim.plants [WORD]

prints in which seed each is found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from replication.raft import election, following, leading, membership
from replication.raft.effects import Commit, ReadReady, Truncate
from replication.raft.messages import AppendReply, AppendRequest
from replication.raft.quorum import quorum_end
from replication.raft.state import RaftState
from replication.raft.trail import Trail
from replication.raft.types import NO_NODE, Membership, Role, VoteState
from tests.replication.sim.cluster import SimulatedNode, SimulatedPartition
from tests.replication.sim.disk import SimulatedDisk
from tests.replication.sim.schedule import SeedFailedError, run_seed

SEEDS: Final = 500
"""Within how many each is found."""

Plant = Callable[[], Any]


def ack_before_sync() -> Any:
    """A follower says what it has written, not what is durable."""

    def on_append(state: RaftState, request: AppendRequest) -> None:
        original(state, request)
        if state.owed is not None and state.leader_id == request.sender:
            state.owed = None
            state.send(request.sender, AppendReply(state.node_id, state.term, True, state.accepted_end))

    original = following.on_append_request
    return mock.patch.object(following, "on_append_request", on_append)


def vote_not_stored() -> Any:
    """A vote is believed to be durable as it is given."""
    original = RaftState.store_vote

    def store(state: RaftState, vote: VoteState) -> None:
        original(state, vote)
        state.stored_vote = vote

    return mock.patch.object(RaftState, "store_vote", store)


def vote_forgotten_at_restart() -> Any:
    """The term is kept over a restart, and the vote in it is not."""
    original = SimulatedNode.start

    def start(node: SimulatedNode) -> None:
        node.disk.vote = VoteState(node.disk.vote.term)
        original(node)

    return mock.patch.object(SimulatedNode, "start", start)


def old_terms_committed_by_counting() -> Any:
    """Section 5.4.2, figure 8."""

    def advance(state: RaftState) -> None:
        ends = {peer: progress.match for peer, progress in state.peers.items()}
        ends[state.node_id] = state.durable
        end = min(quorum_end(state.membership, ends), state.durable)
        if end > state.commit:
            state.commit = end
            state.emit(Commit(end))

    return mock.patch.object(leading, "advance_commit", advance)


def leader_counts_itself_before_its_sync() -> Any:
    original = leading.advance_commit

    def advance(state: RaftState) -> None:
        durable, state.durable = state.durable, state.trail.end
        try:
            original(state)
        finally:
            state.durable = durable

    return mock.patch.object(leading, "advance_commit", advance)


def shorter_logs_win() -> Any:
    """Votes go to any candidate (section 5.4.1)."""
    return mock.patch.object(election, "_is_up_to_date", return_value=True)


def longer_logs_win_whatever_their_term() -> Any:
    def up_to_date(state: RaftState, request: Any) -> bool:
        return bool(request.end_offset >= state.trail.end)

    return mock.patch.object(election, "_is_up_to_date", up_to_date)


def two_votes_in_a_term() -> Any:
    """Whoever asks gets a vote, unless the replica stands itself."""
    original = election.on_vote_request

    def vote(state: RaftState, request: Any) -> None:
        if not request.pre and state.term == request.term and state.vote.voted_for != state.node_id:
            state.vote = state.stored_vote = VoteState(state.term, NO_NODE)
        original(state, request)

    return mock.patch.object(election, "on_vote_request", vote)


def reads_without_asking() -> Any:
    """A leader that was replaced answers reads from what it has (section 6.4)."""

    def read(state: RaftState, read_id: int) -> None:
        if state.role is Role.LEADER:
            state.emit(ReadReady(read_id, state.commit))
        else:
            original(state, read_id)

    original = leading.on_read
    return mock.patch.object(leading, "on_read", read)


def reads_before_anything_is_committed() -> Any:
    """A new leader answers reads before it knows what is committed."""
    return mock.patch.object(RaftState, "has_committed", True)


def membership_without_the_guard() -> Any:
    """Several voters at once, while other changes are under way, by a leader that has committed nothing."""

    def check(state: RaftState, before: Membership, wanted: Membership) -> None:
        del state, before, wanted

    def swap(partition: Any, node: SimulatedNode) -> Membership:
        now = node.core.state.membership
        outside = sorted(set(partition.nodes) - now.voters)
        leaving = sorted(now.voters - {node.node_id})[: len(outside)]
        voters = (now.voters - set(leaving)) | set(outside)
        return Membership(frozenset(voters))

    return _both(
        mock.patch.object(membership, "_check_step", check),
        mock.patch.object(RaftState, "has_committed", True),
        mock.patch.object(SimulatedPartition, "_next_membership", swap),
        mock.patch.object(Trail, "membership_end", 0),
    )


def high_watermark_goes_back() -> Any:
    """A follower shows what the leader said last, not the most that it said."""

    def raise_commit(state: RaftState) -> None:
        commit = min(state.leader_commit, state.accepted_end, state.durable)
        if commit != state.commit:
            state.commit = commit
            state.emit(Commit(commit))

    return _both(
        mock.patch.object(following, "raise_commit", raise_commit),
        mock.patch.object(following, "max", lambda old, new: new, create=True),
    )


def commit_beyond_what_agrees() -> Any:
    """A follower shows what its leader committed, though its own tail there is another leader's (section 5.3)."""

    def raise_commit(state: RaftState) -> None:
        commit = min(state.leader_commit, state.durable)
        if commit > state.commit:
            state.commit = commit
            state.emit(Commit(commit))

    return mock.patch.object(following, "raise_commit", raise_commit)


def stale_terms_are_heard() -> Any:
    """A message of a term that is over counts as one of the own term."""
    original = following.on_append_request

    def on_append(state: RaftState, request: AppendRequest) -> None:
        if request.term < state.term and state.role is Role.FOLLOWER:
            request = request._replace(term=state.term)
        original(state, request)

    return mock.patch.object(following, "on_append_request", on_append)


def entries_without_a_look_at_what_is_before() -> Any:
    """Entries are taken wherever they fit (section 5.3, the consistency check)."""
    original = following.on_append_request

    def on_append(state: RaftState, request: AppendRequest) -> None:
        if request.prev_end <= state.trail.end:
            request = request._replace(prev_term=state.trail.term_before(request.prev_end))
        original(state, request)

    return mock.patch.object(following, "on_append_request", on_append)


def nothing_is_cut() -> Any:
    """A follower keeps its own entries where the leader's contradict them."""

    def take(state: RaftState, entries: Any, position: int) -> int:
        fresh = tuple(entry for entry in entries if entry.base_offset >= state.trail.end)
        agreed: int = original(state, fresh, position)
        return entries[-1].end_offset if entries else agreed

    original = following._take
    return mock.patch.object(following, "_take", take)


def cut_at_every_message() -> Any:
    """Entries that come twice, or late, cut what came behind them."""

    def take(state: RaftState, entries: Any, position: int) -> int:
        if entries and entries[0].base_offset < state.trail.end:
            state.trail.truncate(entries[0].base_offset)
            state.durable = min(state.durable, entries[0].base_offset)
            state.emit(Truncate(entries[0].base_offset))
        agreed: int = original(state, entries, position)
        return agreed

    original = following._take
    return mock.patch.object(following, "_take", take)


def snapshot_without_epochs() -> Any:
    """What a snapshot stands for has no terms: the next entries agree with nothing."""
    original = Trail.reset

    def reset(trail: Trail, position: int, epochs: Any, who: Membership) -> None:
        original(trail, position, (), who)

    return mock.patch.object(Trail, "reset", reset)


def snapshot_over_what_is_committed() -> Any:
    """An old snapshot that comes late replaces a log that is further. (Two guards: a log that holds all that a snapshot
    stands for is kept, too.)"""

    def on_snapshot(state: RaftState, request: Any) -> None:
        commit, state.commit = state.commit, -1
        original(state, request)
        state.commit = max(commit, state.commit)

    original = following.on_snapshot_request
    return _both(
        mock.patch.object(following, "on_snapshot_request", on_snapshot),
        mock.patch.object(following, "_agrees", return_value=False),
    )


def damage_counts_as_a_log() -> Any:
    """A replica whose durable tail is damaged starts with what is left, votes and is counted as if that were all."""
    original = SimulatedDisk.crash

    def crash(disk: SimulatedDisk, dice: Any) -> None:
        original(disk, dice)
        if dice.random() < 0.3:
            disk.log = disk.log[: len(disk.log) // 2]
            disk.durable_end = disk.end
            disk.commit = min(disk.commit, disk.end)

    return mock.patch.object(SimulatedDisk, "crash", crash)


@contextmanager
def _both(*patches: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


PLANTS: Final[dict[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        ack_before_sync,
        vote_not_stored,
        vote_forgotten_at_restart,
        old_terms_committed_by_counting,
        leader_counts_itself_before_its_sync,
        shorter_logs_win,
        longer_logs_win_whatever_their_term,
        two_votes_in_a_term,
        reads_without_asking,
        reads_before_anything_is_committed,
        membership_without_the_guard,
        high_watermark_goes_back,
        commit_beyond_what_agrees,
        stale_terms_are_heard,
        entries_without_a_look_at_what_is_before,
        nothing_is_cut,
        cut_at_every_message,
        snapshot_without_epochs,
        snapshot_over_what_is_committed,
        damage_counts_as_a_log,
    )
}


def found(plant: Plant, seeds: int = SEEDS) -> tuple[int, str] | None:
    """How many seeds it took, and what was said; None: it was not found."""
    for seed in range(seeds):
        try:
            with plant():
                run_seed(seed)
        except SeedFailedError as error:
            return seed + 1, str(error)
    return None


def main() -> int:
    words = sys.argv[1:]
    lived = 0
    for name, plant in PLANTS.items():
        if words and not any(word in name for word in words):
            continue
        answer = found(plant)
        lived += answer is None
        told = f"not found in {SEEDS} seeds" if answer is None else f"seed {answer[0]}: {answer[1][:120]}"
        sys.stdout.write(f"{name}: {told}\n")
        sys.stdout.flush()
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
