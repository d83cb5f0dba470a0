"""Readers in racks: the leader names an in-sync replica of theirs, which shows what it knows to be committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.api.records import FetchRequest, FetchResult
from logstore.format.batch import decode_batches
from logstore.log.replica_log import ReplicaLog
from replication.cluster_node import ClusterNode
from replication.errors import NotLeaderError
from replication.transport import METADATA_GROUP
from tests.replication.cluster_nodes import Cluster, cluster, until

ROWS = [(b"k", b"v%d" % number) for number in range(10)]


def fetch(node: ClusterNode, rack: str, offset: int = 0, epoch: int = -1) -> FetchResult:
    request = FetchRequest("t", 0, offset, epoch, 1 << 20, rack=rack)
    ((found,), _) = node.engine.collect([request], "read_committed", 1, 1 << 20)
    return found


def in_racks(three: Cluster) -> tuple[ClusterNode, ClusterNode]:
    """A topic with records, each node in a rack of its own name: its leader, and a follower that has all of it."""
    for node in three.nodes.values():
        node.engine.parts.rack_of = str
    three.create_topic("t")
    leader = three.leader("t")
    leader.store.partition("t", 0).append(ROWS)
    follower = next(node for node in three.nodes.values() if node is not leader)
    end = leader.store.partition("t", 0).high_watermark
    until(lambda: log_of(follower).high_watermark == end)
    return leader, follower


def log_of(node: ClusterNode) -> ReplicaLog:
    (replica,) = (one for one in node.node.replicas() if one.group != METADATA_GROUP and "t-0" in one.where)
    return replica.log


def test_the_leader_names_the_follower_in_the_readers_rack(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        leader, follower = in_racks(three)
        until(lambda: fetch(leader, str(follower.node_id)).preferred_replica == follower.node_id)
        named = fetch(leader, str(follower.node_id))
        assert (named.batches, named.error, named.next_offset) == (b"", None, 0)
        for rack in ("", "elsewhere", str(leader.node_id)):
            found = fetch(leader, rack)
            assert found.preferred_replica < 0
            assert [one.value for one in decode_batches(found.batches, "t", 0)] == [row[1] for row in ROWS]
        beyond = leader.store.partition("t", 0).log_end_offset + 5
        assert fetch(leader, str(follower.node_id), beyond).preferred_replica < 0, (
            "it lacks what comes before"
        )


def test_a_follower_shows_what_is_committed_and_refuses_others(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        leader, follower = in_racks(three)
        found = fetch(follower, str(follower.node_id))
        assert [one.value for one in decode_batches(found.batches, "t", 0)] == [row[1] for row in ROWS]
        assert found.high_watermark == leader.store.partition("t", 0).high_watermark
        assert isinstance(fetch(follower, "").error, NotLeaderError)
        end = found.next_offset
        at_end = fetch(follower, str(follower.node_id), end)
        assert (at_end.error, at_end.batches, at_end.next_offset) == (None, b"", end)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_what_a_follower_cannot_tell_is_the_leaders(tmp_path: Path, epoch: int) -> None:
    """A position that it has not come to is out of range for it alone."""
    with cluster(tmp_path) as three:
        _, follower = in_racks(three)
        found = fetch(follower, str(follower.node_id), 1000, epoch)
        assert isinstance(found.error, NotLeaderError)


def test_a_follower_that_hears_of_no_leader_is_not_read(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        _, follower = in_racks(three)
        for node in [node for node in three.nodes if node != follower.node_id]:
            three.stop(node)
        until(lambda: isinstance(fetch(follower, str(follower.node_id)).error, NotLeaderError))
