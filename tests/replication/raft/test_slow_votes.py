"""Elections where votes take longer to be durable than an election has."""

from __future__ import annotations

from replication.raft.effects import StoreVote
from replication.raft.messages import AppendRequest, VoteReply, VoteRequest
from replication.raft.types import Entry, Role, VoteState
from tests.replication.raft.replicas import ELECTION, Replica, Replicas


def votes_asked(replica: Replica) -> list[VoteState]:
    return [effect.state for effect in replica.effects if isinstance(effect, StoreVote)]


def test_a_candidate_waits_for_its_own_vote_however_long_the_disk_takes() -> None:
    group = Replicas(3)
    candidate = group[0]
    candidate.slow = True
    candidate.stand()
    group.pass_on()
    assert candidate.role is Role.CANDIDATE
    candidate.tick(50 * ELECTION)
    assert votes_asked(candidate) == [VoteState(1, 0)]
    candidate.sync()
    candidate.tick(ELECTION - 1)  # its election has its time from here on
    assert candidate.core.state.term == 1
    group.pass_on()
    assert candidate.role is Role.LEADER


def test_a_voter_stands_no_sooner_for_a_slow_disk() -> None:
    group = Replicas(3)
    voter = group[2]
    voter.slow = True
    voter.receive(VoteRequest(0, 1, -1, 0))
    voter.tick(50 * ELECTION)
    assert (voter.role, voter.outbox) == (Role.FOLLOWER, [])
    voter.sync()
    voter.tick(ELECTION - 1)
    assert voter.role is Role.FOLLOWER
    assert [message for _, message in voter.outbox] == [VoteReply(2, 1, True)]


def test_a_log_that_is_newer_than_the_vote_says_the_term() -> None:
    """It was written beside the vote, which a power loss took: there was none that anybody was told of."""
    group = Replicas(3)
    replica = group[2]
    replica.slow = True
    replica.receive(AppendRequest(0, 4, 0, -1, (Entry(0, 1, 4, data=(4, 0)),), 0, 0))
    assert replica.outbox == []
    replica.disk.sync(replica.disk.end)
    replica.start()
    replica.slow = False
    assert replica.core.state.vote == VoteState(4)
    replica.receive(VoteRequest(1, 3, 3, 9))
    assert [message for _, message in replica.outbox] == [VoteReply(2, 4, False)]
    replica.receive(VoteRequest(1, 4, 4, 1))
    assert replica.outbox[-1] == (1, VoteReply(2, 4, True))
    assert replica.disk.vote == VoteState(4, 1)
