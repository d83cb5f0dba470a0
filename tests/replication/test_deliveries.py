"""``Deliveries``: when a node counts as behind with another one's messages."""

from __future__ import annotations

import pytest

from replication.deliveries import Deliveries
from replication.raft.types import Role
from replication.transport import GroupMessage
from tests.replication.nodes import TICK_S, Nodes

NOBODY: frozenset[int] = frozenset()


def test_a_delivery_over_a_whole_tick_is_behind() -> None:
    deliveries = Deliveries(10)
    assert deliveries.look(1.0) == NOBODY
    deliveries.begin(2, 1.05)
    assert deliveries.look(1.1) == NOBODY, "half of the time since the last look"
    assert deliveries.look(1.2) == {2}
    deliveries.end(2, 1.29)
    assert deliveries.look(1.3) == {2}, "nine tenths of it"
    assert deliveries.look(1.4) == NOBODY


def test_many_short_deliveries_are_behind_if_nothing_lies_between_them() -> None:
    deliveries = Deliveries(10)
    deliveries.look(0.0)
    for number in range(100):
        deliveries.begin(2, number / 1000)
        deliveries.end(2, (number + 0.95) / 1000)
        deliveries.begin(3, number / 1000)
        deliveries.end(3, (number + 0.5) / 1000)
    assert deliveries.look(0.1) == {2}


def test_two_streams_of_one_node_count_once() -> None:
    deliveries = Deliveries(10)
    deliveries.look(0.0)
    deliveries.begin(2, 0.0)
    deliveries.begin(2, 0.1)
    deliveries.end(2, 0.5)
    deliveries.end(2, 0.6)
    assert deliveries.look(1.0) == NOBODY
    deliveries.begin(2, 1.0)
    deliveries.begin(2, 1.1)
    deliveries.end(2, 1.2)
    assert deliveries.look(2.0) == {2}


def test_a_node_is_waited_for_only_so_long() -> None:
    deliveries = Deliveries(3)
    deliveries.look(0.0)
    deliveries.begin(2, 0.0)
    assert [deliveries.look(number) for number in (1.0, 2.0, 3.0, 4.0, 5.0)] == [
        {2},
        {2},
        {2},
        NOBODY,
        NOBODY,
    ]
    deliveries.end(2, 5.1)
    assert deliveries.look(6.0) == NOBODY
    deliveries.begin(2, 6.0)
    assert deliveries.look(7.0) == {2}, "it has caught up in between"


def test_two_looks_at_one_time_say_nothing() -> None:
    deliveries = Deliveries(3)
    deliveries.begin(2, 0.0)
    deliveries.look(1.0)
    assert deliveries.look(1.0) == NOBODY


@pytest.mark.parametrize("rested", [False, True])
def test_a_follower_whose_deliveries_wait_for_its_disk_keeps_its_leader(
    rested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ticks go on while the thread that delivers is held up: the leader's next words wait behind that."""
    nodes = Nodes()
    nodes.committed(b"a")
    if rested:
        nodes.run(lambda: all(node.replica.resting for node in nodes.living))
    leader = nodes.leader()
    follower = next(node for node in nodes.living if node is not leader)
    receive, term = follower.replica.receive, follower.replica.term
    roles: set[tuple[Role, int]] = set()

    def held_up(message: GroupMessage) -> None:
        for _ in range(60):
            nodes.now_s += TICK_S
            follower.node.tick()
            state = follower.replica.core.state
            roles.add((state.role, state.leader_id))
        receive(message)

    with monkeypatch.context() as patched:
        patched.setattr(follower.replica, "receive", held_up)
        append = nodes.append(leader, b"b")
        nodes.network.step()
    assert roles == {(Role.FOLLOWER, leader.node_id)}
    nodes.run(lambda: append.done)
    assert (append.error, follower.replica.term) == (None, term)
