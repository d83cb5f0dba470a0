"""Whole nodes: brokers that are added to a running cluster, and removed from it, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from logstore.errors import LogStoreError
from replication.cluster.controller import ControllerSettings
from replication.errors import (
    BrokerExistsError,
    BrokerInUseError,
    BrokerUnreachableError,
    ClusterMismatchError,
    LastMajorityError,
    UnknownBrokerError,
    UnknownPeerError,
)
from replication.transport import METADATA_GROUP
from tests.beside import Beside
from tests.replication.cluster_nodes import Cluster, add, cluster, listens, starting, until

SOON = ControllerSettings(look_s=0.1, busy_s=0.05)


def voters(three: Cluster) -> frozenset[int]:
    replica = three.controller.node.replica(METADATA_GROUP)
    assert replica is not None
    return replica.membership.voters


def test_a_node_joins_a_running_cluster_of_whose_peers_it_is_none(tmp_path: Path) -> None:
    with cluster(tmp_path, controller=SOON) as three:
        three.create_topic("t", partitions=3)
        add(three, 4)
        until(lambda: voters(three) == {1, 2, 3, 4})
        assert three.nodes[4].cluster_id == three.nodes[1].cluster_id
        assert "t" in three.nodes[4].engine.topics()
        for node in three.nodes.values():
            until(lambda node=node: [one.node_id for one in node.brokers()] == [1, 2, 3, 4])
        three.controller.administration.reassign({("t", 0): (4, 1, 2)})
        until(lambda: three.nodes[1].replicas_of("t", 0) == (4, 1, 2))
        add(three, 5)  # it asks nodes of the beginning alone, and hears of node 4
        until(lambda: voters(three) == {1, 2, 3, 4, 5})
        three.stop(1)
        three.stop(2)
        three.create_topic("u", partitions=1)
        three.start(1)
        three.start(2)
        until(lambda: all("u" in node.engine.topics() for node in three.nodes.values()))


def test_a_removed_node_is_no_peer_and_may_be_added_again(tmp_path: Path) -> None:
    with cluster(tmp_path, controller=SOON) as three:
        add(three, 4)
        until(lambda: voters(three) == {1, 2, 3, 4})
        leaving = three.controller.node_id
        administration = three.controller.administration
        administration.drain(leaving)
        administration.remove(leaving)
        until(lambda: leaving not in {one for node in three.nodes.values() for one in _members(node)})
        three.stop(leaving)
        until(lambda: voters(three) == {1, 2, 3, 4} - {leaving})
        for number in three.nodes:
            line = three.network.lines[number]
            until(lambda line=line: leaving not in (line.known or {}))
        with pytest.raises(UnknownBrokerError):
            three.controller.administration.remove(leaving)
        with starting(three, leaving):
            with pytest.raises(UnknownPeerError):
                three.network.lines[leaving].call(three.controller.node_id, "metadata.revision", b"{}", 1.0)
            assert leaving not in {one.node_id for one in three.controller.brokers()}
            three.controller.administration.add(leaving, "", leaving)
        until(lambda: voters(three) == {1, 2, 3, 4})


def _members(node: object) -> frozenset[int]:
    replica = node.node.replica(METADATA_GROUP)  # type: ignore[attr-defined]
    return frozenset() if replica is None else replica.membership.voters | replica.membership.learners


def test_misuse_is_refused_by_name(tmp_path: Path) -> None:
    other = Cluster(tmp_path / "other", 1)
    other.voters = frozenset({4})
    try:
        other.start()
        other_id = other.nodes[4].cluster_id
    finally:
        other.close()
    with cluster(tmp_path, controller=SOON) as three:
        administration = three.controller.administration
        three.create_topic("t")
        with pytest.raises(BrokerExistsError, match="has a broker 2"):
            administration.add(2, "", 4)
        with pytest.raises(BrokerExistsError, match="broker 3 listens"):
            administration.add(4, "", 3)
        with pytest.raises(BrokerUnreachableError, match="no broker answers"):
            administration.add(4, "", 4)
        with pytest.raises(BrokerInUseError):
            administration.remove(1)
        assert other_id != three.nodes[1].cluster_id
        (tmp_path / "other" / "4").rename(tmp_path / "4")
        stranger = three.make(4)
        with Beside(lambda: _start(stranger), stop=stranger.close):
            until(lambda: 4 in three.network.lines and listens(three, 4))
            with pytest.raises(UnknownPeerError, match="as node 5"):
                administration.add(5, "", 4)
            with pytest.raises(ClusterMismatchError, match="is of cluster"):
                administration.add(4, "", 4)


def _start(node: object) -> None:
    with suppress(LogStoreError):  # it is closed while it waits
        node.start()  # type: ignore[attr-defined]


def test_the_last_majority_stays(tmp_path: Path) -> None:
    with cluster(tmp_path, controller=SOON) as three:
        away = next(number for number in three.nodes if number != three.controller.node_id)
        three.stop(away)
        until(lambda: away not in three.controller._candidates().alive)
        other = next(number for number in three.nodes if number != three.controller.node_id)
        with pytest.raises(LastMajorityError, match="no majority"):
            three.controller.administration.remove(other)
        three.controller.administration.remove(away)
        until(lambda: away not in voters(three))
    with cluster(tmp_path / "one", 1, controller=SOON) as one, pytest.raises(LastMajorityError):
        one.controller.administration.remove(1)
