"""Answers that take longer than an election time, as on machines where many groups elect at once."""

from __future__ import annotations

from replication.raft.messages import AppendRequest
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
