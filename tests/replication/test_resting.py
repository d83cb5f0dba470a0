"""Groups to which nothing happens rest, and wake up for everything that matters."""

from __future__ import annotations

from tests.replication.nodes import ClusterNode, Nodes, values_of


def resting(nodes: Nodes) -> bool:
    return all(node.replica.resting for node in nodes.living)


def at_rest() -> tuple[Nodes, ClusterNode]:
    nodes = Nodes()
    nodes.committed(b"a")
    nodes.run(lambda: resting(nodes))
    return nodes, nodes.leaders()[0]


def test_all_rest_and_stay_so() -> None:
    nodes, leader = at_rest()
    term, now = leader.replica.term, leader.replica.core.state.now
    for _ in range(200):
        nodes.tick()
    assert resting(nodes)
    assert (leader.replica.term, leader.replica.core.state.now) == (term, now)
    assert leader.node.resting == 1


def test_an_empty_log_rests_too() -> None:
    nodes = Nodes()
    nodes.run(lambda: resting(nodes))


def test_an_append_wakes_all() -> None:
    nodes, leader = at_rest()
    append = nodes.append(leader, b"b")
    nodes.run(lambda: append.done)
    assert not leader.replica.resting
    assert values_of(nodes.agree()) == [b"a", b"b"]
    nodes.run(lambda: resting(nodes))


def test_the_end_of_the_leaders_node_is_noticed() -> None:
    nodes, leader = at_rest()
    leader.kill()
    nodes.run(lambda: any(node is not leader for node in nodes.leaders()), most=60)
    nodes.committed(b"b")
    leader.start()
    assert values_of(nodes.agree()) == [b"a", b"b"]


def test_a_leader_that_comes_back_at_once_is_noticed() -> None:
    nodes, leader = at_rest()
    leader.kill()
    leader.start()
    nodes.run(nodes.leaders, most=60)
    nodes.committed(b"b")


def test_a_follower_that_comes_back_hears_of_the_leader() -> None:
    nodes, leader = at_rest()
    follower = next(node for node in nodes.living if node is not leader)
    follower.kill()
    follower.start()
    nodes.run(lambda: follower.replica.leader_id == leader.node_id, most=60)
    assert nodes.leader() is leader


def test_a_leader_that_is_cut_off_steps_down() -> None:
    nodes, leader = at_rest()
    for node in nodes.living:
        nodes.network.cut(leader.node_id, node.node_id)
    nodes.run(lambda: not leader.replica.is_leader, most=100)
    nodes.run(nodes.leaders, most=100)


def test_a_leader_does_not_rest_again_on_what_it_heard_before() -> None:
    nodes, leader = at_rest()
    for node in nodes.living:
        nodes.network.cut(leader.node_id, node.node_id)
    nodes.run(lambda: not leader.replica.resting)
    for _ in range(5):
        nodes.tick()
        assert not leader.replica.resting
    assert set(leader.replica.in_sync.nodes(leader.replica.core.state)) == {
        1,
        2,
        3,
    }  # they had kept up until now


def test_a_node_that_stood_still_does_not_take_the_others_for_silent() -> None:
    nodes, leader = at_rest()
    nodes.now_s += 10.0  # as where its process was stopped: no tick came, and what others said waits
    for node in nodes.living:
        node.node.tick()
    assert resting(nodes)
    for node in nodes.living:
        nodes.network.cut(leader.node_id, node.node_id)
    nodes.run(lambda: any(not node.replica.resting for node in nodes.living), most=60)


def test_a_lost_word_of_rest_only_delays_it() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    leader = nodes.leader()
    other = next(node for node in nodes.living if node is not leader)
    nodes.run(lambda: resting(nodes))
    append = nodes.append(leader, b"b")
    nodes.run(lambda: append.done and leader.replica.core.may_rest())
    nodes.network.cut(leader.node_id, other.node_id, both_ways=False)
    nodes.run(lambda: leader.replica.resting)
    assert not other.replica.resting
    nodes.network.heal()
    nodes.run(lambda: resting(nodes))
    assert nodes.leaders() == [leader]


def test_a_log_start_that_moves_is_told() -> None:
    nodes, leader = at_rest()
    assert leader.partition.delete_records(1) == 1
    nodes.run(lambda: all(node.files.log.log_start_offset == 1 for node in nodes.living))
