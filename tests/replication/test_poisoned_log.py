"""A log that its disk failed to make durable: the node opens it anew, and its leader fills it, without a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logstore.api.records import ProduceItem
from logstore.format.batch import encode_batch
from logstore.seams.faults import FaultKind
from replication.cluster_node import ClusterNode
from replication.replicas.replica import Replica
from replication.transport import METADATA_GROUP, GroupId
from tests.replication.cluster_nodes import Cluster, until
from tests.replication.test_full_disk import on_small_disks, produced


def _group(node: ClusterNode) -> GroupId:
    return GroupId(node.store.topic("t").topic_id, 0)


def _replica(node: ClusterNode) -> Replica | None:
    return node.node.replica(_group(node))


def _poisoned(replica: Callable[[], Replica | None]) -> bool:
    found = replica()
    return found is not None and found.log.poisoned and found.failure is not None


def _agree(three: Cluster) -> bool:
    """All take part, and show the same, all of it."""
    ends: set[int] = set()
    for node in three.nodes.values():
        replica = _replica(node)
        if replica is None or replica.failure is not None:
            return False
        ends |= {replica.log.log_end_offset, replica.log.flushed_offset, replica.log.high_watermark}
    return len(ends) == 1


def _written(three: Cluster, count: int) -> None:
    """Acknowledged by whoever leads by then."""
    for _ in range(count):
        until(lambda: produced(three.leader("t"), 100) is None)


@pytest.mark.parametrize("leads", [False, True])
def test_a_replica_whose_sync_failed_comes_back_without_a_restart(leads: bool) -> None:
    with on_small_disks() as (three, disks):
        three.create_topic("t")
        _written(three, 3)
        leader = three.leader("t")
        hit = next(node for node in three.nodes.values() if (node is leader) is leads)
        before = _replica(hit)
        assert before is not None
        disks[hit.node_id].faults.on(
            "sync", FaultKind.FAILED_SYNC, path_ends=f"t-0/{0:020d}.log", forever=True
        )
        # The append is the first that its disk fails, on the way of a batch of a producer that is told in the end.
        batch = encode_batch([(None, b"told or not")], now_ms=1_700_000_000_000)
        leader.engine.produce([ProduceItem("t", 0, batch)], "all", 5.0)
        until(lambda: _poisoned(lambda: _replica(hit)) or _replica(hit) is not before)
        _written(three, 3)  # by the others
        disks[hit.node_id].faults.clear()
        until(lambda: _agree(three))
        assert three.nodes[hit.node_id] is hit
        assert _replica(hit) is not before
        _written(three, 3)
        until(lambda: _agree(three))


@pytest.mark.slow
def test_the_log_of_the_metadata_comes_back_too() -> None:
    with on_small_disks() as (three, disks):
        controller = three.controller
        hit = next(node for node in three.nodes.values() if node is not controller)

        def metadata() -> Replica | None:
            return hit.node.replica(METADATA_GROUP)

        before = metadata()
        disks[hit.node_id].faults.on(
            "sync", FaultKind.FAILED_SYNC, path_ends=f"__cluster_metadata-0/{0:020d}.log", forever=True
        )
        controller.store.create_topic("one")
        until(lambda: _poisoned(metadata) or metadata() is not before)
        three.create_topic("two")
        disks[hit.node_id].faults.clear()
        until(lambda: {"one", "two"} <= set(hit.engine.topics()))
        until(lambda: metadata() not in (None, before))
        three.create_topic("three")
        until(lambda: "three" in hit.engine.topics())
