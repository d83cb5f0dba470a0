"""Ticks while messages of other nodes wait to be delivered: nobody who may have spoken counts as silent."""

from __future__ import annotations

from replication.raft.types import Role
from tests.replication.raft.replicas import ELECTION, Replica, Replicas, led


def tick(replica: Replica, count: int, behind: set[int]) -> None:
    for _ in range(count):
        replica.do(replica.core.tick(frozenset(behind)))


def test_a_follower_waits_for_a_leader_it_is_behind_with() -> None:
    group, _ = led()
    follower = group[1]
    tick(follower, 10 * ELECTION, {0})
    assert follower.role is Role.FOLLOWER
    assert follower.core.state.leader_id == 0
    tick(follower, 2 * ELECTION, set())
    assert follower.role is Role.PRE_CANDIDATE, "it has caught up, and the leader was silent"


def test_a_follower_does_not_wait_for_others_than_its_leader() -> None:
    group, _ = led()
    follower = group[1]
    tick(follower, 2 * ELECTION, {2})
    assert follower.role is Role.PRE_CANDIDATE


def test_a_leader_stays_while_it_is_behind_with_a_majority() -> None:
    _, leader = led()
    tick(leader, 10 * ELECTION, {1})
    assert leader.role is Role.LEADER
    tick(leader, 2 * ELECTION, set())
    assert leader.role is Role.FOLLOWER


def test_an_election_waits_for_answers_it_is_behind_with() -> None:
    group = Replicas(3)
    candidate = group[0]
    candidate.stand()
    candidate.outbox.clear()
    crowded = candidate.core.state.deadline_tick - candidate.core.state.now
    tick(candidate, 10 * ELECTION, {2})
    assert candidate.core.state.deadline_tick - candidate.core.state.now == crowded
    assert candidate.outbox == [], "it asks for no votes anew"
    tick(candidate, 2 * ELECTION, set())
    assert candidate.outbox != []
