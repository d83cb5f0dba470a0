"""What leaders say of their partitions, gathered: lags, who is in sync, brokers that are silent, and two that lead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import InvalidRecordError
from replication.cluster_status import (
    PartitionStatus,
    ReplicaStatus,
    StatusGatherer,
    decode_status,
    encode_status,
    led_here,
    newest,
)
from replication.transport import GroupId
from tests.replication.nodes import GROUP, Nodes

numbers = st.integers(-1, 2**63 - 1)
nodes_ = st.integers(-1, 2**31 - 1)
statuses = st.builds(
    PartitionStatus,
    st.builds(GroupId, st.text(max_size=22), nodes_),
    nodes_,
    nodes_,
    numbers,
    st.lists(
        st.builds(ReplicaStatus, nodes_, numbers, numbers, st.booleans(), st.booleans()), max_size=4
    ).map(tuple),
)


@given(st.lists(statuses, max_size=4))
def test_what_comes_back_is_what_was_said(said: list[PartitionStatus]) -> None:
    assert decode_status(encode_status(said)) == said


@pytest.mark.parametrize(
    "data", [b"", b"{}x", b"[1]", b"[[1,2]]", b'[["a",1,1,1,[]]]', b"\xff", b"[[[1],1,1,1,[]]]"]
)
def test_what_was_not_said_has_a_name(data: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        decode_status(data)


def test_a_leader_knows_who_lags_and_others_say_nothing() -> None:
    nodes = Nodes(3)
    nodes.committed(b"a", b"b")
    nodes.agree()
    leader = nodes.leader()
    (status,) = led_here(leader.node)
    assert (status.group, status.leader, status.term) == (GROUP, leader.node_id, leader.replica.term)
    assert [one.node_id for one in status.replicas] == [1, 2, 3]
    assert {one.lag for one in status.replicas} == {0}
    assert all(one.in_sync and not one.learner for one in status.replicas)
    others = [node for node in nodes.living if node is not leader]
    assert [led_here(node.node) for node in others] == [[], []]
    others[0].kill()
    nodes.committed(b"c")
    nodes.run(lambda: not led_here(leader.node)[0].replicas[others[0].node_id - 1].in_sync)
    behind = led_here(leader.node)[0].replicas[others[0].node_id - 1]
    assert behind.lag >= 1
    assert led_here(leader.node)[0].high_watermark == leader.files.log.high_watermark


def test_all_brokers_are_asked_and_the_silent_are_named() -> None:
    nodes = Nodes(3)
    nodes.committed(b"a")
    gatherers = {
        node.node_id: StatusGatherer(node.node, nodes.network.lines[node.node_id]) for node in nodes.living
    }
    leader = nodes.leader()
    for gatherer in gatherers.values():
        status = gatherer.gather([1, 2, 3], 1.0)
        assert status.silent == ()
        assert status.partitions[GROUP].leader == leader.node_id
    leader.kill()
    asked = next(node for node in nodes.living)
    status = gatherers[asked.node_id].gather([1, 2, 3], 1.0)
    assert status.silent == (leader.node_id,)


def test_of_two_that_believe_to_lead_the_newer_term_counts() -> None:
    old, new = (PartitionStatus(GROUP, leader, term, 5, ()) for leader, term in ((1, 3), (2, 4)))
    assert newest([old, new]) == newest([new, old]) == {GROUP: new}
