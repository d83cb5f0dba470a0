"""A peer that answers nothing is sent heartbeats alone: entries would be lost, and others lack what they cost."""

from __future__ import annotations

from replication.raft.messages import AppendRequest
from tests.replication.raft.replicas import ELECTION, Replica, Replicas, led


def taken_for(replica: Replica, node: int) -> list[AppendRequest]:
    """Out of the outbox; what goes to others stays."""
    found = [one for to, one in replica.outbox if to == node and isinstance(one, AppendRequest)]
    replica.outbox[:] = [(to, one) for to, one in replica.outbox if to != node]
    return found


def tick(group: Replicas, leader: Replica, times: int) -> list[AppendRequest]:
    """Time goes on at the leader; node 2 hears nothing of what it is sent, which is returned."""
    lost: list[AppendRequest] = []
    for _ in range(times):
        leader.tick()
        lost += taken_for(leader, 2)
        group.pass_on()
    return lost


def test_a_silent_peer_is_sent_no_entries_until_it_answers() -> None:
    group, leader = led()
    leader.propose()
    tick(group, leader, 2 * ELECTION)
    for _ in range(5):
        leader.propose()
        lost = tick(group, leader, ELECTION)
        assert lost, "it is asked whether it is there"
        assert all(not one.entries for one in lost)
    leader.tick(2)
    group.pass_on()
    assert group[2].disk.end == leader.disk.end, "it has answered, and has all at once"


def test_what_is_lost_on_its_way_to_a_peer_that_answers_is_sent_again() -> None:
    group, leader = led()
    leader.propose()
    assert any(one.entries for one in taken_for(leader, 2))
    for _ in range(2 * ELECTION):
        leader.tick()
        group.pass_on()
    assert group[2].disk.end == leader.disk.end
