"""Raft by the sections of the paper (5.x, 7) and of the dissertation (3.10, 4.x, 6.4, 9.6)."""

from __future__ import annotations

import pytest

from replication.errors import (
    DivergedLogError,
    InvalidMembershipError,
    LeaderNotReadyError,
    MembershipChangeError,
    NotLeaderError,
)
from replication.raft.effects import (
    Append,
    Commit,
    InstallSnapshot,
    ReadFailed,
    ReadReady,
    StoreVote,
    Truncate,
)
from replication.raft.messages import AppendReply, AppendRequest, SnapshotRequest, VoteReply, VoteRequest
from replication.raft.types import Entry, EntryKind, Membership, Role, Snapshot, VoteState
from tests.replication.raft.replicas import ELECTION, Replicas


def members(*voters: int, learners: tuple[int, ...] = ()) -> Membership:
    return Membership(frozenset(voters), frozenset(learners))


# --- 5.2 Leader election ---


def test_5_2_a_replica_without_a_leader_stands_and_is_elected_by_a_majority() -> None:
    group = Replicas(5)
    leader = group.elect(0, among=(0, 1, 2))
    assert leader.role is Role.LEADER
    assert leader.core.state.term == 1
    assert [replica.role for replica in group.all[1:3]] == [Role.FOLLOWER] * 2
    assert leader.log == [(1, 0)]
    assert leader.disk.log[0].kind is EntryKind.LEADER_CHANGE


def test_5_2_a_minority_elects_nobody() -> None:
    group = Replicas(5)
    assert group.elect(0, among=(0, 1)).role is Role.PRE_CANDIDATE
    assert group[0].core.state.term == 0


def test_5_2_one_vote_in_a_term_first_come() -> None:
    group = Replicas(3)
    group[2].receive(VoteRequest(0, 1, -1, 0))
    group[2].receive(VoteRequest(1, 1, -1, 0))
    replies = [message for _, message in group[2].outbox]
    assert replies == [VoteReply(2, 1, True), VoteReply(2, 1, False)]
    group[2].start()  # and after a restart
    group[2].receive(VoteRequest(1, 1, -1, 0))
    group[2].receive(VoteRequest(0, 1, -1, 0))
    assert [message for _, message in group[2].outbox] == [VoteReply(2, 1, False), VoteReply(2, 1, True)]


def test_5_2_no_vote_leaves_before_it_is_durable() -> None:
    group = Replicas(3)
    group[2].slow = True
    group[2].receive(VoteRequest(0, 1, -1, 0))
    assert group[2].effects[-1] == StoreVote(VoteState(1, 0))
    assert group[2].outbox == []
    group[2].sync()
    assert [message for _, message in group[2].outbox] == [VoteReply(2, 1, True)]


def test_5_2_a_candidate_counts_its_own_vote_once_that_is_durable() -> None:
    group = Replicas(1)
    group[0].slow = True
    group[0].stand()
    assert group[0].role is Role.CANDIDATE
    group[0].sync()
    assert group[0].role is Role.LEADER


def test_5_2_a_leader_that_hears_of_a_newer_term_follows() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.receive(AppendReply(1, 7, False, 0))
    assert leader.role is Role.FOLLOWER
    assert leader.core.state.term == 7


# --- 5.3 Log replication ---


def test_5_3_an_entry_is_committed_once_a_majority_has_it_durably() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    for follower in group.all[1:]:
        follower.slow = True
    entry = leader.propose(5, b"rows")
    group.pass_on()
    assert leader.core.state.commit == entry.base_offset, "followers have it, and not on their disks"
    group[1].sync()
    group.pass_on()
    assert leader.core.state.commit == entry.end_offset == 6
    assert group[2].core.state.commit < 6
    group[2].sync()
    leader.tick(2)
    group.pass_on()
    assert group[2].core.state.commit == 6
    assert group[2].disk.log == leader.disk.log


def test_5_3_the_leaders_own_disk_counts_like_the_others() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.slow = True
    entry = leader.propose()
    group.pass_on()
    assert group[1].disk.log == leader.disk.log, "it is sent beside the leader's sync"
    assert leader.core.state.commit < entry.end_offset
    leader.sync()
    assert leader.core.state.commit == entry.end_offset


def test_5_3_a_sync_that_covers_a_part_leaves_the_answer_for_the_rest_owed() -> None:
    """Entries that come while the disk syncs earlier ones are answered by the next sync, not by a heartbeat."""
    group = Replicas(3)
    leader, follower = group.elect(0), group[1]
    follower.slow = True
    first, second = leader.propose(3, "first"), leader.propose(3, "second")
    group.pass_on(among=(0, 1))
    follower.disk.sync(first.end_offset)
    follower.do(follower.core.log_durable(first.end_offset, first.term))
    group.pass_on(among=(0, 1))
    assert leader.core.state.commit == first.end_offset
    follower.sync()
    group.pass_on(among=(0, 1))
    assert leader.core.state.commit == second.end_offset


# Figure 7: a leader of term 8 and what its followers may look like.
LEADER = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
FIGURE_7 = {
    "a": LEADER[:9],
    "b": LEADER[:4],
    "c": [*LEADER, 6],
    "d": [*LEADER, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("name", FIGURE_7)
@pytest.mark.parametrize("most", [1, 1 << 20], ids=["one entry a message", "all at once"])
def test_5_3_figure_7_a_follower_becomes_as_its_leader(name: str, most: int) -> None:
    group = Replicas(3, {0: LEADER, 1: LEADER, 2: FIGURE_7[name]}, max_entries_bytes=most)
    group[0].disk.vote = group[1].disk.vote = VoteState(7)
    for replica in group.all:
        replica.start()
    leader = group.elect(0, among=(0, 1))
    assert leader.core.state.term == 8
    for _ in range(6):
        leader.tick(2)
        group.pass_on()
    assert group[2].disk.log == leader.disk.log
    assert group[2].core.state.commit == leader.core.state.commit == len(LEADER) + 1


def test_5_3_a_divergence_is_found_in_a_step_for_each_term_not_for_each_entry() -> None:
    own = [1, 1, 1, *([2] * 200), *([3] * 200)]
    group = Replicas(3, {0: [1, 1, 1, *([4] * 300)], 1: [1, 1, 1, *([4] * 300)], 2: own})
    leader = group.elect(0, among=(0, 1))
    refused: list[AppendReply] = []

    def note(message: object) -> bool:
        if isinstance(message, AppendReply) and not message.accepted:
            refused.append(message)
        return True

    for _ in range(10):
        leader.tick(2)
        group.pass_on(only=note)
    assert group[2].disk.log == leader.disk.log
    assert len(refused) <= 3


def test_5_3_messages_twice_and_late_change_nothing() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    sent: list[tuple[int, AppendRequest]] = []

    def note(message: object) -> bool:
        if isinstance(message, AppendRequest):
            sent.append((1, message))
        return True

    for number in range(5):
        leader.propose(2, number)
        group.pass_on(only=note)
    before, cut = list(group[1].disk.log), len([e for e in group[1].effects if isinstance(e, Truncate)])
    for _, message in sent:
        group[1].receive(message)
    assert group[1].disk.log == before
    assert len([e for e in group[1].effects if isinstance(e, Truncate)]) == cut


def test_5_3_what_is_committed_is_never_cut() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.propose(3, "kept")
    for _ in range(3):
        leader.tick(2)
        group.pass_on()
    log = list(group[1].disk.log)
    assert group[1].core.state.commit == 4
    with pytest.raises(DivergedLogError, match="committed here"):
        group[1].receive(AppendRequest(2, 9, 1, 1, (Entry(1, 2, 9),), 2))
    with pytest.raises(DivergedLogError):
        group[1].receive(AppendRequest(2, 9, 4, 7, (), 4))
    assert group[1].disk.log == log


# --- 5.4 Safety ---


@pytest.mark.parametrize(
    ("mine", "others", "wins"),
    [
        ([1, 1], [1, 1], True),
        ([1, 2], [1, 1, 1, 1], True),
        ([1, 1, 1], [1, 2], False),
        ([1, 1], [1, 1, 1], False),
        ([], [1], False),
    ],
)
def test_5_4_1_only_a_log_that_holds_all_that_is_committed_wins(
    mine: list[int], others: list[int], wins: bool
) -> None:
    group = Replicas(3, {0: mine, 1: others, 2: others})
    assert (group.elect(0).role is Role.LEADER) is wins


def test_5_4_2_figure_8_an_entry_of_an_old_term_is_not_committed_by_being_counted() -> None:
    """S1 spreads its entry of term 2 to a majority in term 4, and dies: S5, with term 3, may still cut it off."""
    group = Replicas(5, {0: [1, 2], 1: [1, 2], 2: [1], 3: [1], 4: [1, 3]}, max_entries_bytes=1)
    group[0].disk.vote = VoteState(3)
    group[0].start()

    def old_only(message: object) -> bool:
        """Messages with the leader's own first entry are lost."""
        return not (isinstance(message, AppendRequest) and any(entry.term == 4 for entry in message.entries))

    leader = group[0]
    leader.stand()
    group.pass_on(among=(0, 1, 2, 3), only=old_only)
    assert leader.role is Role.LEADER
    for _ in range(4):
        leader.tick(2)
        group.pass_on(among=(0, 1, 2), only=old_only)
    assert group[2].log == [(1, 0), (2, 1)], "the old entry is on a majority"
    assert leader.core.state.commit == 0
    assert [effect for effect in leader.effects if isinstance(effect, Commit)] == []
    group.pass_on(among=(0, 1, 2))
    for _ in range(4):
        leader.tick(2)
        group.pass_on(among=(0, 1, 2))
    assert leader.core.state.commit == 3, "with the first entry of the own term, all before it"


# --- 6.4 Reads ---


def test_6_4_a_read_waits_for_the_word_of_a_majority() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.propose(4)
    group.pass_on()
    leader.do(leader.core.read(1))
    assert not any(isinstance(effect, ReadReady) for effect in leader.effects)
    group.pass_on()
    assert [effect for effect in leader.effects if isinstance(effect, ReadReady)] == [ReadReady(1, 5)]


def test_6_4_a_leader_that_was_replaced_answers_no_read() -> None:
    group = Replicas(3)
    old = group.elect(0)
    group[1].core.state.leader_id = group[2].core.state.leader_id = -1
    new = group.elect(1, among=(1, 2))
    assert (old.role, new.role) == (Role.LEADER, Role.LEADER)
    old.do(old.core.read(7))
    group.pass_on()
    old.tick(2)
    group.pass_on()
    (failed,) = [effect for effect in old.effects if isinstance(effect, ReadFailed)]
    assert isinstance(failed.error, NotLeaderError)
    assert failed.error.leader_id in (-1, 1)


def test_6_4_a_new_leader_reads_once_it_has_committed_something() -> None:
    group = Replicas(3)
    leader = group[0]
    leader.stand()
    group.pass_on(only=lambda message: not isinstance(message, AppendRequest))
    assert leader.role is Role.LEADER
    leader.do(leader.core.read(1))
    (failed,) = [effect for effect in leader.effects if isinstance(effect, ReadFailed)]
    assert isinstance(failed.error, LeaderNotReadyError)
    assert failed.error.retriable


# --- 9.6 Pre-vote, check-quorum ---


def test_9_6_a_replica_that_was_cut_off_does_not_raise_the_term() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    for _ in range(20):
        group[2].stand()
        group[2].tick(2 * ELECTION)
        group.pass_on(among=(0, 1))
        leader.tick(2)
        group.pass_on(among=(0, 1))
    assert group[2].core.state.term == 1
    leader.tick(2)
    group.pass_on()
    assert (leader.role, group[2].role) == (Role.LEADER, Role.FOLLOWER)


def test_9_6_a_leader_without_a_majority_steps_down() -> None:
    group = Replicas(5)
    leader = group.elect(0)
    for _ in range(3 * ELECTION):
        leader.tick()
        group.pass_on(among=(0, 1))
    assert leader.role is not Role.LEADER
    with pytest.raises(NotLeaderError):
        leader.propose()


def test_9_6_nobody_votes_while_it_hears_its_leader() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.tick(2)
    group.pass_on()
    group[1].receive(VoteRequest(2, 5, 9, 99))
    assert group[1].core.state.term == 1


# --- 3.10 Leadership transfer ---


def test_3_10_the_place_goes_to_a_follower_that_has_everything() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.propose(3)
    leader.do(leader.core.transfer(2))
    with pytest.raises(LeaderNotReadyError, match="gives its place"):
        leader.core.propose([(1, None)])
    group.pass_on()
    assert (leader.role, group[2].role) == (Role.FOLLOWER, Role.LEADER)
    assert group[2].core.state.term == 2


def test_3_10_a_transfer_that_does_not_come_to_it_ends() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.do(leader.core.transfer(2))
    for _ in range(2 * ELECTION):
        leader.tick()
        group.pass_on(among=(0, 1))
    assert leader.role is Role.LEADER
    leader.propose()
    with pytest.raises(LeaderNotReadyError):
        leader.core.transfer(9)


# --- 4 Membership changes ---


def test_4_1_a_new_replica_learns_before_it_votes() -> None:
    group = Replicas(4)
    for replica in group.all:
        replica.disk.base = replica.disk.base._replace(membership=members(0, 1, 2))
        replica.start()
    leader = group.elect(0, among=(0, 1, 2))
    with pytest.raises(MembershipChangeError, match="no learner"):
        leader.core.change_membership(members(0, 1, 2, 3))
    leader.do(leader.core.change_membership(members(0, 1, 2, learners=(3,)))[1])
    group.pass_on()
    assert group[3].disk.log == leader.disk.log
    assert leader.core.state.commit == leader.disk.end
    leader.do(leader.core.change_membership(members(0, 1, 2, 3))[1])
    group.pass_on()
    assert group[3].core.state.is_voter


def test_4_1_one_voter_at_a_time_and_one_change_at_a_time() -> None:
    group = Replicas(5)
    leader = group.elect(0)
    with pytest.raises(MembershipChangeError, match="one voter at a time"):
        leader.core.change_membership(members(0, 1, 2))
    with pytest.raises(InvalidMembershipError):
        leader.core.change_membership(members())
    with pytest.raises(InvalidMembershipError):
        leader.core.change_membership(members(0, 1, 2, 3, 4, learners=(4,)))
    leader.do(leader.core.change_membership(members(0, 1, 2, 3))[1])
    with pytest.raises(MembershipChangeError, match="not committed"):
        leader.core.change_membership(members(0, 1, 2))
    with pytest.raises(NotLeaderError):
        group[1].core.change_membership(members(0, 1))


def test_4_1_erratum_no_change_before_something_of_the_own_term_is_committed() -> None:
    group = Replicas(3)
    leader = group[0]
    leader.stand()
    group.pass_on(only=lambda message: not isinstance(message, AppendRequest))
    with pytest.raises(MembershipChangeError, match="nothing of its term"):
        leader.core.change_membership(members(0, 1))


def test_4_2_2_a_leader_that_is_removed_leads_until_that_is_committed() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.do(leader.core.change_membership(members(1, 2))[1])
    assert leader.role is Role.LEADER
    group.pass_on()
    assert leader.role is Role.FOLLOWER
    leader.tick(5 * ELECTION)
    assert leader.role is Role.FOLLOWER, "it is no voter any more"


# --- 7 Log compaction ---


def test_7_a_follower_behind_the_log_start_is_sent_a_snapshot() -> None:
    group = Replicas(3)
    leader = group.elect(0, among=(0, 1))
    for number in range(10):
        leader.propose(3, number)
        group.pass_on(among=(0, 1))
    leader.disk.drop_prefix(20)
    leader.do(leader.core.log_start_raised(leader.disk.base.end_offset))
    for _ in range(20):
        leader.tick(2)
        group.pass_on()
    assert any(isinstance(effect, InstallSnapshot) for effect in group[2].effects)
    assert group[2].disk.log == leader.disk.log
    assert group[2].core.state.commit == leader.core.state.commit
    assert group[2].core.state.trail.epochs == leader.core.state.trail.epochs
    other = group.elect(2, among=(1, 2))
    assert other.role is Role.LEADER


def test_7_a_snapshot_of_what_a_log_holds_takes_nothing_of_it() -> None:
    """Its entries behind the snapshot are counted for what an earlier leader has committed."""
    group = Replicas(3)
    leader = group.elect(0, among=(0, 1))
    leader.propose(10)
    group.pass_on(among=(0, 1))
    follower = group[1]
    end, commit = follower.disk.end, follower.core.state.commit
    assert commit < 9 < end
    follower.receive(SnapshotRequest(0, 1, Snapshot(9, ((1, 0),), members(0, 1, 2))))
    assert not any(isinstance(effect, InstallSnapshot) for effect in follower.effects)
    assert follower.disk.end == end
    assert follower.core.state.commit == 9


def test_7_an_old_snapshot_changes_nothing() -> None:
    group = Replicas(3)
    leader = group.elect(0)
    leader.propose(3)
    for _ in range(3):
        leader.tick(2)
        group.pass_on()
    before = len(group[1].effects)
    group[1].receive(SnapshotRequest(0, 1, Snapshot(2, ((1, 0),), members(0, 1, 2))))
    assert not any(isinstance(effect, InstallSnapshot | Append) for effect in group[1].effects[before:])
    (reply,) = [message for _, message in group[1].outbox]
    assert reply == AppendReply(1, 1, True, 4)
