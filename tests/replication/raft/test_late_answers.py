"""Answers that take longer than an election time, as on machines where many groups elect at once."""

from __future__ import annotations

from replication.raft.messages import AppendRequest, VoteReply, VoteRequest
from replication.raft.types import Role
from tests.replication.raft.replicas import ELECTION, Replica, Replicas


def led() -> tuple[Replicas, Replica]:
    group = Replicas(3)
    leader = group[0]
    leader.stand()
    group.pass_on(only=lambda message: not isinstance(message, AppendRequest))
    assert leader.role is Role.LEADER
    return group, leader


def words(replica: Replica) -> int:
    """To one peer; the outbox is empty then."""
    posted, replica.outbox = replica.outbox, []
    return sum(to == 1 and isinstance(one, AppendRequest) for to, one in posted)


def test_a_new_leader_has_time_for_its_first_answers() -> None:
    group, leader = led()
    leader.tick(3 * ELECTION)
    assert leader.role is Role.LEADER
    group.pass_on()
    leader.tick(ELECTION)
    assert leader.role is Role.LEADER, "a majority has answered meanwhile"
    leader.tick(ELECTION)
    assert leader.role is Role.FOLLOWER, "from then on it is to be heard of in each election time"


def test_a_new_leader_that_nobody_answers_gives_up() -> None:
    _, leader = led()
    leader.tick(4 * ELECTION)
    assert leader.role is Role.FOLLOWER


def test_a_peer_that_is_behind_with_what_it_was_sent_is_not_sent_still_more() -> None:
    group, leader = led()
    group.pass_on()
    leader.tick(2)
    assert words(leader) == 1, "it had answered"
    leader.tick(2 * ELECTION)
    assert words(leader) == 4, "twice in an election time, so that it does not stand"


def candidate() -> Replica:
    """Whose votes are on their way."""
    group = Replicas(3)
    one = group[0]
    one.stand()
    group.pass_on(only=lambda message: isinstance(message, VoteRequest | VoteReply) and message.pre)
    assert one.role is Role.CANDIDATE
    return one


def test_votes_count_that_come_once_the_next_election_is_prepared() -> None:
    """Each election came to nothing as the next one began, where votes took longer than an election time."""
    one = candidate()
    term = one.core.state.term
    while one.role is Role.CANDIDATE:
        one.tick()
    assert one.role is Role.PRE_CANDIDATE
    one.receive(VoteReply(1, term, True))
    assert (one.role, one.core.state.term) == (Role.LEADER, term)


def test_votes_count_after_a_refusal_to_hold_the_next_election() -> None:
    one = candidate()
    term = one.core.state.term
    while one.role is Role.CANDIDATE:
        one.tick()
    for other in (1, 2):
        one.receive(VoteReply(other, term, False, pre=True))
    assert one.role is Role.FOLLOWER
    one.receive(VoteReply(1, term, True))
    assert (one.role, one.core.state.term) == (Role.LEADER, term)


def test_votes_of_another_term_do_not_count() -> None:
    one = candidate()
    term = one.core.state.term
    one.receive(VoteRequest(2, term + 1, 5, 5, False, True))
    assert one.core.state.term == term + 1
    one.receive(VoteReply(1, term, True))
    assert one.role is Role.FOLLOWER


def test_votes_that_come_after_a_restart_do_not_count() -> None:
    """They were given to a log that may have lost its tail."""
    one = candidate()
    term = one.core.state.term
    one.start()
    assert one.core.state.term == term
    one.receive(VoteReply(1, term, True))
    one.receive(VoteReply(2, term, True))
    assert one.role is Role.FOLLOWER
