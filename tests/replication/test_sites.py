"""Whole sites go: what stays available and what can be lost, with three and four replicas over two and three sites."""

from __future__ import annotations

import pytest

from replication.raft.types import Membership
from tests.replication.nodes import ClusterNode, Nodes, values_of

# (sites by their nodes, the sites that are left, whether writes go on there)
LAYOUTS = [
    ([[1, 2], [3]], [0], True),
    ([[1, 2], [3]], [1], False),
    ([[1, 2], [3, 4]], [0], False),
    ([[1, 2], [3, 4]], [1], False),
    ([[1], [2], [3]], [0, 1], True),
    ([[1], [2], [3]], [2], False),
    ([[1, 2], [3], [4]], [0, 1], True),
    ([[1, 2], [3], [4]], [1, 2], False),
]


def begun(sites: list[list[int]], first: int) -> tuple[Nodes, list[bytes]]:
    """Records that are committed, the last of them while the nodes of the other sites are as late as they may be; the
    leader is in the site ``first``."""
    nodes = Nodes(sum(map(len, sites)))
    values = [b"%d" % number for number in range(5)]
    for value in values:
        nodes.committed(value)
    nodes.agree()
    leader = nodes.leader()
    wanted = sites[first][0]
    if leader.node_id != wanted:
        leader.replica.transfer(wanted)
        nodes.run(lambda: nodes[wanted].replica.is_leader)
    majority = len(nodes.nodes) // 2 + 1
    near = [*sites[first], *(node for site in sites for node in site if node not in sites[first])]
    for late in near[majority:]:
        for node in nodes.nodes:
            nodes.network.cut(node, late)
    last = nodes.append(nodes[wanted], b"last")
    nodes.run(lambda: last.done)
    assert last.error is None
    return nodes, [*values, b"last"]


def lose_sites(nodes: Nodes, sites: list[list[int]], left: list[int]) -> list[ClusterNode]:
    """The nodes that are left, with the network whole between them."""
    for number, site in enumerate(sites):
        if number not in left:
            for node in site:
                nodes[node].kill()
    nodes.network.heal()
    return [nodes[node] for number in left for node in sites[number]]


@pytest.mark.parametrize(("sites", "left", "goes_on"), LAYOUTS)
def test_what_goes_on_without_a_site(sites: list[list[int]], left: list[int], goes_on: bool) -> None:
    nodes, values = begun(sites, left[0])
    lose_sites(nodes, sites, left)
    if goes_on:
        nodes.committed(b"more")
        assert values_of(nodes.agree()) == [*values, b"more"]
        return
    for _ in range(200):
        nodes.tick()
    assert not nodes.leaders()
    for node in nodes.nodes.values():  # it waits for the sites, and nothing is lost
        if not node.alive:
            node.start()
    assert values_of(nodes.agree()) == values


@pytest.mark.parametrize(
    ("sites", "left", "loses"),
    [
        ([[1, 2], [3]], [1], True),
        ([[1, 2], [3, 4]], [1], False),
        ([[1, 2], [3], [4]], [1, 2], False),
    ],
)
def test_what_an_unclean_recovery_loses(sites: list[list[int]], left: list[int], loses: bool) -> None:
    lost = next(number for number in range(len(sites)) if number not in left)
    nodes, values = begun(sites, lost)
    rest = lose_sites(nodes, sites, left)
    chosen = max(rest, key=lambda node: node.files.log.log_end_offset)
    for node in rest:
        node.stop()
    chosen.files.members.reset(0, Membership(frozenset({chosen.node_id})))
    chosen.start()
    nodes.run(lambda: chosen.replica.is_leader)
    nodes.run(lambda: chosen.replica.is_all_committed)
    assert values_of(chosen.values()) == (values[:-1] if loses else values)
